"""What commands and the supervisor of a lab say to each other: lines of JSON on a Unix socket, with descriptors.

One request a connection. The answer is any number of `Note` (progress, for people), then one `Done` or `Failed`.
A client that closes the connection early no longer wants the answer.
"""

import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from weft.diag.check.trial import Trial
from weft.diag.trace.probes import Kind
from weft.lab import changes
from weft.lab.spec import Lab, Pod, Service
from weft.model.errors import CannotRun, ConfigError, Problem, Unavailable, WeftError
from weft.model.value import Value, field, fields_of

T = TypeVar("T")

MOST_DESCRIPTORS: Final = 250  # of one message; the kernel's limit is 253 (SCM_MAX_FD)


class Up(Value, kw_only=False, tag=True):
    """Build the lab; the first request of its life. Closing the connection before `Done` ends the lab.

    `environ` is for the daemons and plugins: PATH and the like. Sockets of the machine's that listen come along, by
    which programs outside of the lab reach it: first one for Kubernetes' API, if that is the store, then one for each
    port of each node. With `keep` what has started stays when the rest fails.
    """

    lab: Lab
    environ: dict[str, str]
    keep: bool = False


class Ps(Value, kw_only=False, tag=True):
    """Answered by a `LabReport`."""


class States(Value, kw_only=False, tag=True):
    """Ask the daemon of each node how it is. Answered by a `StatesReport`."""


class AskNews(Value, kw_only=False, tag=True):
    """Ask the daemon of each node what happened there after the event of that number. Answered by a `NewsReport`.

    Of a node that is not in `after` all events are wanted; `ITSELF` stands there for what was done to the lab.
    """

    after: dict[str, int]


class Interfaces(Value, kw_only=False, tag=True):
    """What the kernel has of a node's or a pod's links. Answered by an `InterfacesReport`."""

    where: str


class Traffic(Value, kw_only=False, tag=True):
    """Ask what nodes, pods and ways between nodes have carried so far. Answered by a `TrafficReport`."""


class Describe(Value, kw_only=False, tag=True):
    """Ask what would have to be started to have this lab again. Answered by a `Lab`."""


class Run(Value, kw_only=False, tag=True):
    """Start a pod. Answered by its `PodReport`."""

    pod: Pod


class Remove(Value, kw_only=False, tag=True):
    """End a pod. Answered by `Nothing`."""

    pod: str


class Exec(Value, kw_only=False, tag=True):
    """Run a command in a node or pod with the three descriptors that come along. Answered by an `ExecReport`.

    It runs in `directory`, or in / where there is no such one. With `tty` the descriptors are a terminal that becomes
    the command's own. Further `Signal` lines may follow.
    """

    where: str
    command: list[str]
    environ: dict[str, str]
    tty: bool
    directory: str = "/"


class Signal(Value, kw_only=False, tag=True):
    """Send a signal to the command that this connection has started."""

    number: int


class Ping(Value, kw_only=False, tag=True):
    """Ping from one node or pod to another, `count` times. Answered by a `PingReport`."""

    source: str
    target: str
    count: int


class PingAll(Value, kw_only=False, tag=True):
    """Ping from every pod and every node to every pod. Answered by a `PingReport`."""


class Try(Value, kw_only=False, tag=True):
    """Try what a check asks. Answered by a `TriedReport`."""

    trials: list[Trial]


class Capture(Value, kw_only=False, tag=True):
    """Open a packet socket in a node or pod, on one link or with "" on all. Answered by `Nothing` and the socket."""

    where: str
    link: str


class Probe(Value, kw_only=False, tag=True):
    """Send a probe with each of `numbers` from an address of a node or pod. `SentReport` answers.

    With `kind` "icmp" there is no port. Each is as large as `sizes` says in the same order, or small without.
    """

    source: str
    address: str
    target: str
    kind: Kind
    numbers: list[int]
    port: int = 0
    sizes: list[int] = field(default_factory=list)


