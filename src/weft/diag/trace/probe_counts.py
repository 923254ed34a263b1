"""Which probes were seen, and where: counted from frames that sockets on the way have taken. Pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from ipaddress import ip_address

from weft.diag.trace.legs import Direction
from weft.diag.trace.probes import Kind, find
from weft.model.value import Value, field


class Wanted(Value):
    """The probes of some numbers. Datagrams may be translated to one of `ports`; of `chosen` addresses one may be."""

    kind: Kind
    numbers: Sequence[int]
    ports: Collection[int] = ()
    chosen: Mapping[str, bytes] = {}


class Sent(Value):
    """How the kernel took the probes to be sent: the words of its `refusal` of one, with the MTU if it named that."""

    refusal: str = ""
    mtu: int = 0


class TooLarge(Value):
    """What the machine `by` says of a packet that is too large: a link of it carries `mtu` bytes."""

    mtu: int
    by: str


class ProbesSeen(Value):
    """The numbers of probes that were seen, and `back`, of those whose answers were: by node or pod, and device.

    `to` says to which of several addresses each probe was sent on, where a packet showed it; the answers to `denied`
    ones refuse them, as nothing listens there. `unread` frames came faster than they were read. `sent` is how the
    kernel took them. `sources` are the addresses from which probes were seen to come, in their
    order, by place and device; `told` is what was said there of probes that were too large.
    """

    seen: dict[tuple[str, str, Direction], set[int]] = field(default_factory=dict)
    to: dict[int, str] = field(default_factory=dict)
    denied: set[int] = field(default_factory=set)
    unread: int = 0
    sent: Sent = Sent()
    sources: dict[tuple[str, str], dict[str, set[int]]] = field(default_factory=dict)
    told: dict[str, TooLarge] = field(default_factory=dict)

    def towards(self, address: str, numbers: Iterable[int]) -> set[int]:
        """Those probes that were not sent on to another address."""
        return {number for number in numbers if self.to.get(number, address) == address}

    def sent_to(self, address: str) -> set[int]:
        """Those probes of which a packet bore this one of the addresses that may be chosen."""
        return {number for number, to in self.to.items() if to == address}

    def at(self, place: str, device: str, direction: Direction) -> set[int]:
        """The numbers of those that were seen at a device."""
        return self.seen.get((place, device, direction), set())

    def anywhere(self, place: str, direction: Direction) -> set[int]:
        """The numbers of those that were seen at a place, at any device."""
        seen = (numbers for (where, _, way), numbers in self.seen.items() if (where, way) == (place, direction))
        return set().union(*seen)

    def sources_at(self, place: str, device: str, numbers: set[int]) -> list[str]:
        """The addresses from which probes of these numbers were seen to come there."""
        return [source for source, seen in self.sources.get((place, device), {}).items() if seen & numbers]

    def note(self, place: str, device: str, frame: bytes, wanted: Wanted) -> None:
        """Count a frame if it is one of the probes, or an answer; keep what says that one was too large."""
        found = find(frame, wanted.kind, wanted.numbers, ports=wanted.ports)
        if found is not None and found.mtu:
            self.told.setdefault(place, TooLarge(mtu=found.mtu, by=str(ip_address(found.by))))
        elif found is not None:
            direction: Direction = "back" if found.answer else "there"
            self.seen.setdefault((place, device, direction), set()).add(found.number)
            if found.denies:
                self.denied.add(found.number)
            to = next((text for text, packed in wanted.chosen.items() if found.target.endswith(packed)), None)
            if direction == "there" and to is not None:
                self.to[found.number] = to
            if direction == "there" and found.source:
                sources = self.sources.setdefault((place, device), {})
                sources.setdefault(str(ip_address(found.source)), set()).add(found.number)
