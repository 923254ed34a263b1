"""The node's bridge and its ports: what stays when attachments go (cni.md §3.2, §3.5)."""

import errno
from collections.abc import Iterable

from weft.cni.attachment import forwarding, interface, pod
from weft.cni.attachment.interface import Step, reason, set_quietly
from weft.cni.plugins.bridge import vlan
from weft.cni.plugins.bridge.conf import BridgeConf
from weft.cni.sdk import record
from weft.cni.sdk.startup import Call
from weft.kernel.rtnetlink.link import set_link, set_port, without_link_local
from weft.kernel.rtnetlink.netlink import NetlinkError
from weft.model.attachment import Cidr
from weft.model.kernel.marks import ALIAS, BRIDGE_ALIAS, POD_ALIAS
from weft.model.kernel.reported import LinkInfo
from weft.model.net import Mac
from weft.wire.cni import CniError, failure


def ensure(call: Call, conf: BridgeConf) -> LinkInfo:
    """Return the bridge, up. Two ADDs may come to make it at the same time: the second one finds it."""
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
    """Return the error about a link that has the bridge's name."""
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
            raise failure(f'failed to create bridge "{conf.bridge}": {refused}', vlan.NO_FILTERING) from error
        present = call.host.rtnl.link(conf.bridge) if error.errno == errno.EEXIST else None
        if present is None:
            raise failure(f'failed to create bridge "{conf.bridge}": {reason(error)}') from error
        return present
    interface.keep_addresses(call.host.sysctls, conf.bridge)
    return bridge


def attach(call: Call, conf: BridgeConf, bridge: LinkInfo, *, host_end: int, name: str) -> None:
    """Make the host's end of an attachment a port of the bridge, as the configuration wants it."""
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
        vlan.set_port(call, host_end, name, own=conf.vlan, trunk=conf.trunk, keep_default=conf.keep_default_vlan)


def serve_as_gateway(call: Call, conf: BridgeConf, bridge: LinkInfo, gateways: tuple[Cidr, ...]) -> LinkInfo | None:
    """Give the pods their gateways and turn forwarding on.

    The addresses are the bridge's own, or with a VLAN those of an interface in it, which is returned.
    """
    vlan_end = vlan.ensure_gateway(call, conf, bridge) if conf.vlan else None
    if vlan_end is not None:
        failed = "failed to set vlan interface for bridge with addr"
        _ensure_addresses(call, conf, bridge, vlan_end, wanted=gateways, failed=failed)
    else:
        _ensure_addresses(call, conf, bridge, bridge, wanted=gateways, failed="failed to set bridge addr")
        if not bridge.alias.startswith(ALIAS):
            _pin_mac(call, bridge.index)
    forwarding.turn_on(call, (gateway.version for gateway in gateways))
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
    """Say why a bridge has other addresses, and what to do about it, by the networks whose pods are on it."""
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
    try:
        interface.add_address(call.host.rtnl, link.index, gateway)
    except NetlinkError as error:
        if error.errno == errno.EEXIST:
            return  # another ADD was quicker
        if error.errno == errno.EACCES and gateway.version == 6:
            disabled = f"BRIDGE-002: net.ipv6.conf.{link.name}.disable_ipv6 keeps IPv6 off on this host"
            raise failure(f"{failed}: {gateway}: {reason(error)}", disabled) from error
        raise


def _pin_mac(call: Call, index: int) -> None:
    """Fix the MAC of a bridge that somebody else made: written back, it no longer follows the ports."""
    bridge = call.host.rtnl.link(index)
    if bridge is None:
        raise failure("the bridge went away")
    # All zero means "not set" (no port yet): never to be written back.
    mac = bridge.mac if bridge.mac is not None and any(bridge.mac) else Mac.local(call.host.random(6))
    call.host.rtnl.set_link(index, mac=mac)
