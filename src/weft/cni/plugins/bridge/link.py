"""The node's bridge, its ports and its VLANs: what stays when attachments go (cni.md §3.2, §3.5)."""

import errno
from collections.abc import Iterable
from typing import Final

from weft.cni.attachment import attach, interface, pod, veth
from weft.cni.attachment.interface import Step, reason, set_quietly
from weft.cni.plugins.bridge.conf import BridgeConf
from weft.cni.sdk import record
from weft.cni.sdk.startup import Call
from weft.kernel.rtnetlink.bridgeport import (
    add_own_vlan,
    add_tagged_vlans,
    delete_vlans,
    list_vlans,
    parse_vlans,
    set_port,
)
from weft.kernel.rtnetlink.link import set_link, without_link_local
from weft.kernel.rtnetlink.netlink import NetlinkError
from weft.model.attachment import Cidr
from weft.model.kernel.marks import ALIAS, BRIDGE_ALIAS, GATEWAY_ALIAS, POD_ALIAS
from weft.model.kernel.reported import LinkInfo, PortVlans
from weft.model.net import Mac
from weft.wire.cni import CniError, failure

NO_FILTERING: Final = "BRIDGE-004: this kernel's bridges know no VLANs (CONFIG_BRIDGE_VLAN_FILTERING)"

# What a trunk's untagged frames belong to.
_DEFAULT_VLAN: Final = 1


def set_port_vlans(call: Call, index: int, name: str, *, own: int, trunk: tuple[int, ...], keep_default: bool) -> None:
    untagged, tagged = vlans_of_port(own, trunk)
    messages = [] if keep_default else [delete_vlans(index)]
    messages.append(add_own_vlan(index, untagged))
    if tagged:
        messages.append(add_tagged_vlans(index, tagged))
    for error in call.host.rtnl.batch(messages).values():
        hint = NO_FILTERING if error.errno == errno.EOPNOTSUPP else ""
        raise failure(f'failed to setup vlan on interface "{name}": {reason(error).lower()}', hint) from error


