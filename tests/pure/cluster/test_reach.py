"""Names are resolved in threads that nothing waits for, and an endpoint gets the addresses of its own port."""

import asyncio
import socket
import threading
from collections.abc import Sequence

import pytest

from weft.cluster import reach
from weft.cluster.reach import Endpoint, Reach, UnresolvedError


def endpoint(port: int) -> Endpoint:
    return Endpoint(url=f"http://localhost:{port}", host="localhost", port=port, tls=False)


def listening() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


async def test_a_name_whose_thread_could_not_be_started_is_resolved_by_the_next_try(monkeypatch):
    with listening() as server:
        where = endpoint(server.getsockname()[1])
        ways = Reach(5.0)

        def refuse(_: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refuse)
            with pytest.raises(UnresolvedError, match="can't start new thread"):
                await ways.open(where)
        with await ways.open(where) as connection:
            assert connection.getpeername()[1] == where.port


async def test_two_ports_of_one_name_that_is_slow_to_resolve_are_not_taken_for_each_other(monkeypatch):
    answers = threading.Event()
    really = reach._lookup

    def slow(where: Endpoint, flags: int = 0) -> Sequence[reach._Info]:
        if not flags:
            answers.wait(30)
        return really(where, flags)

    monkeypatch.setattr(reach, "_lookup", slow)
    ways = Reach(30.0)
    with listening() as one, listening() as other:
        ports = [each.getsockname()[1] for each in (one, other)]
        opening = [asyncio.create_task(ways.open(endpoint(port))) for port in ports]
        await asyncio.sleep(0)
        answers.set()
        connections = await asyncio.gather(*opening)
        assert [each.getpeername()[1] for each in connections] == ports
        for each in connections:
            each.close()
