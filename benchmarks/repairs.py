"""From the moment somebody breaks an object of ours until the kernel holds it again."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.cold_start import ROUNDS, floor, objects
from benchmarks.figures import Figure
from benchmarks.notices import BRIDGE, INET, LINK, NEIGH, ROUTE, Notices
from benchmarks.world import World

FEW, MANY = 10, 5000
REST = 3.5  # longer than the backoff waits between repairs of one object
AF_UNSPEC = 0  # the family of link notices


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """What is broken, by which command, and the notices that say that it is whole again."""

    what: str
    command: str
    back: Mapping[tuple[int, int], int]


def single(world: World) -> list[Damage]:
    peer = world.peers[3]
    on = "dev flannel.1"
    return [
        Damage(what="route deleted", command=f"ip route del {peer.subnet}", back={(ROUTE, INET): 1}),
        Damage(what="neighbour deleted", command=f"ip neigh del {peer.subnet[0]} {on}", back={(NEIGH, INET): 1}),
        Damage(what="FDB entry deleted", command=f"bridge fdb del {peer.mac} {on}", back={(NEIGH, BRIDGE): 1}),
        # The link's first notice is of the change itself, its second of the repair. Each takes all neighbours along.
        Damage(
            what="MAC changed",
            command="ip link set flannel.1 address 02:99:99:99:99:99",
            back={(LINK, AF_UNSPEC): 2, (NEIGH, INET): len(world.peers)},
        ),
    ]


def whole(world: World) -> list[Damage]:
    all_objects = objects("vxlan", len(world.peers))
    routes_and_neighbours = {kind: count for kind, count in all_objects.items() if kind[1] != BRIDGE}
    return [
        Damage(what="device down and up", command="ip link set flannel.1 down", back=routes_and_neighbours),
        Damage(what="device deleted", command="ip link del flannel.1", back=all_objects),
    ]


def measure() -> list[Figure]:
    figures = []
    # Two daemons: one that had an object broken more than twenty times in a row would put it back less often.
    for kind in (single, whole):
        with World(peers=FEW) as world:
            for damage, samples in repair(world, kind(world)):
                what = f"{damage.what}, {FEW} peers, until back"
                figures.append(Figure(what=what, unit="ms", ours=samples, target=50, upstream="never"))
    with World(backend="host-gw", peers=FEW) as world:
        [(damage, samples)] = repair(world, single(world)[:1])
        what = f"{damage.what}, host-gw, {FEW} peers, until back"
        figures.append(Figure(what=what, unit="ms", ours=samples, target=50, upstream="8–10 s"))
    batch = [floor("vxlan", MANY) * 1e3 for _ in range(ROUNDS)]
    with World(peers=MANY) as world:
        for damage, samples in repair(world, whole(world)):
            figures.append(
                Figure(
                    what=f"{damage.what}, {MANY} peers, until all is back",
                    unit="ms",
                    ours=samples,
                    ratio=1.5,
                    peer="batch",
                    theirs=batch,
                    upstream="never",
                )
            )
    return figures


def repair(world: World, damages: list[Damage]) -> list[tuple[Damage, list[float]]]:
    """Milliseconds from each damage until all is back, ROUNDS times."""
    with Notices(world.netns) as notices:
        world.weftd()
        world.ready()
        whole = objects_of(world)
        return [(damage, _rounds(world, notices, damage, whole)) for damage in damages]


def _rounds(world: World, notices: Notices, damage: Damage, whole: list[str]) -> list[float]:
    samples = []
    for _ in range(ROUNDS):
        time.sleep(REST)
        notices.reset()
        start = time.perf_counter()
        world.netns.run(damage.command)
        samples.append((notices.wait(damage.back) - start) * 1e3)
        if objects_of(world) != whole:
            raise AssertionError(f"{damage.what}: the notices say that all is back, and it is not")
    time.sleep(REST)
    notices.reset()
    world.control(
        damage.what,
        lambda: world.netns.run(damage.command),
        lambda seconds: notices.wait(damage.back, seconds=seconds),
    )
    return samples


def objects_of(world: World) -> list[str]:
    """What the daemon keeps in the kernel, as the tools print it."""
    shown = world.netns.run("ip -4 route; ip neigh show nud permanent; bridge fdb show; ip -br link show type vxlan")
    return sorted(shown.splitlines())
