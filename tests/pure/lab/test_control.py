"""How a lab asks a daemon and etcd how they are: every answer, and none, has a word."""

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from tests.support.weftd import eventually
from weft.kernel import daemons
from weft.lab.inside import control, etcd
from weft.lab.inside.control import Health
from weft.lab.inside.node import RunningNode
from weft.lab.report import serves
from weft.lab.spec import Node, regular
from weft.model.errors import Problem
from weft.model.node.nodestate import HealthState

TAKEN = Problem(code="VTEP-002", where="link x\t\x1b[2J", seen="taken")
AWAY = Problem(code="STORE-001", where="etcd", seen="away")
WELL = msgspec.json.encode(HealthState(ready=True))
# A process of a group of its own that answers at a socket as a daemon does.
ANOTHER = """
import socket, sys
listening = socket.socket(socket.AF_UNIX)
listening.bind(sys.argv[1])
listening.listen()
print(flush=True)
while True:
    connection, _ = listening.accept()
    connection.recv(100)
    connection.sendall(sys.argv[2].encode())
    connection.close()
"""


class Inside:
    async def run(self, _room: object, work: Any) -> Any:
        return work()


@asynccontextmanager
async def serving(answer: bytes | None, host: str = "127.0.0.1") -> AsyncIterator[tuple[int, list[bytes]]]:
    """An HTTP server that gives this answer in pieces; None is one that says nothing. Its port, and what it heard."""
    heard: list[bytes] = []
    over = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        if answer is None:
            await over.wait()
        for at in range(0, len(answer or b""), 7):
            writer.write((answer or b"")[at : at + 7])
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, host, 0) as server:
        try:
            yield server.sockets[0].getsockname()[1], heard
        finally:
            over.set()


@pytest.fixture
def unused() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, unused: int) -> Callable[..., Health]:
    """Ask a node whose daemons answer so at their control sockets, and whose health port, if any, says `page`."""

    def ask(*answers: bytes, page: bytes | None = b"", process: int = 0, flannels: bool = False) -> Health:
        async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: bytes) -> None:
            assert await reader.readline() == daemons.ASK_HEALTH
            writer.write(answer)
            writer.close()

        async def run() -> Health:
            async with AsyncExitStack() as stack:
                for number, answer in enumerate(answers):
                    path = daemons.address(str(number))

                    def serve(reader: Any, writer: Any, answer: bytes = answer) -> Any:
                        return served(reader, writer, answer)

                    await stack.enter_async_context(await asyncio.start_unix_server(serve, path))
                port = unused
                if page != b"":
                    port, _ = await stack.enter_async_context(serving(page))
                monkeypatch.setattr(control, "HEALTH_PORT", port)
                return await control.health(Inside(), "room", process, 0.3)  # type: ignore[arg-type]

        monkeypatch.setattr(daemons, "address", lambda name: str(tmp_path / name))
        monkeypatch.setattr(daemons, "living", lambda: sorted(path.name for path in tmp_path.iterdir()))
        monkeypatch.setattr(control, "_is_flannels", lambda: flannels)
        return asyncio.run(run())

    return ask


@pytest.mark.parametrize(
    "said, found",
    [
        (HealthState(ready=True, parts={"lease": None}, losses={}, store=None), Health(state="ready")),
        (
            HealthState(ready=True, parts={}, losses={"policies": AWAY}, store=AWAY),
            Health(state="ready", problems=("policies: STORE-001 etcd: away", "store: STORE-001 etcd: away")),
        ),
        (
            HealthState(ready=False, parts={"lease": None, "devices": TAKEN}, losses={}, store=None),
            Health(state="not ready", problems=("devices: VTEP-002 link x\\t\\x1b[2J: taken",)),
        ),
    ],
)
def test_a_daemon_says_what_is_wrong(ask, said: HealthState, found: Health):
    assert ask(msgspec.json.encode(said)) == found


def test_what_a_daemon_of_another_version_does_not_say_is_well(ask):
    assert ask(b'{"ready": false, "new": 1}') == Health(state="not ready")


@pytest.mark.parametrize("answer, word", [(b"", "silent"), (b"{}", "not understood"), (b"no", "not understood")])
def test_an_answer_that_is_not_understood_has_its_word(ask, answer: bytes, word: str):
    assert ask(answer, process=os.getpgid(0)) == Health(state=word)
    assert not serves(word)


PAGES = [
    (b"HTTP/1.1 200 OK\r\nA: b\r\n\r\nflanneld is ready", Health(state="ready")),
    (b"HTTP/1.0 503 Service Unavailable\r\n\r\nflanneld is not ready yet", Health(state="not ready")),
    (
        b"HTTP/1.0 503 x\r\n\r\n[-]devices failed: VTEP-002\t\x1b[2J\n[!]rules\n[+]a ok\nx [-]no",
        Health(state="not ready", problems=("devices failed: VTEP-002\\t\\x1b[2J", "rules")),
    ),
    (None, Health(state="silent")),  # it is frozen: the kernel takes the connection
]


