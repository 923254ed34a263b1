"""A conversation with a charon that answers late: nothing says which request an answer is for."""

import asyncio
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from ipaddress import IPv4Address
from pathlib import Path
from struct import Struct
from threading import Thread

import pytest

from tests.support.waiting import in_time
from weft.daemon.backends.ipsec import process, talk
from weft.daemon.backends.ipsec.charon import CharonPlane
from weft.daemon.backends.ipsec.talk import Session
from weft.daemon.planes.contract import Place
from weft.desired.backends.ipsec.objects import SharedKey
from weft.model.errors import Failure
from weft.model.value import Secret
from weft.plan.diff import Put
from weft.wire import vici

LENGTH = Struct("!I")
PATIENCE = 0.2
KEYS = [SharedKey(owner=IPv4Address(f"192.168.0.{number}"), secret=Secret("x" * 96)) for number in (1, 2, 3)]


class Fake:
    """Takes requests, whatever they are, and answers as it is told: with its words of refusal, or with none."""

    def __init__(self, path: Path) -> None:
        self.heard: list[bytes] = []
        self.answer: Callable[[bytes], str] = lambda _: ""
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(str(path))
        self.listener.listen()
        Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError), closing(connection), connection.makefile("rb") as stream:
            while head := stream.read(LENGTH.size):
                request = stream.read(*LENGTH.unpack(head))
                self.heard.append(request)
                words = self.answer(request)
                said = vici.encode({"success": "no", "errmsg": words} if words else {"success": "yes"})
                data = bytes([vici.RESPONSE]) + said
                connection.sendall(LENGTH.pack(len(data)) + data)


@pytest.fixture
def charon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fake]:
    monkeypatch.setattr(talk, "_SECONDS", PATIENCE)
    fake = Fake(tmp_path / process.SOCKET)
    with closing(fake.listener):
        yield fake


def put(plane: CharonPlane) -> dict[object, Failure]:
    return {failure.step.object: failure for failure in asyncio.run(plane.apply([Put(key) for key in KEYS]))}


def late(request: bytes) -> str:
    """Answer to the first key alone, and too late: that it is refused."""
    if b"192.168.0.1" not in request:
        return ""
    time.sleep(2 * PATIENCE)
    return "the first"


def test_a_late_answer_is_not_taken_for_the_next_ones(charon: Fake, tmp_path: Path):
    with closing(CharonPlane(Place(directory=tmp_path, boot="this"))) as plane:
        charon.answer = late
        begun = time.monotonic()
        failures = put(plane)
        assert failures.keys() == set(KEYS), "of none it is known what became"
        assert "timed out" in failures[KEYS[1]].message
        assert not [each for each in failures.values() if "the first" in each.message]
        assert in_time(begun, 2 * PATIENCE), "none waits once more"
        charon.answer = lambda _: ""
        assert not put(plane), "by a new conversation"


def test_what_is_refused_costs_nothing_but_itself(charon: Fake, tmp_path: Path):
    charon.answer = lambda request: "no" if b"192.168.0.2" in request else ""
    with closing(CharonPlane(Place(directory=tmp_path, boot="this"))) as plane:
        failures = put(plane)
    assert failures.keys() == {KEYS[1]}
    assert failures[KEYS[1]].message == "charon refuses load-shared: no"


def test_a_list_that_is_not_answered_ends_the_conversation(charon: Fake, tmp_path: Path):
    charon.answer = lambda _: time.sleep(2 * PATIENCE) or ""
    opened = Session.to(tmp_path / process.SOCKET)
    assert opened is not None
    with closing(opened):
        with pytest.raises(TimeoutError):
            opened.list("list-sas", "list-sa", lambda _: None)
        with pytest.raises(OSError, match="ended: timed out"):
            opened.ask("version")
