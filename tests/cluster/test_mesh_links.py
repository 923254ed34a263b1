"""The links of a mesh on real sockets: passwords, hostile and slow peers, floods, links that are made anew."""

import asyncio
import logging
import multiprocessing
import re
import resource
import socket
import time
from contextlib import ExitStack
from itertools import pairwise

import pytest

from tests.cluster.meshnode import OTHER, SECRET, Node, Raw, running
from tests.support.waiting import comes
from weft.cluster.mesh import links, sharedkeys
from weft.model.errors import ConfigError
from weft.model.mesh.messages import Ping, Pong, Records
from weft.model.mesh.records import HANDSHAKES_A_SECOND, MAX_FRAME, MAX_UNFINISHED, Token
from weft.model.value import replace
from weft.wire.mesh import framed

LARGE = Records(tokens=tuple(Token(start=0, stop=65536, owner=bytes(32), version=1 << 62) for _ in range(8192)))


async def answers(one: Node, other: Node, here: int, there: int) -> None:
    """The link carries messages both ways."""
    number = time.monotonic_ns()
    one.links.send(here, Ping(number=number))
    await comes(lambda: (there, Ping(number=number)) in other.heard)
    other.links.send(there, Pong(number=number))
    await comes(lambda: (here, Pong(number=number)) in one.heard)


@pytest.mark.parametrize("passwords", [(), (SECRET,), ("correct horse battery",)])
async def test_two_peers_meet_and_part(passwords: tuple[str, ...]):
    one, two = Node("one", *passwords), Node("two", *passwords)
    async with running(one, two):
        here, there = await one.linked(two)
        assert one.ups[here] == (two.hello, two.address)
        assert two.ups[there] == (one.hello, None)
        await answers(one, two, here, there)
        one.links.send(here, Ping(number=1))
        one.links.close(here, "enough")
        await comes(lambda: two.downs == [there])
        assert (there, Ping(number=1)) in two.heard  # the last word
        one.links.send(here, Ping(number=2))
        await asyncio.sleep(0.1)
        assert one.downs == []  # who closes a link is not told
        assert not one.refused
        assert not two.refused


async def test_an_end_of_the_daemon_takes_its_links_down():
    one, two = Node("one"), Node("two")
    async with running(one):
        async with running(two):
            await one.linked(two)
        await comes(lambda: len(one.downs) == 1)
    assert two.downs == []


async def test_a_connection_that_comes_as_the_daemon_ends_is_no_fault():
    node, faults = Node("one"), []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: faults.append(context))
    run = asyncio.create_task(node.links.run())
    await asyncio.sleep(0.1)
    raw = Raw(node)
    loop.call_soon(run.cancel)
    await asyncio.wait((run,))
    raw.socket.close()
    assert faults == []


async def test_by_IPv6_and_by_name():  # noqa: N802
    one, two = Node("one"), Node("two")
    async with running(one, two):
        for host in ("[::1]", "localhost"):
            one.links.dial(f"{host}:{two.port}")
            await comes(lambda host=host: [each for _, each in one.ups.values()].count(f"{host}:{two.port}"))


@pytest.mark.parametrize(
    "address, says",
    [
        ("127.0.0.1:9", "Connection refused"),
        ("127.0.0.1:99999", "there is no port 99999"),
        ("999.0.0.1:51820", "does not resolve"),
        ("no-such-host.invalid:51820", "the name 'no-such-host.invalid'"),
    ],
)
async def test_a_peer_that_is_not_there(address: str, says: str):
    node = Node("one")
    async with running(node):
        node.links.dial(address)
        await comes(lambda: node.undialled_, seconds=20)
    [(dialled, why)] = node.undialled_
    assert dialled == address
    assert why.code == "MESH-001"
    assert says in why.seen


async def test_the_port_is_held():
    one = Node("one")
    with socket.create_server(("127.0.0.1", one.port)), pytest.raises(ConfigError) as refused:
        await one.links.run()
    [problem] = refused.value.problems
    assert problem.code == "INST-001"
    assert problem.seen == f"TCP port {one.port} is held by process 1 (the holder of {one.port})"


