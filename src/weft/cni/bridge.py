"""bridge: a veth pair between a container and a bridge of the host (cni.md §3).

ADD succeeds whole or leaves nothing of the attachment; the bridge, its addresses and forwarding are the node's and
stay. DEL answers once the attachment can carry nothing, and the links are deleted later (decisions.md §2).
"""

import errno
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Final

from weft.cni import delegate, interface, masq, record
from weft.cni.host import RETIRED, ClientGone, Container
from weft.cni.interface import reason, set_quietly
from weft.cni.record import Record
from weft.cni.skel import Call, Plugin, about
from weft.desired import pod
from weft.kernel.link import set_link, set_port
from weft.kernel.netlink import NetlinkError
from weft.model.attachment import BridgeConf, Cidr, Interface, Result
from weft.model.net import Mac
from weft.model.objects import ALIAS
from weft.model.snapshot import LinkInfo
from weft.wire import bridgeconf, cniresult
from weft.wire.cni import CniError, failure

NAME: Final = "bridge"

_ALIAS: Final = f"{ALIAS}bridge"
_NAME_ATTEMPTS: Final = 10
_FORWARDING: Final = {4: "net/ipv4/ip_forward", 6: "net/ipv6/conf/all/forwarding"}


def _add(call: Call) -> bytes:
    conf = bridgeconf.parse(call.config, call.args)
    mac = _mac(conf.mac)
    masq_kind = masq.choose(conf.masq_kind) if conf.ip_masq and conf.ipam_type else ""
    container = call.host.container
    if container is None:
        raise failure(f'failed to open netns "{call.netns}": {call.host.netns_problem}')
    bridge = _ensure_bridge(call, conf)
    with ExitStack() as undo:
        link, name = _make_veth(call, container, conf, mac)
        _on_failure(undo, call, lambda: interface.disable(call, link, link.link))
        known = Record(veth=name, index=link.link, masq=masq_kind)
        _on_failure(undo, call, lambda: record.remove(call))
        record.write(call, known)
        _attach(call, conf, bridge, host_end=link.link, name=name)
        result = Result()
        if conf.ipam_type:
            result = delegate.add_addresses(call, conf.ipam_type)
            _on_failure(undo, call, lambda: delegate.delete_addresses(call, conf.ipam_type))
            # Undone in reverse order: the link must be useless before its address is free for others.
            _on_failure(undo, call, lambda: interface.disable(call, link, link.link))
            if not result.ips:
                raise failure("IPAM plugin returned missing IP config")
            result = pod.with_gateways(result, conf)
        result = replace(
            result,
            interfaces=(Interface(name=conf.bridge), Interface(name=name), _container_interface(call, link)),
            dns=conf.dns if conf.dns.is_set else result.dns,
        )
        _bring_up(call, container, link, result)
        if conf.is_gateway and result.ips:
            _serve_as_gateway(call, conf, bridge, pod.gateway_addresses(result))
        if masq_kind:
            addresses = tuple(ip.address for ip in result.ips)
            _on_failure(undo, call, lambda: masq.remove(call, masq_kind, addresses))
            record.write(call, replace(known, addresses=addresses))
            masq.add(call, masq_kind, addresses)
        host_end = interface.wait_until_up(call.host.rtnl, link.link)
        output = cniresult.render(_with_macs(call, result, bridge, host_end), call.version)
        undo.pop_all()
    return output


def _on_failure(undo: ExitStack, call: Call, action: Callable[[], None]) -> None:
    """Undo a step if a later one fails; a failure of that must not hide what went wrong, so it is only noted."""

    def quietly() -> None:
        try:
            action()
        except (CniError, OSError, ClientGone) as error:
            call.note(f"bridge: while undoing: {error}")

    undo.callback(quietly)


def _mac(text: str) -> Mac | None:
    if not text:
        return None
    try:
        return Mac.parse(text)
    except ValueError as error:
        raise failure(f"failed to make veth pair: address {text}: invalid MAC address") from error


