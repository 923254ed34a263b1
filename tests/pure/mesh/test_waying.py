"""Which way packets go while paths fall and come back, by cores that all see only their own echoes."""

from collections.abc import Callable
from itertools import permutations

import pytest

from tests.support.mesh.nodes import Node
from tests.support.mesh.paths import BOTH, LAYOUT, Paths, both
from weft.mesh.core import Core
from weft.mesh.health import Path
from weft.mesh.ways import Pairs
from weft.model.lease import WayKind
from weft.model.mesh import effects as do
from weft.model.mesh.records import short
from weft.model.value import replace

DIRECT: tuple[WayKind, ...] = ("direct",)
VXLAN: tuple[WayKind, ...] = ("vxlan",)


def test_who_reach_each_other_need_nobody_and_say_nothing():
    paths = Paths(4)
    paths.world.run(120)
    assert paths.hops == {}
    assert all(not member.cannot for node in paths.world.nodes.values() for member in node.core.members.values())


def test_packets_go_by_wireguard_where_one_of_two_takes_no_vxlan():
    paths = Paths(3, kinds=BOTH)
    sealed = paths.world.nodes["n1"]
    for takes, kind in ((DIRECT, "direct"), (BOTH, "vxlan")):
        sealed.takes = takes
        paths.world.ask("n1", sealed.published)
        paths.world.run(20)
        assert {paths.kind(*pair) for pair in (*both("n0", "n1"), *both("n2", "n1"))} == {kind}
        assert {paths.kind(*pair) for pair in both("n0", "n2")} == {"vxlan"}
        assert paths.hops["n0"]["n1"].endpoint == sealed.address


def test_n2_packets_go_by_a_relay_within_eight_seconds_and_back_within_twenty():
    paths = Paths(3)
    paths.world.run(30)
    paths.block(("n0", "n1"))
    assert paths.until(8, both("n0", "n1"), ["n2"])
    assert paths.reason("n0", "n1") == "port-filtered"
    paths.world.run(30)
    paths.cut.clear()
    assert paths.until(20, both("n0", "n1"), [""])
    assert paths.reason("n1", "n0") == ""


def test_each_path_can_be_looked_at_and_a_handshake_brings_none_back_that_has_fallen():
    paths = Paths(3, kinds=BOTH)
    node, key = paths.world.nodes["n0"], paths.world.nodes["n1"].key
    assert list(node.core.paths_to(node.key)) == []
    for blocked, seen in ((VXLAN, {"vxlan": False, "direct": True}), (BOTH, {"vxlan": False, "direct": False})):
        paths.block(("n0", "n1"), kinds=blocked)
        paths.world.run(60)
        assert {each.kind: each.usable for each in node.core.paths_to(key)} == seen
    node.core._waying.met(key, paths.world.now)
    assert {each.kind: each.usable for each in node.core.paths_to(key)} == seen


def test_n1_packets_of_a_relay_that_is_lost_take_another_within_eight_seconds():
    paths = Paths(4)
    paths.block(("n0", "n1"))
    assert paths.until(30, both("n0", "n1"), ["n2", "n3"])
    first = paths.relay("n0", "n1")
    assert paths.relay("n1", "n0") == first
    paths.block(*((first, each) for each in paths.world.nodes if each != first))
    assert paths.until(8, both("n0", "n1"), {"n2", "n3"} - {first})


def test_packets_for_a_peer_of_which_nobody_hears_go_straight_and_not_round():
    """The two that are left find out at different times: for a while each is the other's relay."""
    paths = Paths(3)
    paths.block(("n0", "n1"), ("n0", "n2"))
    paths.world.run(60)
    assert not any(paths.relay(*pair) for pair in (*both("n0", "n1"), *both("n0", "n2")))
    assert [member.cannot for member in paths.world.nodes["n0"].core.members.values()].count(()) == 0


def test_a_pair_of_which_one_alone_hears_nothing_goes_by_a_relay_too():
    """n1 has no traffic and asks once a minute; n0 knows before, and says so to all."""
    paths = Paths(3)
    paths.idle = {"n1"}
    paths.world.run(90)
    paths.block(("n0", "n1"))
    assert paths.until(10, both("n0", "n1"), ["n2"])
    assert paths.reason("n1", "n0") == "one-way"
    assert paths.world.run(180, until=lambda: paths.reason("n1", "n0") == "port-filtered")


