"""Writes packets in the format that Wireshark reads (draft-ietf-opsawg-pcapng): one section, links as they appear."""

import struct
from typing import BinaryIO, Final

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
    """A file of captured packets."""

    def __init__(self, file: BinaryIO, *, snaplen: int, comment: str) -> None:
        """Begin the file, of which `comment` says what it is; packets are at most `snaplen` bytes."""
        self._file = file
        self._snaplen = snaplen
        self._links: dict[tuple[str, bool], int] = {}
        options = _options((_COMMENT, comment.encode()), (_APPLICATION, b"weft lab capture"))
        self._block(_SECTION, struct.pack("=IHHq", _ORDER, 1, 0, -1) + options)

    def packet(
        self, link: str, data: bytes, *, nanoseconds: int, inbound: bool, ethernet: bool = True, comment: str = ""
    ) -> None:
        """Add a packet that was seen on `link`, at a time since 1970: a frame, or with `ethernet` false one of IP."""
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
        """Let readers see what was written."""
        self._file.flush()

    def _block(self, kind: int, body: bytes) -> None:
        size = struct.pack("=I", len(body) + 12)
        self._file.write(struct.pack("=I", kind) + size + body + size)  # at once: Ctrl-C comes before or after a block


def _options(*options: tuple[int, bytes]) -> bytes:
    return b"".join(struct.pack("=HH", code, len(value)) + _padded(value) for code, value in (*options, (0, b"")))


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)
