"""Takes packets from their sockets until it has to stop, and writes those that are wanted: to a file, or as lines.

A file is for Wireshark and the like; lines are for people, documents for programs. Each is flushed whenever no packet
waits, so that a reader sees them at once.
"""

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import BinaryIO, Final

from weft.lab.commands.packets.levels import Level, levels, line
from weft.lab.commands.packets.pcapng import Writer
from weft.lab.commands.packets.reader import SNAPLEN, Packet, Readers
from weft.lab.commands.packets.wanted import Filter
from weft.model.value import Value
from weft.screen.documents import piece
from weft.wire.packet import Layer, Tunnels, layers_of

# Writes one packet, with its layers and levels.
Write = Callable[[Packet, Sequence[Layer], Sequence[Level]], None]

_WHERE: Final = 18  # characters: node1 veth01234567


class PacketLine(Value):
    """A packet as a line of JSON. `time` is in seconds since 1970; each layer has its name, a text and its fields."""

    time: float
    place: str
    link: str
    inbound: bool
    text: str
    layers: Sequence[Layer]


def record(
    readers: Readers,
    write: Write,
    flush: Callable[[], None],
    *,
    announce: Callable[[], None],
    wanted: Filter,
    tunnels: Tunnels,
    count: int | None,
    seconds: float | None,
) -> int:
    """Write until `count` packets, `seconds`, Ctrl-C or the end of the reader; return how many there were.

    `announce` says that it begins: from then on Ctrl-C is its end, at which what has come is still written.
    """
    until = None if seconds is None else time.monotonic() + seconds
    written = 0
    with _ending(readers), suppress(BrokenPipeError):
        announce()
        for batch in readers.batches(until=until):
            for packet in batch:
                layers = layers_of(packet.data, ethernet=packet.ethernet, tunnels=tunnels)
                found = levels(layers)
                if wanted.wants(found):
                    write(packet, layers, found)
                    written += 1
                    if written == count:
                        return written
            flush()
    return written


@contextmanager
def _ending(readers: Readers) -> Iterator[None]:
    """Let Ctrl-C end the packets; once more, and it interrupts as elsewhere."""

    def stop(number: int, _: FrameType | None) -> None:
        signal.signal(number, before)
        readers.stop()

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def to_file(file: BinaryIO, comment: str) -> Write:
    """Begin a file. What is in a tunnel is said beside the packet: a reader may not know the tunnel's port."""
    writer = Writer(file, snaplen=SNAPLEN, comment=comment)
    file.flush()

    def write(packet: Packet, _: Sequence[Layer], found: Sequence[Level]) -> None:
        writer.packet(
            f"{packet.place}:{packet.link}",
            packet.data,
            nanoseconds=packet.nanoseconds,
            inbound=packet.inbound,
            ethernet=packet.ethernet,
            comment=line(found) if len(found) > 1 else "",
        )

    return write


def to_people(file: BinaryIO) -> Write:
    """Write a line for each packet, with its local time, where it was seen, and whether it came or went there."""

    def write(packet: Packet, _: Sequence[Layer], found: Sequence[Level]) -> None:
        seconds, rest = divmod(packet.nanoseconds, 1_000_000_000)
        clock = f"{time.strftime('%H:%M:%S', time.localtime(seconds))}.{rest // 1000:06}"
        where = f"{packet.place} {packet.link}".ljust(_WHERE)
        file.write(f"{clock}  {where} {'←' if packet.inbound else '→'} {line(found)}\n".encode())

    return write


def to_programs(file: BinaryIO, output: str) -> Write:
    """Write a document for each packet."""

    def write(packet: Packet, layers: Sequence[Layer], found: Sequence[Level]) -> None:
        said = PacketLine(
            time=packet.nanoseconds / 1_000_000_000,
            place=packet.place,
            link=packet.link,
            inbound=packet.inbound,
            text=line(found),
            layers=layers,
        )
        file.write(piece(output, said).encode())

    return write
