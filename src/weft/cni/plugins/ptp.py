"""ptp: a veth pair between a container and the host, which routes to each address by itself.

As upstream's, for which no specification was written: the host's end has each gateway as a single address and a route
to each address of the container, which reaches its gateway directly and all else, its own subnet too, through it.
"""

from contextlib import ExitStack
from functools import partial
from ipaddress import ip_interface
from typing import Final

from weft.cni.attachment import attach, compare, detach, interface, pod, veth
from weft.cni.attachment import check as attachcheck
from weft.cni.attachment.attach import Pair
from weft.cni.attachment.compare import Wrong
from weft.cni.attachment.conf import FAILED, DeleteConf, IpamType, IpMasq, MasqKind, Mtu, OwnDns, check_masq, check_mtu
from weft.cni.attachment.interface import RTPROT_BOOT, Step, set_quietly
from weft.cni.host import programs
from weft.cni.sdk import delegate, record
from weft.cni.sdk.startup import Call, Plugin, about
from weft.kernel.rtnetlink.link import announcing, set_link
from weft.kernel.rtnetlink.route import add_route, delete_route
from weft.model.attachment import Dns, Interface, Result
from weft.model.kernel.marks import MAIN_TABLE
from weft.model.kernel.reported import LinkInfo
from weft.model.net import Ip, Net
from weft.model.value import Value, field, replace
from weft.wire import cniresult
from weft.wire.cni import failure
from weft.wire.cnijson import Object
from weft.wire.cnivalue import decode_or_fail

NAME: Final = "ptp"

# The container's interface is the second of the result.
_CONTAINER_INDEX: Final = 1
_RT_SCOPE_HOST: Final = 254
# Routes that the kernel makes by itself for an address (linux/rtnetlink.h).
_RTPROT_KERNEL: Final = 2


class PtpConf(Value):
    ip_masq: IpMasq = False
    masq_kind: MasqKind = ""
    mtu: Mtu = 0
    ipam_type: IpamType = ""
    dns: OwnDns = field(default_factory=Dns)


def parse(config: Object) -> PtpConf:
    conf = decode_or_fail(PtpConf, config, failed=FAILED)
    check_masq(ip_masq=conf.ip_masq, kind=conf.masq_kind)
    check_mtu(conf.mtu)
    if not conf.ipam_type:
        raise failure("no plugin name provided", 'ptp needs addresses: name an IPAM plugin as "ipam.type"')
    return conf


def parse_for_delete(config: Object) -> DeleteConf:
    return decode_or_fail(DeleteConf, config, failed=FAILED)


def _add(call: Call) -> bytes:
    conf = parse(call.config)
    delegate.read_addresses(call, conf.ipam_type)
    masq_kind = programs.choose(conf.masq_kind) if conf.ip_masq else ""
    container = call.container()
    with ExitStack() as undo:
        pair = attach.make_links(call, undo, container, mtu=conf.mtu, masq_kind=masq_kind, ipam_type=conf.ipam_type)
        result = pod.behind_gateways(attach.allocate(call, undo, pair, conf.ipam_type), _CONTAINER_INDEX)
        result = replace(
            result,
            interfaces=(Interface(name=pair.name), veth.container_interface(call, pair.link)),
            dns=conf.dns if conf.dns != Dns() else result.dns,
        )
        attach.wait_for_policies(call, undo, pair, result, pair.name)
        _set_up_host_end(call, pair, result)
        interface.configure(
            call,
            container,
            pair.link,
            result,
            # The kernel announces the addresses when the link comes up (gratuitous ARP).
            first=[Step(f'failed to have "{call.ifname}" announced', announcing(pair.link.index))],
            before_routes=_ways_to_gateways(pair, result),
            after_routes=_ways_through_gateways(pair, result),
        )
        attach.turn_on_forwarding(call, (ip.address.version for ip in result.ips))
        if masq_kind:
            attach.masquerade(call, undo, pair, result)
        end = call.host.rtnl.link(pair.link.link)
        host = replace(result.interfaces[0], mac=str((end.mac if end else None) or ""))
        output = cniresult.render(replace(result, interfaces=(host, *result.interfaces[1:])), call.version)
        undo.pop_all()
    return output


