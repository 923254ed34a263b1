"""What a node drops: whose packets, why, how many; and no more lines of it than people can read. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from weft.diag import reasons
from weft.diag.drops.packets import Found, found_in
from weft.diag.sight.node import Sight, peers
from weft.diag.sight.routing import is_own
from weft.model.errors import Problem
from weft.model.kernel.dropped import Drop
from weft.model.net import Ip
from weft.model.text import counted
from weft.model.value import Value, replace

_LINES: Final = 20  # at a time
_UNNAMED: Final = "NOT_SPECIFIED"
_WAYS: Final = {"rx": "what came in by it", "tx": "what was to leave by it"}
_OF_LINKS: Final = (reasons.QUEUE, "Link")  # kinds of counters: which of a link, and the link's name
_NODES_OWN: Final = "of all packets of this node, not of pods alone"


class Loss(Value):
    """`count` packets that were dropped for one `reason`, the kernel's word or the name of a counter.

    `function` is the kernel's, `device` where they were. `carrier` are the addresses of what carried them between
    nodes. `pod` is one of this node that sent them or was to get them, `peer` the other node, each empty if there is
    none. `code` and `words` say what it means; `rule` is what a look at the node has
    foretold to drop them, or whose counter has grown.
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


class Whose(Value):
    """Whose addresses are which, of one look at a node."""

    sight: Sight

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
        known = peers(self.sight)
        found = (each for ip in ips for each in known if ip in each.subnet or ip == each.public)
        return next((str(each.public or each.subnet) for each in found), "")

    def concerns(self, found: Found) -> bool:
        """True for what pods send or get, and for what carries it between nodes."""
        ends = [found.packet.source, found.packet.target]
        nets = (*self.sight.networks_of_pods, *self.sight.ranges_of_pods)
        carries = found.packet.protocol == "udp" and found.packet.target_port in self.sight.ports
        return any(ip in net for ip in ends for net in nets) or carries


def loss_of(drop: Drop, whose: Whose) -> tuple[Loss, Found] | None:
    """None for what is not of the pod network."""
    found = found_in(drop, whose.sight.ports)
    if found is None or not whose.concerns(found):
        return None
    packet, carrier = found.packet, found.carrier
    ends = [packet.source, packet.target]
    outer = [] if carrier is None else [carrier.source, carrier.target]
    reason = reasons.BY_WORD.get(drop.reason)
    return Loss(
        reason=drop.reason or _UNNAMED,
        function=drop.function,
        device=drop.device,
        protocol=packet.protocol,
        source=str(packet.source),
        target=str(packet.target),
        port=packet.target_port,
        carrier="" if carrier is None else f"{carrier.source} to {carrier.target}",
        pod=whose.pod(*ends),
        peer=whose.peer(*ends, *(ip for ip in outer if not is_own(whose.sight, ip))),
        code="" if reason is None else reason.code,
        words="" if reason is None else reason.words,
    ), found


def foretold(loss: Loss, problem: Problem | None) -> Loss:
    """With what a look at the node says of such packets, if it says that they are dropped."""
    if problem is None:
        return loss
    return replace(loss, code=problem.code, rule=f"{problem.where}: {problem.seen} (foretold)")


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
    """Those that differ in their number alone as one, the most first."""
    found = Counter[Loss]()
    for each in losses:
        found[replace(each, count=0)] += each.count
    return [replace(each, count=count) for each, count in found.most_common()]


def lines(losses: list[Loss], when: str) -> Iterator[str]:
    """A line each, up to some, and one for all others."""
    yield from (f"{when}  {each}" for each in losses[:_LINES])
    if more := losses[_LINES:]:
        packets = counted(sum(each.count for each in more), "packet")
        yield f"{when}  and {packets} of {counted(len(more), 'other kind')}"
