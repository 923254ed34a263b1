"""Probes as bytes, and how they are recognised in a frame: whatever they are wrapped in, if it is not a cipher.

An echo request and a datagram carry a mark and their number. A SYN has it as its sequence number, which no NAT changes.
An echo reply, a server's answer, an acknowledgement and the target's own refusal are answers. Pure.
"""

import struct
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from ipaddress import ip_address
from typing import Final, Literal

from weft.diag.sight.node import Hanging
from weft.diag.trace.hops import Direction
from weft.diag.trace.ruled import Ruling
from weft.model.kernel.nftrace import Pattern
from weft.model.net import Ip
from weft.model.value import Value, field
from weft.wire.icmp import MARK, REPLY, checksum, number_in

Kind = Literal["icmp", "udp", "tcp"]

_TCP: Final = struct.Struct("!HHIIBBHHH")  # RFC 9293 §3.1
_SYN, _RST, _ACK = 0x02, 0x04, 0x10
_WINDOW: Final = 1024
_FIRST_PORT, _PORTS = 40000, 20000
_TCP_NUMBER: Final = 6
_PROBES: Final = 3
_OF_EACH: Final = 6  # where chance chooses an end, for each of them
_MOST: Final = 48
_APART: Final = 2  # between the numbers of probes: what acknowledges one is the number of no other
_WORD: Final = 0xFFFFFFFF
_HEADER: Final = 8  # of ICMP and of UDP
_ADDRESS: Final = 16  # bytes, at most
_ERRORS: Final = {4: (3, 11, 12), 6: (1, 2, 3, 4)}  # types of ICMP messages that quote a packet
_TOO_LARGE: Final = {4: b"\x03\x04", 6: b"\x02"}  # type and code of those about the size (RFC 1191, RFC 4443 §3.2)
_TOLD: Final = {4: 6, 6: 4}  # from where on in their header they name the MTU
# Bytes of headers between those of a packet that carries a probe and the probe's own, from the end of the outermost IP
# header on: none; an IP header (ipip); those of UDP and IP, or of an error and the packet that it quotes; of VXLAN.
_AROUND: Final = (0, 20, 40, 28, 48, 50, 70)
_NUMBER, _ACKNOWLEDGED = 4, 8  # where they are in TCP's header
_PROTOCOLS: Final = {4: (1, 6, 17), 6: (58, 6, 17)}  # of what a probe may be


class Probe(Value):
    """Packets to send from the place `source`, one with each of `numbers`, and from its `address` to a `target`.

    With `kind` "icmp" there is no port. `sizes` are theirs in order, in bytes with all headers; without, they are
    small.
    """

    source: str
    address: str
    target: str
    kind: Kind
    numbers: list[int]
    port: int = 0
    sizes: list[int] = field(default_factory=list)


class Sighting(Value):
    """A probe in a frame, or an answer to it. `target` is the last bytes before its header, which end in the address.

    An answer that `denies` says that nothing listens at the port. With an `mtu` it is neither: the machine `by` says
    that the probe was too large for a link.
    """

    number: int
    answer: bool
    target: bytes = b""
    source: bytes = b""
    denies: bool = False
    mtu: int = 0
    by: bytes = b""


def numbers(first: int, ends: int) -> list[int]:
    """There are more where chance may choose one of several ends."""
    return so_many(first, min(_OF_EACH * ends if ends > 1 else _PROBES, _MOST))


def so_many(first: int, count: int) -> list[int]:
    return [first + number * _APART for number in range(count)]


def source_port(number: int) -> int:
    """Each probe has another, as connections of their own do."""
    return _FIRST_PORT + number % _PORTS


