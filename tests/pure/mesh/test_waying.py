"""Which way packets go while paths fall and come back, by cores that all see only their own echoes."""

from collections.abc import Iterable
from itertools import pairwise

import pytest

from tests.support.mesh.nodes import Node
from tests.support.mesh.world import World
from weft.model.mesh import effects as do
from weft.model.mesh.records import Layout, short

LAYOUT = Layout(net_conf="{}", blocks=64, first=2)
EYE = 0.2  # seconds between two looks of a node at what has answered


class Paths:
    """The tunnel beside the links: what does not pass it; and the hops that each node was told."""

    def __init__(self, count: int, seed: object = 1) -> None:
        self.world = World(f"ways {seed}")
        self.blocked: set[tuple[str, str]] = set()  # from whom to whom
        self.hops: dict[str, dict[str, tuple[str, str]]] = {}
        self.probes: list[tuple[str, str]] = []
        self.idle: set[str] = set()  # nodes whose pods speak with nobody
        self._answered: dict[str, list[bytes]] = {}
        self.world.watchers.append(self._watch)
        names = [f"n{number}" for number in range(count)]
        for name in names:
            self.world.add(name, names[:1] if name != names[0] else ())
        self.world.create(names[0], LAYOUT)
        assert self.world.run(60, until=self.know_all)
        for node in self.world.nodes.values():
            self._look(node)

    def know_all(self) -> bool:
        return all(len(node.leases) == len(self.world.nodes) - 1 for node in self.world.nodes.values())

    def by_key(self, key: bytes) -> Node:
        return next(node for node in self.world.nodes.values() if node.key == key)

    def _watch(self, node: Node, effect: do.Effect) -> None:
        if isinstance(effect, do.Hop):
            next_hop = "" if effect.next.key == effect.key else effect.next.name
            self.hops.setdefault(node.name, {})[self.by_key(effect.key).name] = next_hop, effect.reason
        elif isinstance(effect, do.Probe):
            to = self.by_key(effect.key).name
            self.probes.append((node.name, to))
            if not {(node.name, to), (to, node.name)} & self.blocked:
                self._answered.setdefault(node.name, []).append(effect.key)

    def _look(self, node: Node) -> None:
        if node.core is not None:
            others = () if node.name in self.idle else node.leases
            answers = (do.Answer(key=key, kind="vxlan") for key in self._answered.pop(node.name, ()))
            sights = do.Sights(answered=tuple(answers), active=frozenset(others))
            self.world._call(node, node.life, lambda core, now: core.saw(sights, now))
        self.world.at(self.world.now + EYE, self._look, node)

    def block(self, *pairs: tuple[str, str]) -> None:
        self.blocked |= {(a, b) for one, other in pairs for a, b in ((one, other), (other, one))}

    def way(self, one: str, other: str) -> str:
        """The relay's name; empty without one."""
        return self.hops.get(one, {}).get(other, ("", ""))[0]

    def until(self, seconds: float, pairs: Iterable[tuple[str, str]], relays: Iterable[str]) -> bool:
        wanted = set(relays)
        return self.world.run(seconds, until=lambda: all(self.way(*pair) in wanted for pair in pairs))


def both(one: str, other: str) -> list[tuple[str, str]]:
    return [(one, other), (other, one)]


def test_who_reach_each_other_need_nobody_and_say_nothing():
    paths = Paths(4)
    paths.world.run(120)
    assert paths.hops == {}
    assert all(not member.cannot for node in paths.world.nodes.values() for member in node.core.members.values())


def where(name: str) -> str:
    return f"192.0.2.1{name[1:]}:51820"


def test_packets_go_by_wireguard_where_one_of_two_takes_no_vxlan():
    paths = Paths(3)
    seen: dict[tuple[str, str], tuple[str, str]] = {}

    def watch(node: Node, effect: do.Effect) -> None:
        if isinstance(effect, do.Hop):
            seen[node.name, paths.by_key(effect.key).name] = effect.kind, effect.endpoint

    paths.world.watchers.append(watch)
    for clear in (False, True):
        for name, node in paths.world.nodes.items():
            mine = clear or name != "n1"
            paths.world.ask(
                name, do.Publish(attrs=b"{}", endpoints=(node.address,), tunnels=(where(name),), clear=mine)
            )
        paths.world.run(5)
        for one, other in (("n0", "n1"), ("n2", "n1"), ("n1", "n0"), ("n1", "n2")):
            assert seen[one, other] == ("vxlan" if clear else "direct", where(other))


def test_n2_packets_go_by_a_relay_within_eight_seconds_and_back_within_twenty():
    paths = Paths(3)
    paths.world.run(30)
    paths.block(("n0", "n1"))
    assert paths.until(8, both("n0", "n1"), ["n2"])
    assert paths.hops["n0"]["n1"] == ("n2", "port-filtered")
    paths.world.run(30)
    paths.blocked.clear()
    assert paths.until(20, both("n0", "n1"), [""])
    assert paths.hops["n1"]["n0"] == ("", "")


def test_n1_packets_of_a_relay_that_is_lost_take_another_within_eight_seconds():
    paths = Paths(4)
    paths.block(("n0", "n1"))
    assert paths.until(30, both("n0", "n1"), ["n2", "n3"])
    first = paths.way("n0", "n1")
    assert paths.way("n1", "n0") == first
    paths.block(*((first, each) for each in paths.world.nodes if each != first))
    assert paths.until(8, both("n0", "n1"), {"n2", "n3"} - {first})


