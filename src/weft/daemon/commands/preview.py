"""What a round would do now, without doing it: the same phases as a start, and a round up to its last step.

Reads the store and the kernel, writes neither, and takes no lease: a node without one is planned with the subnet
that it would get if it were alone. Where the public IP of the recorded lease is no longer this node's, it asks that
address by an echo request whether another machine has it, for up to a second per family.
"""

from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final, TypeVar

from weft.config.options import Options
from weft.daemon import phases, start
from weft.daemon.backends.backend import Backend
from weft.daemon.disk import identity, instance, memory
from weft.daemon.disk.memory import Memory
from weft.daemon.peers import Continues, take_list
from weft.daemon.phases import Known, Placed
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
from weft.model.kernel.objects import Key, Object, Objects
from weft.model.kernel.ownership import Ownership
from weft.model.kernel.snapshot import Snapshot
from weft.model.lease import Lease
from weft.model.value import Value
from weft.plan.diff import Put, diff
from weft.plan.explain import explain, reason

_LOST: Final = "the store and from memory: the store has lost what it held, or is another one (STORE-003)"
_FORMER: Final = "a device of the earlier configuration; weftd removes it when it starts with this one"
_T = TypeVar("_T")


class Planned(Value):
    """A step that was not done: `put` or `delete`, the kind of its object, both as one line, and why."""

    do: str
    kind: str
    text: str
    why: str


class Preview(Value):
    """A round that was not done. `notes` say what it rests on, `problems` what is wrong with it."""

    notes: tuple[str, ...]
    problems: tuple[Problem, ...]
    steps: tuple[Planned, ...]


async def preview(options: Options, world: World) -> Preview:
    """Plan a round. Raises `ConfigError` and, if the store is away and too little is remembered, `Unavailable`."""
    directory = instance.directory(Path(options.state_dir), options.subnet_file, world.store.identity(options))
    at = Place(directory=directory, boot=world.boot)
    before = memory.load(directory, world.moment(), aside=False)
    with closing(world.store.open(options, now=world.now, random=world.random)) as store, Rtnl.open() as rtnl:
        configured = await phases.configure(store, world, before, asking=_once, serves_without=lambda _: True)
        known = await phases.know(configured, store, options, at, asking=_once, look_only=True)
        kernel, leasing = NodeKernel(rtnl), phases.leasing_of(known, store, world, at)
        placed = await phases.place(known, leasing, kernel, world, identity.load(directory, aside=False))
        if placed.unlisted is not None and (before is None or (leasing.recorded is None and not store.chooses)):
            raise Unavailable(placed.unlisted)
        known.backend.desired.check(placed.inputs)
        own, stale, note = _own(known, placed, leasing.remembered)
        firewall = Firewall(Tools())
        tooling = await firewall.tooling("nft" if known.netconf.nftables else "iptables", known.netconf.families)
        tenant = phases.settle(placed, own, tooling, kernel)
        own_ids = [own.id, *(lease.id for lease in stale)]
        roster, decider = deciding(tenant.inputs, tenant.snapshot.ips, own_ids)
        source = _judge(roster, leasing.remembered, placed, own_ids, continues=store.continues, now=world.now())
        for _ in decider.decide(everything=True):
            pass
        kernel.follow(tenant.inputs)
        seen = {**await kernel.look({}), **await firewall.present(), **await _beside(known.backend, at, decider)}
    return Preview(
        notes=(placed.why, note, f"leases from {source}"),
        problems=(*overlaps(known.netconf, tenant.inputs.facts), *roster.refused.values(), *decider.unusable.values()),
        steps=(
            *_steps(seen, roster, decider, prune=placed.listing is not None),
            *_former(tenant.snapshot, decider.ownership),
        ),
    )


async def _beside(backend: Backend, at: Place, decider: Decider) -> Objects:
    """What the back end's own planes see."""
    seen: dict[Key, Object] = {}
    with ExitStack() as held:
        for plane in backend.open_planes(at, held).values():
            seen |= await plane.look(decider.wanted, None)
    return seen


async def _once(ask: Callable[[], Awaitable[_T]], _what: str) -> _T:
    """Do not wait for what does not come at once."""
    return await ask()


def _judge(
    roster: Roster,
    remembered: Memory,
    placed: Placed,
    own_ids: Collection[str],
    *,
    continues: Continues,
    now: float,
) -> str:
    """Judge what was remembered, then the list as the daemon's first one, ours apart; says what the leases are from."""
    roster.recall(remembered.leases, remembered.unproven)
    roster.judge()
    listing = placed.listing
    if listing is None:
        return f"memory: {placed.unlisted}"
    own = tuple(lease for lease in listing.leases if lease.id in own_ids)
    others = tuple(lease for lease in listing.leases if lease.id not in own_ids)
    listed = Listed(leases=others, own=own, malformed=listing.malformed, mark=listing.mark)
    proved = take_list(roster, listed, since=remembered.mark, continues=continues, now=now)
    roster.judge()
    return "the store" if proved else _LOST


def _steps(seen: Objects, roster: Roster, decider: Decider, *, prune: bool) -> Iterator[Planned]:
    """The steps of a round that sees this."""
    have = {key: thing for key, thing in seen.items() if thing.is_within(decider.ownership)}
    served = {thing.key: lease for name, lease in roster.believed.items() for thing in decider.part(name)}
    refused = [lease for lease in roster.leases if not decider.part(lease.id)]
    for step in diff(decider.wanted, have, prune=prune):
        yield Planned(
            do="put" if isinstance(step, Put) else "delete",
            kind=str(step.object.key[0]),
            text=explain(step, have.get(step.object.key)),
            why=reason(step, served=served, refused=refused),
        )


def _former(snapshot: Snapshot, ownership: Ownership) -> Iterator[Planned]:
    """The devices that a start removes; of several daemons here it is not known whose a device is."""
    alone = len(daemons.living()) <= 1  # the daemon that runs here lets go of its device when it restarts
    for link in start.former_devices(snapshot, ownership):
        if alone or not instance.is_claimed(f"device/{link.name}"):
            yield Planned(do="delete", kind="link", text=f"- link {link.name} {link.kind}", why=_FORMER)


def _own(known: Known, placed: Placed, remembered: Memory) -> tuple[Lease, tuple[Lease, ...], str]:
    """Our lease as the daemon would take it now, those of ours that it would delete, and what there is to say."""
    listing, previous = placed.listing, known.previous
    if listing is None and remembered.own is not None:
        return remembered.own.lease, (), f"our lease is {remembered.own.lease.id}, by what an earlier run wrote down"
    attrs = known.backend.desired.advertise(placed.inputs)
    chooser = Chooser(
        netconf=known.netconf, attrs=attrs, previous=(previous.subnet_v4, previous.subnet_v6), pick=lambda _: 0
    )
    choice = (
        chooser.choose(Present(leases=remembered.leases))
        if listing is None
        else listing.choice(chooser, remembered.own)
    )
    if choice.reuse is not None:
        return choice.reuse, choice.stale, f"our lease is {choice.reuse.id}"
    own = Lease(id="", v4=choice.v4, v6=choice.v6, attrs=attrs)
    nets = ", ".join(str(net) for net in own.subnets)
    return own, choice.stale, f"we have no lease; planned with {nets}, the daemon picks one at random"
