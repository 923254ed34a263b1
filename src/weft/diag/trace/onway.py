"""What hangs on links where probes were lost: bridge ports that let nothing pass, programs that were asked. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from weft.diag.sight.node import Hanging
from weft.model.errors import Problem
from weft.model.value import replace

PROGRAM: Final = "PROG-001"
_PORT: Final = "'weft doctor' has the command that puts it right; 'bridge monitor link' shows who changes it"
_LOCKED: Final = "bridge link set dev {0} locked off, or have what locks it add the MAC: bridge fdb show dev {0}"
_ASKED: Final = "'bpftool net' and 'tc filter show dev {0} ingress' (or egress) show it; find the program that made it"

OnLinks = Mapping[str, Sequence[Hanging]]  # by place
Passed = Iterable[tuple[str, str]]  # places and devices in a packet's order


def shut(passed: Passed, found: OnLinks) -> Problem | None:
    """The port that no frame passes, or two isolated ones of a place: a frame of one never leaves by the other."""
    isolated = dict[str, str]()
    for place, each in _on(passed, found):
        if each.kind == "shut":
            return Problem("BRIDGE-007", f"port {each.device} of {place}", each.seen, expected="forwarding", hint=_PORT)
        if each.kind == "isolated":
            if place in isolated:
                seen = f"they are isolated, so no frame of one leaves by the other: {isolated[place]}, {each.device}"
                return Problem("BRIDGE-007", f"ports of {place}", seen, expected="isolated off", hint=_PORT)
            isolated[place] = each.device
    return None


def named(counted: Problem, passed: Passed, found: OnLinks) -> Problem:
    """Say which programs may have dropped them where a counter says that one did."""
    programs = [each.seen for _, each in _on(passed, found) if each.kind == "program"]
    if counted.code != PROGRAM or not programs:
        return counted
    return replace(counted, seen=f"{counted.seen}; there is {', '.join(programs)}")


def asked(passed: Passed, found: OnLinks) -> Problem | None:
    """What may have dropped them, as nothing else is seen that did."""
    for place, each in _on(passed, found):
        where = f"{each.device} of {place}"
        if each.kind == "locked":
            return Problem("BRIDGE-007", f"port {where}", each.seen, hint=_LOCKED.format(each.device))
        if each.kind == "program":
            seen = f"packets end where {each.seen} is asked, and no counter shows another reason"
            return Problem(PROGRAM, where, seen, hint=_ASKED.format(each.device))
    return None


def _on(passed: Passed, found: OnLinks) -> Iterator[tuple[str, Hanging]]:
    for place, device in passed:
        yield from ((place, each) for each in found.get(place, ()) if each.device == device)
