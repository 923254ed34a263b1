"""What commands and a lab's supervisor say to each other: lines of JSON on a Unix socket, with descriptors.

A connection has one request. The answer is any number of `Note`, then one `Done` or `Failed`. A client that closes
early no longer wants the answer.
"""

from typing import Any, Final, Generic, Literal, TypeVar

import msgspec

from weft.diag.check.trial import Outcome, Trial
from weft.diag.sight.interfaces import InterfaceState
from weft.diag.sight.node import Hanging
from weft.diag.trace.probes import Probe, Sent
from weft.diag.trace.ruled import Ruling
from weft.lab import report
from weft.lab.links import Change
from weft.lab.report import (
    LabReport,
    LinksReport,
    NewsReport,
    Nothing,
    PingReport,
    PodReport,
    ServiceReport,
    TrafficReport,
    TurnReport,
)
from weft.lab.spec import Lab, Pod, Service
from weft.model.errors import CannotRun, ConfigError, Problem, Unavailable, WeftError
from weft.model.value import Value, field, fields_of

A = TypeVar("A")

MOST_DESCRIPTORS: Final = 250  # of one message; the kernel's limit is 253 (SCM_MAX_FD)


class Asked(Value, Generic[A], tag=True):
    """What a command asks for; the answer is an `A`."""


class Up(Asked[LabReport], kw_only=False):
    """Build the lab; the first request of its life. Closing the connection before `Done` ends the lab.

    `environ` is for daemons and plugins. Listening sockets of the machine come along: first one for Kubernetes' API, if
    that is the store, then one for each port of each node. With `keep`, what has started stays when the rest fails.
    """

    lab: Lab
    environ: dict[str, str]
    keep: bool = False


class Ps(Asked[LabReport], kw_only=False):
    """All of the lab."""


class States(Asked[report.States], kw_only=False):
    """What each node's daemon says of itself."""


class AskNews(Asked[NewsReport], kw_only=False):
    """Events after that number, by node.

    Of a node that is not in `after` all are wanted; `ITSELF` stands for what was done to the lab.
    """

    after: dict[str, int]


class Interfaces(Asked[list[InterfaceState]], kw_only=False):
    """The links of a node or pod, in the kernel's order."""

    where: str


class Traffic(Asked[TrafficReport], kw_only=False):
    """Counters until now."""


class Describe(Asked[Lab], kw_only=False):
    """A lab that would be as this one."""


class Run(Asked[PodReport], kw_only=False):
    pod: Pod


class Remove(Asked[Nothing], kw_only=False):
    pod: str


class Exec(Asked[int], kw_only=False):
    """Run a command with the three descriptors that come along.

    The answer is its exit status, or 128 and the number of the signal that ended it. It runs in `directory`, or in /
    where that is missing. With `tty` the descriptors are a terminal that becomes the command's own. `Signal` lines may
    follow.
    """

    where: str
    command: list[str]
    environ: dict[str, str]
    tty: bool
    directory: str = "/"


class Signal(Value, kw_only=False, tag=True):
    number: int


class Ping(Asked[PingReport], kw_only=False):
    source: str
    target: str
    count: int


class PingAll(Asked[PingReport], kw_only=False):
    """From every pod and node to every pod."""


class Try(Asked[list[Outcome]], kw_only=False):
    trials: list[Trial]


class Capture(Asked[Nothing], kw_only=False):
    """A packet socket on one link, or with "" on all; it comes with the answer.

    With `longest`, frames of more bytes are left out, and of the others those are kept in which a probe lies.
    """

    where: str
    link: str
    longest: int = 0


class Send(Asked[Sent], kw_only=False):
    """Send probes from a node or pod."""

    probe: Probe


class Counters(Asked[dict[str, int]], kw_only=False):
    """The kernel's counters of a node's or pod's namespace, by name."""

    where: str


class OnLinks(Asked[list[Hanging]], kw_only=False):
    """What may take packets on the links of a node or pod."""

    where: str


class Filtered(Asked[Nothing], kw_only=False):
    """Have packet filters tell what they do with a probe (`nftrace.listen`); the socket comes with the answer."""

    where: str
    probe: Probe


class Tell(Asked[Ruling], kw_only=False):
    """Complete a ruling of a node's or pod's packet filter."""

    where: str
    ruling: Ruling


class Open(Asked[Nothing], kw_only=False):
    """Open a path as a node or pod sees it. If something is there, its descriptor comes with the answer.

    It gives no access by itself (open(2), O_PATH): to open a FIFO would wait.
    """

    where: str
    path: str


class Names(Asked[list[str]], kw_only=False):
    """The names of nodes from number `start` on; their network namespaces come with the answer, in this order."""

    start: int


class Expose(Asked[ServiceReport], kw_only=False):
    service: Service


class Unexpose(Asked[Nothing], kw_only=False):
    service: str


class SetPolicies(Asked[LabReport], kw_only=False):
    """Put objects beside those there are or in the place of those of the same names, and delete others, by names.

    The answer comes once it is in effect on all nodes.
    """

    put: list[dict[str, Any]] = field(default_factory=list)
    delete: list[str] = field(default_factory=list)


class AwaitPolicies(Asked[Nothing], kw_only=False):
    """Wait until all nodes have in effect what Kubernetes' API has, known by `forms`; that of what is gone is empty."""

    forms: dict[str, str]


class Denied(Asked[list[report.RefusedReport]], kw_only=False):
    """Who was refused, by the nodes that enforce policies."""


class Down(Asked[Nothing], kw_only=False):
    """Answered just before the end."""


Verb = Literal["start", "stop", "restart", "kill"]


class SetLinks(Asked[LinksReport], kw_only=False):
    """Without nodes, of all.

    A word of `nodes`, and of the requests below, may mean several: see `links.group`.
    """

    nodes: list[str]
    change: Change


class Partition(Asked[LinksReport], kw_only=False):
    source: str
    target: str
    one_way: bool


class Heal(Asked[LinksReport], kw_only=False):
    """Between two groups of places; without any, all cuts."""

    places: list[str]


class Turn(Asked[TurnReport], kw_only=False):
    """In this order. A thing is a node, its daemon (`node1/weftd`) or the `store`.

    `policed`: from this start on, daemons are started with policies, or without; None leaves it as it was.
    """

    verb: Verb
    things: list[str]
    policed: bool | None = None


class Scale(Asked[LabReport], kw_only=False):
    """New nodes have `pods` each, or as many as the first."""

    nodes: int
    pods: int | None


class Configure(Asked[LabReport], kw_only=False):
    """`where` is the file of the network configuration. Daemons take it when they start again."""

    network: str
    where: str


class Broke(Asked[Nothing], kw_only=False):
    """Note in the lab's history that a command broke a node by a fault, or mended it.

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
    | Send
    | Counters
    | OnLinks
    | Filtered
    | Tell
    | Open
    | Names
    | Expose
    | Unexpose
    | AwaitPolicies
    | Denied
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
