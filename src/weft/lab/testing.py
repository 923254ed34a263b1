"""Labs for programs and tests: start one, use it, and it ends with the block.

    from weft.lab.testing import lab, shown

    with lab(nodes=2, pods=1) as running:
        report = running.check()
        assert not report.failed, shown(report)
        routes = running.exec("node1", "ip", "route").stdout

What goes wrong is a `WeftError` with its problems, as the commands print them. `weft.lab.fixtures` is the same for
pytest.
"""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Final

from weft.diag.check.report import CheckReport, as_text
from weft.diag.trace.probe_report import TraceReport, tried_lines
from weft.lab import places, protocol, spec
from weft.lab.commands import breaking, show, start, terminal
from weft.lab.commands.check import examine
from weft.lab.commands.choose import ask
from weft.lab.commands.ending import down
from weft.lab.commands.trace import follow
from weft.lab.links import Change, read_delay, read_loss, read_rate
from weft.lab.places import Place
from weft.lab.protocol import Verb
from weft.lab.report import LabReport, LinksReport, PingReport, PodReport, TurnReport
from weft.lab.topology import Wanted

_numbers: Final = count(1)


class Lab:
    """A lab that is up. Each method asks it again."""

    def __init__(self, place: Place) -> None:
        self._place = place

    @property
    def name(self) -> str:
        """Its name, for `weft lab … --lab NAME`."""
        return self._place.name

    def report(self) -> LabReport:
        """Return what there is: nodes with their leases, pods with their addresses, as `weft lab ps -o json`."""
        return ask(self._place, protocol.Ps())

    def exec(self, where: str, *command: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
        """Run a command in a node or pod, without input, to its end.

        Raises `CalledProcessError` for another exit status than 0, unless `check` is off; `ConfigError` for a place or
        program that is not there.
        """
        status, stdout, stderr = terminal.captured(terminal.command(self._place, where, command))
        ran = subprocess.CompletedProcess(command, status, stdout, stderr)
        if check:
            ran.check_returncode()
        return ran

    def ping(self, source: str, target: str, *, times: int = 1) -> PingReport:
        """Ping from one node or pod to another: all is well if the report's `reached` is its `tried`."""
        return ask(self._place, protocol.Ping(source=source, target=target, count=times))

    def pingall(self) -> PingReport:
        """Ping from every node and pod to every pod."""
        return ask(self._place, protocol.PingAll())

    def run(self, pod: str, node: str, *, network: str = "", ip: str = "") -> PodReport:
        """Start a pod on a node, in a network other than the first, or with an address of its own choice."""
        return ask(self._place, protocol.Run(spec.Pod(name=pod, node=node, network=network, ip=ip)))

    def remove(self, pod: str) -> None:
        """Detach a pod and end it."""
        ask(self._place, protocol.Remove(pod))

    def link(
        self, *nodes: str, up: bool | None = None, delay: str = "", loss: str = "", rate: str = "", clear: bool = False
    ) -> LinksReport:
        """Change the links of some nodes, or of all: `link("node2", loss="5%", delay="20ms")`."""
        change = Change(
            up=up,
            delay=read_delay(delay) if delay else None,
            loss=read_loss(loss) if loss else None,
            rate=read_rate(rate) if rate else None,
            clear=clear,
        )
        return ask(self._place, protocol.SetLinks(nodes=list(nodes), change=change))

    def partition(self, source: str, target: str, *, one_way: bool = False) -> LinksReport:
        """Cut the ways between two nodes or groups: `partition("node1,node2", "store")`."""
        return ask(self._place, protocol.Partition(source=source, target=target, one_way=one_way))

    def heal(self, source: str = "", target: str = "") -> LinksReport:
        """End the cuts between two nodes or groups, or all cuts."""
        return ask(self._place, protocol.Heal(places=[source, target] if source else []))

    def turn(self, verb: Verb, *things: str) -> TurnReport:
        """Stop, start, restart or kill nodes, daemons (`node1/weftd`) or the `store`."""
        return ask(self._place, protocol.Turn(verb=verb, things=list(things)))

    def break_(self, node: str, fault: str, *, mend: bool = False) -> None:
        """Break a node by a fault of `weft lab break`, or mend it."""
        breaking.change(self._place, self.report(), node, breaking.named(fault), mend=mend)

    def trace(self, source: str, target: str, *, six: bool = False, udp: bool = False, size: int = 0) -> TraceReport:
        """Follow a packet, of so many bytes if that matters, and prove its way by probes: see the report's `well`."""
        return follow(self._place, source, target, six=six, udp=udp, size=size)

    def check(self, *, quick: bool = False) -> CheckReport:
        """Try whether everything reaches everything: all is well if the report's `failed` is 0."""
        return examine(self._place, quick=quick, note=lambda _: None)

    def log(self, name: str) -> str:
        """Return what the daemon of a node has logged, or `etcd`, or `supervisor`. Raises `FileNotFoundError`."""
        return (self._place.logs / f"{name}.log").read_text(errors="replace")


def shown(report: LabReport | PingReport | LinksReport | TurnReport | TraceReport | CheckReport) -> str:
    """Return a report as the commands print it, for the message of an assertion."""
    match report:
        case LabReport():
            return show.lab(report)
        case PingReport():
            return show.ping(report)
        case LinksReport():
            return show.links(report)
        case TurnReport():
            return show.things(report)
        case TraceReport():
            return "\n".join(tried_lines(report, explain=False))
        case CheckReport():
            return "".join(as_text(report))


@contextmanager
def lab(
    file: str = "",
    *,
    name: str = "",
    nodes: int | None = None,
    pods: int | None = None,
    backend: str | None = None,
    family: str | None = None,
    nft: bool = False,
    store: spec.Store | None = None,
    topology: Wanted | None = None,
    password: bool = False,
    note: Callable[[str], None] = lambda _: None,
) -> Iterator[Lab]:
    """Start a lab, and end it whatever happens: by default three nodes with two pods each on etcd.

    `file` is the text of a lab file; what else is given takes the place of what it says. Without a `name` it has one of
    its own, so that labs stand side by side. `family` is "4", "6" or "46", `topology` a shape or lists of
    nodes; with a `password` nodes of a mesh share one. `note` is called with what is being done.
    """
    from weft.lab.files import labfile

    over = spec.Overrides(
        nodes=nodes,
        pods=pods,
        backend=backend,
        family=family,
        nft=nft,
        store=store,
        topology=topology,
        password=password,
    )
    wanted = labfile.read(file or "{}", "the lab", name=name or f"test{os.getpid()}-{next(_numbers)}", over=over)
    base = places.home(os.environ)
    start.up(wanted, base, os.environ, note=note)
    place = places.make(base, wanted.name)
    try:
        yield Lab(place)
    finally:
        down(place)
