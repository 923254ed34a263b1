"""The phases of a start (flannel.md §1.5), each a value that the next is made of: known, placed, tenant.

weftd and `weft plan` go through the same ones, as far as a plan goes: it takes no lease and waits for nothing. The
store may be away: then what an earlier run remembered serves instead (settled.md §6).
"""

import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Final, Protocol, TypeVar

from weft.beside.threads import beside
from weft.cluster.store import Listing, Settings, Store
from weft.config.netconf import NetConf
from weft.config.options import Options
from weft.daemon import host
from weft.daemon.backends.backend import Backend, Ground
from weft.daemon.confwatch import understood
from weft.daemon.disk.identity import Identity
from weft.daemon.disk.memory import Memory
from weft.daemon.leasing import Leasing
from weft.daemon.planes.contract import Place
from weft.daemon.planes.kernel import NodeKernel
from weft.daemon.world import World
from weft.desired.facts import select
from weft.desired.inputs import Facts, Inputs, Uplink
from weft.desired.node import served
from weft.desired.tunnels.vxlan import vtep_mac
from weft.kernel.netfilter.firewall import Tooling
from weft.model.errors import Problem, Unavailable
from weft.model.kernel.links import NodeLink
from weft.model.kernel.objects import Snapshot
from weft.model.lease import Lease, LeaseAttrs
from weft.model.net import Addresses
from weft.model.value import Value, replace
from weft.wire.subnetenv import Previous

log = logging.getLogger(__name__)

_ANSWER_SECONDS: Final = 1.0
_T = TypeVar("_T")


class Asking(Protocol):
    """weftd asks until there is an answer."""

    async def __call__(self, ask: Callable[[], Awaitable[_T]], what: str, /) -> _T:
        """Ask. Raises what stays to be said."""
        ...


class Configured(Value):
    memory: Memory
    netconf: NetConf
    backend: Backend


class Known(Configured):
    """What is known before the machine is looked at: from flags, the store or an earlier run, and the back end.

    `previous` is what an earlier run wrote to the subnet file, `prepared` what the back end has made; with another
    lease `prepare` makes it once more, if it depends on the lease.
    """

    options: Options
    prepared: Value | None
    prepare: Callable[[], Awaitable[Value | None]] | None
    previous: Previous


class Placed(Value):
    """Where this node is: the machine as it is now, why this is the uplink, who the node is, and the store's leases.

    `listing` is None if the store gives none; `unlisted` says why.
    """

    snapshot: Snapshot
    why: str
    identity: Identity
    listing: Listing | None
    unlisted: Problem | None
    inputs: Inputs


class Tenant(Value):
    """A node with a lease, and all that decides. It was placed by `snapshot`, and has its uplink because of `why`."""

    why: str
    inputs: Inputs
    snapshot: Snapshot


async def configure(
    settings: Settings,
    world: World,
    before: Memory | None,
    *,
    asking: Asking,
    serves_without: Callable[[Problem], bool],
    warn: Callable[[str], None] = log.warning,
) -> Configured:
    """Read the configuration. Raises `ConfigError` for what a user must correct.

    Where the store says a problem instead, `serves_without` says whether `before`, of an earlier run, serves.
    """
    memory = await asking(partial(_read, settings, before, serves_without), "the network configuration")
    netconf = understood(memory.net_conf, settings, world.backends)
    for warning in netconf.warnings:
        warn(f"CONF-002 {warning}")
    return Configured(memory=memory, netconf=netconf, backend=world.backends[netconf.backend])


async def know(
    configured: Configured,
    store: Store,
    options: Options,
    at: Place,
    *,
    asking: Asking,
    look_only: bool = False,
) -> Known:
    """Ask the store for this node, and have the back end prepare; with `look_only` that runs and writes nothing.

    Both wait by `asking`, perhaps for ever. Raises `ConfigError` for what a user must correct.
    """
    memory, netconf, backend = configured.memory, configured.netconf, configured.backend
    options = with_addresses(
        options, await asking(partial(store.tenure.addresses, memory.own), "this node in the store")
    )
    ground = Ground(options=options, directory=at.directory, keys=store.keys)
    prepare = partial(backend.prepare, netconf.options, ground)
    prepared = await asking(partial(prepare, look_only=look_only), f"what {netconf.backend} needs first")
    again = partial(prepare, look_only=True) if backend.prepares_each_lease else None
    previous = await beside(partial(host.previous_subnets, options))
    return Known(
        memory=memory,
        netconf=netconf,
        backend=backend,
        options=options,
        prepared=prepared,
        prepare=again,
        previous=previous,
    )


async def _read(settings: Settings, before: Memory | None, serves_without: Callable[[Problem], bool]) -> Memory:
    try:
        text = await settings.net_conf()
    except Unavailable as error:
        if before is None or not serves_without(error.problems[0]):
            raise
        return before
    return Memory(net_conf=text) if before is None else replace(before, net_conf=text)


def with_addresses(options: Options, addresses: Addresses) -> Options:
    """Those that an operator has set in the store count more."""
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


