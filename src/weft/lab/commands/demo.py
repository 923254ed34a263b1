"""`weft lab demo`: a pod network in a few seconds. What it prints, it has just seen."""

import itertools
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import click

from weft.lab import places, protocol
from weft.lab.commands import show, start, terminal
from weft.lab.commands.choose import ask, ask_for_socket, base, find
from weft.lab.commands.ending import down
from weft.lab.commands.packets.reader import Readers
from weft.lab.files import labfile
from weft.lab.places import Place
from weft.lab.report import LabReport, NodeReport, PingReport, PodReport
from weft.model.errors import Problem, Unavailable
from weft.model.text import table
from weft.model.value import Value
from weft.screen.say import say, title
from weft.wire.packet import Layer, layers_of

_LISTEN: Final = 2.0  # seconds until a packet must have been seen
_ICMP_ECHO: Final = 8


@click.command()
def demo() -> None:
    """Show a pod network at work: a packet, the entries that led it, a repair; about ten seconds."""
    run(base(), os.environ)


def run(base: Path, environ: Mapping[str, str]) -> None:
    """Raises on the first thing that is not as told; nothing stays."""
    started = time.monotonic()
    with _lab(base, environ, "vxlan", nodes=3) as scene:
        scene.cast()
        scene.ping()
        scene.packet("A pod's packet on the wire: one frame, captured on node1's eth0, layer by layer")
        scene.tunnel_entries()
        scene.repair()
    with _lab(base, environ, "host-gw", nodes=2) as scene:
        scene.ping()
        scene.packet("The same without a tunnel: the pod's packet goes as it is")
        scene.plain_route()
        scene.repair()
    _title("Cleaned up")
    say(f"Both labs are gone, {time.monotonic() - started:.1f} s after the start, and nothing of them is left.")
    say("\nNext: weft lab up\n      docs/tutorial/first-lab.md")


@contextmanager
def _lab(base: Path, environ: Mapping[str, str], backend: str, *, nodes: int) -> Iterator["_Scene"]:
    _title(f"{nodes} nodes, 2 pods each, back end {backend}: real weftd, real plugins, real etcd")
    taken = {place.name for place in places.found(base)}
    names = itertools.chain(["demo"], (f"demo{number}" for number in itertools.count(2)))
    name = next(name for name in names if name not in taken)
    wanted = labfile.regular(name=name, backend=backend, families=(4,), nft=False, nodes=nodes, pods=2)
    report = start.up(wanted, base, environ, note=lambda text: say(f"  {text}"))
    place = find(name, base)
    try:
        yield _Scene(place, report)
    finally:
        down(place)


class _Scene(Value, kw_only=False):
    place: Place
    report: LabReport

    @property
    def nodes(self) -> tuple[NodeReport, NodeReport]:
        return self.report.nodes[0], self.report.nodes[1]

    @property
    def pods(self) -> tuple[PodReport, PodReport]:
        first, second = (next(pod for pod in self.report.pods if pod.node == node.name) for node in self.nodes)
        return first, second

    def cast(self) -> None:
        _title("Who is there: weft lab ps")
        say(show.lab(self.report), nl=False)

    def ping(self) -> None:
        first, second = self.pods
        _title(f"Two pods on different nodes: weft lab ping {first.name} {second.name}, and back")
        for source, target in ((first, second), (second, first)):
            cells = self._ping(source, target)
            say(show.ping(cells), nl=False)

    def packet(self, title: str) -> None:
        _title(title)
        layers = self._captured()
        for depth, layer in enumerate(layers):
            say(f"{'  ' * depth}{layer.name}  {layer.text}")

    def tunnel_entries(self) -> None:
        _title("Which entries led it there: weftd on node1 made them from node2's lease")
        route = self._route()
        gateway = route.split()[route.split().index("via") + 1]
        neighbour = self._one("ip", "neigh", "show", gateway, "dev", "flannel.1")
        mac = neighbour.split()[neighbour.split().index("lladdr") + 1]
        fdb = [line for line in self._lines("bridge", "fdb", "show", "dev", "flannel.1") if line.startswith(mac)]
        if not fdb:
            raise _untrue(f"an FDB entry for {mac}", "none")
        entries = (("route", route), ("neighbour", neighbour), ("FDB entry", fdb[0]))
        say(table(("", "IN NODE1'S KERNEL"), entries), nl=False)

    def plain_route(self) -> None:
        _title("Which entry led it there: one route, and nothing else")
        say(table(("", "IN NODE1'S KERNEL"), [("route", self._route())]), nl=False)

    def repair(self) -> None:
        """Delete the route to node2's pods on node1, and say how soon it was back."""
        subnet = self.nodes[1].subnets[0]
        _title(f"Somebody deletes that route: ip route del {subnet}")
        milliseconds = self._one(sys.executable, "-m", "weft.lab.commands.stopwatch", subnet)
        self._ping(*self.pods)
        say(f"It was back after {milliseconds} ms. weftd says:")
        log = (self.place.logs / f"{self.nodes[0].name}.log").read_text().splitlines()
        say("\n".join(f"  {line}" for line in log[-3:] if subnet in line))

    def _ping(self, source: PodReport, target: PodReport) -> PingReport:
        report = ask(self.place, protocol.Ping(source=source.name, target=target.name, count=1))
        if faults := [cell for cell in report.cells if cell.fault]:
            words = show.ping(PingReport(tried=len(faults), reached=0, cells=faults)).strip()
            raise _untrue("a ping that arrives", words)
        return report

    def _captured(self) -> list[Layer]:
        node = self.nodes[0].name
        with closing(Readers()) as readers:
            readers.add(node, ask_for_socket(self.place, protocol.Capture(where=node, link="eth0")))
            self._ping(*self.pods)
            for packet in itertools.chain.from_iterable(readers.batches(until=time.monotonic() + _LISTEN)):
                layers = layers_of(packet.data)
                if any(layer.name == "ICMP" and layer.fields["type"] == _ICMP_ECHO for layer in layers):
                    return layers
        raise _untrue("the ping on eth0", "nothing of the kind")

    def _route(self) -> str:
        return self._one("ip", "route", "show", self.nodes[1].subnets[0])

    def _one(self, *command: str) -> str:
        lines = self._lines(*command)
        if not lines:
            raise _untrue(f"an answer of {' '.join(command)}", "none")
        return lines[0].strip()

    def _lines(self, *command: str) -> list[str]:
        node = self.nodes[0].name
        status, stdout, stderr = terminal.captured(terminal.command(self.place, node, command))
        if status != 0:
            raise _untrue(f"{' '.join(command)} on {node} to work", stderr.strip())
        return stdout.splitlines()


def _title(text: str) -> None:
    title(f"\n{text}")


def _untrue(expected: str, seen: str) -> Unavailable:
    return Unavailable(Problem("LAB-002", "the demo", seen, expected=expected))
