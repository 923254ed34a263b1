"""`weft lab iperf`: how much gets from one place of a lab to another, measured by the machine's iperf3."""

import os
import select
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from weft.lab import protocol
from weft.lab.call import Call
from weft.lab.commands import terminal
from weft.lab.commands.choose import ask, find, lab_and_output, nodes_and_pods
from weft.lab.itinerary import end_of
from weft.lab.places import Place
from weft.lab.report import ThroughputReport
from weft.model.errors import CannotRun, Problem, Unavailable
from weft.screen.documents import Progress, show_report

_PROGRAM: Final = "iperf3"
_LISTENS: Final = b"Server listening"
_PATIENCE: Final = 10.0  # seconds until a server listens
# The kernel's default may be bbr, which gets half as much through a pair of virtual links.
_CONTROL: Final = "cubic"


@click.command("iperf")
@click.argument("source", metavar="A", shell_complete=nodes_and_pods)
@click.argument("target", metavar="B", shell_complete=nodes_and_pods)
@click.option("-t", "--seconds", type=click.IntRange(1, 3600), default=5, show_default=True, help="How long to send.")
@click.option("-u", "--udp", is_flag=True, help="Datagrams, as many as can be sent, instead of TCP.")
@click.option("-6", "six", is_flag=True, help="By IPv6, of a lab with both.")
@lab_and_output
def iperf(source: str, target: str, lab: str, output: str, *, seconds: int, udp: bool, six: bool) -> None:
    """Measure the throughput from A to B with one stream of iperf3, which has to be installed on this machine.

    \b
      weft lab iperf pod1-1 pod2-1
      weft lab iperf node1 node2 -t 10 -o json
      weft lab iperf pod1-1 pod2-1 -u

    All nodes share this machine's processors, so the figure compares ways within a lab and says nothing of a network
    card. TCP uses cubic, whatever the machine's default is.
    """
    place = find(lab)
    report = ask(place, protocol.Ps())
    family = 6 if six else report.families[0]
    end_of(report, source, family, asking="weft lab iperf")
    address = end_of(report, target, family, asking="weft lab iperf").address
    progress = Progress(output)
    try:
        with _server(place, target):
            progress(f"{seconds} s of {'UDP' if udp else 'TCP'} from {source} to {target}")
            said = _client(place, source, address, seconds=seconds, udp=udp)
    except CannotRun as error:
        absent = error.status == 127  # a shell's status (POSIX 2.8.2)
        hint = "'apt-get install iperf3' puts it there: a lab has the machine's programs." if absent else ""
        problem = Problem("HOST-002", _PROGRAM, error.problems[0].seen, expected="iperf3", hint=hint)
        raise CannotRun(problem, status=error.status) from None
    finally:
        progress.done()
    found = measured(said, source=source, target=target, address=address)
    show_report(output, found, text(found))


def measured(said: dict[str, Any], *, source: str, target: str, address: str) -> ThroughputReport:
    """From the JSON of iperf3's client: of TCP the receiver's side, of UDP the sender's without losses."""
    end, report = said["end"], partial(ThroughputReport, source=source, target=target, address=address)
    if "sum_received" in end and "retransmits" in end.get("sum_sent", {}):
        received, again = end["sum_received"], end["sum_sent"]["retransmits"]
        gbits = received["bits_per_second"] / 1e9
        return report(protocol="TCP", seconds=received["seconds"], gbits=gbits, retransmits=again)
    sent = end["sum"]
    packets, lost = sent["packets"], sent["lost_packets"]
    gbits = sent["bits_per_second"] / 1e9 * (packets - lost) / packets if packets else 0.0
    return report(protocol="UDP", seconds=sent["seconds"], gbits=gbits, packets=packets, lost=lost)


def text(found: ThroughputReport) -> str:
    way = f"{found.source} -> {found.target} ({found.address}), {found.protocol}, {found.seconds:.1f} s"
    if found.packets is not None and found.lost is not None:
        share = 100 * found.lost / found.packets if found.packets else 0.0
        return f"{way}: {found.gbits:.2f} Gbit/s, {found.lost} of {found.packets} packets lost ({share:.1f} %)\n"
    return f"{way}: {found.gbits:.2f} Gbit/s, {found.retransmits} segments sent again\n"


@contextmanager
def _server(place: Place, target: str) -> Iterator[None]:
    """Have iperf3 listen for one client. Raises `Unavailable` and `CannotRun`."""
    command = terminal.command(place, target, [_PROGRAM, "--server", "--one-off", "--forceflush"])
    reading, writing = os.pipe()
    with Path(os.devnull).open("rb") as nothing, FileIO(reading) as said:
        try:
            call = command([nothing.fileno(), writing, writing], False)  # noqa: FBT003 - the meaning is Start's
        finally:
            os.close(writing)
        with closing(call):  # ends it, if it has not ended
            _await_listening(said, call, target)
            yield


def _await_listening(said: FileIO, call: Call[int], target: str) -> None:
    words = b""
    while _LISTENS not in words:
        if not select.select([said], [], [], _PATIENCE)[0]:
            raise _unavailable(target, f"it does not listen within {_PATIENCE:.0f} s")
        more = said.read(4096)
        if not more:
            call.result()
            raise _unavailable(target, " ".join(words.decode(errors="replace").split()))
        words += more


def _unavailable(where: str, seen: str) -> Unavailable:
    return Unavailable(Problem("LAB-002", f"weft lab iperf: {_PROGRAM} in {where}", seen))


def _client(place: Place, source: str, address: str, *, seconds: int, udp: bool) -> dict[str, Any]:
    kind = ["--udp", "--bitrate=0"] if udp else [f"--congestion={_CONTROL}"]
    command = [_PROGRAM, f"--client={address}", f"--time={seconds}", "--json", *kind]
    _, stdout, stderr = terminal.captured(terminal.command(place, source, command))
    try:
        said: dict[str, Any] = msgspec.json.decode(stdout)
    except msgspec.DecodeError:
        said = {"error": " ".join(f"{stdout} {stderr}".split())[:300]}
    if "error" in said:
        raise Unavailable(Problem("LAB-002", f"weft lab iperf: {source}", f"{_PROGRAM}: {said['error']}"))
    return said
