"""What commands and a lab's supervisor say to each other: lines of JSON on a Unix socket, with descriptors.

A connection has one request. The answer is any number of `Note`, then one `Done` or `Failed`. A client that closes
early no longer wants the answer.
"""

import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import msgspec

from weft.diag.check.trial import Trial
from weft.diag.trace.probes import Kind
from weft.lab.links import Change
from weft.lab.spec import Lab, Pod, Service
from weft.model.errors import CannotRun, ConfigError, Problem, Unavailable, WeftError
from weft.model.value import Value, field, fields_of

T = TypeVar("T")

MOST_DESCRIPTORS: Final = 250  # of one message; the kernel's limit is 253 (SCM_MAX_FD)


class Up(Value, kw_only=False, tag=True):
    """Build the lab; the first request of its life. Closing the connection before `Done` ends the lab.

    `environ` is for daemons and plugins. Listening sockets of the machine come along: first one for Kubernetes' API, if
    that is the store, then one for each port of each node. With `keep`, what has started stays when the rest fails.
    """

    lab: Lab
    environ: dict[str, str]
    keep: bool = False


class Ps(Value, kw_only=False, tag=True):
    """Answered by a `LabReport`."""


class States(Value, kw_only=False, tag=True):
    """Answered by `States`."""


class AskNews(Value, kw_only=False, tag=True):
    """Events after that number, by node. Answered by a `NewsReport`.

    Of a node that is not in `after` all are wanted; `ITSELF` stands for what was done to the lab.
    """

    after: dict[str, int]


class Interfaces(Value, kw_only=False, tag=True):
    """The links of a node or pod, in the kernel's order. Answered by a list of `InterfaceState`."""

    where: str


class Traffic(Value, kw_only=False, tag=True):
    """Counters until now. Answered by a `TrafficReport`."""


class Describe(Value, kw_only=False, tag=True):
    """Answered by a `Lab` that would be as this one."""


class Run(Value, kw_only=False, tag=True):
    """Answered by its `PodReport`."""

    pod: Pod


class Remove(Value, kw_only=False, tag=True):
    """Answered by `Nothing`."""

    pod: str


class Exec(Value, kw_only=False, tag=True):
    """Run a command with the three descriptors that come along.

    Answered by its exit status, or 128 and the number of the signal that ended it.

    It runs in `directory`, or in / where that is missing. With `tty` the descriptors are a terminal that becomes the
    command's own. `Signal` lines may follow.
    """

    where: str
    command: list[str]
    environ: dict[str, str]
    tty: bool
    directory: str = "/"


class Signal(Value, kw_only=False, tag=True):
    number: int


class Ping(Value, kw_only=False, tag=True):
    """Answered by a `PingReport`."""

    source: str
    target: str
    count: int


class PingAll(Value, kw_only=False, tag=True):
    """From every pod and node to every pod. Answered by a `PingReport`."""


class Try(Value, kw_only=False, tag=True):
    """Answered by a list of `Outcome`."""

    trials: list[Trial]


class Capture(Value, kw_only=False, tag=True):
    """A packet socket on one link, or with "" on all. Answered by `Nothing` and the socket."""

    where: str
    link: str


class Probe(Value, kw_only=False, tag=True):
    """Send a probe with each of `numbers`. Answered by a `Sent`.

    With `kind` "icmp" there is no port. `sizes` are theirs in order; without, they are small.
    """

    source: str
    address: str
    target: str
    kind: Kind
    numbers: list[int]
    port: int = 0
    sizes: list[int] = field(default_factory=list)


class Counters(Value, kw_only=False, tag=True):
    """The kernel's counters of a node's or pod's namespace. Answered by a dictionary, name to count."""

    where: str


class Open(Value, kw_only=False, tag=True):
    """Open a path as a node or pod sees it. Answered by `Nothing` and, if something is there, its descriptor.

    It gives no access by itself (open(2), O_PATH): to open a FIFO would wait.
    """

    where: str
    path: str


class Names(Value, kw_only=False, tag=True):
    """Nodes' network namespaces from number `start` on. Answered by the nodes' names and, in their order, these."""

    start: int