def test_of_two_the_one_that_still_hears_the_other_is_told_that_it_is_not_heard():
    """There is no third one by which packets could go; n1 has no traffic, and asks once a minute."""
    paths = Paths(2)
    paths.idle = {"n1"}
    paths.world.run(90)
    told: list[do.Effect] = []
    paths.world.watchers.append(lambda node, effect: told.append(effect) if node.name == "n1" else None)
    paths.block(("n0", "n1"))
    assert paths.world.run(30, until=lambda: paths.reason("n1", "n0") == "one-way")
    assert paths.relay("n1", "n0") == ""
    assert len([each for each in told if isinstance(each, do.Hop)]) == 1, "each is an event for operators"
    assert paths.world.run(180, until=lambda: paths.reason("n1", "n0") == ""), "it has found out itself"
    paths.cut.clear()
    assert paths.world.run(180, until=lambda: not any(node.core._waying.cannot for node in paths.world.nodes.values()))
    paths.world.run(5)
    assert {paths.reason(*pair) for pair in both("n0", "n1")} == {""}


def test_a_path_in_use_is_asked_each_second_and_one_without_traffic_once_a_minute():
    paths = Paths(3)
    paths.idle = {"n1"}
    paths.world.run(120)
    paths.probes.clear()
    paths.world.run(600)
    sent = [probe[:2] for probe in paths.probes]
    assert 560 <= sent.count(("n0", "n2")) <= 640
    assert 9 <= sent.count(("n1", "n2")) <= 11


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


def test_a_handshake_with_a_peer_to_which_no_path_by_wireguard_is_permitted_changes_nothing():
    """n1 has WireGuard, n0 none any more."""
    paths = Paths(2)
    paths.world.nodes["n1"].takes = BOTH
    paths.world.ask("n1", paths.world.nodes["n1"].published)
    paths.world.run(5)
    node, key = paths.world.nodes["n0"], paths.world.nodes["n1"].key
    seen = do.TunnelSeen(key=key, endpoint="192.0.2.1:51820", handshake=1.0)
    paths.world.call(node, lambda core, now: core.saw(do.Sights(tunnels=(seen,)), now))
    paths.world.run(5)
    assert straight(paths, "n0", "n1", "vxlan")


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
    assert paths.reason("n0", "n1") == ""


def test_a_daemon_that_starts_again_finds_the_relays_that_it_had():
    paths = Paths(4)
    paths.block(("n0", "n1"))
    assert paths.until(30, both("n0", "n1"), ["n2", "n3"])
    relay = paths.relay("n0", "n1")
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


def straight(paths: Paths, one: str, other: str, kind: WayKind) -> bool:
    return all(paths.kind(*pair) == kind and not paths.relay(*pair) for pair in both(one, other))


def test_n2_packets_go_by_wireguard_within_eight_seconds_and_by_vxlan_again_within_twenty():
    paths = Paths(3, kinds=BOTH)
    paths.world.run(30)
    paths.cut.add(("n0", "n1", "vxlan"))
    assert paths.world.run(8, until=lambda: straight(paths, "n0", "n1", "direct"))
    assert paths.reason("n0", "n1") == "port-filtered"
    assert not any(member.cannot for node in paths.world.nodes.values() for member in node.core.members.values())
    paths.world.run(30)
    paths.cut.clear()
    assert paths.world.run(20, until=lambda: straight(paths, "n0", "n1", "vxlan"))
    assert paths.reason("n0", "n1") == ""


def test_a_pair_by_which_neither_kind_passes_goes_by_a_relay_and_comes_back_by_the_first_that_does():
    paths = Paths(3, kinds=BOTH)
    paths.world.run(30)
    paths.block(("n0", "n1"))
    assert paths.until(8, both("n0", "n1"), ["n2"])
    paths.world.run(20)
    paths.cut = {cut for cut in paths.cut if "vxlan" in cut}
    assert paths.world.run(20, until=lambda: straight(paths, "n0", "n1", "direct"))