def vlans_of_port(own: int, trunk: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
    untagged = own or _DEFAULT_VLAN
    return untagged, tuple(vlan for vlan in trunk if vlan != untagged)


def gateway_name(conf: BridgeConf) -> str:
    return f"{conf.bridge}.{conf.vlan}" if conf.vlan else conf.bridge


def port_vlans(call: Call) -> dict[int, PortVlans]:
    found = (parse_vlans(body) for body in call.host.rtnl.dump(*list_vlans()))
    return {port.index: port for port in found}


def ensure_vlan_gateway(call: Call, conf: BridgeConf, bridge: LinkInfo) -> LinkInfo:
    """It is the node's and stays. What an ADD that was killed left half made is completed."""
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
            set_port_vlans(call, port.index, port.name, own=conf.vlan, trunk=(), keep_default=conf.keep_default_vlan)
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


def ensure(call: Call, conf: BridgeConf) -> LinkInfo:
    bridge = call.host.rtnl.link(conf.bridge) or _make(call, conf)
    if bridge.kind != "bridge":
        raise not_a_bridge(conf.bridge)
    if conf.vlan_filtering and bridge.bridge is not None and not bridge.bridge.vlan_filtering:
        call.note(f"bridge: {conf.bridge} was made without VLAN filtering, so its VLANs separate nothing")
    # Each time, for somebody may have set it back: then a pod could give this host routes (CVE-2020-10749).
    set_quietly(call.host.sysctls, f"net/ipv6/conf/{conf.bridge}/accept_ra", "0")
    if not bridge.up or conf.promisc:
        call.host.rtnl.set_link(bridge.index, up=True, promisc=True if conf.promisc else None)
    return bridge


def not_a_bridge(name: str) -> CniError:
    return failure(f'failed to create bridge "{name}": "{name}" already exists but is not a bridge')


def _make(call: Call, conf: BridgeConf) -> LinkInfo:
    # A MAC given at birth stays; else a bridge takes the lowest of its ports', which come and go.
    mac = Mac.local(call.host.random(6))
    try:
        bridge = call.host.rtnl.add_bridge(
            conf.bridge,
            mtu=conf.mtu,
            mac=mac,
            vlan_filtering=conf.vlan_filtering,
            # Without a querier the kernel floods all the same, but for each new port restarts all ports' timers.
            mcast_snooping=not conf.is_gateway,
            alias=BRIDGE_ALIAS,
        )
    except NetlinkError as error:
        if error.errno == errno.EOPNOTSUPP and conf.vlan_filtering:
            refused = f'could not add "{conf.bridge}": {reason(error).lower()}'
            raise failure(f'failed to create bridge "{conf.bridge}": {refused}', NO_FILTERING) from error
        present = call.host.rtnl.link(conf.bridge) if error.errno == errno.EEXIST else None
        if present is None:
            raise failure(f'failed to create bridge "{conf.bridge}": {reason(error)}') from error
        return present
    interface.keep_addresses(call.host.sysctls, conf.bridge)
    return bridge


def make_port(call: Call, conf: BridgeConf, bridge: LinkInfo, *, host_end: int, name: str) -> None:
    set_quietly(call.host.sysctls, f"net/ipv6/conf/{name}/accept_ra", "0")
    refused = f'failed to connect "{name}" to bridge {conf.bridge}'
    steps = [
        Step("", without_link_local(host_end)),  # a port has no use for an address of its own
        Step(refused, set_link(host_end, up=True, master=bridge.index, alias=record.alias_of(call.attachment))),
    ]
    if conf.hairpin or conf.isolated:
        steps.append(Step(refused, set_port(host_end, hairpin=conf.hairpin or None, isolated=conf.isolated or None)))
    interface.take(call.host.rtnl, steps)
    if conf.vlan or conf.trunk:
        set_port_vlans(call, host_end, name, own=conf.vlan, trunk=conf.trunk, keep_default=conf.keep_default_vlan)


def serve_as_gateway(call: Call, conf: BridgeConf, bridge: LinkInfo, gateways: tuple[Cidr, ...]) -> LinkInfo | None:
    """Returns the interface that has the addresses, if that is one in a VLAN."""
    vlan_end = ensure_vlan_gateway(call, conf, bridge) if conf.vlan else None
    if vlan_end is not None:
        failed = "failed to set vlan interface for bridge with addr"
        _ensure_addresses(call, conf, bridge, vlan_end, wanted=gateways, failed=failed)
    else:
        _ensure_addresses(call, conf, bridge, bridge, wanted=gateways, failed="failed to set bridge addr")
        if not bridge.alias.startswith(ALIAS):
            _pin_mac(call, bridge.index)
    attach.turn_on_forwarding(call, (gateway.version for gateway in gateways))
    return vlan_end


def _ensure_addresses(
    call: Call, conf: BridgeConf, bridge: LinkInfo, link: LinkInfo, *, wanted: tuple[Cidr, ...], failed: str
) -> None:
    rtnl = call.host.rtnl
    families = {gateway.version for gateway in wanted}
    have = interface.addresses_on(rtnl, link.index, family=families.pop() if len(families) == 1 else 0)
    for gateway in wanted:
        try:
            change = pod.ensure_address(gateway, have, link=link.name, force=conf.force_address)
            for address in change.remove:
                rtnl.delete_address(link.index, address.ip, address.network.prefixlen)
            if change.add:
                _add_gateway(call, link, gateway, failed)
        except pod.Unfit as error:
            raise failure(f"{failed}: {error}", in_the_way(call, bridge, have)) from error
        except NetlinkError as error:
            raise failure(f"{failed}: {gateway} on {link.name}: {reason(error)}") from error


def in_the_way(call: Call, bridge: LinkInfo, have: Iterable[Cidr]) -> str:
    on_it = (link.alias for link in call.host.rtnl.links() if link.master == bridge.index)
    keys = (alias.removeprefix(POD_ALIAS) for alias in on_it if alias.startswith(POD_ALIAS))
    found = (record.of_key(call.host, record.LINKS, key) for key in keys)
    networks = {attachment.network for attachment in found if attachment not in (None, call.attachment)}
    addresses = ", ".join(str(address) for address in have if not address.ip.is_link_local)
    has = f"BRIDGE-001: {bridge.name} has {addresses}"
    apart = f'give network "{call.network}" a bridge of its own by the key "bridge", with flannel in its "delegate"'
    if others := sorted(networks - {call.network}):
        return f"{has} and pods of network {', '.join(others)}: {apart}"
    if networks:
        return f"{has}: the node's subnet has changed while the bridge lived; see `forceAddress`"
    return f"{has}, and no pod that weft has attached: if another network uses it, {apart}; else delete it"


def _add_gateway(call: Call, link: LinkInfo, gateway: Cidr, failed: str) -> None:
    for error in call.host.rtnl.batch([interface.address_message(link.index, gateway)]).values():
        if error.errno == errno.EEXIST:
            return  # another ADD was quicker
        if error.errno == errno.EACCES and gateway.version == 6:
            disabled = f"BRIDGE-002: net.ipv6.conf.{link.name}.disable_ipv6 keeps IPv6 off on this host"
            raise failure(f"{failed}: {gateway}: {reason(error)}", disabled) from error
        raise error


def _pin_mac(call: Call, index: int) -> None:
    """Written back, the MAC of a bridge that somebody else made no longer follows the ports."""
    bridge = call.host.rtnl.link(index)
    if bridge is None:
        raise failure("the bridge went away")
    # All zero means "not set" (no port yet): never to be written back.
    mac = bridge.mac if bridge.mac is not None and any(bridge.mac) else Mac.local(call.host.random(6))
    call.host.rtnl.set_link(index, mac=mac)
