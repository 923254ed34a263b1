"""What a daemon would do, without doing it: what the loops of one that runs would do now, and what a start would do.

Both read the kernel and write nothing. A start is tried by its own phases, up to the lease: a node without one is
planned with the subnet that it would get if it were alone.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, TypeVar

from weft.beside.threads import beside
from weft.cluster.store import Store
from weft.config.options import Options
from weft.daemon import phases, start
from weft.daemon.backends.backend import Backend
from weft.daemon.disk import identity, instance
from weft.daemon.disk.memory import Memory
from weft.daemon.leasing import Leasing
from weft.daemon.network import Network
from weft.daemon.peers import take_list
from weft.daemon.phases import Known, Placed, Tenant
from weft.daemon.planes.contract import Place
from weft.daemon.planes.kernel import NodeKernel
from weft.daemon.world import World
from weft.desired.allocate import Chooser, Present
from weft.desired.decide import Decider, deciding
from weft.desired.facts import overlaps
from weft.desired.roster import Roster
from weft.kernel import daemons
from weft.kernel.netfilter.firewall import Firewall
from weft.kernel.rtnetlink.rtnl import Rtnl
from weft.kernel.tools import Tools
from weft.model.cluster import Listed
from weft.model.errors import Problem, Unavailable
from weft.model.kernel.objects import Key, Object, Objects, Ownership, Snapshot
from weft.model.lease import Lease
from weft.model.node.nodestate import Plan, Planned
from weft.model.node.status import Status
from weft.model.text import counted
from weft.plan.diff import Delete, Put, Step, diff, ordered
from weft.plan.explain import explain, reason

if TYPE_CHECKING:
    from weft.daemon.enforcement import Enforcement

_SLICE: Final = 256  # leases at a stretch: a few milliseconds
_RECORDED: Final = ", by what an earlier run wrote down"
_LOST: Final = "the store and from memory: the store has lost what it held, or is another one (STORE-003)"
_WITHHELD: Final = "not listed: weftd has not heard of all leases or is still deciding, and removes nothing before"
_FORMER: Final = "a device of the earlier configuration; weftd removes it when it starts with this one"
_T = TypeVar("_T")


async def of_running(
    network: Network, leasing: Leasing, status: Status, why: str, policies: "Enforcement | None" = None
) -> Plan:
    """Plan what the loops of a network would do now; `why` is why it has its uplink. Raises `OSError`."""
    reconciler, roster, decider = network.reconciler, network.roster, network.reconciler.decider
    kinds = {kind for keeper in reconciler.keepers for kind in keeper.plane.kinds}
    seen, planned, withheld = dict[Key, Object](), dict[Key, Step](), 0
    for keeper in reconciler.keepers:
        there = await keeper.see()
        seen.update(there)
        # At once: what is decided during another plane's look is not missing here.
        keys = there.keys() | {key for key in decider.wanted if key[0] in keeper.plane.kinds}
        for step in diff(decider.wanted, there, keys=keys):
            if isinstance(step, Delete) and not reconciler.may_remove():
                withheld += 1
            elif step.object.key[0] in kinds:  # another plane's, too, on a link that is replaced
                planned[step.object.key] = step
    steps, tables = await _of_policies(policies)
    planned.update({step.object.key: step for step in steps})
    seen.update(tables)
    source = "the store" if status.store is None else f"the store as it was last heard: {status.store}"
    if not reconciler.complete:
        source = f"memory: {status.store or 'the store has not told them yet'}"
    elif roster.unproven:
        source = _LOST
    configuration = status.lost().get("configuration")
    return Plan(
        notes=(
            why,
            f"our lease is {leasing.lease.id}{'' if leasing.confirmed else _RECORDED}",
            f"leases from {source}",
            *((f"{counted(withheld, 'object')} that nothing asks for now: {_WITHHELD}",) if withheld else ()),
        ),
        problems=(
            *(() if configuration is None else (configuration,)),
            *_problems_of_policies(policies),
            *_problems(overlaps(network.inputs.netconf, network.inputs.facts), roster, decider),
        ),
        steps=await _planned(ordered(planned.values()), seen, roster, decider),
    )


async def _of_policies(policies: "Enforcement | None") -> tuple[list[Step], Objects]:
    """The steps of their tables, and what is there; none before all is known that decides them."""
    keeper = None if policies is None else policies.keeper
    if policies is None or keeper is None:
        return [], {}
    there = await keeper.see()
    return diff(policies.wanted, there, keys=there.keys() | policies.wanted.keys()), there


def _problems_of_policies(policies: "Enforcement | None") -> tuple[Problem, ...]:
    found = () if policies is None else (policies.problem, policies.loss)
    return tuple(each for each in found if each is not None)


async def _tables_of_start(options: Options) -> tuple[tuple[Planned, ...], tuple[str, ...]]:
    """What a start does to the tables of policies, and what is not said of it."""
    if options.network_policy != "off":
        return (), ("policies: a weftd that runs decides what is to be in their tables, and says it to 'weft plan'",)
    names = await beside(start.policies_left)
    why = "--network-policy is off"
    return tuple(Planned(do="delete", kind="table", text=f"- table {name}", why=why) for name in names), ()


async def of_start(options: Options, world: World, store: Store, before: Memory | None) -> Plan:
    """Plan a start that remembers `before`. Raises `OSError`, `ConfigError` and, if too little is known, `Unavailable`.

    Where the public IP of the recorded lease is no longer this node's, it asks that address by an echo request whether
    another machine has it, for up to a second per family.
    """
    at = Place(directory=world.directory(options), boot=world.boot)
    with Rtnl.open() as rtnl:
        warnings: list[str] = []
        configured = await phases.configure(
            store.settings, world, before, asking=_once, serves_without=lambda _: True, warn=warnings.append
        )
        known = await phases.know(configured, store, options, at, asking=_once, look_only=True)
        kernel, leasing = NodeKernel(rtnl), phases.leasing_of(known, store, world, at)
        who = await beside(lambda: identity.load(at.directory, aside=False))
        placed = await phases.place(known, leasing, kernel, world, who, warn=warnings.append)
        if placed.unlisted is not None and (
            before is None or (leasing.recorded is None and not store.settings.chooses)
        ):
            raise Unavailable(placed.unlisted)
        known.backend.desired.check(placed.inputs)
        own, stale, note = _own(known, placed, leasing.remembered)
        firewall = Firewall(Tools())
        tooling = await firewall.tooling("nft" if known.netconf.nftables else "iptables", known.netconf.families)
        tenant = phases.settle(placed, own, tooling, kernel)
        roster, decider, source = await _judged(
            tenant, placed, leasing.remembered, store, [own.id, *(lease.id for lease in stale)], now=world.now()
        )
        kernel.follow(tenant.inputs)
        seen = {**await kernel.look({}), **await firewall.present(), **await _beside(known.backend, at, decider)}
    have = {key: thing for key, thing in seen.items() if thing.is_within(decider.ownership)}
    tables, said = await _tables_of_start(options)
    return Plan(
        notes=(placed.why, note, f"leases from {source}", *warnings, *said),
        problems=_problems(overlaps(known.netconf, tenant.inputs.facts), roster, decider),
        steps=(
            *await _planned(diff(decider.wanted, have, prune=placed.listing is not None), have, roster, decider),
            *_former(tenant.snapshot, decider.ownership),
            *tables,
        ),
    )


async def _once(ask: Callable[[], Awaitable[_T]], _what: str) -> _T:
    """Waits for nothing that does not come at once."""
    return await ask()


def _own(known: Known, placed: Placed, remembered: Memory) -> tuple[Lease, tuple[Lease, ...], str]:
    """The lease that a start would take, the ones of ours that it would delete, and words about it."""
    listing, previous = placed.listing, known.previous
    if listing is None and remembered.own is not None:
        return remembered.own.lease, (), f"our lease is {remembered.own.lease.id}{_RECORDED}"
    chooser = Chooser(
        netconf=known.netconf,
        attrs=placed.inputs.attrs,
        previous=(previous.subnet_v4, previous.subnet_v6),
        pick=lambda _: 0,
    )
    choice = (
        chooser.choose(Present(leases=remembered.leases))
        if listing is None
        else listing.choice(chooser, remembered.own)
    )
    if choice.reuse is not None:
        return choice.reuse, choice.stale, f"our lease is {choice.reuse.id}"
    own = Lease(id="", v4=choice.v4, v6=choice.v6, attrs=chooser.attrs)
    nets = ", ".join(str(net) for net in own.subnets)
    return own, choice.stale, f"we have no lease; planned with {nets}, the daemon picks one at random"


async def _judged(
    tenant: Tenant, placed: Placed, remembered: Memory, store: Store, own_ids: Collection[str], *, now: float
) -> tuple[Roster, Decider, str]:
    """Judge what was remembered, then the list, and decide; also says what the leases are from."""
    roster, decider = deciding(tenant.inputs, tenant.snapshot.ips, own_ids)
    roster.recall(remembered.leases, remembered.unproven)
    await _settle(roster)
    listing, source = placed.listing, f"memory: {placed.unlisted}"
    if listing is not None:
        own = tuple(lease for lease in listing.leases if lease.id in own_ids)
        others = tuple(lease for lease in listing.leases if lease.id not in own_ids)
        listed = Listed(leases=others, own=own, malformed=listing.malformed, mark=listing.mark)
        proved = take_list(roster, listed, since=remembered.mark, continues=store.directory.continues, now=now)
        source = "the store" if proved else _LOST
        await _settle(roster)
    for _ in decider.decide_everything():
        await asyncio.sleep(0)
    return roster, decider, source


async def _settle(roster: Roster) -> None:
    """Judge what is in doubt, beside the daemon's other work."""
    while not roster.settled:
        roster.judge(_SLICE)
        await asyncio.sleep(0)


