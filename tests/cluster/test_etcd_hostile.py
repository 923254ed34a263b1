"""What an etcd, or what stands in its place, may do to a connection: the store goes on, and no task is harmed."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Callable

import pytest
from grpclib.protocol import EventsProcessor

from tests.support.store import attrs, chooser, netconf, nothing, said, soon, until, value
from weft.model.cluster import Changed, Held, Listed, Lost
from weft.model.errors import Unavailable

HOUR = 3600.0
_RESET = struct.pack("ii", 1, 0)


@contextlib.asynccontextmanager
async def resetter() -> AsyncIterator[tuple[str, Callable[[], int]]]:
    """A load balancer without anything behind it: it accepts, reads a little or nothing, and resets."""
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setblocking(False)
    loop = asyncio.get_running_loop()
    accepted = 0

    async def serve() -> None:
        nonlocal accepted
        while True:
            connection, _ = await loop.sock_accept(listening)
            accepted += 1
            # Before our first byte, after the preface, after the request: each breaks another part of the library.
            await asyncio.sleep((0, 0, 0.0005, 0.002, 0.01)[accepted % 5])
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            connection.close()

    task = asyncio.create_task(serve())
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", lambda: accepted
    finally:
        task.cancel()
        listening.close()


async def test_whatever_accepts_and_resets_is_an_etcd_that_does_not_answer(make_store):
    async with resetter() as (url, accepted):
        store = make_store(url)
        for _ in range(40):
            with pytest.raises(Unavailable) as raised:
                await soon(store.settings.net_conf())
            assert {problem.code for problem in raised.value.problems} == {"STORE-001"}
        async with contextlib.aclosing(said(store)) as events:
            before = accepted()
            while accepted() < before + 40:
                assert isinstance(await soon(anext(events)), Lost)


async def test_a_keeper_and_a_watcher_outlive_a_balancer_that_resets(server, make_store, make_proxy, prefix):
    async with resetter() as (url, accepted):
        proxy = await make_proxy(server)
        store = make_store(proxy.url, url)
        own = await store.tenure.acquire(chooser(netconf(), attrs()))
        async with (
            contextlib.aclosing(said(store)) as events,
            contextlib.aclosing(store.tenure.keep(own, margin=86399.5)) as kept,
        ):
            await soon(anext(events))
            await soon(anext(kept))
            await proxy.cut()
            await until(events, lambda _: accepted() >= 60)
            await proxy.open()
            server.put(f"{prefix}/subnets/10.3.99.0-24", value("1.1.1.1"))
            await until(events, lambda event: isinstance(event, Changed | Listed) and "10.3.99.0-24" in str(event))
            held = await until(kept, lambda event: not isinstance(event, Held) or event.own.expires > own.expires)
            assert isinstance(held[-1], Held)


@contextlib.asynccontextmanager
async def mute() -> AsyncIterator[str]:
    """A stopped etcd: the kernel accepts connections for it, and it never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


async def test_a_connection_that_is_dropped_while_its_endpoint_is_silent_ends_no_watch(server, make_store):
    listing = await make_store(server.url).directory.list()
    async with mute() as url:
        store = make_store(url)
        async with contextlib.aclosing(said(store, listing)) as events:
            assert isinstance(await soon(anext(events)), Listed)
            for _ in range(3):
                waiting = await nothing(events, 0.2)
                store.close()  # what another task does that gives the endpoint up, and what looks next finds it silent
                assert isinstance(await soon(waiting), Lost)


async def test_a_connection_that_is_dropped_while_its_endpoint_is_silent_ends_no_keeping(server, make_store, prefix):
    own = await make_store(server.url).tenure.acquire(chooser(netconf(), attrs()))
    async with mute() as url:
        store = make_store(url)
        async with contextlib.aclosing(store.tenure.keep(own, margin=86399.9)) as kept:
            waiting = await nothing(kept, 0.2)
            for _ in range(3):
                store.close()
                await asyncio.wait((waiting,), timeout=1)
                assert not waiting.done()
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)


async def test_whatever_the_library_raises_when_a_connection_is_dropped_it_is_dropped(
    server, make_store, monkeypatch, prefix
):
    """It takes its own objects apart, and meets what is left of them."""
    store = make_store(server.url)
    async with contextlib.aclosing(said(store)) as events:
        assert isinstance(await soon(anext(events)), Listed)
        with monkeypatch.context() as patched:
            patched.setattr(EventsProcessor, "close", lambda *_: object()._transport)
            store.close()
        server.put(f"{prefix}/subnets/10.3.99.0-24", value("1.1.1.1"))
        await until(events, lambda event: "10.3.99.0-24" in str(event))
