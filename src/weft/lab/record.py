"""Writes what a packet socket of a lab sees to a file, until told to stop."""

import time
from itertools import islice
from pathlib import Path

from weft.lab.packets import SNAPLEN, Reader
from weft.lab.pcapng import Writer


def record(descriptor: int, path: Path, *, count: int | None = None, seconds: float | None = None) -> int:
    """Take over a packet socket and write to `path` until `count` packets, `seconds` or Ctrl-C; return how many."""
    written = 0
    with Reader(descriptor) as reader, path.open("wb") as file:
        writer = Writer(file, snaplen=SNAPLEN)
        until = None if seconds is None else time.monotonic() + seconds
        try:
            for packet in islice(reader.packets(until=until), count):
                writer.packet(packet.link, packet.data, nanoseconds=packet.nanoseconds, inbound=packet.inbound)
                written += 1
                writer.flush()
        except KeyboardInterrupt:
            pass  # how a capture ends
    return written