async def _beside(backend: Backend, at: Place, decider: Decider) -> Objects:
    with ExitStack() as held:
        planes = (await beside(lambda: backend.open_planes(at, held))).values()  # some read a file
        return {key: thing for plane in planes for key, thing in (await plane.look(decider.wanted, None)).items()}


def _problems(overlapping: Iterable[Problem], roster: Roster, decider: Decider) -> tuple[Problem, ...]:
    return *overlapping, *roster.refused.values(), *decider.unusable.values()


async def _planned(steps: Sequence[Step], have: Objects, roster: Roster, decider: Decider) -> tuple[Planned, ...]:
    if not steps:
        return ()
    believed = _in_turns(roster.believed.items())
    served = {thing.key: lease async for name, lease in believed for thing in decider.part(name)}
    refused = [lease async for lease in _in_turns(roster.leases) if not decider.part(lease.id)]
    planned = [
        Planned(
            do="put" if isinstance(step, Put) else "delete",
            kind=str(step.object.key[0]),
            text=explain(step, have.get(step.object.key)),
            why=reason(step, served=served, refused=refused),
        )
        async for step in _in_turns(steps)
    ]
    return tuple(planned)


async def _in_turns(things: Iterable[_T]) -> AsyncIterator[_T]:
    """Give the event loop a turn now and then: there may be thousands."""
    for number, thing in enumerate(tuple(things), 1):
        yield thing
        if number % _SLICE == 0:
            await asyncio.sleep(0)


def _former(snapshot: Snapshot, ownership: Ownership) -> Iterator[Planned]:
    """The devices that a start removes; of several daemons here it is not known whose a device is."""
    alone = len(daemons.living()) <= 1  # the daemon that runs here lets go of its device when it restarts
    for link in start.former_devices(snapshot, ownership):
        if alone or not instance.is_claimed(f"device/{link.name}"):
            yield Planned(do="delete", kind="link", text=f"- link {link.name} {link.kind}", why=_FORMER)
