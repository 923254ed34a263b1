"""A peer carries out what its core wants, in its order, and nothing before the disk has what it depends on."""

import asyncio
import logging
import threading
from contextlib import nullcontext
from math import inf

import pytest

from tests.pure.cluster.mesh.meshparts import HELD, RING, FakeDisk, World, member, running, saved
from tests.support.waiting import comes
from weft.beside.tasks import awaited
from weft.cluster.mesh.held import Held
from weft.model.errors import ConfigError, Problem, Unavailable
from weft.model.mesh.effects import (
    Agreed,
    Close,
    Connect,
    Dial,
    Hop,
    Keep,
    Kept,
    Leases,
    Own,
    Probe,
    Publish,
    Rekey,
    Say,
    Send,
    Sights,
)
from weft.model.mesh.messages import Hello, Ping, Pong, Root
from weft.model.value import replace

ROOT = Root(digest=7)
STRANGER = Hello(key=b"x" * 32, run=1, name="x", ring=None)


async def test_a_node_without_a_file_is_a_new_peer_which_is_on_disk_before_it_says_so():
    world = World(FakeDisk())
    async with running(world):
        assert world.disk.saved.kept == Kept()
        assert len(world.disk.saved.secret) == 32
        assert world.links.hello() == Hello(key=world.peer.key, run=world.core.options.run, name="node1", ring=None)
        assert world.core.options.peers == ("10.0.0.5:51820",)
        assert not world.core.options.booted
        assert 0 <= world.core.chance() < 1


async def test_a_restart_is_the_same_peer_and_knows_of_a_boot():
    world = World(FakeDisk(saved()), boot="another")
    async with running(world):
        assert world.core.kept == HELD
        assert world.core.options.booted
        assert world.links.secret == b"k" * 32
        assert world.links.hello().ring == RING.id


async def test_a_boot_and_another_machine_are_over_once_the_block_is_usable(caplog):
    disk, newer = FakeDisk(saved(machine="before")), replace(HELD, version=2)
    for usable in (False, False, True):
        world = World(disk, boot="another")
        async with running(world):
            assert world.core.options.booted
            assert caplog.text.count("MESH-004 mesh.json: it was written on another machine") == 1
            world.say(Keep(kept=newer), Own(home=HELD.home, usable=usable), Send(link=1, message=ROOT))
            await comes(lambda world=world: world.links.did)
        caplog.clear()
    await comes(lambda: disk.saved == saved(newer, boot="another"))
    world = World(disk, boot="another")
    async with running(world):
        assert not world.core.options.booted
    world = World(disk, boot="another")
    world.peer.me = replace(world.peer.me, machine="a third")
    async with running(world):
        assert world.core.options.booted


async def test_what_follows_a_keep_waits_for_the_disk_and_what_came_before_does_not(caplog):
    world = World(FakeDisk(saved()))
    async with running(world):
        world.disk.full = True
        newer = replace(HELD, version=2)
        with caplog.at_level(logging.WARNING):
            world.say(Send(link=1, message=ROOT), Keep(kept=newer), Send(link=1, message=Root(digest=8)))
            await comes(lambda: world.peer.saving.unwritten is not None and world.links.did)
        assert world.links.did == [("send", 1, ROOT)]
        assert caplog.text.count("STATE-002") == 1
        world.say(Send(link=1, message=ROOT), Close(link=1, why="it has heard all"))
        await asyncio.sleep(0.02)
        assert world.links.did == [("send", 1, ROOT)]
        world.disk.full = False
        await comes(lambda: len(world.links.did) == 4)
        assert world.links.did[1:] == [
            ("send", 1, Root(digest=8)),
            ("send", 1, ROOT),
            ("close", 1, "it has heard all"),
        ]
        assert world.peer.saving.unwritten is None
        assert world.disk.saved.kept == newer


async def test_what_came_before_a_keep_does_not_wait_for_it_although_an_older_one_is_to_be_written_again():
    """An `Own` has the older one written again, with the boot: the newer one does that too, at its turn."""
    writes = []

    async def keep(kept):
        writes.append(kept)

    def do(effect):
        writes.append(effect)
        if isinstance(effect, Own):
            held.again(HELD)

    held, newer = Held(keep, do), replace(HELD, version=2)
    own, send = Own(home=HELD.home, usable=True), Send(link=1, message=ROOT)
    held.take([own, send, Keep(kept=newer)])
    task = awaited(held.run())
    await held.kept()
    assert writes == [own, send, newer]
    held.take([own, send])
    await comes(lambda: len(writes) == 6)
    assert writes[3:] == [own, HELD, send]
    task.cancel()


