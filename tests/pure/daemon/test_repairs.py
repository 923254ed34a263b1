"""What is refused, or changed by others: it is tried again, told once, and fought over less and less."""

import asyncio
from collections.abc import Collection

import pytest

from tests.pure.daemon.reconciling import LINK, ROUTE, Node
from tests.pure.desired.rosters import changed, listed
from tests.pure.replay import remove
from tests.support import builders
from tests.support.waiting import HANGS
from weft.daemon.state import peer_state
from weft.desired.backends import vxlan
from weft.model.kernel.objects import Key, Object, Objects, Route
from weft.model.value import replace


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

    node.reconciler.decide_all_again()
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
    node.reconciler.peers(changed(node.roster, gone=[lease.id]))
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
    node.reconciler.peers(changed(node.roster, gone=["10.5.2.0-24"]))
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


async def test_a_peer_that_comes_during_a_look_is_no_repair():
    node = await Node().start()
    look = node.kernel.look

    async def looking(known: Objects, only: Collection[Key] | None, /) -> dict[Key, Object]:
        seen = await look(known, only)
        node.kernel.look = look
        listed(node.roster, [builders.lease(number, vxlan) for number in range(2, 6)])
        node.reconciler.decide_all_again()
        await node.reconciler.decide()
        return seen

    node.kernel.look = looking
    node.keeper.look_again()
    await node.settle()
    assert node.kernel.state == node.wanted
    assert [step.object.key[0] for step in node.kernel.applied] == ["neighbour", "fdb", "route"]
    assert not node.tally.repairs


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
    node.reconciler.peers(changed(node.roster, put=[builders.lease(9, vxlan)]))
    done = asyncio.Event()
    node.kernel.during = done.set
    await node.reconciler.decide()
    task = asyncio.create_task(node.keeper.run())
    await asyncio.wait_for(done.wait(), HANGS)
    task.cancel()
    assert node.kernel.state == node.wanted
    assert len(node.kernel.state) == 15
    assert "kept changing" in caplog.text