# --- Passwords


@pytest.mark.parametrize(
    "ours, theirs, seen",
    [
        ((SECRET,), (OTHER,), ("it has another password",) * 2),
        ((SECRET,), (), ("it has no password, and this node has one", "it has a password, and this node has none")),
        ((), (SECRET,), ("it has a password, and this node has none", "it has no password, and this node has one")),
    ],
)
async def test_another_password_is_told_on_both_sides_and_tried_again_after_a_minute(
    ours: tuple[str, ...], theirs: tuple[str, ...], seen: tuple[str, str], caplog, monkeypatch
):
    one, two = Node("one", *ours), Node("two", *theirs)
    async with running(one, two):
        for turn in (1, 2):  # the second at once
            one.links.dial(two.address)
            await comes(lambda turn=turn: len(one.undialled_) == turn)
        await comes(lambda: two.refused["password"])
        assert [(why.code, why.seen) for _, why in one.undialled_] == [("MESH-002", seen[0])] * 2
        assert (one.refused, two.refused) == ({"password": 1},) * 2
        told = [record.message for record in caplog.records if record.levelno == logging.WARNING]
        hint = "Give all nodes the same --password-file. They try again in a minute"
        hosts = (two.address, "127.0.0.1")
        assert sorted(told) == sorted(
            f"MESH-002 mesh: {host}: {said}. {hint}" for host, said in zip(hosts, seen, strict=True)
        )
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: time.monotonic() + 60)
        one.links.dial(two.address)
        await comes(lambda: one.refused["password"] == 2)
        assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == 2  # once an hour
        assert not one.ups
        assert not two.ups


async def test_a_password_is_changed_while_nodes_run():
    one, two = Node("one", SECRET), Node("two", SECRET)
    async with running(one, two):
        first = await one.linked(two)
        for step in ((SECRET, OTHER), (OTHER, SECRET), (OTHER,)):
            for node, other in ((one, two), (two, one)):
                node.passwords = step
                await node.linked(other)
                await other.linked(node)
        await answers(one, two, *first)


async def test_the_key_of_a_password_is_computed_once(monkeypatch):
    computed = []
    monkeypatch.setattr(sharedkeys, "shared", lambda password: computed.append(password) or bytes(31) + b"1")
    one, two = Node("one", "correct horse battery"), Node("two", "correct horse battery")
    async with running(one, two):
        for _ in range(5):
            one.links.dial(two.address)
        await comes(lambda: len(one.ups) == len(two.ups) == 5)
    assert len(computed) == 2


# --- Who does not keep to the protocol


@pytest.mark.parametrize(
    "data, kind, says",
    [
        (b"GET / HTTP/1.1\r\n", "greeting", "is no greeting of a weft"),
        (
            b"weft\x02\x03\x00\x00",
            "version",
            "it speaks versions 2 to 3 of the protocol, this weft version 1: this weft is older",
        ),
        (b"weft\x01\x01\x00\x00\x00\x00\x02\x01", "length", "a frame of 513 bytes; at most 512 are allowed"),
        (b"weft\x01\x01\x00\x00" + framed(bytes(48)), "handshake", "the seal is broken"),
    ],
)
async def test_hostile_input_ends_that_link_alone_and_is_counted(data: bytes, kind: str, says: str, caplog):
    one, two = Node("one"), Node("two")
    async with running(one, two):
        here, there = await one.linked(two)
        for _ in range(3):
            hostile = Raw(one)
            await hostile.send(data)
            await hostile.closed()
        assert one.refused == {kind: 3}
        [told] = [record.message for record in caplog.records if record.levelno == logging.WARNING]
        assert re.match(r"MESH-006 mesh: 127\.0\.0\.1: ", told)
        assert says in told
        await answers(one, two, here, there)
        assert not two.refused


