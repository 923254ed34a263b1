"""Sends probes through a lab and counts at which devices of the ends and their nodes they are seen."""

import select
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import ExitStack, closing
from ipaddress import ip_address
from typing import Final

from weft.lab.commands.choose import ask, ask_for_socket
from weft.lab.commands.packets.reader import Packet, Reader
from weft.lab.places import Place
from weft.lab.protocol import Capture, Probe
from weft.lab.report import Nothing
from weft.lab.tracing.legs import Direction
from weft.lab.tracing.probes import find
from weft.model.value import Value

_SECONDS: Final = 1.0  # for the answers
_REST: Final = 0.05  # for what is still on its way to other devices when the last answer is seen


class Counted(Value):
    """The numbers of probes that were seen, and `back`, of those whose answers were: by node or pod, and device.

    `chosen` says to which of several addresses each probe was sent on, where a packet showed it.
    """

    seen: dict[tuple[str, str, Direction], set[int]]
    chosen: dict[int, str]

    def towards(self, address: str, numbers: Iterable[int]) -> set[int]:
        """Those probes that were not sent on to another address."""
        return {number for number in numbers if self.chosen.get(number, address) == address}

    def at(self, place: str, device: str, direction: Direction) -> set[int]:
        """The numbers of those that were seen at a device."""
        return self.seen.get((place, device, direction), set())

    def anywhere(self, place: str, direction: Direction) -> set[int]:
        """The numbers of those that were seen at a place, at any device."""
        seen = (numbers for (where, _, way), numbers in self.seen.items() if (where, way) == (place, direction))
        return set().union(*seen)

    def note(self, packet: Packet, probe: Probe, ports: Collection[int], chosen: Mapping[str, bytes]) -> None:
        """Count a packet if it is one of the probes, or an answer. `chosen` are addresses as packets have them."""
        found = find(packet.data, probe.kind, probe.numbers, ports=ports)
        if found is not None:
            direction: Direction = "back" if found.answer else "there"
            self.seen.setdefault((packet.place, packet.link, direction), set()).add(found.number)
            to = next((text for text, packed in chosen.items() if found.target.endswith(packed)), None)
            if direction == "there" and to is not None:
                self.chosen[found.number] = to


def count(lab: Place, probe: Probe, places: Iterable[str], *, ports: Collection[int], chosen: Iterable[str]) -> Counted:
    """Send the probes and listen at all devices of these places and of the source.

    It takes a second if one is not answered. `ports` are those to which datagrams may be translated, `chosen` the
    addresses of which one may be chosen.
    """
    counted = Counted(seen={}, chosen={})
    packed = {text: ip_address(text).packed for text in chosen}
    waiting = select.poll()
    with ExitStack() as held:
        readers = []
        for place in dict.fromkeys([probe.source, *places]):
            reader = Reader(place, ask_for_socket(lab, Capture(where=place, link="")))
            readers.append(held.enter_context(closing(reader)))
            waiting.register(reader, select.POLLIN)
        ask(lab, probe, Nothing)
        until, settled = time.monotonic() + _SECONDS, False
        while (left := until - time.monotonic()) > 0:
            waiting.poll(1000 * left)
            for reader in readers:
                for packet in reader.take()[0]:
                    counted.note(packet, probe, ports, packed)
            if not settled and len(counted.anywhere(probe.source, "back")) == len(probe.numbers):
                until, settled = time.monotonic() + _REST, True
    return counted