def syn(number: int, *, source: Ip, target: Ip, port: int) -> bytes:
    sequence, size = number & _WORD, _TCP.size
    length = struct.pack("!HH", _TCP_NUMBER, size) if source.version == 4 else struct.pack("!II", size, _TCP_NUMBER)

    def segment(checksum: int) -> bytes:
        return _TCP.pack(source_port(number), port, sequence, 0, size // 4 << 4, _SYN, _WINDOW, checksum, 0)

    return segment(checksum(source.packed + target.packed + length + segment(0)))


def find(frame: bytes, kind: Kind, numbers: Sequence[int], *, ports: Collection[int] = ()) -> Sighting | None:
    """Find one of the probes in a frame. A datagram may be translated to one of `ports`."""
    if kind == "tcp":
        return _find_segment(frame, numbers)
    at = frame.find(MARK) - _HEADER
    number = number_in(frame[at + _HEADER :])
    if at < 0 or number not in numbers:
        return None
    refusal = _refusal(frame, at)
    if refusal is not None:
        if refusal.mtu:
            return Sighting(number=number, answer=False, mtu=refusal.mtu, by=refusal.by)
        return Sighting(number=number, answer=True, denies=True) if refusal.targets and kind == "udp" else None
    by_port = int.from_bytes(frame[at : at + 2], "big") in ports
    answer = by_port if kind == "udp" else frame[at] in REPLY.values()
    target = frame[max(0, at - _ADDRESS) : at]
    return Sighting(number=number, answer=answer, target=target, source=_source(frame, at))


def patterns(kind: Kind, numbers: Sequence[int]) -> list[Pattern]:
    """What probes and their answers have behind the IP header, also inside other packets that are no cipher."""
    first, last = min(numbers), max(numbers)
    if kind != "tcp":
        ends = [MARK + each.to_bytes(8, "big") for each in (first, last)]
        return [Pattern(around + _HEADER, *ends) for around in _AROUND]
    return [
        Pattern(around + offset, *((each + more & _WORD).to_bytes(4, "big") for each in (first, last)))
        for around in _AROUND
        for offset, more in ((_NUMBER, 0), (_ACKNOWLEDGED, 1))
    ]


def questions(addresses: Iterable[Ip]) -> list[Pattern]:
    """What asks for the MAC of an address, and what answers: neighbour discovery's target (RFC 4861 §4.3, §4.4).

    ARP has no IP header behind which a pattern could be.
    """
    return [Pattern(_HEADER, each.packed, each.packed) for each in addresses if each.version == 6]


def _find_segment(frame: bytes, numbers: Sequence[int]) -> Sighting | None:
    for number in numbers:
        for answer, offset in ((False, 4), (True, 8)):  # of the sequence number, and of what is acknowledged
            start = frame.find(struct.pack("!I", (number + answer) & _WORD)) - offset
            flags = frame[start + 13] if 0 <= start < len(frame) - 13 else None
            fitting = flags is not None and bool(flags & _ACK) is answer and (answer or flags & _SYN)
            if fitting and _refusal(frame, start) is None:
                return Sighting(
                    number=number,
                    answer=answer,
                    target=frame[max(0, start - _ADDRESS) : start],
                    source=_source(frame, start),
                    denies=answer and bool(frame[start + 13] & _RST),
                )
    return None


def _source(frame: bytes, at: int) -> bytes:
    """The source address in the IP header that ends at `at`; empty if that has options."""
    for version, size, protocol, start, end in ((4, 20, 9, 12, 16), (6, 40, 6, 8, 24)):
        own = at - size
        if own >= 0 and frame[own] >> 4 == version and frame[own + protocol] in _PROTOCOLS[version]:
            return frame[own + start : own + end]
    return b""


class _Refusal(Value):
    """`targets` if it is by the target; the MTU if it is about the size."""

    targets: bool
    mtu: int
    by: bytes


def _refusal(frame: bytes, at: int) -> _Refusal | None:
    for version, size, place, protocol, addresses in ((4, 20, 9, 1, (12, 16, 20)), (6, 40, 6, 58, (8, 24, 40))):
        quoted = at - size
        error = quoted - _HEADER  # behind an IP header of its own
        own = error - size
        kinds = (frame[own] >> 4, frame[quoted] >> 4, frame[own + place]) if own >= 0 else ()
        if kinds == (version, version, protocol) and frame[error] in _ERRORS[version]:
            source, target, end = addresses
            by = frame[own + source : own + target]
            mtu = int.from_bytes(frame[error + _TOLD[version] : quoted], "big")
            too_large = frame[error : error + len(_TOO_LARGE[version])] == _TOO_LARGE[version]
            return _Refusal(targets=by == frame[quoted + target : quoted + end], mtu=mtu if too_large else 0, by=by)
    return None


class Wanted(Value):
    """The probes to find. Datagrams may be translated to one of `ports`, and go to one of the `chosen` addresses."""

    kind: Kind
    numbers: Sequence[int]
    ports: Collection[int] = ()
    chosen: Mapping[str, bytes] = {}


class Sent(Value):
    """How the kernel took the probes: the words of a `refusal`, and the MTU if it named one."""

    refusal: str = ""
    mtu: int = 0


class TooLarge(Value):
    """The machine `by` says that a link of it carries `mtu` bytes."""

    mtu: int
    by: str


class ProbesSeen(Value):
    """The numbers of probes that were seen, and `back` those of answers: by node or pod, and device.

    `to` has the address to which each probe was sent on, where a packet showed it; the answers to `denied` ones refuse
    them. `unread` frames came faster than they were read. `sources` counts each probe by the source it came with, by
    place and device; `told` is what was said there of probes that were too large. `grown` are counters of the kernel
    that grew by lost probes, `queues` those of queues that grew at all, `ruled` the rules that dropped some, and
    `on_links` what hangs on links, all by place.
    """

    seen: dict[tuple[str, str, Direction], set[int]] = field(default_factory=dict)
    to: dict[int, str] = field(default_factory=dict)
    denied: set[int] = field(default_factory=set)
    unread: int = 0
    sent: Sent = Sent()
    sources: dict[tuple[str, str], dict[str, Counter[int]]] = field(default_factory=dict)
    told: dict[str, TooLarge] = field(default_factory=dict)
    grown: dict[str, dict[str, int]] = field(default_factory=dict)
    queues: dict[str, dict[str, int]] = field(default_factory=dict)
    ruled: dict[str, list[Ruling]] = field(default_factory=dict)
    on_links: dict[str, list[Hanging]] = field(default_factory=dict)

    def towards(self, address: str, numbers: Iterable[int]) -> set[int]:
        return {number for number in numbers if self.to.get(number, address) == address}

    def sent_to(self, address: str) -> set[int]:
        return {number for number, to in self.to.items() if to == address}

    def at(self, place: str, device: str, direction: Direction) -> set[int]:
        return self.seen.get((place, device, direction), set())

    def anywhere(self, place: str, direction: Direction) -> set[int]:
        seen = (numbers for (where, _, way), numbers in self.seen.items() if (where, way) == (place, direction))
        return set().union(*seen)

    def sources_at(self, place: str, device: str, numbers: set[int]) -> list[str]:
        return [source for source, seen in self.sources.get((place, device), {}).items() if seen.keys() & numbers]

    def came(self, place: str, device: str, source: str, numbers: set[int], *, times: int) -> bool:
        """True if one of these probes was seen there so many times with this source."""
        seen = self.sources.get((place, device), {}).get(source, Counter())
        return any(seen[number] >= times for number in numbers)

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
                sources.setdefault(str(ip_address(found.source)), Counter())[found.number] += 1
