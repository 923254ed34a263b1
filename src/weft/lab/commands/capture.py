"""`weft lab capture`: packets of nodes and pods, in order of time, on the screen or in a file for Wireshark."""

import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from ipaddress import ip_interface, ip_network
from pathlib import Path
from typing import BinaryIO

import click

from weft.config.netconf import parse_netconf
from weft.desired.backends import BACKENDS
from weft.desired.backends.udp import UdpOptions
from weft.desired.backends.vxlan import VxlanOptions
from weft.desired.backends.wireguard import WireguardOptions
from weft.lab import protocol
from weft.lab.commands.choose import ask, ask_for_socket, find, lab_and_output, nodes_and_pods, pods, within
from weft.lab.commands.packets import recording
from weft.lab.commands.packets.levels import PROTOCOLS, Filter, places
from weft.lab.commands.packets.reader import Readers
from weft.lab.places import Place
from weft.lab.report import LabReport
from weft.model.errors import ConfigError, Problem
from weft.model.net import Net
from weft.model.text import counted, one_of
from weft.model.value import replace
from weft.screen.documents import DOCUMENTS, PEOPLE, complain_beside, next_commands, show_report
from weft.screen.groups import read_by
from weft.screen.say import say
from weft.wire.packet import USUAL, VXLAN_PORT, Tunnels


@click.command()
@click.argument("where", nargs=-1, metavar="[NODE|POD]… [LINK]…", shell_complete=nodes_and_pods)
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="ADDRESS|NETWORK",
    callback=read_by(lambda texts: tuple(map(ip_network, texts))),
    help="Only from or to this address or network.",
)
@click.option("--pod", "of", multiple=True, metavar="POD", shell_complete=pods, help="Only from or to this pod.")
@click.option("--port", type=click.IntRange(1, 65535), metavar="PORT", help="Only from or to this port.")
@click.option("--proto", type=click.Choice(PROTOCOLS), help="Only this protocol; icmp is ICMPv6, too.")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, writable=True, allow_dash=True, path_type=Path),
    help="Write them to this file; - is standard output.",
)
@click.option("--count", type=click.IntRange(1), help="Stop after so many packets.")
@click.option("--seconds", type=click.FloatRange(0, min_open=True), help="Stop after so long.")
@lab_and_output
def capture(
    where: tuple[str, ...],
    *,
    hosts: tuple[Net, ...],
    of: tuple[str, ...],
    port: int | None,
    proto: str | None,
    out: Path | None,
    count: int | None,
    seconds: float | None,
    lab: str,
    output: str,
) -> None:
    """Show the packets of nodes and pods, or write them to a file for Wireshark, in order of time, until Ctrl-C.

    A link applies to the nodes and pods named before it; without a link all of theirs are captured, and without any
    name those of all nodes. An option that chooses packets looks inside tunnels, too; --host and --pod, given twice,
    choose what passes between the two.

    \b
      weft lab capture                                  # each step of each packet
      weft lab capture --pod pod1-1 --proto icmp
      weft lab capture node1 node2 eth0 --port 80
      weft lab capture node1 --out packets.pcapng
      weft lab capture node1 eth0 --out - | tcpdump -n -T vxlan -r -

    On the screen each packet is a line: when, where, whether it left (→) or came (←), from whom to whom, and behind |
    what is inside. With -o json it is a line of JSON. Exits 0, also by Ctrl-C.
    """
    if str(out) == "-":
        _check_stream(output)
    place = find(lab)
    report = ask(place, protocol.Ps())
    own = tunnels(bytes(report.network).decode())
    ends = (*((host,) for host in hosts), *(_addresses(report, name) for name in of))
    names = [node.name for node in report.nodes]
    links = places(where, names={*names, *(pod.name for pod in report.pods)}, nodes=names)
    with closing(Readers()) as readers:
        for name, link in links:
            readers.add(name, _open(place, name, link))
        with _writing(out) as file:
            readers.end_with(file.fileno())
            if out is not None:
                write = recording.to_file(file, comment(place.name, [name for name, _ in links], own))
            else:
                write = recording.to_programs(file, output) if output in DOCUMENTS else recording.to_people(file)
            packets = recording.record(
                readers,
                write,
                file.flush,
                announce=partial(_announce, links, output),
                wanted=Filter(ends=ends, port=port, protocol=proto),
                tunnels={**USUAL, **own},
                count=count,
                seconds=seconds,
            )
        lost = readers.dropped()
    for name, number in lost.items():
        seen = f"{counted(number, 'packet')} came faster than they could be read, and are missing"
        problem = Problem("LAB-002", name, seen, hint="Name fewer links.")
        complain_beside(output, [problem])
    said = counted(packets, "packet")
    if out is not None and str(out) != "-":
        show_report(output, {"file": str(out), "packets": packets, "dropped": lost}, f"{said} in {out}\n")
        file_name = shlex.quote(str(out.absolute() if str(out).startswith("-") else out))
        next_commands(output, *(f"{program} {file_name}" for program in programs(own)))
    elif output in PEOPLE:
        say(said, err=True)


