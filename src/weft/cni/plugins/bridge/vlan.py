"""VLANs of a bridge: those of an attachment's port, and the host's own interface in one (cni.md §3.2 step 6, §3.5)."""

import errno
from typing import Final

from weft.cni.attachment import interface, veth
from weft.cni.attachment.interface import reason
from weft.cni.plugins.bridge.conf import BridgeConf
from weft.cni.sdk.startup import Call
from weft.kernel.rtnetlink import bridgevlan
from weft.kernel.rtnetlink.link import set_link
from weft.kernel.rtnetlink.netlink import NetlinkError
from weft.model.kernel.marks import GATEWAY_ALIAS
from weft.model.kernel.reported import LinkInfo, PortVlans
from weft.wire.cni import failure

NO_FILTERING: Final = "BRIDGE-004: this kernel's bridges know no VLANs (CONFIG_BRIDGE_VLAN_FILTERING)"

# What a trunk's untagged frames belong to.
_DEFAULT_VLAN: Final = 1


def set_port(call: Call, index: int, name: str, *, own: int, trunk: tuple[int, ...], keep_default: bool) -> None:
    """Give a port its VLANs: `own` (0: the default one) for untagged frames, `trunk` tagged."""
    untagged, tagged = of_port(own, trunk)
    messages = [] if keep_default else [bridgevlan.delete_vlans(index)]
    messages.append(bridgevlan.add_own_vlan(index, untagged))
    if tagged:
        messages.append(bridgevlan.add_tagged_vlans(index, tagged))
    for error in call.host.rtnl.batch(messages).values():
        hint = NO_FILTERING if error.errno == errno.EOPNOTSUPP else ""
        raise failure(f'failed to setup vlan on interface "{name}": {reason(error).lower()}', hint) from error


def of_port(own: int, trunk: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
    """Return the VLAN of a port's untagged frames, and those that it carries tagged."""
    untagged = own or _DEFAULT_VLAN
    return untagged, tuple(vlan for vlan in trunk if vlan != untagged)


def gateway_name(conf: BridgeConf) -> str:
    """Return the interface of the host that has the gateways' addresses."""
    return f"{conf.bridge}.{conf.vlan}" if conf.vlan else conf.bridge


def ports(call: Call) -> dict[int, PortVlans]:
    """Return the VLANs of all ports and bridges by index."""
    found = (bridgevlan.parse_vlans(body) for body in call.host.rtnl.dump(*bridgevlan.list_vlans()))
    return {port.index: port for port in found}


def ensure_gateway(call: Call, conf: BridgeConf, bridge: LinkInfo) -> LinkInfo:
    """Return the host's interface `<bridge>.<vlan>` in the VLAN, up: a veth whose other end is a port of the bridge.

    It is the node's, like the bridge, and stays. What an ADD that was killed left half made is completed.
    """
    name = gateway_name(conf)
    made = call.host.rtnl.link(name)
    try:
        if made is None:
            made = _make_pair(call, name, bridge)
        port = call.host.rtnl.link(made.link)
        if port is not None and port.link == made.index and not port.master:
            messages = [set_link(port.index, up=True, master=bridge.index), set_link(made.index, up=True)]
            for error in call.host.rtnl.batch(messages).values():
                raise error
            set_port(call, port.index, port.name, own=conf.vlan, trunk=(), keep_default=conf.keep_default_vlan)
    except NetlinkError as error:
        raise failure(f'failed to create vlan gateway "{name}": {reason(error).lower()}') from error
    return made


def _make_pair(call: Call, name: str, bridge: LinkInfo) -> LinkInfo:
    try:
        made = call.host.rtnl.add_veth(
            name, peer=veth.new_name(call), mtu=bridge.mtu, alias=GATEWAY_ALIAS, peer_alias=GATEWAY_ALIAS
        )
    except NetlinkError as error:
        present = call.host.rtnl.link(name) if error.errno == errno.EEXIST else None
        if present is None:
            raise
        return present  # another ADD was quicker
    interface.keep_addresses(call.host.sysctls, name)
    return made
