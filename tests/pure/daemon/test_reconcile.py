"""The loop over a kernel made of a dictionary."""

import asyncio
from collections.abc import Callable, Sequence
from types import SimpleNamespace

import pytest

from tests.support import builders
from tests.support.replay import remove, replay
from weft.daemon.dirty import Dirty, Wake
from weft.daemon.reconcile import Reconciler
from weft.desired.backends import vxlan
from weft.desired.harm import Ours
from weft.desired.roster import Roster
from weft.model.errors import Failure
from weft.model.objects import Key, Object, Objects, Route
from weft.model.value import replace
from weft.plan.diff import Step

ALL = Dirty(everything=True, inputs=True)
ROUTE = builders.wanted(vxlan, builders.inputs(), [builders.lease(2, vxlan)])[
    ("route", 254, builders.subnet_v4(2).network_address.packed, 24, 0)
]
LINK: Key = ("link", "flannel.1")


class FakeKernel:
    """Applies steps, remembers them, and refuses the keys it is told to."""

    def __init__(self) -> None:
        self.state: dict[Key, Object] = {}
        self.applied: list[Step] = []
        self.refused: set[Key] = set()
        self.looks = 0
        self.during: Callable[[], None] = lambda: None

    async def look(self, _: Objects, /) -> dict[Key, Object]:
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
        self.loop = Reconciler(
            self.kernel,
            vxlan,
            inputs=builders.inputs(1),
            roster=Roster(ours),
            clock=lambda: self.now,
        )
        self.loop.complete = True
        self.loop.roster.listed([builders.lease(node, vxlan) for node in range(2, 2 + peers)])

    async def start(self) -> "Node":
        await self.loop.round(ALL)
        self.kernel.applied.clear()
        return self

    async def settle(self) -> None:
        """Rounds until nothing is dirty."""
        while self.loop.wake._dirty:
            await self.loop.round(await self.loop.wake.next(at_most=1))

    def delete(self, key: Key) -> None:
        """Someone else deletes an object, and the kernel says so."""
        remove(self.kernel.state, key)
        self.loop.seen(key, None)


async def test_the_first_round_puts_everything_there():
    node = Node()
    await node.loop.round(ALL)
    assert node.kernel.state == node.loop.wanted
    assert len(node.kernel.state) == 3 + 3 * 3
    assert not node.loop.tally.repairs


async def test_a_round_with_nothing_dirty_does_nothing():
    node = await Node().start()
    await node.loop.round(Dirty(everything=True))
    assert node.kernel.applied == []


@pytest.mark.spec("flannel.md §6.2/reconciled", "flannel.md §6.3/route-check")
async def test_a_deleted_route_is_put_back_without_a_look():
    node = await Node().start()
    looks = node.kernel.looks
    node.delete(ROUTE.key)
    await node.settle()
    assert node.kernel.state == node.loop.wanted
    assert [step.object for step in node.kernel.applied] == [ROUTE]
    assert node.kernel.looks == looks
    assert node.loop.tally.repairs == {"ROUTE-001": 1}


@pytest.mark.spec("flannel.md §6.2/device-watch")
async def test_a_vanished_device_comes_back_with_everything_on_it():
    node = await Node().start()
    remove(node.kernel.state, LINK)
    node.loop.wake.everything()
    await node.settle()
    assert node.kernel.state == node.loop.wanted
    assert node.loop.tally.repairs["VTEP-004"] == 1


async def test_strays_are_removed_only_when_the_view_is_complete():
    node = Node()
    stray = Route(dst=builders.subnet_v4(99), via=builders.public_v4(99), dev="eth0")
    node.kernel.state[stray.key] = stray
    node.loop.complete = False
    await node.loop.round(ALL)
    assert stray.key in node.kernel.state
    node.loop.complete = True
    await node.loop.round(Dirty(everything=True))
    assert node.kernel.state == node.loop.wanted
    assert node.loop.tally.repairs == {"ROUTE-002": 1}


async def test_a_burst_of_marks_is_one_round():
    node = await Node().start()
    for _ in range(100):
        node.delete(ROUTE.key)
    rounds = node.loop.tally.rounds
    await node.settle()
    assert node.loop.tally.rounds == rounds + 1