async def test_what_a_fault_of_the_core_has_thrown_away_is_not_taken_for_kept():
    """Others' leases, which wait for it, would else be on disk before what they follow from."""
    written = []

    async def keep(kept):
        written.append(kept)

    held = Held(keep, written.append)
    held.take([Keep(kept=replace(HELD, version=2))])
    waiting = awaited(held.kept())
    held.clear()
    await asyncio.sleep(0.02)
    assert not waiting.done()
    running = awaited(held.run())
    await waiting
    assert not written
    running.cancel()


async def test_signs_of_life_paths_dials_and_words_go_past_a_disk_that_does_not_take_it():
    world = World(FakeDisk(saved()))
    async with running(world):
        other, signs = member(2), [Ping(number=1), Pong(number=2)]
        world.say(Leases(changed=(other,)))
        await comes(lambda: world.peer.book.members)
        world.disk.full = True
        world.say(Keep(kept=replace(HELD, version=2)), Send(link=1, message=ROOT), Own(home=None, usable=False))
        world.say(*(Send(link=1, message=sign) for sign in signs), Dial(address="a"), Close(link=2, why="silent"))
        relayed = Hop(key=other.key, next=member(3), kind="vxlan", reason="one-way")
        world.say(Probe(key=other.key, kind="vxlan"), relayed, Say(text="so it is"))
        await comes(lambda: world.peer.saving.unwritten is not None)
        assert world.links.did == [*(("send", 1, sign) for sign in signs), ("dial", "a"), ("close", 2, "silent")]
        assert (await world.peer.paths.next()).lease.id == "n2-02020202"
        assert world.peer.book.hops[other.key].next == member(3)
        assert world.peer.said.newest[-1].text == "so it is"
        assert world.peer.own.home == HELD.home
        world.say(Leases(gone=(other.key,)))
        world.say(Leases(changed=(other,)), Hop(key=other.key, next=member(4), kind="vxlan", reason=""))
        assert world.peer.book.hops[other.key].next == member(3)
        world.disk.full = False
        await comes(lambda: world.peer.own.home is None)
        await comes(lambda: world.peer.book.hops[other.key].next == member(4))
        assert world.links.did[-1] == ("send", 1, ROOT)


async def test_too_much_that_waits_for_the_disk_ends_its_links_and_leaves_the_newest_words(monkeypatch):
    monkeypatch.setattr("weft.cluster.mesh.held._MOST", 9)
    world = World(FakeDisk(saved()))
    async with running(world):
        world.disk.full = True
        world.say(Keep(kept=replace(HELD, version=2)))
        await comes(lambda: world.peer.saving.unwritten is not None)
        world.say(Keep(kept=replace(HELD, version=3)), Leases(changed=(member(2), member(3))), Own(home=1, usable=True))
        late = Hop(key=member(2).key, next=member(3), kind="vxlan", reason="")
        world.say(Leases(changed=(member(4),), gone=(member(2).key,)), late)
        world.say(Send(link=1, message=ROOT), Send(link=2, message=ROOT), Close(link=2, why="it is over"))
        assert world.links.did == []
        world.say(Own(home=2, usable=True), Keep(kept=replace(HELD, version=4)))
        closed = "too much waits for the disk"
        assert world.links.did == [("close", 1, closed), ("close", 2, closed)]
        assert ("down", 1) in world.core.calls
        world.disk.full = False
        await comes(lambda: world.peer.own.home == 2)
        assert world.disk.saved.kept.version == 4
        await comes(lambda: world.peer.book.members == {each.key: each for each in (member(3), member(4))})
        assert len(world.links.did) == 2


async def test_a_path_that_has_fallen_is_remembered_though_no_lease_has_changed(monkeypatch):
    monkeypatch.setattr("weft.cluster.mesh.remembering._SOON_SECONDS", 0.001)
    monkeypatch.setattr("weft.cluster.mesh.remembering._LATE_SECONDS", 0.01)
    world = World(FakeDisk(saved()))
    async with running(world):
        for number in (3, 4):
            world.say(Hop(key=member(2).key, next=member(number), kind="vxlan", reason="one-way"))
            await comes(lambda number=number: world.disk.remembered_paths == number - 2)
        assert world.disk.remembered == 0


