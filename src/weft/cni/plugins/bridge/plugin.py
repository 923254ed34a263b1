"""bridge: a veth pair between a container and a bridge of the host (cni.md §3).

ADD succeeds whole or leaves nothing of the attachment; the bridge, its addresses and forwarding are the node's and
stay. DEL answers once the attachment can carry nothing, and the links are deleted later (settled.md §2). CHECK looks at
all that ADD makes, upstream's at links, addresses and routes alone.
"""

from contextlib import ExitStack
from functools import partial
from ipaddress import ip_interface
from typing import Final

from weft.cni.attachment import attach, compare, detach, interface, pod, spoofcheck, veth
from weft.cni.attachment import check as attachcheck
from weft.cni.attachment.compare import Wrong
from weft.cni.attachment.conf import parse_mac
from weft.cni.attachment.interface import Step, set_quietly
from weft.cni.host import programs
from weft.cni.host.host import Container
from weft.cni.plugins.bridge import conf as bridgeconf
from weft.cni.plugins.bridge import link as bridgelink
from weft.cni.plugins.bridge.conf import BridgeConf
from weft.cni.plugins.hostlocal import conf as ipamconf
from weft.cni.plugins.hostlocal import plugin as hostlocal
from weft.cni.sdk import delegate
from weft.cni.sdk.startup import Call, Plugin, about
from weft.kernel.rtnetlink.link import announcing, set_link, without_link_local
from weft.kernel.rtnetlink.neigh import learn_fdb
from weft.model.attachment import Dns, Interface, Result
from weft.model.kernel.marks import ALIAS
from weft.model.kernel.reported import LinkInfo
from weft.model.net import Mac
from weft.model.value import replace
from weft.wire import cni, cniresult
from weft.wire.cni import CniError

NAME: Final = "bridge"


def _check(call: Call) -> None:
    conf = bridgeconf.parse(call.config, call.args)
    if conf.ipam_type:
        delegate.ask(call, conf.ipam_type, "CHECK")
    result = call.previous()
    rtnl = call.host.rtnl
    bridge = compare.check_bridge(result, conf.bridge, rtnl.link(conf.bridge), promisc=conf.promisc)
    link = attachcheck.container_side(call, result, up=not conf.container_down)
    missing = f"CNI veth created for bridge {conf.bridge} was not found"
    end = compare.check_host_end(result, veth.peer_of(rtnl, link), missing)
    compare.check_port(end, bridge, hairpin=conf.hairpin, isolated=conf.isolated)
    if conf.vlan or conf.trunk:
        _check_vlans(call, conf, bridge, end)
    if conf.is_gateway:
        _check_gateways(call, conf, result)
    if conf.ip_masq and conf.ipam_type:
        attachcheck.masquerade(call, conf.masq_kind, result)
    if conf.spoof_check and not spoofcheck.is_there(call.attachment):
        raise Wrong("spoof-check rules not found", f"nothing keeps {end.name} from sending with any MAC")


def _check_vlans(call: Call, conf: BridgeConf, bridge: LinkInfo, end: LinkInfo) -> None:
    if bridge.bridge is None or not bridge.bridge.vlan_filtering:
        raise Wrong(f"Bridge interface {bridge.name} has VLAN filtering off", "its VLANs separate nothing")
    own, tagged = bridgelink.vlans_of_port(conf.vlan, conf.trunk)
    compare.check_vlans(end, bridgelink.port_vlans(call)[end.index], own=own, tagged=tagged)


def _check_gateways(call: Call, conf: BridgeConf, result: Result) -> None:
    name = bridgelink.gateway_name(conf)
    link = call.host.rtnl.link(name)
    have = interface.addresses_on(call.host.rtnl, link.index) if link is not None else ()
    for gateway in pod.gateway_addresses(result):
        if gateway not in have:
            there = ", ".join(map(str, have)) or "none"
            raise Wrong(f"Gateway address {gateway} not found on {name}", f"the addresses of {name}: {there}")
        if not attach.is_forwarding(call, gateway.version):
            raise Wrong(f"IPv{gateway.version} forwarding is off", "the host does not route for its pods")