@pytest.mark.spec("flannel.md §6.2/peer-failure-alone", "flannel.md §6.1/no-blocking-retries")
async def test_a_failing_step_blocks_nobody_and_is_tried_again(monkeypatch):
    node = Node()
    later: list[tuple[float, Key]] = []
    monkeypatch.setattr(node.loop._retries, "later", lambda seconds, key: later.append((seconds, key)))
    node.kernel.refused = {ROUTE.key}
    await node.loop.round(ALL)
    assert node.kernel.state.keys() == node.loop.wanted.keys() - {ROUTE.key}
    for _ in range(8):
        await node.loop.round(Dirty(keys={ROUTE.key}))
    assert [seconds for seconds, _ in later] == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert node.loop.tally.failing == {ROUTE.key: "refused"}
    node.kernel.refused = set()
    await node.loop.round(Dirty(keys={ROUTE.key}))
    assert node.kernel.state == node.loop.wanted
    assert not node.loop.tally.failing


async def test_a_fight_is_fought_less_and_less(monkeypatch, caplog):
    node = await Node().start()
    later: list[float] = []
    monkeypatch.setattr(node.loop._retries, "later", lambda seconds, _key: later.append(seconds))
    for _ in range(50):
        node.delete(ROUTE.key)
        await node.settle()
    assert node.loop.tally.repairs["ROUTE-001"] == 20
    assert set(later) == {3.0}
    assert caplog.text.count("someone keeps changing route") == 1
    node.now += 3.0
    await node.loop.round(Dirty(keys={ROUTE.key}))
    assert node.loop.tally.repairs["ROUTE-001"] == 21


async def test_a_device_that_someone_keeps_changing_is_never_left_deleted(monkeypatch):
    node = await Node().start()
    monkeypatch.setattr(node.loop._retries, "later", lambda *_: None)
    for _ in range(30):
        link = node.loop.wanted[LINK]
        remove(node.kernel.state, LINK)
        node.kernel.state[LINK] = replace(link, port=4789)
        await node.loop.round(Dirty(everything=True))
        assert LINK in node.kernel.state
    assert node.loop.tally.repairs["VTEP-003"] == 20 + 20  # the link and its setting
    assert "ROUTE-002" not in node.loop.tally.repairs


async def test_a_notice_during_apply_is_newer_than_our_step():
    node = await Node().start()
    node.delete(ROUTE.key)

    def deleted_again() -> None:
        node.kernel.during = lambda: None
        node.delete(ROUTE.key)

    node.kernel.during = deleted_again
    await node.settle()
    assert node.kernel.state == node.loop.wanted


@pytest.mark.spec("flannel.md §6.3/no-dumps-per-add")
async def test_one_event_computes_one_peer(monkeypatch):
    computed: list[str] = []
    node = Node(peers=200)

    def peer(inputs, lease):
        computed.append(lease.id)
        return vxlan.peer(inputs, lease)

    monkeypatch.setattr(node.loop, "_backend", SimpleNamespace(shared=vxlan.shared, peer=peer))
    await node.start()
    assert len(computed) == 200
    computed.clear()
    looks = node.kernel.looks
    node.loop.wake.peers(node.loop.roster.changed(put=[builders.lease(7, vxlan, public_ip=builders.public_v4(250))]))
    await node.settle()
    assert computed == ["10.5.7.0-24"]
    assert node.kernel.looks == looks
    assert [step.object.key[0] for step in node.kernel.applied] == ["fdb"]


@pytest.mark.spec("flannel.md §6.2/peer-changed")
async def test_a_new_mac_leaves_no_old_fdb_entry():
    node = await Node().start()
    moved = builders.lease(2, vxlan, data={"VNI": 1, "VtepMAC": str(builders.mac(77))})
    node.loop.wake.peers(node.loop.roster.changed(put=[moved]))
    await node.settle()
    macs = {thing.mac for thing in node.kernel.state.values() if thing.key[0] == "fdb"}
    assert macs == {builders.mac(77), builders.mac(3), builders.mac(4)}


