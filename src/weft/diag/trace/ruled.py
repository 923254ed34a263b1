"""Drops of probes by nf_tables, by the kernel's own word: which rule or policy took which verdict. Pure."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from ipaddress import ip_address
from typing import Final

from weft.diag.owners import POLICY_TABLE, refusal
from weft.model.errors import Problem
from weft.model.kernel.nftrace import Step
from weft.model.net import Ip
from weft.model.value import Value, replace

_AS_TOLD: Final = "as the kernel tells"
_NEXT: Final = 6  # where IPv6's header has the next header, and the hop limit
_DISCOVERY: Final = bytes((58, 255))  # which neighbour discovery alone has with ICMPv6, but for multicast


class Ruling(Value):
    """A rule, or with handle 0 a chain's policy, that dropped `count` packets.

    `asking`: these asked for a MAC, without which nothing is sent, or answered that. `text` is the rule as nft has it,
    and `beside` are the chains of its table, both if they could be read.
    """

    family: str
    table: str
    chain: str
    handle: int
    count: int
    asking: bool = False
    text: str = ""
    beside: tuple[str, ...] = ()

    @property
    def is_policys(self) -> bool:
        """What a NetworkPolicy refuses is meant so."""
        return self.table == POLICY_TABLE

    @property
    def where(self) -> str:
        """As `rules.ruleset` says it of a rule or chain that it has read."""
        if not self.handle:
            return f"the policy of chain {self.chain} of {self.family} {self.table}"
        return f"of {self.family} {self.table} {self.chain} (handle {self.handle})"

    def __str__(self) -> str:
        rule = f"rule '{self.text}' " if self.text else "a rule "
        return f"{rule if self.handle else ''}{self.where}"


Rulings = Mapping[str, Sequence[Ruling]]  # by place


def dropped(steps: Iterable[Step], ours: Collection[str]) -> list[Ruling]:
    """Who dropped packets that tables of ours have marked.

    A packet that is dropped leaves its number to a later one, so steps count and not numbers.
    """
    found = Counter(
        Ruling(
            family=step.family,
            table=step.table,
            chain=step.chain,
            handle=step.handle,
            count=0,
            asking=header[_NEXT : _NEXT + 2] == _DISCOVERY,
        )
        for step, header in _drops(steps, ours)
    )
    return [replace(each, count=count) for each, count in found.items()]


def ends_of_dropped(steps: Iterable[Step], ours: Collection[str], table: str) -> set[tuple[Ip, Ip]]:
    """From where to where packets went that tables of ours have marked and one of this name has dropped."""
    return {ends for step, header in _drops(steps, ours) if step.table == table and (ends := _ends(header))}


def _drops(steps: Iterable[Step], ours: Collection[str]) -> Iterator[tuple[Step, bytes]]:
    """Each drop, with the packet's IP header; others' traces may run beside."""
    marked = dict[int, bytes]()
    for step in steps:
        if step.table in ours and step.handle:  # a rule of ours; its chains' ends are told of others' packets, too
            marked[step.packet] = step.header
        elif step.packet in marked and step.verdict == "drop":
            yield step, marked[step.packet]


def _ends(header: bytes) -> tuple[Ip, Ip] | None:
    """Source and target of an IP packet; None without a whole header."""
    start, size = (12, 4) if header[:1] and header[0] >> 4 == 4 else (8, 16)
    source, target = header[start : start + size], header[start + size : start + 2 * size]
    return (ip_address(source), ip_address(target)) if len(target) == size else None


def decisive(found: Sequence[Ruling]) -> Ruling | None:
    return max(found, key=lambda each: each.count, default=None)


def confirmed(foretold: Problem, ruling: Ruling) -> Problem | None:
    """What was foretold, if the kernel says the same."""
    if ruling.where not in foretold.seen:
        return None
    text = f": '{ruling.text}'" if ruling.text else ""
    return replace(foretold, seen=f"{foretold.seen}{text}, {_AS_TOLD}")


def explained(place: str, ruling: Ruling, lost: int, *, pod: bool) -> Problem:
    table = ruling.family, ruling.table
    code, hint = refusal([(*table, each) for each in ruling.beside], (*table, ruling.chain))
    dropped = f"{ruling.count} of {lost} lost packets" if ruling.count < lost else "them"
    dropped = "neighbour discovery for them" if ruling.asking else dropped
    seen = f"{ruling} drops {dropped}, {_AS_TOLD}"
    if pod:
        return Problem("CHECK-002", f"pod {place}", seen, hint="See the program in the pod that made it")
    return Problem(code, place, seen, hint=hint)
