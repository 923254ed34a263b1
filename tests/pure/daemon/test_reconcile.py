"""Deciding and the loop of a plane, over a kernel made of a dictionary."""

import asyncio
from collections.abc import Collection
from types import SimpleNamespace

import pytest

from tests.pure.daemon.reconciling import LINK, ROUTE, Node
from tests.pure.desired.rosters import changed
from tests.pure.replay import remove
from tests.support import builders
from weft.desired.backends import vxlan
from weft.model.kernel.objects import Key, Object, Objects, Route
from weft.model.value import replace


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
    node.reconciler.peers(changed(node.roster, put=[builders.lease(7, vxlan, public_ip=builders.public_v4(250))]))
    await node.settle()
    assert computed == ["10.5.7.0-24"]
    assert node.kernel.looks == looks
    assert [step.object.key[0] for step in node.kernel.applied] == ["fdb"]


@pytest.mark.spec("flannel.md §6.2/peer-changed")
async def test_a_new_mac_leaves_no_old_fdb_entry():
    node = await Node().start()
    moved = builders.lease(2, vxlan, data={"VNI": 1, "VtepMAC": str(builders.mac(77))})
    node.reconciler.peers(changed(node.roster, put=[moved]))
    await node.settle()
    macs = {thing.mac for thing in node.kernel.state.values() if thing.key[0] == "fdb"}
    assert macs == {builders.mac(77), builders.mac(3), builders.mac(4)}


@pytest.mark.spec("flannel.md §6.2/peer-removed", "flannel.md §6.3/peer-removed")
async def test_a_peer_that_leaves_takes_exactly_its_objects_along():
    node = await Node().start()
    node.reconciler.peers(changed(node.roster, gone=["10.5.2.0-24"]))
    await node.settle()
    assert len(node.kernel.applied) == 3
    assert node.kernel.state == builders.wanted(builders.inputs(1), [builders.lease(n, vxlan) for n in (3, 4)])


async def test_an_unusable_peer_costs_itself_alone():
    node = Node()
    changed(node.roster, put=[builders.lease(5, vxlan, backend="host-gw")])
    await node.everything()
    assert node.decider.unusable.keys() == {"10.5.5.0-24"}
    assert len(node.kernel.state) == 12
    node.reconciler.peers(changed(node.roster, put=[builders.lease(5, vxlan)]))
    await node.settle()
    assert not node.decider.unusable
    assert len(node.kernel.state) == 15


async def test_quiet_time_ends_in_a_sweep():
    node = await Node().start()
    node.kernel.sweep = 0.01
    marks = await node.keeper._next()
    assert (marks.look, marks.sweep) == (True, True)


async def test_the_loop_runs_until_cancelled():
    node = Node()
    node.keeper.look_again()
    node.reconciler.decide_all_again()
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
    touched = changed(node.roster, put=[new], gone=[old.id])
    assert touched == {old.id, new.id}
    in_order = [old.id, new.id] if first == "old" else [new.id, old.id]
    for lease_id in in_order:
        node.keeper.decided(node.decider.decide_peers([lease_id]))
    await node.settle()
    assert node.kernel.state == node.wanted
    assert node.kernel.state["fdb", "flannel.1", builders.mac(2)]
    node.reconciler.peers(changed(node.roster, gone=[new.id]))
    await node.settle()
    assert len(node.kernel.state) == 3 + 2 * 3


async def test_it_is_measured_how_long_it_takes_from_the_stores_word_to_the_kernel():
    node = await Node().start()
    assert node.tally.took.total == 0
    node.reconciler.peers(changed(node.roster, put=[builders.lease(9, vxlan)]), node.now)
    node.now += 2.0
    node.reconciler.peers(changed(node.roster, put=[builders.lease(10, vxlan)]), node.now)
    node.now += 1.0
    await node.settle()
    assert (node.tally.took.total, sum(node.tally.took.counts)) == (3.0, 1)
    node.delete(next(iter(node.wanted)))  # a repair is none of the store's
    await node.settle()
    assert sum(node.tally.took.counts) == 1


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


async def test_a_device_comes_back_before_what_changes_at_the_same_time():
    node = await Node().start()
    remove(node.kernel.state, LINK)
    node.keeper.look_again()
    node.reconciler.peers(changed(node.roster, put=[builders.lease(9, vxlan)]))
    await node.settle()
    assert node.kernel.state == node.wanted
    assert len(node.kernel.applied) == len(node.kernel.state)


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
    changed(node.roster, gone=[builders.lease(2, vxlan).id])
    node.decider.inputs = builders.inputs(1)
    slices: list[set[Key]] = []

    def handed(keys: set[Key], _since: float | None) -> None:
        slices.append({key for key in keys if not node.reconciler.may_remove()})

    node.reconciler.keepers.append(SimpleNamespace(decided=handed, compare_all=lambda: None))
    node.reconciler.decide_all_again()
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
    node.reconciler.decide_all_again()
    with pytest.raises(ZeroDivisionError):
        await node.reconciler.decide()
    assert node.reconciler.may_remove()
    monkeypatch.undo()
    await node.everything()
    assert node.kernel.state == node.wanted