class Open(Value, kw_only=False, tag=True):
    """Open a path as a node or pod sees it. Answered by an `OpenReport` and, if there is something, its descriptor.

    The descriptor stands for the place and gives no access by itself (open(2), O_PATH): to open a FIFO would wait.
    """

    where: str
    path: str


class Names(Value, kw_only=False, tag=True):
    """Hand out nodes' network namespaces, from the node number `start` on. Answered by a `NamesReport`."""

    start: int


class Expose(Value, kw_only=False, tag=True):
    """Begin a Service. Answered by its `ServiceReport`."""

    service: Service


class Unexpose(Value, kw_only=False, tag=True):
    """End a Service. Answered by `Nothing`."""

    service: str


class Down(Value, kw_only=False, tag=True):
    """End the lab. Answered by `Nothing` just before the end."""


Request = (
    Up
    | Ps
    | States
    | AskNews
    | Interfaces
    | Traffic
    | Describe
    | Run
    | Remove
    | Exec
    | Ping
    | PingAll
    | Try
    | Capture
    | Probe
    | Open
    | Names
    | Expose
    | Unexpose
    | Down
    | changes.Request
)


class Note(Value, kw_only=False, tag=True):
    """What is going on, in a few words."""

    text: str


class Done(Value, kw_only=False, tag=True):
    """The end: `data` is the JSON of one of the reports."""

    data: msgspec.Raw


class Failed(Value, kw_only=False, tag=True):
    """The end: problems, in the fields of `Problem`, and the `status` of the error: see `weft.model.errors`."""

    problems: list[dict[str, str]]
    status: int

    @classmethod
    def of(cls, error: WeftError) -> "Failed":
        return cls([fields_of(problem) for problem in error.problems], status=error.status)

    def error(self) -> WeftError:
        """Return the error as it was on the other side."""
        problems = [Problem(**problem) for problem in self.problems]
        if self.status > ConfigError.status:
            return CannotRun(problems[0], status=self.status)
        kind = ConfigError if self.status == ConfigError.status else Unavailable
        return kind(*problems)


Answer = Note | Done | Failed


class Deserted(Unavailable):
    """The supervisor ended without an answer."""

    def __init__(self) -> None:
        """Say what is to be done about a lab in general."""
        hint = "'weft lab list' shows what is left of it, and how to remove that."
        seen = "its supervisor ended without an answer"
        super().__init__(Problem(code="LAB-002", where="the lab", seen=seen, hint=hint))


class Call:
    """A command's side of one request."""

    def __init__(self, path: Path, request: Request, *, descriptors: Sequence[int] = ()) -> None:
        """Connect and send. `OSError` if no supervisor listens."""
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.connect(str(path))
        except OSError:
            self._socket.close()
            raise
        self._rest = b""
        self._descriptors: list[int] = []
        line = msgspec.json.encode(request) + b"\n"
        if descriptors:
            socket.send_fds(self._socket, [line[:1]], list(descriptors))
            line = line[1:]
        self._socket.sendall(line)

    def fileno(self) -> int:
        """Return the socket's descriptor, to wait for the answer beside other things."""
        return self._socket.fileno()

    def signal(self, number: int) -> None:
        """Pass a signal on to the command that runs there."""
        self._socket.sendall(msgspec.json.encode(Signal(number)) + b"\n")

    def result(self, kind: type[T], *, note: Callable[[str], None] = lambda _: None) -> T:
        """Wait for the end and return the report. Raises what the supervisor raised; `Deserted` if it is gone."""
        while True:
            answer = self._answer()
            if isinstance(answer, Note):
                note(answer.text)
            elif isinstance(answer, Failed):
                raise answer.error()
            else:
                return msgspec.json.decode(answer.data, type=kind)

    def descriptors(self) -> list[int]:
        """Return the descriptors that came with the answer; they are the caller's to close."""
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