def _open(place: Place, name: str, link: str) -> int:
    try:
        return ask_for_socket(place, protocol.Capture(where=name, link=link))
    except ConfigError as error:
        hint = f"If {link!r} is to be a node or a pod: 'weft lab ps{within(place)}' lists them."
        raise ConfigError(*(replace(problem, hint=hint) for problem in error.problems)) from None


def _addresses(report: LabReport, name: str) -> tuple[Net, ...]:
    pods = {pod.name: pod for pod in report.pods}
    if name not in pods:
        expected = one_of(pods, name) if pods else "a pod; this lab has none"
        raise ConfigError(Problem("LAB-002", "--pod", name, expected=expected))
    return tuple(ip_network(ip_interface(address).ip) for address in pods[name].addresses)


def _announce(links: Sequence[tuple[str, str]], output: str) -> None:
    names: dict[str, list[str]] = {}
    for name, link in links:
        names.setdefault(link or "all links", []).append(name)
    words = "; ".join(f"{link} of {', '.join(of)}" for link, of in names.items())
    if output in PEOPLE:
        say(f"capturing on {words}; Ctrl-C ends it", err=True)


@contextmanager
def _writing(out: Path | None) -> Iterator[BinaryIO]:
    """Standard output for None and `-`; when its reader ends, that is no error."""
    target: Path | int = sys.stdout.fileno() if out is None or str(out) == "-" else out
    try:
        # Not through sys.stdout: what its reader has not taken would be written again at the program's end.
        with suppress(BrokenPipeError), open(target, "wb", closefd=isinstance(target, Path)) as file:
            yield file
    except OSError as error:
        expected = "a file that can be written"
        raise ConfigError(Problem("LAB-002", f"--out {out}", str(error.strerror), expected=expected)) from None


def _check_stream(output: str) -> None:
    """Raise `ConfigError` unless standard output is a file or a pipe."""
    mixed = f"with -o {output}, which is for standard output too" if output in DOCUMENTS else ""
    seen = "standard output is a terminal" if sys.stdout.isatty() else mixed
    if seen:
        hint = "weft lab capture … --out - | tcpdump -n -T vxlan -r -"
        raise ConfigError(Problem("LAB-001", "--out -", seen, expected="a file or a pipe", hint=hint))


def tunnels(network: str) -> Tunnels:
    """By UDP port; empty for a configuration that cannot be read."""
    try:
        options = parse_netconf(network, backends=BACKENDS).options
    except ConfigError:
        return {}
    match options:
        case VxlanOptions(port=port):
            return {port or VXLAN_PORT: "VXLAN"}
        case UdpOptions(port=port):
            return {port: "IP"}
        case WireguardOptions(port=port, port_v6=port_v6):
            return {port: "WireGuard", port_v6: "WireGuard"}
    return {}


def comment(lab: str, places: Sequence[str], known: Tunnels) -> str:
    """What a file says of itself: where its packets were seen, and how to decode their tunnels."""
    parts = [f"Captured in lab {lab}, on {', '.join(places)}."]
    for port, carried in known.items():
        parts.append(f"UDP port {port} carries {carried}.")
        if carried == "VXLAN":
            parts.append(f"Wireshark shows it after Decode As…, or with -d {_decode_as(port)}; tcpdump with -T vxlan.")
    if known:
        parts.append("What is in a tunnel is the comment of its packet.")
    return " ".join(parts)


def programs(known: Tunnels) -> tuple[str, str]:
    """The command lines of Wireshark and tcpdump, without the file's name."""
    ports = [port for port, carried in known.items() if carried == "VXLAN"]
    decoded = "".join(f"-d {_decode_as(port)} " for port in ports)
    return f"wireshark {decoded}-r", f"tcpdump -n {'-T vxlan ' if ports else ''}-r"


def _decode_as(port: int) -> str:
    return f"udp.port=={port},vxlan"