def _ensure_bridge(call: Call, conf: BridgeConf) -> LinkInfo:
    """Return the bridge, up. Two ADDs may come to make it at the same time: the second one finds it."""
    rtnl = call.host.rtnl
    bridge = rtnl.link(conf.bridge)
    if bridge is None:
        # A MAC given at birth stays; else a bridge takes the lowest of its ports', which come and go.
        mac = Mac.local(call.host.random(6))
        try:
            bridge = rtnl.add_bridge(conf.bridge, mtu=conf.mtu, mac=mac, alias=_ALIAS)
        except NetlinkError as error:
            bridge = rtnl.link(conf.bridge) if error.errno == errno.EEXIST else None
            if bridge is None:
                raise failure(f'failed to create bridge "{conf.bridge}": {reason(error)}') from error
    if bridge.kind != "bridge":
        wrong = f'"{conf.bridge}" already exists but is not a bridge'
        raise failure(f'failed to create bridge "{conf.bridge}": {wrong}')
    set_quietly(call.host.sysctls, f"net/ipv6/conf/{conf.bridge}/accept_ra", "0")
    if not bridge.up or conf.promisc:
        rtnl.set_link(bridge.index, up=True, promisc=True if conf.promisc else None)
    return bridge


def _make_veth(call: Call, container: Container, conf: BridgeConf, mac: Mac | None) -> tuple[LinkInfo, str]:
    """Make the pair from the container's side; return that end, whose `link` is the host's, and the host's name."""
    name = ""
    for _ in range(_NAME_ATTEMPTS):
        name = f"veth{call.host.random(4).hex()}"
        try:
            made = container.rtnl.add_veth(
                call.ifname, peer=name, peer_netns_fd=call.host.netns_fd, mtu=conf.mtu, mac=mac
            )
        except NetlinkError as error:
            if error.errno != errno.EEXIST:
                _unmake_veth(call, name)
                raise failure(f"failed to make veth pair: {reason(error)}") from error
            if container.rtnl.link(call.ifname) is not None:
                taken = f'container veth name ("{call.ifname}") peer provided ("{name}") already exists'
                raise failure(taken) from error
        else:
            return made, name
    raise failure(f"failed to make veth pair: no free name after {_NAME_ATTEMPTS} attempts, the last was {name}")


def _unmake_veth(call: Call, name: str) -> None:
    """Delete a pair that was made although we were not told so. Nobody else can have this random name."""
    with suppress(NetlinkError):
        made = call.host.rtnl.link(name)
        if made is not None:
            call.host.rtnl.delete_link(made.index)


def _attach(call: Call, conf: BridgeConf, bridge: LinkInfo, *, host_end: int, name: str) -> None:
    set_quietly(call.host.sysctls, f"net/ipv6/conf/{name}/accept_ra", "0")
    messages = [set_link(host_end, up=True, master=bridge.index, alias=record.alias_of(call.attachment))]
    if conf.hairpin:
        messages.append(set_port(host_end, hairpin=True, isolated=None))
    for error in call.host.rtnl.batch(messages).values():
        raise failure(f'failed to connect "{name}" to bridge {conf.bridge}: {reason(error)}') from error


def _container_interface(call: Call, link: LinkInfo) -> Interface:
    return Interface(name=call.ifname, mac=str(link.mac or ""), sandbox=call.netns)


def _bring_up(call: Call, container: Container, link: LinkInfo, result: Result) -> None:
    if not result.ips:
        container.rtnl.set_link(link.index, up=True)
        return
    set_quietly(container.sysctls, f"net/ipv6/conf/{link.name}/accept_dad", "0")
    # The kernel announces the addresses when the link comes up (gratuitous ARP).
    set_quietly(container.sysctls, f"net/ipv4/conf/{link.name}/arp_notify", "1")
    interface.configure(call, container, link, result)


def _serve_as_gateway(call: Call, conf: BridgeConf, bridge: LinkInfo, gateways: tuple[Cidr, ...]) -> None:
    """Give the bridge its addresses (§3.5) and turn forwarding on."""
    rtnl = call.host.rtnl
    have = interface.addresses_on(rtnl, bridge.index)
    for gateway in gateways:
        try:
            change = pod.ensure_address(gateway, have, link=conf.bridge, force=conf.force_address)
            for address in change.remove:
                rtnl.delete_address(bridge.index, address.ip, address.network.prefixlen)
            if change.add:
                _add_gateway(call, conf.bridge, bridge.index, gateway)
        except pod.Unfit as error:
            hint = "BRIDGE-001: the node's subnet has changed while the bridge lived; see `forceAddress`"
            raise failure(f"failed to set bridge addr: {error}", hint) from error
        except NetlinkError as error:
            raise failure(f"failed to set bridge addr: {gateway} on {conf.bridge}: {reason(error)}") from error
    if not bridge.alias.startswith(ALIAS):
        _pin_mac(call, bridge.index)
    for family in sorted({gateway.version for gateway in gateways}):
        setting = _FORWARDING[family]
        if call.host.sysctls.read(setting) != "1":
            call.host.sysctls.write(setting, "1")