@pytest.mark.spec("flannel.md §6.2/peer-removed", "flannel.md §6.3/peer-removed")
async def test_a_peer_that_leaves_takes_exactly_its_objects_along():
    node = await Node().start()
    node.loop.wake.peers(node.loop.roster.changed(gone=["10.5.2.0-24"]))
    await node.settle()
    assert len(node.kernel.applied) == 3
    assert node.kernel.state == builders.wanted(vxlan, builders.inputs(1), [builders.lease(n, vxlan) for n in (3, 4)])


async def test_an_unusable_peer_costs_itself_alone():
    node = Node()
    node.loop.roster.changed(put=[builders.lease(5, vxlan, backend="host-gw")])
    await node.loop.round(ALL)
    assert node.loop.tally.unusable.keys() == {"10.5.5.0-24"}
    assert len(node.kernel.state) == 12
    node.loop.wake.peers(node.loop.roster.changed(put=[builders.lease(5, vxlan)]))
    await node.settle()
    assert not node.loop.tally.unusable
    assert len(node.kernel.state) == 15


async def test_what_no_notice_announced_is_counted_by_the_sweep():
    node = await Node().start()
    remove(node.kernel.state, ROUTE.key)
    await node.loop.round(await node.loop.wake.next(at_most=0))
    assert node.kernel.state == node.loop.wanted
    assert node.loop.tally.unannounced == 1


async def test_what_a_look_was_asked_for_is_not_counted_as_unannounced():
    node = await Node().start()
    remove(node.kernel.state, ROUTE.key)
    node.loop.wake.everything()
    await node.settle()
    assert node.loop.tally.unannounced == 0


async def test_quiet_time_ends_in_a_sweep():
    node = await Node().start()
    dirty = await node.loop.wake.next(at_most=0.01)
    assert dirty.everything
    assert not Dirty()


async def test_the_loop_runs_until_cancelled():
    node = Node()
    node.loop.wake.everything()
    node.loop.wake.inputs()
    done = asyncio.Event()
    node.kernel.during = lambda: done.set() if len(node.kernel.state) == 12 else None
    task = asyncio.create_task(node.loop.run())
    await done.wait()
    assert node.kernel.state == node.loop.wanted
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("first", ["old", "new"])
async def test_a_node_that_moves_to_another_subnet_keeps_its_fdb_entry(first):
    node = await Node().start()
    old = builders.lease(2, vxlan)
    new = replace(old, id="10.5.77.0-24", v4=builders.subnet_v4(77))
    touched = node.loop.roster.changed(put=[new], gone=[old.id])
    assert touched == {old.id, new.id}
    in_order = [old.id, new.id] if first == "old" else [new.id, old.id]
    await node.loop.round(
        SimpleNamespace(everything=False, sweep=False, inputs=False, shared=False, keys=set(), peers=in_order)
    )
    assert node.kernel.state == node.loop.wanted
    assert node.kernel.state["fdb", "flannel.1", builders.mac(2)]
    node.loop.wake.peers(node.loop.roster.changed(gone=[new.id]))
    await node.settle()
    assert len(node.kernel.state) == 3 + 2 * 3


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
        node.loop.try_again()
        await node.settle()
    assert alarms() == waiting == 1


async def test_a_refused_object_that_nobody_wants_any_more_is_forgotten():
    node = await Node().start()
    node.kernel.refused = {ROUTE.key}
    node.delete(ROUTE.key)
    await node.settle()
    assert ROUTE.key in node.loop.tally.failing
    node.loop.wake.peers(node.loop.roster.changed(gone=["10.5.2.0-24"]))
    await node.settle()
    assert not node.loop.tally.failing
    assert alarms() == 0


async def test_what_was_refused_for_long_is_put_back_at_the_first_chance():
    node = await Node().start()
    node.kernel.refused = {ROUTE.key}
    node.delete(ROUTE.key)
    await node.settle()
    for _ in range(30):
        node.now += 60
        node.loop.try_again()
        await node.settle()
    node.kernel.refused = set()
    node.loop.try_again()
    await node.settle()
    assert node.kernel.state == node.loop.wanted