@pytest.mark.parametrize("page, found", PAGES)
@pytest.mark.parametrize("answers", [(), (WELL, WELL), (b"{}",)])
def test_the_health_port_tells_what_no_control_socket_does(ask, page, found: Health, answers):
    if answers == (b"{}",) and found.state == "silent":
        found = Health(state="not understood")
    assert ask(*answers, page=page) == found


def test_what_the_lab_has_started_is_never_taken_for_flannels_pod(ask):
    assert ask(process=1, flannels=True) == Health(state="silent")
    assert ask(flannels=True) == Health(state="flanneld")
    assert serves("flanneld")


def test_of_two_daemons_the_one_that_the_lab_has_started_is_asked(ask, tmp_path: Path):
    command = [
        sys.executable,
        "-c",
        ANOTHER,
        str(tmp_path / "other"),
        msgspec.json.encode(HealthState(ready=False)).decode(),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as other:
        assert other.stdout is not None
        other.stdout.readline()
        try:
            assert ask(WELL, process=os.getpgid(0)).state == "ready"
            assert ask(process=other.pid).state == "not ready"
            assert ask(process=os.getpgid(0)).state == "silent"  # ours has no socket yet
        finally:
            other.kill()


def test_only_a_flanneld_that_works_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(daemons, "living", list)
    monkeypatch.setattr(control, "_PROC", tmp_path)
    shutil.copy(shutil.which("sleep") or "", tmp_path / "flanneld")
    for command, is_so in ([tmp_path / "flanneld", "60"], True), (["sleep", "60"], False):
        with subprocess.Popen(command) as process:
            (tmp_path / str(process.pid)).symlink_to(f"/proc/{process.pid}")
            eventually(lambda is_so=is_so: control._is_flannels() == is_so)
            if is_so:
                process.send_signal(signal.SIGSTOP)
                eventually(lambda: not control._is_flannels())
            process.kill()


async def test_a_wait_for_a_daemon_ends_when_it_serves_or_has_ended(monkeypatch: pytest.MonkeyPatch):
    said = iter([Health(state="silent"), Health(state="not ready"), Health(state="ready")])

    async def health(*_: object) -> Health:
        return next(said)

    monkeypatch.setattr(control, "health", health)
    lease, ended = asyncio.Event(), asyncio.get_running_loop().create_future()
    made: Any = {"room": None, "rtnl": None, "run": 0, "init": None, "daemon": SimpleNamespace(pid=5, ended=ended)}
    node = RunningNode(spec=Node(name="a", index=1), lease=lease, **made)
    assert node.process == 5
    await node.served(Inside())  # type: ignore[arg-type]
    assert next(said, None) is None
    ended.set_result(1)
    await node.served(Inside())  # type: ignore[arg-type]
    assert node.process == 0


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
        (None, "silent"),
    ],
)
@pytest.mark.parametrize("family, host", [(4, "127.0.0.1"), (6, "::1")])
def test_a_store_is_ready_not_ready_or_silent(monkeypatch, family: Any, host: str, answer: bytes | None, word: str):
    network = '{"Network": "10.244.0.0/16"}'
    store = etcd.EtcdStore(None, regular(name="x", network=network, families=(family,), nodes=1, pods=0))  # type: ignore[arg-type]

    async def asked() -> tuple[str, list[bytes]]:
        async with serving(answer, host) as (port, heard):
            monkeypatch.setattr(etcd, "_PORT", port)
            return await store.state(), heard

    monkeypatch.setattr(etcd.underlay, "address", lambda _family: SimpleNamespace(ip=host))
    monkeypatch.setattr(etcd, "_ANSWER_SECONDS", 0.3)
    assert asyncio.run(asked()) == (word, [b"GET /health HTTP/1.0\r\n\r\n"])


def test_a_store_that_is_not_there_is_silent(monkeypatch, unused: int):
    store = etcd.EtcdStore(None, regular(name="x", network="{}", families=(4,), nodes=1, pods=0))  # type: ignore[arg-type]
    monkeypatch.setattr(etcd.underlay, "address", lambda _family: SimpleNamespace(ip="127.0.0.1"))
    monkeypatch.setattr(etcd, "_PORT", unused)
    assert asyncio.run(store.state()) == "silent"


@pytest.mark.parametrize(
    "families, url",
    [((4,), "http://172.31.0.1:2379"), ((4, 6), "http://172.31.0.1:2379"), ((6,), "http://[fd31::1]:2379")],
)
def test_where_the_store_is(families, url: str):
    assert etcd.url(families) == url