def _add_gateway(call: Call, bridge: str, index: int, gateway: Cidr) -> None:
    try:
        interface.add_address(call.host.rtnl, index, gateway)
    except NetlinkError as error:
        if error.errno == errno.EEXIST:
            return  # another ADD was quicker
        if error.errno == errno.EACCES and gateway.version == 6:
            disabled = f"BRIDGE-002: net.ipv6.conf.{bridge}.disable_ipv6 keeps IPv6 off on this host"
            raise failure(f"failed to set bridge addr: {gateway}: {reason(error)}", disabled) from error
        raise


def _pin_mac(call: Call, index: int) -> None:
    """Fix the MAC of a bridge that somebody else made: written back, it no longer follows the ports."""
    bridge = call.host.rtnl.link(index)
    if bridge is None:
        raise failure("the bridge went away")
    # All zero means "not set" (no port yet): never to be written back.
    mac = bridge.mac if bridge.mac is not None and any(bridge.mac) else Mac.local(call.host.random(6))
    call.host.rtnl.set_link(index, mac=mac)


def _with_macs(call: Call, result: Result, seen: LinkInfo, host_end: LinkInfo) -> Result:
    """Name the MACs as they are at the end: a udev rule may have changed them meanwhile, but never our bridge's."""
    bridge = seen if seen.alias.startswith(ALIAS) else call.host.rtnl.link(host_end.master)
    first, second, *others = result.interfaces
    return replace(
        result,
        interfaces=(
            replace(first, mac=str((bridge.mac if bridge else None) or "")),
            replace(second, name=host_end.name, mac=str(host_end.mac or "")),
            *others,
        ),
    )


def _delete(call: Call) -> None:
    conf = bridgeconf.parse_for_delete(call.config)
    if call.host.netns_problem and not call.host.netns_gone:
        raise failure(f'failed to open netns "{call.netns}": {call.host.netns_problem}')
    known = record.read(call)
    container = call.host.container
    link = container.rtnl.link(call.ifname) if container is not None else None
    masquerades = conf.ip_masq and bool(conf.ipam_type)
    addresses = _addresses(call, link, known) if masquerades else ()
    interface.disable(call, link, _host_end(call, link, known))
    if masquerades:
        _remove_masquerade(call, known.masq if known else "", addresses)
    if conf.ipam_type:
        delegate.delete_addresses(call, conf.ipam_type)
    record.remove(call)


def _remove_masquerade(call: Call, kind: str, addresses: tuple[Cidr, ...]) -> None:
    if kind:
        masq.remove(call, kind, addresses)
        return
    for other in bridgeconf.MASQ_KINDS:
        try:
            masq.remove(call, other, addresses)
        except CniError as error:
            call.note(f"bridge: no {other} rules looked at: {error}")  # a kind that does not work here has none


def _addresses(call: Call, link: LinkInfo | None, known: Record | None) -> tuple[Cidr, ...]:
    """Return the attachment's addresses from whoever still knows them: the link, our record, the runtime."""
    if link is not None and call.host.container is not None:
        seen = interface.addresses_on(call.host.container.rtnl, link.index)
        return tuple(address for address in seen if not address.ip.is_link_local)
    if known is not None and known.addresses:
        return known.addresses
    try:
        previous = cniresult.read_previous(call.config, call.version)
    except CniError as error:
        call.note(str(error))
        return ()
    return tuple(ip.address for ip in previous.ips) if previous else ()


def _host_end(call: Call, link: LinkInfo | None, known: Record | None) -> int:
    """Return the index of the host's end, 0 if it cannot be found or is not provably this attachment's."""
    rtnl = call.host.rtnl
    if link is not None and link.kind == "veth":
        peer = rtnl.link(link.link)
        if peer is not None and peer.kind == "veth" and peer.link == link.index and peer.peer_netns != -1:
            return peer.index
    elif link is None and known is not None:
        peer = rtnl.link(known.index)
        if peer is not None and peer.name == known.veth and peer.alias in (record.alias_of(call.attachment), RETIRED):
            return peer.index
    return 0


PLUGIN: Final = Plugin(name=NAME, add=_add, delete=_delete, about=about(NAME))
