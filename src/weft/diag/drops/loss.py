"""What a node drops: whose packets, why, how many; and no more lines of it than people can read. Pure."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from weft.diag import reasons
from weft.diag.drops.packets import Found, found_in
from weft.diag.rules.matching import Packet
from weft.diag.sight.node import Sight
from weft.diag.sight.peers import peers
from weft.diag.sight.routing import is_own
from weft.model.errors import Problem
from weft.model.kernel.dropped import Drop
from weft.model.net import Ip
from weft.model.text import counted
from weft.model.value import Value, replace

_KINDS: Final = 20  # at a time
_UNNAMED: Final = "NOT_SPECIFIED"
_WAYS: Final = {"rx": "what came in by it", "tx": "what was to leave by it"}
_OF_LINKS: Final = (reasons.QUEUE, "Link")  # kinds of counters: which of a link, and the link's name
_NODES_OWN: Final = "of all packets of this node, not of pods alone"


class Loss(Value):
    """`count` packets that were dropped for one `reason`, the kernel's word or the name of a counter.

    `function` is the kernel's, `device` where they were. `carrier` are the addresses of what carried them between
    nodes. `pod` is one of this node that sent them or was to get them, `peer` the other node, each empty if there is
    none. `code` and `words` say what it means; `rule` is what a look at the node has foretold to drop them, or whose
    counter has grown.
    """

    reason: str
    count: int = 1
    function: str = ""
    device: str = ""
    protocol: str = ""
    source: str = ""
    target: str = ""
    port: int = 0
    carrier: str = ""
    pod: str = ""
    peer: str = ""
    code: str = ""
    words: str = ""
    rule: str = ""

    def __str__(self) -> str:
        port = f":{self.port}" if self.port else ""
        which = [f"{self.protocol} {self.source} to {self.target}{port}"] if self.source else []
        named = {"in": self.carrier, "pod": self.pod, "peer": self.peer, "at": self.device}
        which += [f"{name} {value}" for name, value in named.items() if value]
        by = f"{self.reason} in {self.function}" if self.function else self.reason
        head = " ".join(filter(None, (self.code, counted(self.count, "packet"), ", ".join(which))))
        return ": ".join(filter(None, (head, by, "; ".join(filter(None, (self.words, self.rule))))))


OTHERS: Final = Loss(reason="other kinds", count=0)  # of which there is a number alone


class Whose:
    """Whose addresses are which, of one look at a node."""

    def __init__(self, sight: Sight) -> None:
        self.sight = sight
        self.ports = frozenset(sight.ports)
        self._peers = peers(sight)
        self._nets = (*sight.networks_of_pods, *sight.ranges_of_pods)

    def pod(self, *ips: Ip) -> str:
        """By its runtime's name of it, or its address."""
        for ip in ips:
            if (known := next((each for each in self.sight.attached if ip in each.addresses), None)) is not None:
                return known.pod or known.container[:12]
            if any(ip in end.addresses for end in self.sight.pods.values()):
                return str(ip)
        return ""

    def pod_at(self, device: str) -> str:
        """The pod behind a link of the node."""
        known = next((each for each in self.sight.attached if device in each.hosts), None)
        end = self.sight.pods.get(device)
        of_end = "" if end is None else self.pod(*end.addresses)
        return of_end if known is None else known.pod or known.container[:12]

    def peer(self, *ips: Ip) -> str:
        found = (each for ip in ips for each in self._peers if ip in each.subnet or ip == each.public)
        return next((str(each.public or each.subnet) for each in found), "")

    def concerns(self, found: Found) -> bool:
        """True for what pods send or get, and for what carries it between nodes."""
        packet = found.packet
        carries = packet.protocol == "udp" and packet.target_port in self.ports
        return carries or any(ip in net for ip in (packet.source, packet.target) for net in self._nets)


def told(drops: Iterable[Drop], whose: Whose, foretell: Callable[[Packet], Problem | None]) -> list[Loss]:
    """What was dropped of the pod network, with whose it is and what a look at the node foretells of such packets.

    A flood has ever new addresses: names and what is foretold take milliseconds, so only the kinds that are shown have
    them.
    """
    first, counts = dict[Loss, Found](), Counter[Loss]()
    for drop in drops:
        found = found_in(drop, whose.ports)
        if found is not None and whose.concerns(found):
            kind = _kind(drop, found)
            counts[kind] += 1
            first.setdefault(kind, found)
    shown = most(counts)
    return [
        each if (found := first.get(replace(each, count=0))) is None else _named(each, found, whose, foretell)
        for each in shown
    ]


def _kind(drop: Drop, found: Found) -> Loss:
    packet, carrier = found.packet, found.carrier
    return Loss(
        reason=drop.reason or _UNNAMED,
        count=0,
        function=drop.function,
        device=drop.device,
        protocol=packet.protocol,
        source=str(packet.source),
        target=str(packet.target),
        port=packet.target_port,
        carrier="" if carrier is None else f"{carrier.source} to {carrier.target}",
    )


def _named(loss: Loss, found: Found, whose: Whose, foretell: Callable[[Packet], Problem | None]) -> Loss:
    """What is foretold has the code only where the kernel's word tells no other kind of cause."""
    ends = [found.packet.source, found.packet.target]
    outer = [] if found.carrier is None else [found.carrier.source, found.carrier.target]
    reason, problem = reasons.BY_WORD.get(loss.reason), foretell(found.packet)
    code = "" if reason is None else reason.code
    if problem is not None and code.partition("-")[0] in ("", problem.code.partition("-")[0]):
        code = problem.code
    return replace(
        loss,
        pod=whose.pod(*ends),
        peer=whose.peer(*ends, *(ip for ip in outer if not is_own(whose.sight, ip))),
        code=code,
        words="" if reason is None else reason.words,
        rule="" if problem is None else f"{problem.where}: {problem.seen} (foretold)",
    )


def losses_of(grown: Mapping[str, int], whose: Whose) -> Iterator[Loss]:
    """What counters of the node say that have grown."""
    for name, count in grown.items():
        kind, _, rest = name.partition(".")
        which, _, device = rest.partition(".") if kind in _OF_LINKS else ("", "", "")
        reason = reasons.of_counter(name)
        words = "" if reason is None else reason.words if device else f"{reason.words} ({_NODES_OWN})"
        if reason is None and which in _WAYS:
            words = f"the link has dropped {_WAYS[which]}, and does not say why"
        if words:
            code = "" if reason is None else reason.code
            yield Loss(reason=name, count=count, device=device, pod=whose.pod_at(device), code=code, words=words)


def together(losses: Iterable[Loss]) -> list[Loss]:
    """Those that differ in their number alone as one, the most first; no more kinds than people can read."""
    counts = Counter[Loss]()
    for each in losses:
        counts[replace(each, count=0)] += each.count
    return most(counts)


def most(counts: Counter[Loss]) -> list[Loss]:
    """Of kinds, whose own count is 0; of those that are one too many, the number of packets alone."""
    others = counts.pop(OTHERS, 0)
    shown = counts.most_common(_KINDS)
    others += counts.total() - sum(count for _, count in shown)
    return [replace(each, count=count) for each, count in [*shown, *([(OTHERS, others)] if others else [])]]