async def test_a_lease_is_told_when_the_disk_has_it_and_its_end_and_ways_at_once():
    """Else a later run would take for gone what this one has served."""
    world = World(FakeDisk(saved()))
    writing, may_write = threading.Event(), threading.Event()
    remember = world.disk.remember

    def slow(recalled):
        writing.set()
        may_write.wait(10)
        remember(recalled)

    world.disk.remember = slow
    async with running(world):
        world.say(Leases(changed=(member(2),)), Agreed(so=True))
        await comes(writing.is_set)
        world.say(Leases(changed=(member(3),)), Leases(gone=(member(4).key,)))
        world.say(*(Hop(key=member(number).key, next=member(5), kind="vxlan", reason="one-way") for number in (2, 4)))
        book = world.peer.book
        assert (book.members, book.hops.keys(), world.peer.others.agreed) == ({}, {member(2).key}, False)
        may_write.set()
        await comes(lambda: world.peer.others.agreed)
        await comes(lambda: book.hops.keys() == {member(2).key, member(4).key})
        assert book.members.keys() == {member(2).key, member(3).key}
        assert set(world.disk.known.members) == {member(2), member(3)}
        world.say(Leases(gone=(member(3).key,)))
        await comes(lambda: member(3).key not in book.members)
        assert world.disk.remembered == 2


async def test_what_others_said_is_written_when_all_that_is_to_be_kept_is_kept():
    """Else a later run would know what mesh.json was about to say, and forget whom a removal was about to end."""
    world = World(FakeDisk(saved()))
    async with running(world):
        world.disk.full = True
        newer = replace(HELD, version=2)
        world.say(Leases(changed=(member(2),)), Keep(kept=newer), Keep(kept=replace(newer, version=3)))
        await comes(lambda: world.peer.saving.unwritten is not None)
        assert (world.disk.remembered, world.peer.book.members) == (0, {})
        world.disk.full = False
        await comes(lambda: world.peer.book.members)
        assert (world.disk.remembered, world.disk.saved.kept.version) == (1, 3)


async def test_what_the_disk_had_is_told_at_once_and_a_full_disk_keeps_no_lease_back():
    world = World(FakeDisk(saved()))

    def core(*given):
        made = World._core(world, *given)
        made.says.append(Leases(changed=(member(2),)))
        return made

    world.peer._make = core, world._links
    async with running(world):
        await comes(lambda: world.peer.book.members)
        assert world.disk.remembered == 0
        world.disk.full = True
        world.say(Leases(changed=(member(3),)))
        await comes(lambda: len(world.peer.book.members) == 2)


async def test_many_leases_in_a_short_time_are_few_writes():
    world = World(FakeDisk(saved()))
    async with running(world):
        for number in range(2, 12):
            world.say(Leases(changed=(member(number),)))
            await asyncio.sleep(0.005)
        await comes(lambda: len(world.peer.book.members) == 10)
        assert world.disk.remembered <= 3


async def test_many_keeps_at_once_are_one_write():
    world = World(FakeDisk(saved()))
    async with running(world):
        keeps = [Keep(kept=replace(HELD, version=number)) for number in range(2, 9)]
        world.say(*keeps, Send(link=1, message=ROOT))
        await comes(lambda: world.links.did)
        assert [kept.version for kept in world.disk.writes] == [8]


async def test_the_core_hears_all_and_a_closed_link_as_one_that_is_down():
    world = World(FakeDisk(saved()))
    async with running(world):
        assert world.peer.unlinked_for == 0.0
        world.now += 3
        assert world.peer.unlinked_for == 3.0
        world.peer.up(1, STRANGER, None)
        assert world.peer.unlinked_for is None
        world.peer.received(1, Ping(number=1))
        assert world.peer.heard == world.now
        world.say(Close(link=1, why="it says so"))
        await comes(lambda: world.links.did)
        heard = [call[0] for call in world.core.calls if call[0] != "asked"]
        assert heard == ["start", "up", "received", "undialled", "down"]


async def test_a_tick_comes_when_it_is_due():
    world = World(FakeDisk(saved()))
    async with running(world):
        world.core.due = world.now + 0.01
        world.say()
        world.now += 1
        await comes(lambda: ("tick",) in world.core.calls)
        assert world.core.calls.count(("tick",)) == 1