def _status(call: Call) -> None:
    conf = bridgeconf.parse(call.config, "")
    if conf.ipam_type:
        delegate.ask(call, conf.ipam_type, "STATUS")
    bridge = call.host.rtnl.link(conf.bridge)
    if bridge is not None:
        if bridge.kind != "bridge":
            raise CniError(cni.UNAVAILABLE, bridgelink.not_a_bridge(conf.bridge).msg)
        if conf.is_gateway and not conf.vlan and conf.ipam_type == hostlocal.NAME:
            _check_room(call, conf, bridge)
    attachcheck.tools_work(masq_kind=conf.masq_kind, masquerade=conf.ip_masq, spoof_check=conf.spoof_check)


def _check_room(call: Call, conf: BridgeConf, bridge: LinkInfo) -> None:
    have = interface.addresses_on(call.host.rtnl, bridge.index)
    for ranges in ipamconf.parse_sets(call.config, call.version):
        if ranges[1:]:
            continue
        gateway = ip_interface((ranges[0].gateway, ranges[0].subnet.prefixlen))
        try:
            pod.ensure_address(gateway, have, link=conf.bridge, force=conf.force_address)
        except pod.Unfit as error:
            raise CniError(cni.UNAVAILABLE, str(error), bridgelink.in_the_way(call, bridge, have)) from error


def _add(call: Call) -> bytes:
    conf = bridgeconf.parse(call.config, call.args)
    mac = parse_mac(conf.mac, "failed to make veth pair")
    delegate.read_addresses(call, conf.ipam_type)
    masq_kind = programs.choose(conf.masq_kind) if conf.ip_masq and conf.ipam_type else ""
    container = call.container()
    bridge = bridgelink.ensure(call, conf)
    with ExitStack() as undo:
        pair = attach.make_links(
            call,
            undo,
            container,
            mtu=conf.mtu,
            mac=mac,
            masq_kind=masq_kind,
            ipam_type=conf.ipam_type,
            spoof_check=conf.spoof_check,
        )
        bridgelink.make_port(call, conf, bridge, host_end=pair.link.link, name=pair.name)
        if conf.spoof_check:
            attach.on_failure(undo, call, lambda: spoofcheck.remove([call.attachment]))
            spoofcheck.add(call.attachment, pair.name, str(pair.link.mac))
        result = Result()
        if conf.ipam_type:
            result = pod.with_gateways(
                attach.allocate(call, undo, pair, conf.ipam_type),
                is_gateway=conf.is_gateway,
                is_default=conf.is_default_gateway,
            )
        attach.wait_for_policies(call, undo, pair, result, conf.bridge)
        link = replace(pair.link, mac=_own_mac(call, conf, bridge, result) or pair.link.mac)
        result = replace(
            result,
            interfaces=(Interface(name=conf.bridge), Interface(name=pair.name), veth.container_interface(call, link)),
            dns=conf.dns if conf.dns != Dns() else result.dns,
        )
        end = _bring_up(call, conf, container, bridge=bridge, link=link, result=result)
        if conf.is_gateway and result.ips:
            vlan_end = bridgelink.serve_as_gateway(call, conf, bridge, pod.gateway_addresses(result))
            if vlan_end is not None:
                own = Interface(name=vlan_end.name, mac=str(vlan_end.mac or ""))
                result = replace(result, interfaces=(*result.interfaces, own))
        if masq_kind:
            attach.masquerade(call, undo, pair, result)
        output = cniresult.render(_with_macs(call, result, bridge, end), call.version)
        undo.pop_all()
    return output