async def test_what_sat_on_a_device_is_not_left_behind_when_that_can_be_made_again():
    """Each object has an alarm of its own, and the pauses grow while the device cannot be made."""
    node = await Node().start()
    node.kernel.refused = {LINK, *(key for key, thing in node.kernel.state.items() if thing.link == "flannel.1")}
    remove(node.kernel.state, LINK)
    node.loop.wake.everything()
    await node.settle()
    for _ in range(10):
        node.loop.try_again()
        await node.settle()
    assert max(timer.when() for timer in asyncio.get_running_loop()._scheduled) > asyncio.get_running_loop().time() + 9
    link = node.loop._retries._alarms[LINK]
    assert link.when() < asyncio.get_running_loop().time() + 5, "a node without its device waits for no minute"
    node.kernel.refused = set()
    node.loop.wake.keys([LINK])
    await node.settle()
    assert node.kernel.state == node.loop.wanted


async def test_a_notice_during_a_look_is_newer_than_the_lists():
    """The list of routes has been read, that of something else has not, and somebody deletes a route."""
    node = await Node().start()
    look = node.kernel.look

    async def looking(known: Objects, /) -> dict[Key, Object]:
        seen = await look(known)
        node.kernel.look = look
        node.delete(ROUTE.key)
        return seen

    node.kernel.look = looking
    node.loop.wake.everything()
    await node.settle()
    assert node.kernel.state == node.loop.wanted
    assert node.loop.tally.unannounced == 0


async def test_a_device_comes_back_before_what_changes_at_the_same_time():
    node = await Node().start()
    remove(node.kernel.state, LINK)
    node.loop.wake.everything()
    node.loop.wake.peers(node.loop.roster.changed(put=[builders.lease(9, vxlan)]))
    await node.settle()
    assert node.kernel.state == node.loop.wanted
    assert len(node.kernel.applied) == len(node.kernel.state)


async def test_a_look_that_fails_ends_nothing_and_loses_nothing(monkeypatch, caplog):
    monkeypatch.setattr("weft.daemon.reconcile.FIRST_SECONDS", 0.01)
    node = await Node().start()
    look = node.kernel.look

    async def torn(_: Objects, /) -> dict[Key, Object]:
        node.kernel.look = look
        raise OSError(4, "the kernel's list kept changing while it was read")

    node.kernel.look = torn
    node.loop.wake.everything()
    node.loop.wake.peers(node.loop.roster.changed(put=[builders.lease(9, vxlan)]))
    done = asyncio.Event()
    node.kernel.during = done.set
    task = asyncio.create_task(node.loop.run())
    await asyncio.wait_for(done.wait(), 1)
    task.cancel()
    assert node.kernel.state == node.loop.wanted
    assert len(node.kernel.state) == 15
    assert "kept changing" in caplog.text


async def test_a_sweep_comes_in_time_however_busy_the_node_is():
    wake = Wake()
    clock = asyncio.get_running_loop().time
    sweeps, start = 0, clock()
    for _ in range(30):
        wake.keys([ROUTE.key])
        sweeps += (await wake.next(at_most=0.05)).sweep
        await asyncio.sleep(0.01)
    assert 3 <= sweeps <= (clock() - start) / 0.05 + 1


async def test_a_round_that_fails_leaves_no_work_under_way(monkeypatch):
    node = Node(peers=200)  # more than a slice
    decide = node.loop._decide_peer

    def planted(lease_id: str) -> set[Key]:
        if lease_id == max(node.loop.roster.believed):
            raise ZeroDivisionError
        return decide(lease_id)

    async def slow(steps: Sequence[Step]) -> list[Failure]:
        for _ in range(5):
            await asyncio.sleep(0)
        return await FakeKernel.apply(node.kernel, steps)

    monkeypatch.setattr(node.loop, "_decide_peer", planted)
    monkeypatch.setattr(node.kernel, "apply", slow)
    with pytest.raises(ZeroDivisionError):
        await node.loop.round(ALL)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    monkeypatch.undo()
    await node.loop.round(ALL)
    assert node.kernel.state == node.loop.wanted
