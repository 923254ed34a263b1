"""A command's side of the protocol: one request to a lab's supervisor, and its answer."""

import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, get_args

import msgspec

from weft.lab.protocol import MOST_DESCRIPTORS, A, Answer, Asked, Failed, Note, Signal
from weft.model.errors import Problem, Unavailable


class Deserted(Unavailable):
    """The supervisor ended without an answer."""

    def __init__(self) -> None:
        hint = "'weft lab list' shows what is left of it, and how to remove that."
        super().__init__(Problem("LAB-002", "the lab", "its supervisor ended without an answer", hint=hint))


class Call(Generic[A]):
    """A request that is on its way. Its answer may come with notes and descriptors; `close` it."""

    def __init__(self, path: Path, request: Asked[A], *, descriptors: Sequence[int] = ()) -> None:
        """`OSError` if no supervisor listens."""
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.connect(str(path))
        except OSError:
            self._socket.close()
            raise
        self._kind: type[A] = get_args(type(request).__orig_bases__[0])[0]  # type: ignore[attr-defined]
        self._rest = b""
        self._descriptors: list[int] = []
        line = msgspec.json.encode(request) + b"\n"
        if descriptors:
            socket.send_fds(self._socket, [line[:1]], list(descriptors))
            line = line[1:]
        self._socket.sendall(line)

    def fileno(self) -> int:
        return self._socket.fileno()

    def signal(self, number: int) -> None:
        self._socket.sendall(msgspec.json.encode(Signal(number)) + b"\n")

    def result(self, *, note: Callable[[str], None] = lambda _: None) -> A:
        """Raises what the supervisor raised; `Deserted` if it is gone."""
        while True:
            answer = self._answer()
            if isinstance(answer, Note):
                note(answer.text)
            elif isinstance(answer, Failed):
                raise answer.error()
            else:
                return msgspec.json.decode(answer.data, type=self._kind)

    def descriptors(self) -> list[int]:
        """They are the caller's to close."""
        taken, self._descriptors = self._descriptors, []
        return taken

    def close(self) -> None:
        self._socket.close()
        for descriptor in self.descriptors():
            socket.close(descriptor)

    def _answer(self) -> Answer:
        while b"\n" not in self._rest:
            try:
                data, descriptors, _, _ = socket.recv_fds(self._socket, 1 << 20, MOST_DESCRIPTORS)
            except ConnectionError as error:
                raise Deserted from error
            self._descriptors += descriptors
            if not data:
                raise Deserted
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        answer: Answer = msgspec.json.decode(line, type=Answer)
        return answer
