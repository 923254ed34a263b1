"""The two nodes on which a learner builds: made, looked at, and put back to a lesson's beginning."""

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from itertools import chain, groupby
from pathlib import Path
from typing import Final

from weft.lab import protocol
from weft.lab.commands import start, terminal
from weft.lab.commands.choose import ask_for_socket, find
from weft.lab.commands.packets.reader import Readers
from weft.lab.files import labfile
from weft.lab.inside import underlay
from weft.lab.places import Place
from weft.lab.tutorial import seen
from weft.lab.tutorial.demands import NODES
from weft.lab.tutorial.lesson import Attempt, Lesson, Typed
from weft.lab.tutorial.seen import Seen
from weft.model.errors import ConfigError, Problem, Unavailable
from weft.model.value import replace
from weft.wire.packet import layers_of

_PROGRAMS: Final = {"busybox": "busybox-static", "curl": "curl"}  # that a learner is to use, beside a lab's own
_LINGER: Final = 0.1  # seconds in which what an attempt has sent is in the capture
_PATIENCE: Final = 10  # seconds for one attempt

# Ends and removes all that a learner may have made on a node, with its uplink as the lab makes it.
_WIPE: Final = """
for process in $(pgrep -x busybox); do kill $process; done
nft flush ruleset
ip -br link | while read name rest; do
    case $name in lo|eth0@*) ;; *) ip link delete ${name%%@*} 2>/dev/null || : ;; esac
done
ip -all netns delete
ip route flush proto boot
ip address replace $OWN dev eth0
ip link set eth0 up
sysctl -qw net.ipv4.ip_forward=0
rm -rf /etc/cni/net.d/* /var/lib/cni/* /run/plugins /run/www
"""


def make(name: str, base: Path, environ: Mapping[str, str], *, note: Callable[[str], None]) -> Place:
    """`ConfigError` if a lab of the name is up, or if a program is missing."""
    if problems := [
        Problem("HOST-002", name, "no such program on PATH", hint=f"'apt-get install {package}'.")
        for name, package in _PROGRAMS.items()
        if shutil.which(name, path=environ.get("PATH")) is None
    ]:
        raise ConfigError(*problems)
    wanted = labfile.regular(name=name, backend="vxlan", families=(4,), nft=True, nodes=len(NODES), pods=0)
    start.up(replace(wanted, bare=True), base, environ, note=note)
    return find(name, base)


def lay_out(place: Place, lessons: Sequence[Lesson]) -> None:
    for number, node in enumerate(NODES, 1):
        _run(place, node, _WIPE, {"OWN": str(underlay.address(4, number))})
    commands = [typed for lesson in lessons for typed in lesson.solution]
    for node, typed in groupby(commands, key=lambda typed: typed.node):
        _run(place, node, "\n".join(each.command for each in typed))


def look(place: Place, lesson: Lesson | None) -> Seen:
    """With a lesson, its attempts run."""
    nodes = {node: seen.read(_run(place, node, seen.SCRIPT)) for node in NODES}
    if lesson is None:
        return Seen(nodes=nodes)
    with ExitStack() as stack:
        wire = stack.enter_context(closing(_capture(place, lesson.wire))) if lesson.wire else None
        pool = stack.enter_context(ThreadPoolExecutor())
        answers = dict(pool.map(lambda attempt: (attempt.name, _answer(place, attempt)), lesson.attempts))
        packets = () if wire is None else chain.from_iterable(wire.batches(until=time.monotonic() + _LINGER))
        frames = tuple(tuple(layers_of(packet.data)) for packet in packets)
    return Seen(nodes=nodes, answers=answers, frames=frames)


def typed(place: Place, wanted: Typed) -> tuple[int, str, str]:
    """Exit status, standard output and error."""
    return terminal.captured(terminal.command(place, wanted.node, ["sh", "-ec", wanted.command]))


def _answer(place: Place, attempt: Attempt) -> str | None:
    """None if it fails."""
    words = ["timeout", str(_PATIENCE), "sh", "-c", attempt.command]
    status, stdout, _ = terminal.captured(terminal.command(place, attempt.node, words))
    return None if status else stdout.strip()


def _run(place: Place, node: str, script: str, environ: dict[str, str] | None = None) -> str:
    """`Unavailable` if it fails."""
    status, stdout, stderr = terminal.captured(terminal.command(place, node, ["sh", "-ec", script], environ))
    if status:
        seen, hint = (
            f"exit {status}: {' '.join(stderr.split())[:300]}",
            "'weft lab tutorial reset' begins the lesson again.",
        )
        raise Unavailable(Problem("LAB-002", f"the tutorial's {node}", seen, hint=hint))
    return stdout


def _capture(place: Place, node: str) -> Readers:
    descriptor = ask_for_socket(place, protocol.Capture(where=node, link=underlay.UPLINK))
    readers = Readers()
    readers.add(node, descriptor)
    return readers