async def test_a_copy_begins_again_with_another_key_and_nothing(caplog):
    world = World(FakeDisk(saved()))
    async with running(world):
        world.peer.publish(Publish(attrs=b"{}"))
        before = world.peer.key
        with caplog.at_level(logging.WARNING):
            world.say(Rekey(why=Problem(code="MESH-004", where="mesh", seen="the disk is a copy")))
            await comes(lambda: len(world.cores) == 2)
        assert world.peer.key != before
        assert world.core.kept == world.disk.saved.kept == Kept()
        assert ("asked", Publish(attrs=b"{}")) in world.core.calls
        assert "MESH-004 mesh: the disk is a copy" in caplog.text


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("call", ["tick", "received", "link_up", "saw", "asked"])
async def test_a_core_that_has_raised_is_asked_no_more_and_another_begins_from_the_disk(call, full):
    world = World(FakeDisk(saved()))

    def broken(*_, **__):
        raise KeyError("half done")

    with pytest.raises(ExceptionGroup) as caught:  # noqa: PT012 - it ends with what the peer has raised
        async with running(world) as task:
            if full:
                world.disk.full = True
                world.say(Keep(kept=replace(HELD, version=2)), Send(link=1, message=ROOT))
                await comes(lambda: world.peer.saving.unwritten is not None)
            setattr(world.core, call, broken)
            world.core.due = 0 if call == "tick" else inf
            calls = {
                "tick": world.say,
                "received": lambda: world.peer.received(1, ROOT),
                "link_up": lambda: world.peer.up(1, STRANGER, None),
                "saw": lambda: world.peer.saw(Sights()),
                "asked": lambda: world.peer.ask(Connect(address="a")),
            }
            with pytest.raises(Unavailable, match="INST-002") if call == "asked" else nullcontext():
                calls[call]()
            await comes(task.done)
    assert caught.group_contains(KeyError, match="half done")
    assert world.peer.core is None
    assert world.links.did == []
    world.disk.full = False
    async with running(world):
        assert len(world.cores) == 2
        assert world.core.kept == HELD


async def test_what_comes_after_the_end_dials_by_no_link_that_has_ended():
    world = World(FakeDisk(saved()))
    async with running(world):
        pass
    world.say(Dial(address="a"))
    assert world.links.did == []


async def test_another_programs_port_ends_it():
    world = World(FakeDisk(saved()))

    async def busy():
        raise ConfigError(Problem(code="INST-001", where="port", seen="busy"))

    def links(*given):
        made = World._links(world, *given)
        made.run = busy
        return made

    world.peer._make = world._core, links
    with pytest.raises(ConfigError, match="INST-001"):
        await world.peer.run()


async def test_a_disk_that_does_not_answer_is_waited_for(monkeypatch):
    monkeypatch.setattr("weft.cluster.mesh.saving._RETRY_SECONDS", 0.001)
    disk = FakeDisk()
    answers = [Unavailable(Problem(code="STATE-001", where="mesh.json", seen="EIO"))] * 3 + [saved()]

    def load():
        answer = answers.pop(0)
        if isinstance(answer, Unavailable):
            raise answer
        return answer

    disk.load = load
    world = World(disk)
    with pytest.raises(Unavailable):
        world.peer.ask(Connect(address="a"))
    async with running(world):
        assert world.core.kept == HELD
        assert disk.writes == []


async def test_the_core_is_quoted_and_a_moved_disk_is_warned_of(caplog):
    world = World(FakeDisk(saved(machine="another")))
    with caplog.at_level(logging.INFO):
        async with running(world):
            world.say(Say(text="node2 has come"))
            await comes(lambda: world.peer.said.newest)
    assert "mesh: node2 has come" in caplog.text
    assert "MESH-004 mesh.json: it was written on another machine" in caplog.text


async def test_a_write_that_a_cancelled_run_has_begun_comes_before_those_of_the_next():
    world = World(FakeDisk(saved()))
    writing, may_write = threading.Event(), threading.Event()
    keep = world.disk.keep

    def slow(content):
        writing.set()
        may_write.wait(10)
        keep(content)

    async with running(world):
        world.disk.keep = slow
        world.say(Keep(kept=replace(HELD, version=2)))
        await comes(writing.is_set)
    world.disk.keep = keep
    again = awaited(world.peer.run())
    await asyncio.sleep(0.05)
    assert len(world.cores) == 1
    may_write.set()
    await comes(lambda: len(world.cores) == 2)
    assert world.core.kept.version == 2
    again.cancel()