class Expose(Value, kw_only=False, tag=True):
    """Answered by its `ServiceReport`."""

    service: Service


class Unexpose(Value, kw_only=False, tag=True):
    """Answered by `Nothing`."""

    service: str


class SetPolicies(Value, kw_only=False, tag=True):
    """Put objects beside those there are or in the place of those of the same names, and delete others, by names.

    Answered by a `LabReport`, once it is in effect on all nodes.
    """

    put: list[dict[str, Any]] = field(default_factory=list)
    delete: list[str] = field(default_factory=list)


class Down(Value, kw_only=False, tag=True):
    """Answered by `Nothing` just before the end."""


Verb = Literal["start", "stop", "restart", "kill"]


class SetLinks(Value, kw_only=False, tag=True):
    """Without nodes, of all. Answered by a `LinksReport`.

    A word of `nodes`, and of the requests below, may mean several: see `links.group`.
    """

    nodes: list[str]
    change: Change


class Partition(Value, kw_only=False, tag=True):
    """Answered by a `LinksReport`."""

    source: str
    target: str
    one_way: bool


class Heal(Value, kw_only=False, tag=True):
    """Between two groups of places; without any, all cuts. Answered by a `LinksReport`."""

    places: list[str]


class Turn(Value, kw_only=False, tag=True):
    """In this order. Answered by a `TurnReport`.

    A thing is a node, its daemon (`node1/weftd`) or the `store`.
    """

    verb: Verb
    things: list[str]


class Scale(Value, kw_only=False, tag=True):
    """New nodes have `pods` each, or as many as the first. Answered by a `LabReport`."""

    nodes: int
    pods: int | None


class Configure(Value, kw_only=False, tag=True):
    """`where` is the file of the network configuration. Answered by a `LabReport`.

    Daemons take it when they start again.
    """

    network: str
    where: str


class Broke(Value, kw_only=False, tag=True):
    """Note in the lab's history that a command broke a node by a fault, or mended it. Answered by `Nothing`.

    `failed` is why the fault's script did not work.
    """

    node: str
    fault: str
    mend: bool
    failed: str = ""


Changing = SetLinks | Partition | Heal | Turn | Scale | Configure | SetPolicies | Broke


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
    | Counters
    | Open
    | Names
    | Expose
    | Unexpose
    | Down
    | Changing
)


class Note(Value, kw_only=False, tag=True):
    """Progress, for people."""

    text: str


class Done(Value, kw_only=False, tag=True):
    """`data` is the JSON of a report."""

    data: msgspec.Raw


class Failed(Value, kw_only=False, tag=True):
    """Problems in the fields of `Problem`, and the `status` of the error: see `weft.model.errors`."""

    problems: list[dict[str, str]]
    status: int

    @classmethod
    def of(cls, error: WeftError) -> "Failed":
        return cls([fields_of(problem) for problem in error.problems], status=error.status)

    def error(self) -> WeftError:
        problems = [Problem(**problem) for problem in self.problems]
        if self.status > ConfigError.status:
            return CannotRun(problems[0], status=self.status)
        kind = ConfigError if self.status == ConfigError.status else Unavailable
        return kind(*problems)


Answer = Note | Done | Failed


class Deserted(Unavailable):
    """The supervisor ended without an answer."""

    def __init__(self) -> None:
        hint = "'weft lab list' shows what is left of it, and how to remove that."
        super().__init__(Problem("LAB-002", "the lab", "its supervisor ended without an answer", hint=hint))


class Call:
    def __init__(self, path: Path, request: Request, *, descriptors: Sequence[int] = ()) -> None:
        """`OSError` if no supervisor listens."""
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
        return self._socket.fileno()

    def signal(self, number: int) -> None:
        self._socket.sendall(msgspec.json.encode(Signal(number)) + b"\n")

    def result(self, kind: type[T], *, note: Callable[[str], None] = lambda _: None) -> T:
        """Raises what the supervisor raised; `Deserted` if it is gone."""
        while True:
            answer = self._answer()
            if isinstance(answer, Note):
                note(answer.text)
            elif isinstance(answer, Failed):
                raise answer.error()
            else:
                return msgspec.json.decode(answer.data, type=kind)

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