def test_a_way_is_left_only_for_one_that_is_proved():
    """Neither kind passes, and there is no other peer: packets go on by the one that they went by."""
    paths = Paths(2, kinds=BOTH)
    paths.world.run(30)
    paths.cut.add(("n0", "n1", "vxlan"))
    assert paths.world.run(8, until=lambda: straight(paths, "n0", "n1", "direct"))
    paths.block(("n0", "n1"))
    paths.world.run(60)
    assert straight(paths, "n0", "n1", "direct")


def test_packets_that_a_relay_hands_on_go_to_it_by_the_kind_that_reaches_it():
    paths = Paths(3, kinds=BOTH)
    paths.block(("n0", "n1"))
    assert paths.until(8, both("n0", "n1"), ["n2"])
    paths.cut.add(("n0", "n2", "vxlan"))
    assert paths.world.run(8, until=lambda: paths.kind("n0", "n2") == "direct")
    assert paths.kind("n0", "n1") == "direct"
    assert paths.relay("n0", "n1") == "n2"
    assert paths.arrives("n0", "n1")


def test_n3_packets_go_on_where_large_ones_are_lost_and_the_largest_is_known():
    paths = Paths(3, kinds=BOTH)
    paths.world.run(30)
    paths.limit("n0", "n1", 1390, VXLAN)
    assert paths.world.run(15, until=lambda: paths.hops["n0"]["n1"].mtu == paths.hops["n1"]["n0"].mtu == 1380)
    assert paths.reason("n0", "n1") == "mtu"
    paths.largest.clear()
    assert paths.world.run(65, until=lambda: paths.hops["n0"]["n1"].mtu == 0)
    assert paths.reason("n0", "n1") == ""


def test_a_pair_that_may_go_by_no_kind_goes_by_a_relay():
    """n0 has no WireGuard, n1 takes no vxlan."""
    paths = Paths(3, kinds=BOTH)
    for name, takes in (("n0", VXLAN), ("n1", DIRECT)):
        paths.world.nodes[name].takes = takes
        paths.world.ask(name, paths.world.nodes[name].published)
    assert paths.until(10, both("n0", "n1"), ["n2"])
    paths.world.run(10)
    assert {paths.reason(*pair) for pair in both("n0", "n1")} == {"no-kernel"}
    assert all(paths.arrives(*pair) for pair in both("n0", "n1"))


@pytest.mark.parametrize("cut", [[("n0", "n1", "vxlan")], [("n0", "n1", "vxlan"), ("n0", "n1", "direct")]])
def test_a_daemon_that_starts_again_goes_on_by_the_ways_that_it_had(cut: list[tuple[str, str, WayKind]]):
    """Its kernel has them still: nothing else is said meanwhile."""
    paths = Paths(4, kinds=BOTH)
    paths.world.run(30)
    paths.cut |= set(cut)
    paths.world.run(30)
    before = paths.hops["n0"]["n1"]
    said: list[do.Hop] = []
    node = paths.world.nodes["n0"]
    recalled, found = node.core.recalled, tuple(node.core.paths)
    paths.world.kill("n0")
    node.late, node.paths = recalled, found

    def watch(other: Node, effect: do.Effect) -> None:
        if other is node and isinstance(effect, do.Hop):
            said.append(effect)

    paths.world.watchers.append(watch)
    paths.world.start("n0")
    paths.world.run(90)
    ways = {(paths.named(hop.key), hop.next.name, hop.kind) for hop in said}
    assert {way for way in ways if way[0] == "n1"} == {("n1", before.next.name, before.kind)}
    assert not node.core.members[node.key].cannot or len(cut) == 2


def test_a_node_that_does_not_relay_is_on_no_way_of_others():
    paths = Paths(4)
    paths.block(("n0", "n1"))
    assert paths.until(10, both("n0", "n1"), ["n2", "n3"])
    relay = paths.relay("n0", "n1")
    paths.world.nodes[relay].relays = False
    paths.world.ask(relay, paths.world.nodes[relay].published)
    assert paths.until(2, both("n0", "n1"), {"n2", "n3"} - {relay})


