"""Deciding and the loop of a plane, over a kernel made of a dictionary."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from types import SimpleNamespace

import pytest

from tests.pure.replay import remove, replay
from tests.support import builders
from weft.daemon.planes.plane import Tally
from weft.daemon.reconcile import Reconciler
from weft.daemon.state import peer_state
from weft.desired.backends import vxlan
from weft.desired.decide import Decider
from weft.desired.leasecheck import Ours
from weft.desired.roster import Roster
from weft.model.errors import Failure
from weft.model.kernel.objects import Key, Object, Objects, Route
from weft.model.node.history import History
from weft.model.value import replace
from weft.plan.diff import Step

ROUTE = builders.wanted(builders.inputs(), [builders.lease(2, vxlan)])[
    ("route", 254, int(builders.subnet_v4(2).network_address), 24, 0)
]
LINK: Key = ("link", "flannel.1")


class FakeKernel:
    """Applies steps, remembers them, and refuses the keys it is told to."""

    kinds = frozenset({"link", "nodelink", "sysctl", "address", "neighbour", "fdb", "route"})
    sweep = 60.0
    announces = True
    blind = False
    counts: Mapping[str, int] = {}

    def __init__(self) -> None:
        self.state: dict[Key, Object] = {}
        self.applied: list[Step] = []
        self.refused: set[Key] = set()
        self.looks = 0
        self.during: Callable[[], None] = lambda: None

    async def look(self, _: Objects, _only: Collection[Key] | None, /) -> dict[Key, Object]:
        self.looks += 1
        return dict(self.state)

    async def apply(self, steps: Sequence[Step]) -> list[Failure]:
        good = [step for step in steps if step.object.key not in self.refused]
        self.state = replay(self.state, good)
        self.applied += steps
        self.during()
        return [Failure(step=step, errno=1, message="refused") for step in steps if step not in good]


class Node:
    """A reconciler of node 1 with its kernel and a clock that stands still."""

    def __init__(self, peers: int = 3) -> None:
        self.kernel = FakeKernel()
        self.now = 0.0
        ours = Ours(networks=(builders.NETWORK_V4,), subnets=(builders.subnet_v4(1),))
        self.roster = Roster(ours)
        self.decider = Decider(builders.inputs(1), self.roster.believed)
        self.reconciler = Reconciler(self.decider, clock=lambda: self.now)
        self.reconciler.complete = True
        self.history = History()
        self.keeper = self.reconciler.keep(self.kernel, history=self.history)
        self.roster.listed([builders.lease(node, vxlan) for node in range(2, 2 + peers)])

    @property
    def wanted(self) -> Objects:
        """What the plane is for."""
        return {key: thing for key, thing in self.decider.wanted.items() if key[0] in self.kernel.kinds}

    @property
    def tally(self) -> Tally:
        return self.keeper.tally

    async def start(self) -> "Node":
        await self.everything()
        self.kernel.applied.clear()
        return self

    async def everything(self) -> None:
        """Look at everything, and decide it anew."""
        self.reconciler.everything()
        await self.look()

    async def look(self) -> None:
        """Look at everything."""
        self.keeper.look_again()
        await self.settle()

    async def again(self, key: Key) -> None:
        """Compare one object."""
        self.keeper.changed([key])
        await self.settle()

    async def settle(self) -> None:
        """Decide and act until there is nothing to do."""
        while self.reconciler.is_deciding or self.keeper._marked.is_set():
            if self.reconciler.is_deciding:
                await self.reconciler.decide()
            await self.keeper.round(self.keeper._take())

    def delete(self, key: Key) -> None:
        """Someone else deletes an object, and the kernel says so."""
        remove(self.kernel.state, key)
        self.keeper.seen(key, None)


async def test_the_first_round_puts_everything_there():
    node = Node()
    await node.everything()
    assert node.kernel.state == node.wanted
    assert len(node.kernel.state) == 3 + 3 * 3
    assert not node.tally.repairs


async def test_a_round_with_nothing_dirty_does_nothing():
    node = await Node().start()
    await node.look()
    assert node.kernel.applied == []


@pytest.mark.spec("flannel.md §6.2/reconciled", "flannel.md §6.3/route-check")
async def test_a_deleted_route_is_put_back_without_a_look():
    node = await Node().start()
    looks = node.kernel.looks
    node.delete(ROUTE.key)
    await node.settle()
    assert node.kernel.state == node.wanted
    assert [step.object for step in node.kernel.applied] == [ROUTE]
    assert node.kernel.looks == looks
    assert node.tally.repairs == {"ROUTE-001": 1}


@pytest.mark.spec("flannel.md §6.2/device-watch")
async def test_a_vanished_device_comes_back_with_everything_on_it():
    node = await Node().start()
    remove(node.kernel.state, LINK)
    node.keeper.look_again()
    await node.settle()
    assert node.kernel.state == node.wanted
    assert node.tally.repairs["VTEP-004"] == 1


async def test_strays_are_removed_only_when_the_view_is_complete():
    node = Node()
    stray = Route(dst=builders.subnet_v4(99), via=builders.public_v4(99), dev="eth0")
    node.kernel.state[stray.key] = stray
    node.reconciler.complete = False
    await node.everything()
    assert stray.key in node.kernel.state
    node.reconciler.complete = True
    await node.look()
    assert node.kernel.state == node.wanted
    assert node.tally.repairs == {"ROUTE-002": 1}


async def test_a_burst_of_marks_is_one_round():
    node = await Node().start()
    for _ in range(100):
        node.delete(ROUTE.key)
    rounds = node.tally.rounds
    await node.settle()
    assert node.tally.rounds == rounds + 1


@pytest.mark.spec("flannel.md §6.2/peer-failure-alone", "flannel.md §6.1/no-blocking-retries")
async def test_a_failing_step_blocks_nobody_and_is_tried_again(monkeypatch):
    node = Node()
    later: list[tuple[float, Key]] = []
    monkeypatch.setattr(node.keeper.retries, "later", lambda seconds, key: later.append((seconds, key)))
    node.kernel.refused = {ROUTE.key}
    await node.everything()
    assert node.kernel.state.keys() == node.wanted.keys() - {ROUTE.key}
    for _ in range(8):
        await node.again(ROUTE.key)
    assert [seconds for seconds, _ in later] == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert node.tally.failing == {ROUTE.key: "refused"}
    node.kernel.refused = set()
    await node.again(ROUTE.key)
    assert node.kernel.state == node.wanted
    assert not node.tally.failing


async def test_a_peer_lacks_what_is_not_there_yet_or_refused():
    node = Node(peers=1)
    [lease] = node.roster.believed.values()

    def lacks() -> list[str]:
        return peer_state(node.reconciler, dict.fromkeys(node.kernel.kinds, node.keeper), lease).lacks

    node.reconciler.everything()
    assert lacks() == ["what leads to it: not decided yet"]
    node.kernel.refused = {ROUTE.key}
    await node.reconciler.decide()
    there = [str(thing) for thing in node.decider.part(lease.id)]
    assert sorted(lacks()) == sorted(f"{thing}: not there yet" for thing in there)
    assert len(there) == 3
    await node.settle()
    assert lacks() == [f"{ROUTE}: refused"]
    node.kernel.refused.clear()
    await node.again(ROUTE.key)
    assert lacks() == []


async def test_the_history_says_what_a_repair_found_and_the_peer_since_when():
    node = await Node().start()
    route = node.wanted[ROUTE.key]
    assert isinstance(route, Route)
    for found in (None, replace(route, via=builders.public_v4(9))):
        node.keeper.seen(ROUTE.key, found)
        await node.settle()
    gone, other = node.history.events
    assert (gone.kind, gone.code, gone.subject, gone.was, gone.now) == ("repaired", "ROUTE-001", str(ROUTE), "gone", "")
    assert (other.was, other.now) == (f"via {builders.public_v4(9)}", f"via {route.via}")
    stray = replace(route, dst=builders.subnet_v4(99))
    node.keeper.seen(stray.key, stray)
    await node.settle()
    event = node.history.events[-1]
    assert (event.code, event.subject, event.words) == ("ROUTE-002", str(stray), "removed")


async def test_a_repair_says_who_had_done_it_in_log_and_history(caplog):
    node = await Node().start()
    route = node.wanted[ROUTE.key]
    assert isinstance(route, Route)
    node.keeper.seen(ROUTE.key, None, "perhaps ip (pid 7)")
    await node.settle()
    node.keeper.seen(ROUTE.key, replace(route, via=builders.public_v4(9)), "NetworkManager (pid 8)")
    node.keeper.seen(ROUTE.key, replace(route, via=builders.public_v4(8)))  # of the second the kernel does not tell
    await node.settle()
    stray = replace(route, dst=builders.subnet_v4(99))
    node.keeper.seen(stray.key, stray, "ip (pid 9)")
    await node.settle()
    node.delete(ROUTE.key)
    await node.settle()
    assert [event.by for event in node.history.events] == [
        "perhaps ip (pid 7)",
        "NetworkManager (pid 8)",
        "ip (pid 9)",
        "",
    ]
    assert f"put back {ROUTE}; perhaps removed by ip (pid 7)" in caplog.text
    assert f"put back {ROUTE}; changed by NetworkManager (pid 8)" in caplog.text
    assert f"removed {stray}; put there by ip (pid 9)" in caplog.text
    assert caplog.messages[-1] == f"ROUTE-001: put back {ROUTE}"


async def test_of_many_repairs_the_log_says_who_did_them(caplog):
    node = await Node(peers=40).start()
    for key in [key for key in node.kernel.state if key[0] == "route"]:
        remove(node.kernel.state, key)
        node.keeper.seen(key, None, "ip (pid 7)")
    await node.settle()
    assert caplog.messages[-1] == "repaired 40 x ROUTE-001; removed by ip (pid 7)"


async def test_of_many_repairs_at_once_the_history_has_some():
    node = await Node(peers=40).start()
    for key in [key for key in node.kernel.state if key[0] == "route"]:
        node.delete(key)
    await node.settle()
    assert [event.subject for event in node.history.events][10:] == ["30 more"]


async def test_what_is_refused_and_recovers_is_history_and_the_peers_time_begins_anew(caplog):
    caplog.set_level("INFO")
    node = Node(peers=1)
    [lease] = node.roster.believed.values()

    def seconds() -> float | None:
        return peer_state(node.reconciler, dict.fromkeys(node.kernel.kinds, node.keeper), lease, 99.0).seconds

    node.kernel.refused = {ROUTE.key}
    await node.everything()
    node.now += 5
    assert seconds() == 5.0
    await node.again(ROUTE.key)
    assert [(event.kind, event.subject, event.words) for event in node.history.events] == [
        ("failing", str(ROUTE), "refused")
    ]
    node.kernel.refused = set()
    await node.again(ROUTE.key)
    node.now += 2
    assert seconds() == 2.0
    assert [(event.kind, event.subject) for event in node.history.events][1:] == [("recovered", str(ROUTE))]
    assert f"ROUTE-001: put back {ROUTE}" in caplog.text
    node.now += 200
    assert seconds() == 99.0, "its lease has changed since"


async def test_what_another_program_mends_has_recovered(caplog):
    caplog.set_level("INFO")
    node = Node(peers=1)
    node.kernel.refused = {ROUTE.key}
    await node.everything()
    node.keeper.seen(ROUTE.key, node.wanted[ROUTE.key])
    await node.again(ROUTE.key)
    assert [event.kind for event in node.history.events] == ["failing", "recovered"]
    assert f"no more refused: {ROUTE}" in caplog.text


async def test_what_is_wanted_no_more_has_not_recovered():
    node = Node(peers=1)
    [lease] = node.roster.believed.values()
    node.kernel.refused = {ROUTE.key}
    await node.everything()
    node.reconciler.peers(node.roster.changed(gone=[lease.id]))
    await node.settle()
    assert [event.kind for event in node.history.events] == ["failing"]
    assert node.keeper.retries.age(ROUTE.key) is None


async def test_a_fight_is_fought_less_and_less(monkeypatch, caplog):
    node = await Node().start()
    later: list[float] = []
    monkeypatch.setattr(node.keeper.retries, "later", lambda seconds, _key: later.append(seconds))
    for _ in range(50):
        remove(node.kernel.state, ROUTE.key)
        node.keeper.seen(ROUTE.key, None, "ip (pid 7)")
        await node.settle()
    held = next(event for event in node.history.events if event.kind == "held")
    assert held.blame == "changed by ip (pid 7)"
    assert node.tally.repairs["ROUTE-001"] == 20
    assert set(later) == {3.0}
    assert caplog.text.count("someone keeps changing route") == 1
    assert [event.kind for event in node.history.events].count("held") == 1
    node.now += 3.0
    await node.again(ROUTE.key)
    assert node.tally.repairs["ROUTE-001"] == 21


async def test_a_device_that_someone_keeps_changing_is_never_left_deleted(monkeypatch):
    node = await Node().start()
    monkeypatch.setattr(node.keeper.retries, "later", lambda *_: None)
    for _ in range(30):
        link = node.wanted[LINK]
        remove(node.kernel.state, LINK)
        node.kernel.state[LINK] = replace(link, port=4789)
        await node.look()
        assert LINK in node.kernel.state
    assert node.tally.repairs["VTEP-003"] == 20 + 20  # the link and its setting
    assert "ROUTE-002" not in node.tally.repairs


async def test_a_notice_during_apply_is_newer_than_our_step():
    node = await Node().start()
    node.delete(ROUTE.key)

    def deleted_again() -> None:
        node.kernel.during = lambda: None
        node.delete(ROUTE.key)

    node.kernel.during = deleted_again
    await node.settle()
    assert node.kernel.state == node.wanted


@pytest.mark.spec("flannel.md §6.3/no-dumps-per-add")
async def test_one_event_computes_one_peer(monkeypatch):
    computed: list[str] = []
    node = Node(peers=200)
    way = vxlan.peer

    def peer(inputs, lease):
        computed.append(lease.id)
        return way(inputs, lease)

    monkeypatch.setattr(vxlan, "peer", peer)
    await node.start()
    assert len(computed) == 200
    computed.clear()
    looks = node.kernel.looks
    node.reconciler.peers(node.roster.changed(put=[builders.lease(7, vxlan, public_ip=builders.public_v4(250))]))
    await node.settle()
    assert computed == ["10.5.7.0-24"]
    assert node.kernel.looks == looks
    assert [step.object.key[0] for step in node.kernel.applied] == ["fdb"]


@pytest.mark.spec("flannel.md §6.2/peer-changed")
async def test_a_new_mac_leaves_no_old_fdb_entry():
    node = await Node().start()
    moved = builders.lease(2, vxlan, data={"VNI": 1, "VtepMAC": str(builders.mac(77))})
    node.reconciler.peers(node.roster.changed(put=[moved]))
    await node.settle()
    macs = {thing.mac for thing in node.kernel.state.values() if thing.key[0] == "fdb"}
    assert macs == {builders.mac(77), builders.mac(3), builders.mac(4)}


@pytest.mark.spec("flannel.md §6.2/peer-removed", "flannel.md §6.3/peer-removed")
async def test_a_peer_that_leaves_takes_exactly_its_objects_along():
    node = await Node().start()
    node.reconciler.peers(node.roster.changed(gone=["10.5.2.0-24"]))
    await node.settle()
    assert len(node.kernel.applied) == 3
    assert node.kernel.state == builders.wanted(builders.inputs(1), [builders.lease(n, vxlan) for n in (3, 4)])


async def test_an_unusable_peer_costs_itself_alone():
    node = Node()
    node.roster.changed(put=[builders.lease(5, vxlan, backend="host-gw")])
    await node.everything()
    assert node.decider.unusable.keys() == {"10.5.5.0-24"}
    assert len(node.kernel.state) == 12
    node.reconciler.peers(node.roster.changed(put=[builders.lease(5, vxlan)]))
    await node.settle()
    assert not node.decider.unusable
    assert len(node.kernel.state) == 15


async def test_what_no_notice_announced_is_counted_by_the_sweep():
    node = await Node().start()
    remove(node.kernel.state, ROUTE.key)
    node.kernel.sweep = 0.0
    await node.keeper.round(await node.keeper._next())
    assert node.kernel.state == node.wanted
    assert node.tally.unannounced == 1


async def test_what_a_look_was_asked_for_is_not_counted_as_unannounced():
    node = await Node().start()
    remove(node.kernel.state, ROUTE.key)
    node.keeper.look_again()
    await node.settle()
    assert node.tally.unannounced == 0


async def test_quiet_time_ends_in_a_sweep():
    node = await Node().start()
    node.kernel.sweep = 0.01
    marks = await node.keeper._next()
    assert (marks.look, marks.sweep) == (True, True)


async def test_the_loop_runs_until_cancelled():
    node = Node()
    node.keeper.look_again()
    node.reconciler.everything()
    done = asyncio.Event()
    node.kernel.during = lambda: done.set() if len(node.kernel.state) == 12 else None
    tasks = [asyncio.create_task(each.run()) for each in (node.reconciler, node.keeper)]
    await done.wait()
    assert node.kernel.state == node.wanted
    for task in tasks:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


@pytest.mark.parametrize("first", ["old", "new"])
async def test_a_node_that_moves_to_another_subnet_keeps_its_fdb_entry(first):
    node = await Node().start()
    old = builders.lease(2, vxlan)
    new = replace(old, id="10.5.77.0-24", v4=builders.subnet_v4(77))
    touched = node.roster.changed(put=[new], gone=[old.id])
    assert touched == {old.id, new.id}
    in_order = [old.id, new.id] if first == "old" else [new.id, old.id]
    for lease_id in in_order:
        node.keeper.decided(node.decider.decide_peers([lease_id]))
    await node.settle()
    assert node.kernel.state == node.wanted
    assert node.kernel.state["fdb", "flannel.1", builders.mac(2)]
    node.reconciler.peers(node.roster.changed(gone=[new.id]))
    await node.settle()
    assert len(node.kernel.state) == 3 + 2 * 3


async def test_it_is_measured_how_long_it_takes_from_the_stores_word_to_the_kernel():
    node = await Node().start()
    assert node.tally.took.total == 0
    node.reconciler.peers(node.roster.changed(put=[builders.lease(9, vxlan)]), node.now)
    node.now += 2.0
    node.reconciler.peers(node.roster.changed(put=[builders.lease(10, vxlan)]), node.now)
    node.now += 1.0
    await node.settle()
    assert (node.tally.took.total, sum(node.tally.took.counts)) == (3.0, 1)
    node.delete(next(iter(node.wanted)))  # a repair is none of the store's
    await node.settle()
    assert sum(node.tally.took.counts) == 1


def alarms() -> int:
    """How many alarms of the event loop wait."""
    return sum(not timer.cancelled() for timer in asyncio.get_running_loop()._scheduled)


async def test_other_reasons_to_try_again_add_no_alarms():
    node = await Node().start()
    node.kernel.refused = {ROUTE.key}
    node.delete(ROUTE.key)
    await node.settle()
    waiting = alarms()
    for _ in range(20):
        node.keeper.try_again()
        await node.settle()
    assert alarms() == waiting == 1


async def test_a_refused_object_that_nobody_wants_any_more_is_forgotten():
    node = await Node().start()
    node.kernel.refused = {ROUTE.key}
    node.delete(ROUTE.key)
    await node.settle()
    assert ROUTE.key in node.tally.failing
    node.reconciler.peers(node.roster.changed(gone=["10.5.2.0-24"]))
    await node.settle()
    assert not node.tally.failing
    assert alarms() == 0


async def test_what_was_refused_for_long_is_put_back_at_the_first_chance():
    node = await Node().start()
    node.kernel.refused = {ROUTE.key}
    node.delete(ROUTE.key)
    await node.settle()
    for _ in range(30):
        node.now += 60
        node.keeper.try_again()
        await node.settle()
    node.kernel.refused = set()
    node.keeper.try_again()
    await node.settle()
    assert node.kernel.state == node.wanted


async def test_what_sat_on_a_device_is_not_left_behind_when_that_can_be_made_again():
    """Each object has an alarm of its own, and the pauses grow while the device cannot be made."""
    node = await Node().start()
    node.kernel.refused = {LINK, *(key for key, thing in node.kernel.state.items() if thing.link == "flannel.1")}
    remove(node.kernel.state, LINK)
    node.keeper.look_again()
    await node.settle()
    for _ in range(10):
        node.keeper.try_again()
        await node.settle()
    assert max(timer.when() for timer in asyncio.get_running_loop()._scheduled) > asyncio.get_running_loop().time() + 9
    link = node.keeper.retries._alarms[LINK]
    assert link.when() < asyncio.get_running_loop().time() + 5, "a node without its device waits for no minute"
    node.kernel.refused = set()
    node.keeper.changed([LINK])
    await node.settle()
    assert node.kernel.state == node.wanted


async def test_a_notice_during_a_look_is_newer_than_the_lists():
    """The list of routes has been read, that of something else has not, and somebody deletes a route."""
    node = await Node().start()
    look = node.kernel.look

    async def looking(known: Objects, only: Collection[Key] | None, /) -> dict[Key, Object]:
        seen = await look(known, only)
        node.kernel.look = look
        node.delete(ROUTE.key)
        return seen

    node.kernel.look = looking
    node.keeper.look_again()
    await node.settle()
    assert node.kernel.state == node.wanted
    assert node.tally.unannounced == 0


async def test_a_peer_that_comes_during_a_look_is_no_repair():
    node = await Node().start()
    look = node.kernel.look

    async def looking(known: Objects, only: Collection[Key] | None, /) -> dict[Key, Object]:
        seen = await look(known, only)
        node.kernel.look = look
        node.roster.listed([builders.lease(number, vxlan) for number in range(2, 6)])
        node.reconciler.everything()
        await node.reconciler.decide()
        return seen

    node.kernel.look = looking
    node.keeper.look_again()
    await node.settle()
    assert node.kernel.state == node.wanted
    assert [step.object.key[0] for step in node.kernel.applied] == ["neighbour", "fdb", "route"]
    assert not node.tally.repairs


async def test_a_device_comes_back_before_what_changes_at_the_same_time():
    node = await Node().start()
    remove(node.kernel.state, LINK)
    node.keeper.look_again()
    node.reconciler.peers(node.roster.changed(put=[builders.lease(9, vxlan)]))
    await node.settle()
    assert node.kernel.state == node.wanted
    assert len(node.kernel.applied) == len(node.kernel.state)


async def test_a_look_that_fails_ends_nothing_and_loses_nothing(monkeypatch, caplog):
    monkeypatch.setattr("weft.daemon.planes.plane.FIRST_SECONDS", 0.01)
    node = await Node().start()
    look = node.kernel.look

    async def torn(*_: object) -> dict[Key, Object]:
        node.kernel.look = look
        raise OSError(4, "the kernel's list kept changing while it was read")

    node.kernel.look = torn
    remove(node.kernel.state, ROUTE.key)  # unannounced: a look alone finds it
    node.keeper.look_again()
    node.reconciler.peers(node.roster.changed(put=[builders.lease(9, vxlan)]))
    done = asyncio.Event()
    node.kernel.during = done.set
    await node.reconciler.decide()
    task = asyncio.create_task(node.keeper.run())
    await asyncio.wait_for(done.wait(), 1)
    task.cancel()
    assert node.kernel.state == node.wanted
    assert len(node.kernel.state) == 15
    assert "kept changing" in caplog.text


async def test_a_sweep_comes_in_time_however_busy_the_node_is():
    node = await Node().start()
    node.kernel.sweep = 0.05
    clock = asyncio.get_running_loop().time
    sweeps, start = 0, clock()
    for _ in range(30):
        node.keeper.changed([ROUTE.key])
        sweeps += (await node.keeper._next()).sweep
        await asyncio.sleep(0.01)
    assert 3 <= sweeps <= (clock() - start) / 0.05 + 1


async def test_nothing_is_removed_before_all_of_a_decision_is_known():
    """A node that takes another subnet decides anew about every peer, slice by slice."""
    node = await Node(peers=200).start()
    node.roster.changed(gone=[builders.lease(2, vxlan).id])
    node.decider.inputs = builders.inputs(1)
    slices: list[set[Key]] = []

    def handed(keys: set[Key], _since: float | None) -> None:
        slices.append({key for key in keys if not node.reconciler.may_remove()})

    node.reconciler.keepers.append(SimpleNamespace(decided=handed, compare_all=lambda: None))
    node.reconciler.everything()
    await node.settle()
    assert [bool(keys) for keys in slices] == [True, True, True, False], "removing is allowed after the last slice"
    assert node.kernel.state == node.wanted


async def test_a_decision_that_fails_keeps_nothing_from_being_removed_for_ever(monkeypatch):
    node = Node(peers=200)  # more than a slice
    decide = node.decider._peer

    def planted(lease_id: str) -> set[Key]:
        if lease_id == max(node.roster.believed):
            raise ZeroDivisionError
        return decide(lease_id)

    monkeypatch.setattr(node.decider, "_peer", planted)
    node.reconciler.everything()
    with pytest.raises(ZeroDivisionError):
        await node.reconciler.decide()
    assert node.reconciler.may_remove()
    monkeypatch.undo()
    await node.everything()
    assert node.kernel.state == node.wanted
