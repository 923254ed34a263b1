"""The steps of a start before there is a lease: configuration, machine, identity (flannel.md §1.5).

Each step returns a value or raises `ConfigError`. The store may be away: then what an earlier run remembered
serves instead (settled.md §6).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import ExitStack, suppress
from ipaddress import ip_network
from typing import Any, Final, TypeVar

from weft.cluster.store import Store
from weft.config.netconf import NetConf, parse_netconf
from weft.config.options import Options
from weft.daemon import host
from weft.daemon.commands import ours
from weft.daemon.disk import instance
from weft.daemon.disk.identity import Identity
from weft.daemon.disk.memory import Memory
from weft.daemon.planes.contract import Place
from weft.daemon.planes.kernel import NodeKernel
from weft.daemon.process.modules import Modules
from weft.daemon.world import World
from weft.desired.backends.vxlan import vtep_mac
from weft.desired.facts import select
from weft.desired.inputs import Backend, Facts, Inputs, Uplink
from weft.desired.node import served
from weft.kernel.netfilter.firewall import Firewall, Tooling
from weft.kernel.netfilter.monitor import Monitor
from weft.kernel.rtnetlink.codec import VTEP_ALIAS
from weft.kernel.rtnetlink.netlink import NetlinkError
from weft.kernel.tools import Tools
from weft.model.errors import Unavailable
from weft.model.kernel.links import NodeLink
from weft.model.kernel.ownership import Ownership
from weft.model.kernel.reported import LinkInfo
from weft.model.kernel.snapshot import Snapshot
from weft.model.lease import Lease, LeaseAttrs
from weft.model.net import Addresses
from weft.model.node.status import Status
from weft.model.value import replace

log = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 1.0
_ANSWER_SECONDS: Final = 1.0
_T = TypeVar("_T")


async def read_net_conf(store: Store[Any], remembered: Memory | None, status: Status) -> Memory:
    """Read the network configuration, for as long as it takes; what was remembered serves while the store is away.

    Raises `ConfigError` when the store refuses us.
    """

    async def ask() -> Memory:
        try:
            text = await store.net_conf()
        except Unavailable as error:
            problem = error.problems[0]
            if problem.code != "STORE-001" or remembered is None:
                raise
            log.warning("%s; starting with what was known before", problem)
            status.store = problem
            return remembered
        return replace(remembered, net_conf=text) if remembered else Memory(net_conf=text)

    return await answered(ask, "the network configuration", status)


async def answered(ask: Callable[[], Awaitable[_T]], what: str, status: Status | None = None) -> _T:
    """Ask the store for `what` until it answers. What it says instead is logged once, and what `status` waits for."""
    said = ""
    while True:
        try:
            return await ask()
        except Unavailable as error:
            problem = error.problems[0]
            if str(problem) != said:
                log.warning("waiting for %s: %s", what, problem)
            said = str(problem)
            if status is not None:
                status.waiting = problem
            await asyncio.sleep(_RETRY_SECONDS)


def with_addresses(options: Options, addresses: Addresses) -> Options:
    """The options with the public addresses that an operator has set in the store, where there are any."""
    v4, v6, where = addresses
    told = tuple(
        there if each else flag for each, there, flag in zip((v4, v6), where, options.public_where, strict=True)
    )
    return replace(
        options,
        public_ip=v4 or options.public_ip,
        public_ipv6=v6 or options.public_ipv6,
        public_where=told,
    )


def understand(memory: Memory, store: Store[Any], world: World) -> NetConf:
    """Check the network configuration. Raises `ConfigError` with all its problems."""
    netconf = parse_netconf(memory.net_conf, store.source, backends=world.backends, etcd=store.chooses)
    for warning in netconf.warnings:
        log.warning("CONF-002 %s", warning)
    return netconf


async def look_around(
    options: Options, netconf: NetConf, kernel: NodeKernel, snapshot: Snapshot, *, in_use: Uplink | None = None
) -> tuple[Facts, str]:
    """Choose the uplink and say why; `in_use` is the one of before. Raises `ConfigError` (IFACE-001)."""
    target = options.iface_can_reach
    reach = None if target is None else await kernel.route_to(target)
    return select(options, snapshot, v4=netconf.v4 is not None, v6=netconf.v6 is not None, reach=reach, in_use=in_use)


def make_inputs(options: Options, netconf: NetConf, backend: Backend, facts: Facts, own: Identity) -> Inputs:
    """Everything that decides, but for the lease and the tools. Raises `ConfigError` if the backend cannot run here."""
    inputs = Inputs(
        netconf=netconf,
        backend=backend,
        facts=facts,
        mac_v4=own.mac_v4,
        mac_v6=own.mac_v6,
        ip_masq=options.ip_masq,
        random_fully=not options.ip_masq_fully_random_disable,
        forward_rules=options.iptables_forward_rules,
        blackhole_route=options.ip_blackhole_route,
    )
    backend.check(inputs)
    return inputs


def settle_identity(
    known: Identity | None,
    world: World,
    snapshot: Snapshot,
    netconf: NetConf,
    facts: Facts,
    *,
    published: LeaseAttrs | None,
) -> Identity:
    """This node's MACs: those that are known; at the first start its devices', else the published, else new ones."""
    if known is not None:
        return known
    new = Identity.random(world.random)
    if published is not None:
        new = Identity(
            mac_v4=vtep_mac(published.data) or new.mac_v4,
            mac_v6=vtep_mac(published.data_v6) or new.mac_v6,
        )
    backend = world.backends[netconf.backend].desired
    probe = Inputs(netconf=netconf, backend=backend, facts=facts, mac_v4=new.mac_v4, mac_v6=new.mac_v6)
    return host.adopted(new, snapshot, backend.devices(probe))


async def is_a_copy(recorded: Lease | None, facts: Facts, snapshot: Snapshot, kernel: NodeKernel) -> bool:
    """Tell whether the node that took the recorded lease still lives elsewhere: this disk is a copy of its disk.

    A node whose own address changed has left the old one, so nothing answers there; if another node has taken
    that address over, the lease is left alone and this node takes another. An address that is still this machine's
    (another uplink, another --public-ip, a family less) says nothing.
    """
    if recorded is None:
        return False
    ours = {facts.public_v4, facts.public_v6, *snapshot.ips}
    for then in (recorded.attrs.public_ip, recorded.attrs.public_ipv6):
        if then is not None and then not in ours and await kernel.answers(then, within=_ANSWER_SECONDS):
            return True
    return False


def without_clones(own: Identity, others: Iterable[Lease], world: World, *, backend: Backend, facts: Facts) -> Identity:
    """Make new MACs if a live lease of another node carries them: this disk, or that one, is a copy."""
    publics = {facts.public_v4, facts.public_v6} - {None}
    for lease in others:
        ours = bool(publics & {lease.attrs.public_ip, lease.attrs.public_ipv6})
        if not ours and {own.mac_v4, own.mac_v6} & set(backend.claims(lease.attrs)):
            log.warning("VTEP-003 lease %s has this node's MAC: its disk was cloned; making new MACs", lease.id)
            return Identity.random(world.random)
    return own


async def firewall(netconf: NetConf, held: ExitStack, modules: Modules) -> tuple[Firewall, Tooling, Monitor | None]:
    """Find the programs of the kind that the network wants, and listen to changes of rules by others."""
    tools = Tools()
    found = Firewall(tools)
    if not netconf.nftables:
        for problem in await host.bridge_filter(modules, netconf.families):
            log.warning("%s", problem)
    modules.end()
    tooling = await found.tooling("nft" if netconf.nftables else "iptables", netconf.families)
    for problem in tooling.problems:
        log.error("%s", problem)
    for problem in tooling.warnings:
        log.warning("%s", problem)
    try:
        return found, tooling, held.enter_context(Monitor(tools.own))
    except Unavailable as error:
        log.warning("%s", error)
        return found, replace(tooling, notices=False), None


async def remove_remains(world: World, place: Place, inputs: Inputs) -> None:
    """Remove what back ends have left that no daemon runs any more; one that does has claimed its device.

    Networks of other instances here, and former ones, count as ours, too.
    """
    networks = (*inputs.netconf.networks, *inputs.former_networks)
    for name, backend in world.backends.items():
        if backend.undo is not None and name != inputs.netconf.backend:
            await backend.undo(place)
        left = backend.remains
        if left is not None and not instance.is_claimed(f"device/{left.device}"):
            for where in left.remove(lambda: (*networks, *ours.networks(place.directory.parent))):
                log.info("removed from %s what served %s", where, left.device)


def with_lease(inputs: Inputs, lease: Lease, kernel: NodeKernel, snapshot: Snapshot) -> Inputs:
    """All that decides, once our subnets are known: with them, and with what pods of before need."""
    inputs = replace(inputs, v4=lease.v4, v6=lease.v6)
    links = (thing.name for thing in snapshot.ours.values() if isinstance(thing, NodeLink))
    return replace(inputs, forwarding=kernel.forwards() | served(snapshot, inputs), node_links=frozenset(links))


def former_devices(snapshot: Snapshot, ownership: Ownership) -> list[LinkInfo]:
    """The devices of an earlier configuration: of another back end, or another VNI."""
    return [
        link
        for link in snapshot.links
        if link.alias == VTEP_ALIAS
        and link.name not in ownership.devices
        and any(ownership.leads_to(ip_network(each.ip)) for each in snapshot.addresses_of(link.index))
    ]


async def remove_former_devices(kernel: NodeKernel, ownership: Ownership) -> None:
    """Remove the devices of the configuration before this one, unless another daemon keeps them."""
    for link in former_devices(await kernel.snapshot(), ownership):
        if not instance.is_claimed(f"device/{link.name}"):
            log.warning("ROUTE-002: removed link %s, left by an earlier configuration", link.name)
            with suppress(NetlinkError):
                kernel.rtnl.delete_link(link.index)
