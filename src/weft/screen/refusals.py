"""Who is restricted and who was refused by policies, for people: tables, or a line for each refusal as it comes."""

from collections.abc import Iterator
from typing import Final

from weft.desired.policy.refusals import PodsHere, Refusal, Refused
from weft.model.net import with_port
from weft.model.policy import DIRECTIONS
from weft.model.text import counted, shortly, some_of, table
from weft.screen.ineffect import in_effect

_HEADING = ("AGO", "DIRECTION", "FROM", "TO", "PACKETS", "BY")
_NOBODY: Final = "No weftd answers here: since when, and whether other nodes enforce policies, is not known."
_NAMED: Final = 5
_INTO = {"ingress": "into", "egress": "out of"}


def shown(seen: Refused) -> str:
    """A table, and what was counted in all."""
    rows = [
        (shortly(each.seconds), each.direction, _source(each), _target(each), str(each.packets), _by(each))
        for each in seen.flows
    ]
    return (table(_HEADING, rows) if rows else "") + "".join(f"{line}\n" for line in _total(seen))


def shown_here(seen: PodsHere) -> str:
    """Each pod with the policies that restrict it, then what is not in effect."""
    rows = [
        (
            each.pod or "no pod of Kubernetes",
            " ".join(each.addresses),
            *(" ".join(each.policies[way]) or "open" for way in DIRECTIONS),
        )
        for each in seen.pods
    ]
    lines = ["An audit: nothing is refused."] if seen.audit else []
    lines += [_NOBODY] if seen.effect is None else in_effect(seen.effect)
    if seen.unenforced:
        nodes = some_of(seen.unenforced, _NAMED)
        lines.append(f"Not enforced, as far as weft knows, on {counted(len(seen.unenforced), 'other node')}: {nodes}.")
    lines += map(str, seen.problems)
    return (table(("POD", "ADDRESSES", *map(str.upper, DIRECTIONS)), rows) if rows else "no pods\n") + "".join(
        f"{line}\n" for line in lines
    )


def line(each: Refusal, *, audit: bool = False) -> str:
    word = "would be refused" if audit else "refused"
    way = f"{_INTO[each.direction]} {each.target_pod if each.direction == 'ingress' else each.source_pod}".rstrip()
    return f"{word} {way}: {_source(each)} → {_target(each)}, {counted(each.packets, 'packet')}, by {_by(each)}"


def _total(seen: Refused) -> Iterator[str]:
    word = "would have been refused" if seen.audit else "were refused"
    for direction, packets in seen.packets.items():
        yield f"{direction}: {counted(packets, 'packet')} {word} since the tables were made."
    if not seen.flows:
        yield "None of them in the last ten minutes."


def _source(each: Refusal) -> str:
    return f"{each.source_pod} ({each.source})" if each.source_pod else each.source


def _target(each: Refusal) -> str:
    where = with_port(each.target_pod or each.target, each.port)
    named = f" ({each.target})" if each.target_pod else ""
    return f"{where}{'/' if each.port else ' '}{each.protocol}{named}"


def _by(each: Refusal) -> str:
    return " ".join(each.policies) or "no pod is known to have the address"
