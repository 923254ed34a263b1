"""Connections to the page's server: those that ask nothing keep nobody away."""

import asyncio
import socket
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.support.waiting import HANGS
from weft.ui import command


def opened() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


async def test_many_idle_connections_lock_nobody_out(capfd):
    """The owner's are answered, what was asked before goes on, and nothing is printed."""
    listener = socket.create_server(("127.0.0.1", 0))
    address = listener.getsockname()
    source: Any = object()  # without a token nothing is asked of it
    serving = asyncio.create_task(command._serve(source, listener, "a-token"))
    before = opened()
    loop = asyncio.get_running_loop()
    try:
        with ExitStack() as held:
            for _ in range(300):
                idle = held.enter_context(closing(socket.socket()))
                idle.setblocking(False)
                with suppress(BlockingIOError):
                    idle.connect(address)
                await asyncio.sleep(0)
            await asyncio.sleep(0.2)
            assert opened() - before < 300 + 2 * command._CONNECTIONS
            for _ in range(3):
                reader, writer = await asyncio.open_connection(*address)
                writer.write(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
                async with asyncio.timeout(HANGS):
                    assert (await reader.read()).startswith(b"HTTP/1.1 401 ")
                writer.close()
    finally:
        serving.cancel()
        await asyncio.wait((serving,))
        listener.close()
    assert loop.is_running()
    out, err = capfd.readouterr()
    assert "Traceback" not in out + err


@pytest.mark.parametrize("address, shown", [("127.0.0.1", "127.0.0.1"), ("::1", "[::1]")])
def test_the_page_listens_at_an_address_of_either_family(address: str, shown: str, monkeypatch: pytest.MonkeyPatch):
    async def serve(_: Any, listener: socket.socket, token: str) -> None:
        heard.append((*listener.getsockname()[:2], token))

    heard: list[tuple[str, int, str]] = []
    monkeypatch.setattr(command, "_serve", serve)
    monkeypatch.setattr(command, "_source", lambda *_: None)
    said = CliRunner().invoke(command.ui, ["--listen", address, "--no-browser"])
    [(where, port, token)] = heard
    assert (where, token) == (address, "")
    assert said.stdout.splitlines()[0] == f"http://{shown}:{port}/"