def _bring_up(
    call: Call, conf: BridgeConf, container: Container, *, bridge: LinkInfo, link: LinkInfo, result: Result
) -> LinkInfo | None:
    rtnl = call.host.rtnl
    if not result.ips:
        if conf.container_down:
            return rtnl.link(link.link)
        container.rtnl.set_link(link.index, up=True)
        return interface.wait_until_up(rtnl, link.link)
    first = [Step(f'failed to set the MAC of "{link.name}"', set_link(link.index, mac=link.mac))]
    # Last, not first: what is announced before the port forwards is lost (`_announce`).
    last = [Step(f'failed to have "{link.name}" announced', announcing(link.index))]
    silent = conf.is_gateway and not any(ip.address.version == 6 for ip in result.ips)
    if silent:
        first.append(Step("", without_link_local(link.index)))
    if conf.detect_duplicates:
        with interface.hastened_dad(container, link.name):
            settle = partial(interface.wait_for_dad, container.rtnl, link)
            interface.configure(call, container, link, result, first=first, settle=settle, after_routes=last)
    else:
        if not silent:
            set_quietly(container.sysctls, f"net/ipv6/conf/{link.name}/accept_dad", "0")
        interface.configure(call, container, link, result, first=first, after_routes=last)
    end = interface.wait_until_up(rtnl, link.link)
    _announce(call, container, bridge, link, result)
    return end


def _own_mac(call: Call, conf: BridgeConf, bridge: LinkInfo, result: Result) -> Mac | None:
    """Return the MAC that its address gives the container if both are ours to give, and no other link has it."""
    if conf.mac or conf.spoof_check or not conf.is_gateway or conf.ipam_type != hostlocal.NAME:
        return None
    mac = pod.mac_of(result)
    # Somebody may have asked for this MAC, or have the address on this bridge by another network's ranges.
    return mac if mac is None or call.host.rtnl.fdb_entry(bridge.index, mac) is None else None


def _announce(call: Call, container: Container, bridge: LinkInfo, link: LinkInfo, result: Result) -> None:
    """Announce the container's MAC to neighbours with a stale or missing entry, by as few frames as will do (0016).

    Only now that the port forwards. What the kernel announces when the link comes up may be lost: an address that is
    used again would not be reached until the others forget, up to a minute later. (With STP a port forwards much later;
    then this is lost too.)
    """
    has_v6 = any(ip.address.version == 6 for ip in result.ips)
    if has_v6:
        set_quietly(container.sysctls, f"net/ipv6/conf/{link.name}/ndisc_notify", "1")
    remembered = (call.host.rtnl.neighbour(bridge.index, ip.address.ip) for ip in result.ips)
    if (
        link.mac is not None
        and link.mac == pod.mac_of(result)
        and not has_v6
        and all(one is None or one.mac in (None, link.mac) for one in remembered)
    ):
        # It has said nothing, so the bridge would copy to all ports what is for it. Refused: then it does just that.
        call.host.rtnl.batch([learn_fdb(link.link, link.mac)])
        return
    # The kernel announces when the MAC is set (NETDEV_CHANGEADDR), be it the same.
    container.rtnl.set_link(link.index, mac=link.mac)


def _with_macs(call: Call, result: Result, seen: LinkInfo, end: LinkInfo | None) -> Result:
    """Name the MACs as they are at the end: a udev rule may have changed them, but never those of our own bridge."""
    bridge = seen if seen.alias.startswith(ALIAS) else call.host.rtnl.link(seen.index)
    first, second, *others = result.interfaces
    if end is not None:
        second = replace(second, name=end.name, mac=str(end.mac or ""))
    return replace(
        result, interfaces=(replace(first, mac=str((bridge.mac if bridge else None) or "")), second, *others)
    )


PLUGIN: Final = Plugin(
    name=NAME,
    add=_add,
    delete=partial(detach.delete, read=bridgeconf.parse_for_delete),
    check=_check,
    gc=partial(detach.collect, read=bridgeconf.parse_for_delete),
    status=_status,
    about=about(NAME),
    keeps=detach.LINKS,
)
