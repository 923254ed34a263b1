"""bridge: a veth pair between a container and a bridge of the host (cni.md §3).

ADD succeeds whole or leaves nothing of the attachment; the bridge, its addresses and forwarding are the node's and
stay. DEL answers once the attachment can carry nothing, and the links are deleted later (settled.md §2).
"""

from contextlib import ExitStack
from functools import partial
from typing import Final

from weft.cni.attachment import attach, dad, detach, interface, pod, spoofcheck, veth
from weft.cni.attachment.interface import Step, set_quietly
from weft.cni.host import programs
from weft.cni.plugins.bridge import check as bridgecheck
from weft.cni.plugins.bridge import conf as bridgeconf
from weft.cni.plugins.bridge import link as bridgelink
from weft.cni.plugins.bridge.conf import BridgeConf, Kept
from weft.cni.plugins.hostlocal import verbs as hostlocal
from weft.cni.sdk import delegate
from weft.cni.sdk.host import Container
from weft.cni.sdk.startup import Call, Plugin, about
from weft.kernel.rtnetlink.link import announcing, set_link, without_link_local
from weft.kernel.rtnetlink.neigh import learn_fdb
from weft.model.attachment import Dns, Interface, Result
from weft.model.kernel.marks import ALIAS
from weft.model.kernel.reported import LinkInfo
from weft.model.net import Mac
from weft.model.value import replace
from weft.wire import cniresult

NAME: Final = "bridge"


def _add(call: Call) -> bytes:
    conf = bridgeconf.parse(call.config, call.args)
    mac = veth.parse_mac(conf.mac)
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
        bridgelink.attach(call, conf, bridge, host_end=pair.link.link, name=pair.name)
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
        link = replace(pair.link, mac=_own_mac(call, conf, bridge, result) or pair.link.mac)
        result = replace(
            result,
            interfaces=(
                Interface(name=conf.bridge),
                Interface(name=pair.name),
                veth.container_interface(call, link),
            ),
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
    """Give the container's end what the result says; return the host's end, which then forwards if it is to."""
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
        with dad.hastened(container, link.name):
            settle = partial(dad.wait, container.rtnl, link)
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
    """Announce the container's MAC to those that may remember another one, or none, by as few frames as will do (0016).

    Only now that the port forwards. When the link came up it may not have, and what the kernel announces then is lost:
    an address that is used again would not be reached until the others forget, up to a minute later. (On a bridge with
    STP a port forwards much later; then this is lost too.)
    """
    has_v6 = any(ip.address.version == 6 for ip in result.ips)
    if has_v6:
        set_quietly(container.sysctls, f"net/ipv6/conf/{link.name}/ndisc_notify", "1")
    if (
        link.mac is not None
        and link.mac == pod.mac_of(result)
        and not has_v6
        and not _is_news(call, bridge, link, result)
    ):
        # It has said nothing, so the bridge would copy to all ports what is for it. Refused: then it does just that.
        call.host.rtnl.batch([learn_fdb(link.link, link.mac)])
        return
    # The kernel announces when the MAC is set (NETDEV_CHANGEADDR), be it the same.
    container.rtnl.set_link(link.index, mac=link.mac)


def _is_news(call: Call, bridge: LinkInfo, link: LinkInfo, result: Result) -> bool:
    """Tell whether the host remembers the address with another MAC: of upstream's pod, or one with a MAC of its own."""
    remembered = (call.host.rtnl.neighbour(bridge.index, ip.address.ip) for ip in result.ips)
    return any(one is not None and one.mac not in (None, link.mac) for one in remembered)


def _with_macs(call: Call, result: Result, seen: LinkInfo, end: LinkInfo | None) -> Result:
    """Name the MACs as they are at the end.

    A udev rule may have changed them meanwhile, but never those of our own bridge.
    """
    bridge = seen if seen.alias.startswith(ALIAS) else call.host.rtnl.link(seen.index)
    first, second, *others = result.interfaces
    if end is not None:
        second = replace(second, name=end.name, mac=str(end.mac or ""))
    return replace(
        result,
        interfaces=(replace(first, mac=str((bridge.mac if bridge else None) or "")), second, *others),
    )


def _delete(call: Call) -> None:
    detach.delete(call, call.read_for_delete(bridgeconf.parse_for_delete, otherwise=Kept()))


def _gc(call: Call) -> None:
    detach.collect(call, bridgeconf.parse_for_delete(call.config))


PLUGIN: Final = Plugin(
    name=NAME,
    add=_add,
    delete=_delete,
    check=bridgecheck.check,
    gc=_gc,
    status=bridgecheck.status,
    about=about(NAME),
    keeps=detach.LINKS,
)
