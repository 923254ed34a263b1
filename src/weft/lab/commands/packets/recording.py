"""Writes captured packets: to a pcapng file, as lines for people, or as documents for programs.

Each form is flushed whenever no packet waits, so that a reader sees them at once.
"""

import signal
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import BinaryIO, Final

from weft.lab.commands.packets.levels import Filter, Level, levels, line
from weft.lab.commands.packets.reader import SNAPLEN, Packet, Readers
from weft.model.value import Value
from weft.screen.documents import piece
from weft.wire.packet import Layer, Tunnels, layers_of

# Writes one packet, with its layers and levels.
Write = Callable[[Packet, Sequence[Layer], Sequence[Level]], None]

_WHERE: Final = 18  # characters: node1 veth01234567
_SECTION: Final = 0x0A0D0D0A
_INTERFACE: Final = 1
_PACKET: Final = 6
_ORDER: Final = 0x1A2B3C4D  # its byte order tells a reader ours
_LINK_ETHERNET: Final = 1
_LINK_RAW: Final = 101  # IP packets without a frame
# Options: codes of section, interface and packet blocks.
_COMMENT: Final = 1
_APPLICATION: Final = 4
_NAME: Final = 2
_RESOLUTION: Final = 9
_FLAGS: Final = 2
_NANOSECONDS: Final = 9  # 10 to the minus


class Writer:
    def __init__(self, file: BinaryIO, *, snaplen: int, comment: str) -> None:
        """Packets are at most `snaplen` bytes; `comment` is the file's."""
        self._file = file
        self._snaplen = snaplen
        self._links: dict[tuple[str, bool], int] = {}
        options = _options((_COMMENT, comment.encode()), (_APPLICATION, b"weft lab capture"))
        self._block(_SECTION, struct.pack("=IHHq", _ORDER, 1, 0, -1) + options)

    def packet(
        self, link: str, data: bytes, *, nanoseconds: int, inbound: bool, ethernet: bool = True, comment: str = ""
    ) -> None:
        """A frame, or with `ethernet` false an IP packet. The time is since 1970."""
        number = self._links.get((link, ethernet))
        if number is None:
            number = self._links[link, ethernet] = len(self._links)
            options = _options((_NAME, link.encode()), (_RESOLUTION, bytes([_NANOSECONDS])))
            kind = _LINK_ETHERNET if ethernet else _LINK_RAW
            self._block(_INTERFACE, struct.pack("=HHI", kind, 0, self._snaplen) + options)
        high, low = divmod(nanoseconds, 1 << 32)
        head = struct.pack("=IIIII", number, high, low, len(data), len(data))
        comments = [(_COMMENT, comment.encode())] if comment else []
        options = _options(*comments, (_FLAGS, struct.pack("=I", 1 if inbound else 2)))
        self._block(_PACKET, head + _padded(data) + options)

    def flush(self) -> None:
        self._file.flush()

    def _block(self, kind: int, body: bytes) -> None:
        size = struct.pack("=I", len(body) + 12)
        self._file.write(struct.pack("=I", kind) + size + body + size)  # at once: Ctrl-C comes before or after a block


def _options(*options: tuple[int, bytes]) -> bytes:
    return b"".join(struct.pack("=HH", code, len(value)) + _padded(value) for code, value in (*options, (0, b"")))


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


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
    """Write until `count` packets, `seconds`, Ctrl-C or the end of the reader; returns how many.

    After `announce`, Ctrl-C ends the capture, and what has come is still written.
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
    """The first Ctrl-C ends the packets, the second interrupts as elsewhere."""

    def stop(number: int, _: FrameType | None) -> None:
        signal.signal(number, before)
        readers.stop()

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def to_file(file: BinaryIO, comment: str) -> Write:
    """What is in a tunnel is each packet's comment: a reader may not know the tunnel's port."""
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
    """A line has the local time, the place, and an arrow in or out."""

    def write(packet: Packet, _: Sequence[Layer], found: Sequence[Level]) -> None:
        seconds, rest = divmod(packet.nanoseconds, 1_000_000_000)
        clock = f"{time.strftime('%H:%M:%S', time.localtime(seconds))}.{rest // 1000:06}"
        where = f"{packet.place} {packet.link}".ljust(_WHERE)
        file.write(f"{clock}  {where} {'←' if packet.inbound else '→'} {line(found)}\n".encode())

    return write


def to_programs(file: BinaryIO, output: str) -> Write:
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
