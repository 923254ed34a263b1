"""Sends probes through a lab and counts at which devices of the ends and their nodes they are seen."""

import select
from collections.abc import Collection, Iterable
from contextlib import ExitStack, closing
from ipaddress import ip_address

from weft.diag.reaching.watching import while_awaited
from weft.diag.tracing.counted import Counted, Wanted
from weft.lab.commands.choose import ask, ask_for_socket
from weft.lab.commands.packets.reader import Reader
from weft.lab.places import Place
from weft.lab.protocol import Capture, Probe
from weft.lab.report import SentReport
from weft.model.value import replace


def count(lab: Place, probe: Probe, places: Iterable[str], *, ports: Collection[int], chosen: Iterable[str]) -> Counted:
    """Send the probes and listen at all devices of these places and of the source.

    It takes a second if one is not answered. `ports` are those to which datagrams may be translated, `chosen` the
    addresses of which one may be chosen.
    """
    counted = Counted()
    packed = {text: ip_address(text).packed for text in chosen}
    wanted = Wanted(kind=probe.kind, numbers=probe.numbers, ports=ports, chosen=packed)
    waiting = select.poll()
    with ExitStack() as held:
        readers = []
        for place in dict.fromkeys([probe.source, *places]):
            reader = Reader(place, ask_for_socket(lab, Capture(where=place, link="")))
            readers.append(held.enter_context(closing(reader)))
            waiting.register(reader, select.POLLIN)
        refusal = ask(lab, probe, SentReport).refusal

        def read(seconds: float) -> None:
            waiting.poll(1000 * seconds)
            for reader in readers:
                for packet in reader.take()[0]:
                    counted.note(packet.place, packet.link, packet.data, wanted)

        while_awaited(read, lambda: len(counted.anywhere(probe.source, "back")) == len(probe.numbers))
    return replace(counted, refusal=refusal)