@pytest.mark.long
def test_a_spare_path_is_asked_four_times_less_while_nothing_is_missed():
    paths = Paths(2, kinds=BOTH)
    paths.world.run(120)
    paths.probes.clear()
    paths.world.run(2400)
    sent = [(source, kind) for source, _, kind, _ in paths.probes]
    assert 9 <= sent.count(("n0", "direct")) <= 11


def test_nobody_waits_for_the_first_word_of_a_path():
    """… also where no pod speaks: a way that does not carry is left before a pod needs it."""
    paths = Paths(3, kinds=BOTH)
    paths.idle = set(paths.world.nodes)
    paths.block(("n0", "n1"))
    assert paths.until(10, both("n0", "n1"), ["n2"])


@pytest.mark.long
@pytest.mark.parametrize("kinds", [VXLAN, BOTH], ids=["vxlan", "both"])
@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 20))])
def test_s16_after_any_change_of_paths_all_agree_on_ways_without_loops(seed: int, kinds: tuple[WayKind, ...]):
    paths = Paths(7, seed, kinds)
    chance = paths.world.chance
    for _ in range(4):
        change(paths, kinds, 0.2)
        paths.world.run(80)  # longer than any of these returns waits
        assert_reached(paths)
    assert chance.random()


def change(paths: Paths, kinds: tuple[WayKind, ...], share: float) -> None:
    """Let some pairs fall or come back, each by some kinds and in one direction or both."""
    chance = paths.world.chance
    for one, other in permutations(paths.world.nodes, 2):
        for kind in kinds:
            if chance.random() < share / 2:
                paths.cut ^= {(one, other, kind)}
            if one < other and chance.random() < share / 2:
                paths.cut -= {(one, other, kind), (other, one, kind)}


def assert_reached(paths: Paths) -> None:
    """Checker C5, and that a packet arrives wherever one could."""
    for one, other in permutations(paths.world.nodes, 2):
        assert paths.walked(one, other) == paths.walked(other, one)[::-1]
        assert not paths.linked(one, other) or paths.arrives(one, other)


# --- What happens without one of the rules


def one_hears_nothing():
    paths = Paths(3)
    paths.idle = {"n1"}
    paths.world.run(90)
    paths.block(("n0", "n1"))
    paths.world.run(15)
    assert_reached(paths)


def no_path_carries():
    paths = Paths(2, kinds=BOTH)
    paths.world.run(30)
    paths.block(("n0", "n1"))
    paths.world.run(30)
    assert straight(paths, "n0", "n1", "vxlan")


def one_kind_carries():
    paths = Paths(2, kinds=BOTH)
    paths.block(("n0", "n1"), kinds=VXLAN)
    paths.world.run(30)
    assert_reached(paths)


def one_word_does_not_count(patch: pytest.MonkeyPatch) -> None:
    """A pair is usable though one end lists the other."""
    apart = Pairs.apart

    def listed_by_both(self: Pairs, key: bytes) -> set[bytes]:
        return {other for other in apart(self, key) if self.shorts[other] in self._names[key]}

    patch.setattr(Pairs, "apart", listed_by_both)


def not_proved(patch: pytest.MonkeyPatch) -> None:
    """A way is left for one that has answered some time ago."""
    patch.setattr(Path, "proved", property(lambda self: self.usable is True))


def by_another_path(patch: pytest.MonkeyPatch) -> None:
    """An answer counts by whichever path it came."""
    saw = Core.saw

    def seen(self: Core, sights: do.Sights, now: float) -> list[do.Effect]:
        answered = tuple(replace(each, kind=kind) for each in sights.answered for kind in BOTH)
        return saw(self, replace(sights, answered=answered), now)

    patch.setattr(Core, "saw", seen)


@pytest.mark.parametrize(
    "history, fault",
    [
        (one_hears_nothing, one_word_does_not_count),
        (no_path_carries, not_proved),
        (one_kind_carries, by_another_path),
    ],
)
def test_a_fault_that_is_planted_is_found(
    history: Callable[[], None], fault: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
):
    history()
    fault(monkeypatch)
    with pytest.raises(AssertionError):
        history()
