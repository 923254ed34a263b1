"""Sends probes through a lab and counts at which devices of the ends and their nodes they are seen."""

import select
from collections.abc import Collection, Iterable, Mapping
from contextlib import ExitStack, closing
from ipaddress import ip_address

from weft.diag.reaching.watching import while_awaited
from weft.diag.tracing.counted import Counted, Sent, Wanted
from weft.lab.commands.choose import ask, ask_for_socket
from weft.lab.commands.packets.reader import Reader
from weft.lab.places import Place
from weft.lab.protocol import Capture, Probe
from weft.lab.report import SentReport
from weft.model.value import replace


def count(
    lab: Place, probe: Probe, places: Mapping[str, str], *, ports: Collection[int], chosen: Iterable[str]
) -> Counted:
    """Send the probes and listen at the device that each of these places has, or with "" at all of its devices.

    It takes a second if one is not answered. `ports` are those to which datagrams may be translated, `chosen` the
    addresses of which one may be chosen.
    """
    counted = Counted()
    packed = {text: ip_address(text).packed for text in chosen}
    wanted = Wanted(kind=probe.kind, numbers=probe.numbers, ports=ports, chosen=packed)
    waiting = select.poll()
    with ExitStack() as held:
        readers = []
        for place, link in {probe.source: "", **places}.items():
            reader = Reader(place, ask_for_socket(lab, Capture(where=place, link=link)))
            readers.append(held.enter_context(closing(reader)))
            waiting.register(reader, select.POLLIN)
        sent = ask(lab, probe, SentReport)

        def read(seconds: float) -> None:
            waiting.poll(1000 * seconds)
            for reader in readers:
                for packet in reader.take()[0]:
                    counted.note(packet.place, packet.link, packet.data, wanted)

        while_awaited(read, lambda: len(counted.anywhere(probe.source, "back")) == len(probe.numbers))
    return replace(counted, sent=Sent(refusal=sent.refusal, mtu=sent.mtu))
