"""Writes packets in the format that Wireshark reads (draft-ietf-opsawg-pcapng): one section, links as they appear."""

import struct
from typing import BinaryIO, Final

_SECTION: Final = 0x0A0D0D0A
_INTERFACE: Final = 1
_PACKET: Final = 6
_ORDER: Final = 0x1A2B3C4D  # its byte order tells a reader ours
_LINK_ETHERNET: Final = 1
# Options: codes of section, interface and packet blocks.
_APPLICATION: Final = 4
_NAME: Final = 2
_RESOLUTION: Final = 9
_FLAGS: Final = 2
_NANOSECONDS: Final = 9  # 10 to the minus


class Writer:
    """A file of captured Ethernet frames."""

    def __init__(self, file: BinaryIO, *, snaplen: int) -> None:
        """Begin the file; frames are at most `snaplen` bytes."""
        self._file = file
        self._snaplen = snaplen
        self._links: dict[str, int] = {}
        options = _option(_APPLICATION, b"weft lab capture") + _option(0, b"")
        self._block(_SECTION, struct.pack("=IHHq", _ORDER, 1, 0, -1) + options)

    def packet(self, link: str, data: bytes, *, nanoseconds: int, inbound: bool) -> None:
        """Add a frame that was seen on `link`, at a time since 1970."""
        number = self._links.get(link)
        if number is None:
            number = self._links[link] = len(self._links)
            options = _option(_NAME, link.encode()) + _option(_RESOLUTION, bytes([_NANOSECONDS])) + _option(0, b"")
            self._block(_INTERFACE, struct.pack("=HHI", _LINK_ETHERNET, 0, self._snaplen) + options)
        high, low = divmod(nanoseconds, 1 << 32)
        head = struct.pack("=IIIII", number, high, low, len(data), len(data))
        options = _option(_FLAGS, struct.pack("=I", 1 if inbound else 2)) + _option(0, b"")
        self._block(_PACKET, head + _padded(data) + options)

    def flush(self) -> None:
        """Let readers see what was written."""
        self._file.flush()

    def _block(self, kind: int, body: bytes) -> None:
        size = struct.pack("=I", len(body) + 12)
        self._file.write(struct.pack("=I", kind) + size + body + size)


def _option(code: int, value: bytes) -> bytes:
    return struct.pack("=HH", code, len(value)) + _padded(value)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)
