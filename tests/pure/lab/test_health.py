"""How a lab asks a store and a daemon how they are: every answer, and none, has a word."""

import asyncio
import socket
from ipaddress import ip_address
from typing import Any

import pytest

from weft.lab.inside import etcd, health
from weft.lab.inside.health import Health


async def asked(host: str, answer: bytes | None) -> tuple[str, bytes]:
    """Ask a server that gives this answer, in pieces, or closes the connection; return the word and the request."""
    heard = b""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal heard
        heard = await reader.readuntil(b"\r\n\r\n")
        for at in range(0, len(answer or b""), 7):
            writer.write((answer or b"")[at : at + 7])
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, host, 0) as server:
        port = server.sockets[0].getsockname()[1]
        return await health.store(ip_address(host), port), heard


@pytest.mark.parametrize(
    "answer, word",
    [
        (b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n{}", "ready"),
        (b"HTTP/1.1 200\r\n\r\n", "ready"),
        (b"HTTP/1.1 503 Service Unavailable\r\n\r\n{}", "not ready"),
        (b"HTTP/1.1 201 Created\r\n\r\n{}", "not ready"),
        (b"HTTP/1.1", "silent"),
        (b"HTTP/1.1 ok\r\n\r\n", "silent"),
        (b"", "silent"),
    ],
)
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_store_is_ready_not_ready_or_silent(host: str, answer: bytes, word: str):
    assert asyncio.run(asked(host, answer)) == (word, b"GET /health HTTP/1.0\r\n\r\n")


def test_a_store_that_is_not_there_is_silent():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        assert asyncio.run(health.store(ip_address("127.0.0.1"), unused.getsockname()[1])) == "silent"


@pytest.mark.parametrize(
    "answer, found",
    [
        (None, Health(state="silent")),
        ((200, ["[+]store ok", "ok"]), Health(state="ready")),
        ((200, ["[!]rules held up: x", "[+]store ok"]), Health(state="ready", problems=("rules held up: x",))),
        (
            (503, ["[-]devices failed: VTEP-002\t\x1b[2J", "[!]rules", "x [-]no"]),
            Health(state="not ready", problems=("devices failed: VTEP-002\\t\\x1b[2J", "rules")),
        ),
    ],
)
def test_a_daemon_says_which_parts_are_not_as_they_should_be(monkeypatch, answer: Any, found: Health):
    asked: list[tuple[str, int, str, float]] = []

    class Inside:
        async def run(self, _room: object, work: Any) -> Any:
            return work()

    async def ask(sock: socket.socket, host: str, port: int, path: str, patience: float) -> Any:
        sock.close()
        asked.append((host, port, path, patience))
        return answer

    monkeypatch.setattr(health, "_ask", ask)
    assert asyncio.run(health.daemon(Inside(), "room", 3.0)) == found  # type: ignore[arg-type]
    assert asked == [("127.0.0.1", 8081, "/readyz?verbose", 3.0)]


@pytest.mark.parametrize(
    "families, url",
    [((4,), "http://172.31.0.1:2379"), ((4, 6), "http://172.31.0.1:2379"), ((6,), "http://[fd31::1]:2379")],
)
def test_where_the_store_is(families, url: str):
    assert etcd.url(families) == url
