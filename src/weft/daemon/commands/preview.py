"""What a round would do now, without doing it: the same steps as a start and a round, up to the last one.

Reads the store and the kernel, writes neither, and takes no lease: a node without one is planned with the subnet
that it would get if it were alone.
"""

from collections.abc import Collection
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Final

from weft.cluster.store import Listing, Store
from weft.config.options import Options
from weft.daemon import host, start
from weft.daemon.disk import identity, instance, memory
from weft.daemon.disk.memory import Memory
from weft.daemon.network import ours
from weft.daemon.peers import take_list
from weft.daemon.planes.contract import Place
from weft.daemon.planes.kernel import NodeKernel
from weft.daemon.world import World
from weft.desired.allocate import Chooser, Present
from weft.desired.decide import Decider
from weft.desired.facts import overlaps
from weft.desired.inputs import Inputs
from weft.desired.node import devices_of
from weft.desired.roster import Roster
from weft.kernel import daemons
from weft.kernel.netfilter.firewall import Firewall
from weft.kernel.rtnetlink.rtnl import Rtnl
from weft.kernel.tools import Tools
from weft.model.cluster import Listed
from weft.model.errors import Problem, Unavailable
from weft.model.lease import Lease
from weft.model.value import Value, replace
from weft.plan.diff import Put, diff
from weft.plan.explain import explain, reason
from weft.wire.subnetenv import Previous

_LOST: Final = "the store and from memory: the store has lost what it held, or is another one (STORE-003)"
_FORMER: Final = "a device of the earlier configuration; weftd removes it when it starts with this one"


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
    """Plan a round. Raises `ConfigError` and, if the store is away and nothing is remembered, `Unavailable`."""
    directory = instance.directory(Path(options.state_dir), options.subnet_file, world.store.identity(options))
    before = memory.load(directory, world.moment(), aside=False)
    with closing(world.store.open(options, now=world.now, random=world.random)) as store:
        remembered, listing = await _cluster(store, before)
        options = start.with_addresses(options, await store.addresses(remembered.own))
    netconf = start.understand(remembered, store, world)
    backend = world.backends[netconf.backend]
    with Rtnl.open() as rtnl:
        kernel = NodeKernel(rtnl)
        snapshot = await kernel.snapshot()
        facts, why = await start.look_around(options, netconf, kernel, snapshot)
        known = identity.load(directory, aside=False)
        published = None if listing is None else listing.published
        own_macs = start.settle_identity(known, world, snapshot, netconf, facts, published=published)
        inputs = start.make_inputs(options, netconf, backend.desired, facts, own_macs)
        previous = host.previous_subnets(options)
        prepared = await backend.prepare(netconf.options, options, directory, look_only=True)
        inputs = replace(inputs, former_networks=previous.networks, prepared=prepared)
        own, stale, note = _own(inputs, previous, listing, remembered, chooses=store.chooses)
        inputs = start.with_lease(inputs, own, kernel, snapshot)
        own_ids = [own.id, *(lease.id for lease in stale)]
        roster = Roster(
            ours(inputs, snapshot.ips),
            own_ids,
            claiming=inputs.backend.claims,
            usable=lambda lease: decider.trouble(lease),  # noqa: PLW0108 - it comes later
        )
        decider = Decider(inputs, roster.believed)
        roster.recall(remembered.leases, remembered.unproven)
        roster.judge()
        proved = True
        if listing is not None:
            listed, now = _listed(listing, own_ids), world.now()
            proved = take_list(roster, listed, since=remembered.mark, continues=store.continues, now=now)
            roster.judge()
        firewall = Firewall(Tools())
        tooling = await firewall.tooling("nft" if netconf.nftables else "iptables", netconf.families)
        decider.inputs = inputs = replace(inputs, random_fully=inputs.random_fully and tooling.random_fully)
        for _ in decider.decide(everything=True):
            pass
        problems = [*overlaps(netconf, facts), *roster.refused.values(), *decider.unusable.values()]
        kernel.devices = devices_of(inputs)
        kernel.sysctls = tuple(str(key[1]) for key in decider.wanted if key[0] == "sysctl")
        seen = {**await kernel.look({}), **await firewall.present()}
        with ExitStack() as held:
            for plane in backend.open_planes(Place(directory=directory, boot=world.boot), held).values():
                seen |= await plane.look(decider.wanted, None)
    have = {key: thing for key, thing in seen.items() if thing.is_within(decider.ownership)}
    steps = diff(decider.wanted, have, prune=listing is not None)
    served = {thing.key: lease for name, lease in roster.believed.items() for thing in decider.part(name)}
    refused = [lease for lease in roster.leases if not decider.part(lease.id)]
    # The daemon that runs here lets go of its device when it restarts; of several it is not known whose it is.
    alone = len(daemons.living()) <= 1
    former = [
        link
        for link in start.former_devices(snapshot, decider.ownership)
        if alone or not instance.is_claimed(f"device/{link.name}")
    ]
    source = "memory: the store does not answer" if listing is None else "the store" if proved else _LOST
    return Preview(
        notes=(why, note, f"leases from {source}"),
        problems=tuple(problems),
        steps=tuple(
            Planned(
                do="put" if isinstance(step, Put) else "delete",
                kind=str(step.object.key[0]),
                text=explain(step, have.get(step.object.key)),
                why=reason(step, served=served, refused=refused),
            )
            for step in steps
        )
        + tuple(
            Planned(do="delete", kind="link", text=f"- link {link.name} {link.kind}", why=_FORMER) for link in former
        ),
    )


async def _cluster(store: Store[Any], remembered: Memory | None) -> tuple[Memory, Listing | None]:
    """What is known of the cluster, and the store's leases; None for them while it does not answer."""
    try:
        text = await store.net_conf()
        listing = await store.list()
    except Unavailable:
        if remembered is None:
            raise
        return remembered, None
    return replace(remembered, net_conf=text) if remembered is not None else Memory(net_conf=text), listing


def _listed(listing: Listing, own_ids: Collection[str]) -> Listed:
    """A list as the daemon's first one says it, ours apart."""
    own = tuple(lease for lease in listing.leases if lease.id in own_ids)
    others = tuple(lease for lease in listing.leases if lease.id not in own_ids)
    return Listed(leases=others, own=own, malformed=listing.malformed, mark=listing.mark)


def _own(
    inputs: Inputs, previous: Previous, listing: Listing | None, remembered: Memory, *, chooses: bool
) -> tuple[Lease, tuple[Lease, ...], str]:
    """Our lease as the daemon would take it now, those of ours that it would delete, and what there is to say."""
    if listing is None and remembered.own is not None:
        return remembered.own.lease, (), f"our lease is {remembered.own.lease.id}, by what an earlier run wrote down"
    if listing is None and not chooses:
        seen, hint = "the store does not answer, and no earlier run wrote it down", "Start the API server"
        raise Unavailable(Problem(code="STORE-001", where="our lease", seen=seen, hint=hint))
    attrs = inputs.backend.advertise(inputs)
    chooser = Chooser(
        netconf=inputs.netconf, attrs=attrs, previous=(previous.subnet_v4, previous.subnet_v6), pick=lambda _: 0
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
