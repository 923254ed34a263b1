"""WireGuard's devices and peers as values. Keys are 32 bytes in base64, as `wg` shows them."""

import binascii
from base64 import b64decode
from typing import Final

from weft.model.net import Ip, Net
from weft.model.secret import Secret
from weft.model.value import Value

_KEY_BYTES: Final = 32


class Endpoint(Value, kw_only=False):
    """Where a peer is reached."""

    ip: Ip
    port: int

    def __str__(self) -> str:
        return f"[{self.ip}]:{self.port}" if self.ip.version == 6 else f"{self.ip}:{self.port}"


class Peer(Value):
    """A peer of a device: packets for `allowed` go to it, and only packets from there are taken from it.

    `keepalive` is in seconds, 0 is never.
    """

    key: str
    endpoint: Endpoint | None
    allowed: frozenset[Net]
    psk: Secret | None = None
    keepalive: int = 0


class Seen(Value):
    """A peer as it is, with the time of its last handshake in Unix seconds, 0 for none."""

    peer: Peer
    handshake: int


class Device(Value):
    """A device as it is. `private` is None while it has no key."""

    private: Secret | None
    port: int
    peers: tuple[Seen, ...]


def key_bytes(text: str) -> bytes:
    """Return the bytes of a key. Raises `ValueError` for what is none."""
    try:
        key = b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("no base64") from None
    if len(key) != _KEY_BYTES:
        raise ValueError(f"{len(key)} bytes")
    return key