def _set_up_host_end(call: Call, pair: Pair, result: Result) -> None:
    set_quietly(call.host.sysctls, f"net/ipv6/conf/{pair.name}/accept_ra", "0")
    index = pair.link.link
    up = set_link(index, up=True, alias=record.alias_of(call.attachment))
    steps = [Step(f'failed to set "{pair.name}" UP', up)]
    gateways = dict.fromkeys(ip.gateway for ip in result.ips if ip.gateway is not None)
    for gateway in gateways:
        message = interface.address_message(index, ip_interface(gateway))
        steps.append(Step(f'failed to add IP addr {gateway} to "{pair.name}"', message))
    for ip in result.ips:
        scope = _RT_SCOPE_HOST if ip.address.version == 4 else None
        steps.append(_route(index, ip_interface(ip.address.ip).network, scope=scope))
    interface.take(call.host.rtnl, steps)


def _ways_to_gateways(pair: Pair, result: Result) -> list[Step]:
    ways: dict[Net, Step] = {}
    for ip in result.ips:
        if ip.gateway is not None:  # two addresses of one subnet share it
            gateway = ip_interface(ip.gateway).network
            ways.setdefault(gateway, _route(pair.link.index, gateway, src=ip.address.ip))
    return list(ways.values())


def _ways_through_gateways(pair: Pair, result: Result) -> list[Step]:
    """This comes last: the routes of the result may have gateways in those subnets."""
    index = pair.link.index
    steps: dict[Net, list[Step]] = {}
    for ip in result.ips:
        network = ip.address.network
        if network.prefixlen < network.max_prefixlen:
            direct = delete_route(network, index=index, table=MAIN_TABLE, protocol=_RTPROT_KERNEL)
            through = _route(index, network, via=ip.gateway, src=ip.address.ip)
            steps.setdefault(network, [Step(f"failed to delete route {network}", direct), through])
    return [step for pair_of_steps in steps.values() for step in pair_of_steps]


def _route(index: int, dst: Net, *, via: Ip | None = None, src: Ip | None = None, scope: int | None = None) -> Step:
    message = add_route(
        dst, via=via, index=index, src=src, scope=scope, table=MAIN_TABLE, protocol=RTPROT_BOOT, mode="append"
    )
    return Step(f"failed to add route to {dst}", message)


def _check(call: Call) -> None:
    conf = parse(call.config)
    delegate.ask(call, conf.ipam_type, "CHECK")
    result = call.previous("ptp: Required prevResult missing")
    link = attachcheck.container_side(call, result)
    missing = f"CNI veth created for {call.ifname} was not found"
    _check_host_end(call, compare.check_host_end(result, veth.peer_of(call.host.rtnl, link), missing), result)
    if conf.ip_masq:
        attachcheck.masquerade(call, conf.masq_kind, result)


def _check_host_end(call: Call, end: LinkInfo, result: Result) -> None:
    have = interface.addresses_on(call.host.rtnl, end.index)
    routes = {route.dst for route in call.host.rtnl.routes(index=end.index)}
    for ip in result.ips:
        if ip.gateway is not None and ip_interface(ip.gateway) not in have:
            there = ", ".join(map(str, have)) or "none"
            raise Wrong(f"Gateway address {ip.gateway} not found on {end.name}", f"its addresses: {there}")
        if ip_interface(ip.address.ip).network not in routes:
            raise Wrong(f"Route to {ip.address.ip} not found on the host", f"none leads out of {end.name}")
        if not attach.is_forwarding(call, ip.address.version):
            raise Wrong(f"IPv{ip.address.version} forwarding is off", "the host does not route for its pods")


def _status(call: Call) -> None:
    conf = parse(call.config)
    delegate.ask(call, conf.ipam_type, "STATUS")
    attachcheck.tools_work(masquerade=conf.ip_masq, masq_kind=conf.masq_kind)


PLUGIN: Final = Plugin(
    name=NAME,
    add=_add,
    delete=partial(detach.delete, read=parse_for_delete),
    check=_check,
    gc=partial(detach.collect, read=parse_for_delete),
    status=_status,
    about=about(NAME),
    keeps=detach.LINKS,
)