@pytest.mark.parametrize("data, kind", [(framed(bytes(40)), "seal"), ((MAX_FRAME + 1).to_bytes(4, "big"), "length")])
async def test_so_does_garbage_on_a_link_that_is_up(data: bytes, kind: str):
    node = Node("one")
    async with running(node):
        hostile = Raw(node)
        await hostile.meet()
        await comes(lambda: node.ups)
        await hostile.send(data)
        await hostile.closed()
        await comes(lambda: node.downs)
        assert node.refused == {kind: 1}


async def test_a_handshake_has_its_time(monkeypatch):
    monkeypatch.setattr(links, "HANDSHAKE_SECONDS", 0.3)
    one, two = Node("one"), Node("two")
    async with running(one):
        silent, slow = Raw(one), Raw(one)
        began = time.monotonic()
        for byte in b"weft\x01\x01":
            await slow.send(bytes((byte,)))
            await asyncio.sleep(0.01)
        await silent.closed()
        await slow.closed()
        assert time.monotonic() - began > 0.25
        assert one.refused == {"late": 2}
    with socket.create_server(("127.0.0.1", two.port)):  # which accepts and says nothing
        one.links.dial(two.address)
        await comes(lambda: one.undialled_)
    assert one.undialled_[0][1].seen == "no answer within 0.3 s"


async def test_of_unfinished_handshakes_there_are_so_many():
    """Who has begun most of them loses the oldest, so nobody keeps others out."""
    one, two = Node("one"), Node("two")
    async with running(one, two):
        with ExitStack() as stack:
            other = Raw(one, source="127.0.0.2")
            stack.callback(other.socket.close)
            many = [Raw(one) for _ in range(MAX_UNFINISHED - 1)]
            for raw in many:
                stack.callback(raw.socket.close)
            assert all([await raw.read() for raw in many])  # each was greeted
            assert not one.refused
            await two.linked(one)
            assert one.refused == {"many": 1}
            await many[0].closed()
            await other.meet()
            await comes(lambda: len(one.ups) == 2)


def flood(port: int, many: int) -> None:
    for _ in range(many):
        connection = socket.socket()
        connection.setblocking(False)
        connection.connect_ex(("127.0.0.1", port))
        connection.close()