def test_packets_for_a_peer_of_which_nobody_hears_go_straight_and_not_round():
    """The two that are left find out at different times: for a while each is the other's relay."""
    paths = Paths(3)
    paths.block(("n0", "n1"), ("n0", "n2"))
    paths.world.run(60)
    assert not any(paths.way(*pair) for pair in (*both("n0", "n1"), *both("n0", "n2")))
    assert [member.cannot for member in paths.world.nodes["n0"].core.members.values()].count(()) == 0


def test_a_pair_of_which_one_alone_hears_nothing_goes_by_a_relay_too():
    """n1 has no traffic and asks once a minute; n0 knows before, and says so to all."""
    paths = Paths(3)
    paths.idle = {"n1"}
    paths.world.run(90)
    paths.block(("n0", "n1"))
    assert paths.until(10, both("n0", "n1"), ["n2"])
    assert paths.hops["n1"]["n0"] == ("n2", "one-way")
    assert paths.world.run(180, until=lambda: paths.hops["n1"]["n0"] == ("n2", "port-filtered"))


def test_a_path_in_use_is_asked_each_second_and_one_without_traffic_once_a_minute():
    paths = Paths(3)
    paths.idle = {"n1"}
    paths.world.run(120)
    paths.probes.clear()
    paths.world.run(600)
    assert 560 <= paths.probes.count(("n0", "n2")) <= 640
    assert 9 <= paths.probes.count(("n1", "n2")) <= 11


@pytest.mark.parametrize("late, silent", [(5.0, False), (0.0, True)])
def test_a_daemon_that_comes_late_judges_nobody(late: float, silent: bool):
    """Nothing is answered; and each turn comes as late as said."""
    paths = Paths(3)
    node = paths.world.nodes["n0"]
    assert node.core is not None
    now = paths.world.now
    for _ in range(2000):
        now = max(now, node.core.due + late)
        node.core.tick(now)
    assert bool(node.core.members[node.key].cannot) == silent


def test_what_is_said_of_peers_without_a_path_changes_nothing():
    paths = Paths(2)
    node = paths.world.nodes["n0"]
    assert node.core is not None
    sights = do.Sights(answered=(do.Answer(key=bytes(32), kind="vxlan"),), active=frozenset({bytes(32)}))
    assert not [effect for effect in node.core.saw(sights, paths.world.now) if isinstance(effect, do.Probe | do.Hop)]


def test_a_member_that_is_removed_takes_its_path_along():
    paths = Paths(4)
    paths.block(("n0", "n3"))
    assert paths.until(30, both("n0", "n3"), ["n1", "n2"])
    gone = paths.world.nodes["n3"].key
    paths.world.kill("n3")
    paths.world.run(20)
    paths.world.ask("n1", do.Remove(keys=(gone,)))
    assert paths.world.run(
        60, until=lambda: all(gone not in node.leases for node in paths.world.nodes.values() if node.up)
    )
    paths.world.run(5)
    assert short(gone) not in paths.world.nodes["n0"].core.members[paths.world.nodes["n0"].key].cannot


def test_a_relay_that_loses_its_lease_is_none_any_more():
    paths = Paths(3)
    paths.block(("n0", "n1"))
    assert paths.until(30, both("n0", "n1"), ["n2"])
    paths.world.ask("n2", do.Leave())
    assert paths.until(60, both("n0", "n1"), [""])
    assert paths.hops["n0"]["n1"] == ("", "")


def test_a_daemon_that_starts_again_finds_the_relays_that_it_had():
    paths = Paths(4)
    paths.block(("n0", "n1"))
    assert paths.until(30, both("n0", "n1"), ["n2", "n3"])
    relay = paths.way("n0", "n1")
    paths.world.kill("n0")
    paths.hops.clear()
    paths.world.start("n0")
    assert paths.until(30, [("n0", "n1")], [relay])


def test_of_another_ring_s_paths_nothing_stays():
    """n0 has nothing to lose, and drops its ring for that of the other two."""
    paths = Paths(1)
    paths.world.ask("n0", do.Used(ever=False))
    for name in ("m0", "m1"):
        paths.world.add(name, ["m0"] if name != "m0" else ())
    paths.world.create("m0", LAYOUT)
    assert paths.world.run(60, until=lambda: len(paths.world.nodes["m1"].leases) == 1)
    paths.world.ask("n0", do.Connect(address=paths.world.nodes["m0"].address))
    assert paths.world.run(60, until=paths.know_all)


@pytest.mark.parametrize("seed", range(5))
def test_s16_after_any_change_of_paths_all_agree_on_ways_without_loops(seed: int):
    paths = Paths(7, seed)
    names, chance = list(paths.world.nodes), paths.world.chance
    for _ in range(4):
        for one in names:
            for other in names:
                if one < other and chance.random() < 0.2:
                    pair = {(one, other), (other, one)}
                    paths.blocked = paths.blocked - pair if pair & paths.blocked else paths.blocked | pair
        paths.world.run(80)  # longer than any of these returns waits
        for one in names:
            for other in names:
                there, back = walked(paths, one, other), walked(paths, other, one)
                assert there == back[::-1]
                assert not linked(paths, one, other) or not set(pairwise(there)) & paths.blocked


def linked(paths: Paths, one: str, other: str) -> bool:
    seen, todo = {one}, [one]
    while todo:
        here = todo.pop()
        new = {each for each in paths.world.nodes if (here, each) not in paths.blocked} - seen
        seen |= new
        todo += new
    return other in seen


def walked(paths: Paths, one: str, other: str) -> list[str]:
    """The nodes that a packet passes."""
    passed = [one]
    while passed[-1] != other:
        assert len(passed) <= len(paths.world.nodes)
        passed.append(paths.way(passed[-1], other) or other)
    return passed
