"""Writes what a packet socket of a lab sees to a file, until told to stop."""

import sys
import time
from contextlib import suppress
from itertools import islice
from pathlib import Path

from weft.lab.commands.pcapng import Writer
from weft.lab.packets import SNAPLEN, Reader


def record(descriptor: int, path: Path | None, *, count: int | None, seconds: float | None) -> int:
    """Take over a packet socket and write until `count` packets, `seconds` or Ctrl-C; return how many there were.

    Without a `path` it is standard output that is written to, and its reader's end that ends it too.
    """
    written = 0
    with Reader(descriptor) as reader, suppress(BrokenPipeError):
        target, closes = (sys.stdout.fileno(), False) if path is None else (path, True)
        # Not through sys.stdout: what its reader has not taken would be written again at the program's end.
        with open(target, "wb", closefd=closes) as file:
            writer = Writer(file, snaplen=SNAPLEN)
            until = None if seconds is None else time.monotonic() + seconds
            with suppress(KeyboardInterrupt):  # how a capture ends
                writer.flush()
                for packet in islice(reader.packets(until=until), count):
                    writer.packet(packet.link, packet.data, nanoseconds=packet.nanoseconds, inbound=packet.inbound)
                    writer.flush()
                    written += 1
    return written