async def test_a_flood_of_connections_is_kept_waiting():
    """Memory and what the loop does for others before it answers are bounded, and other links do not notice."""
    one, two = Node("one"), Node("two")
    many, work = 30_000, [0.0]
    async with running(one, two):
        here, there = await one.linked(two)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        attacker = multiprocessing.get_context("fork").Process(target=flood, args=(one.port, many))
        attacker.start()
        began = time.monotonic()
        while attacker.is_alive():
            at = time.thread_time()  # of the processor: other programs' turns are not the loop's delay
            await answers(one, two, here, there)
            work.append(time.thread_time() - at)
        took = time.monotonic() - began
        assert attacker.exitcode == 0
        taken = next(one.links._numbers)
        assert taken < HANDSHAKES_A_SECOND * took + 2 * MAX_UNFINISHED + 2
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 16 << 10
        work.sort()
        middle, last = work[len(work) // 2], work[-1]
        print(f"{many / took:.0f} connections/s, {taken} taken")
        print(f"a question and its answer took {middle * 1e3:.1f} ms of work, {last * 1e3:.0f} ms at most")
        assert middle < 0.1
        assert not one.downs
        await comes(lambda: two.links.dial(one.address) or len(one.ups) > 1)  # and newcomers get in afterwards


async def test_a_slow_peer_is_closed_and_nobody_waits_for_it():
    one, two = Node("one"), Node("two")
    async with running(one, two):
        here, there = await one.linked(two)
        slow = Raw(one)
        slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        await slow.meet()
        await comes(lambda: len(one.ups) == 2)
        number = max(one.ups)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(200):
            one.links.send(number, LARGE)  # 80 MB in all
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 48 << 10
        await comes(lambda: one.downs == [number])
        await answers(one, two, here, there)
        slow.socket.close()


async def test_a_busy_peer_does_not_take_the_loop():
    """Who has much to say is read in turns with others."""
    node, other = Node("one"), Node("two")
    async with running(node, other):
        here, there = await other.linked(node)
        loud = Raw(node)
        end = await loud.meet()
        for number in range(20_000):
            end.say(Ping(number=number))
        await comes(lambda: len(node.ups) == 2)
        sending = asyncio.create_task(loud.send(bytes(end.unsent)))
        other.links.send(here, Ping(number=1 << 40))
        await comes(lambda: (there, Ping(number=1 << 40)) in node.heard)
        assert len(node.heard) < 15_000
        await sending
        await comes(lambda: len(node.heard) == 20_001)
        assert [message.number for _, message in node.heard if message.number < 1 << 40] == list(range(20_000))
        loud.socket.close()


async def test_a_fault_of_ours_ends_one_link(caplog, monkeypatch):
    one, two = Node("one"), Node("two")
    async with running(one, two):
        first, second = await one.linked(two), await one.linked(two)
        monkeypatch.setattr(two, "received", lambda *_: 1 / 0)
        one.links.send(first[0], Ping(number=1))
        await comes(lambda: one.downs == [first[0]] and two.downs == [first[1]])
        monkeypatch.undo()
        assert "INST-002" in caplog.text
        await answers(one, two, *second)


async def test_a_message_that_is_too_long_is_not_said(caplog):
    one, two = Node("one"), Node("two")
    async with running(one, two):
        here, _ = await one.linked(two)
        one.links.send(here, replace(LARGE, tokens=LARGE.tokens * 3))
        await comes(lambda: one.downs == [here] and two.downs)
        assert "INST-002 mesh: a message is too long" in caplog.text


# --- Anew


async def test_a_link_is_made_anew_before_the_old_one_is_closed(monkeypatch):
    """By who has made it, each hour; the core closes the older one of two. Nothing is lost."""
    monkeypatch.setattr(links, "_RENEW_SECONDS", 0.05)
    one, two = Node("one", SECRET), Node("two", SECRET)
    async with running(one, two):
        one.links.dial(two.address)
        sent = 0
        while len(one.ups) == 0 or min(one.ups) < 8:
            for older, newer in pairwise(sorted(one.ups)):
                assert one.ups[newer] == one.ups[older]
                one.ups.pop(older)
                one.links.close(older, "a newer link")
            if one.ups:
                one.links.send(max(one.ups), Ping(number=sent))
                sent += 1
            await asyncio.sleep(0.005)
        await comes(lambda: len(two.heard) == sent)
        assert two.hello.key not in [hello.key for hello, _ in two.ups.values()]
        assert {message.number for _, message in two.heard} == set(range(sent))


async def test_a_link_that_cannot_be_made_anew_stays(monkeypatch):
    monkeypatch.setattr(links, "_RENEW_SECONDS", 0.05)
    monkeypatch.setattr(links, "_AGAIN_SECONDS", 0.05)
    one, two = Node("one", SECRET), Node("two", SECRET)
    async with running(one, two):
        first = await one.linked(two)
        two.passwords = (OTHER,)
        await comes(lambda: two.refused["password"] > 2)
        await answers(one, two, *first)
        assert not one.undialled_  # the core has not asked for it
        two.passwords = (SECRET,)
        await comes(lambda: len(one.ups) > 1)


async def test_a_handshake_takes_little():
    one, two = Node("one", SECRET), Node("two", SECRET)
    async with running(one, two):
        began = time.process_time()
        for _ in range(100):
            here, _ = await one.linked(two)
            one.links.close(here, "measured")
            del one.ups[here]
            await comes(lambda: not two.ups)
        both = (time.process_time() - began) / 100
    print(f"both ends of a link: {both * 1e3:.2f} ms of the processor, with its sockets")
    assert both < 0.02