def leasing_of(known: Known, store: Store, world: World, at: Place) -> Leasing:
    """It writes nothing before it takes a lease."""
    return Leasing(
        store.tenure,
        store.directory,
        at.directory,
        netconf=known.netconf,
        remembered=known.memory,
        margin=known.options.subnet_lease_renew_margin * 60,
        moment=world.moment,
        random=world.random,
    )


async def place(
    known: Known,
    leasing: Leasing,
    kernel: NodeKernel,
    world: World,
    identity: Identity | None,
    *,
    warn: Callable[[str], None] = log.warning,
) -> Placed:
    """Find out what this machine is: its uplink, and its MACs, which no other live node may have.

    `identity` is what an earlier run or look has settled. Raises `ConfigError` (IFACE-001); whether the back end can
    run here is left to its `check`.
    """
    snapshot = await kernel.snapshot()
    facts, why = await look_around(known.options, known.netconf, kernel, snapshot)
    if await _is_a_copy(leasing.recorded, facts, snapshot, kernel):
        warn("LEASE-004 the node that took our recorded lease is alive: this disk is a copy of its disk")
        leasing.disown()
    unlisted = None
    try:
        listing = await leasing.listing()
    except Unavailable as error:
        listing, unlisted = None, error.problems[0]
    if identity is None:
        identity = _first_identity(known, world, snapshot, facts, None if listing is None else listing.published)
    if listing is not None:
        elder = _with_macs_of(identity, leasing.elders(listing), known, facts)
        if elder is not None:
            warn(f"VTEP-003 lease {elder.id} has this node's MAC: a disk was cloned or lost; making new MACs")
            identity = Identity.random(world.random)
    inputs = _inputs(known, facts, identity)
    return Placed(snapshot=snapshot, why=why, identity=identity, listing=listing, unlisted=unlisted, inputs=inputs)


async def look_around(
    options: Options, netconf: NetConf, kernel: NodeKernel, snapshot: Snapshot, *, in_use: Uplink | None = None
) -> tuple[Facts, str]:
    """`in_use` is the uplink of before. Raises `ConfigError` (IFACE-001)."""
    target = options.iface_can_reach
    reach = None if target is None else await kernel.route_to(target)
    return select(options, snapshot, v4=netconf.v4 is not None, v6=netconf.v6 is not None, reach=reach, in_use=in_use)


async def _is_a_copy(recorded: Lease | None, facts: Facts, snapshot: Snapshot, kernel: NodeKernel) -> bool:
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


def _first_identity(
    known: Known, world: World, snapshot: Snapshot, facts: Facts, published: LeaseAttrs | None
) -> Identity:
    """Of its devices, else those that it has published, else new ones."""
    new = Identity.random(world.random)
    if published is not None:
        new = Identity(
            mac_v4=vtep_mac(published.data) or new.mac_v4,
            mac_v6=vtep_mac(published.data_v6) or new.mac_v6,
        )
    return host.adopted(new, snapshot, known.backend.desired.devices(_inputs(known, facts, new)))


def _with_macs_of(identity: Identity, others: Iterable[Lease], known: Known, facts: Facts) -> Lease | None:
    """A live lease of another node that carries our MACs says that a disk is a copy.

    One with our address is an earlier one of ours, which the store replaces; in a mesh it stays, and others go by it.
    """
    publics = {facts.public_v4, facts.public_v6} - {None}
    for lease in others:
        ours = lease.way is None and bool(publics & {lease.attrs.public_ip, lease.attrs.public_ipv6})
        claimed = known.backend.desired.claims(lease.attrs)
        if not ours and {identity.mac_v4, identity.mac_v6} & set(claimed):
            return lease
    return None


def _inputs(known: Known, facts: Facts, identity: Identity) -> Inputs:
    options = known.options
    return Inputs(
        netconf=known.netconf,
        backend=known.backend.desired,
        facts=facts,
        mac_v4=identity.mac_v4,
        mac_v6=identity.mac_v6,
        former_networks=known.previous.networks,
        prepared=known.prepared,
        ip_masq=options.ip_masq,
        random_fully=not options.ip_masq_fully_random_disable,
        forward_rules=options.iptables_forward_rules,
        blackhole_route=options.ip_blackhole_route,
        relays=options.mesh_relay,
        policies="" if options.network_policy == "off" else options.network_policy,
    )


def settle(placed: Placed, lease: Lease, tooling: Tooling, kernel: NodeKernel) -> Tenant:
    inputs = replace(placed.inputs, v4=lease.v4, v6=lease.v6)
    links = frozenset(thing.name for thing in placed.snapshot.ours.values() if isinstance(thing, NodeLink))
    inputs = replace(
        inputs,
        random_fully=inputs.random_fully and tooling.random_fully,
        forwarding=kernel.forwards() | served(placed.snapshot, inputs),
        node_links=links,
    )
    return Tenant(why=placed.why, inputs=inputs, snapshot=placed.snapshot)
