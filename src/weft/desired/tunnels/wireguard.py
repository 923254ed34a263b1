"""WireGuard's devices and peers, as they are and as objects. Keys are 32 bytes in base64, as `wg` shows them."""

import binascii
from base64 import b64decode, b64encode
from typing import Final

from weft.model.kernel.links import Link, Tun
from weft.model.kernel.objects import OnLink
from weft.model.net import Endpoint, Net, number_of
from weft.model.value import Secret, Value, put_in

DEVICE: Final = "flannel-wg"
DEVICE_V6: Final = "flannel-wg-v6"
KEY_BYTES: Final = 32


class WireguardLink(Link):
    """The kernel's device, which has no settings of rtnetlink's."""

    kind = "wireguard"
    several = True
    advice = "The kernel lacks WireGuard: see `modprobe wireguard`, or install wireguard-go and restart weftd"


class WireguardTun(Tun):
    """What wireguard-go serves. What stands before each packet it decides."""


class Peer(Value):
    """`keepalive` is in seconds, 0 is never."""

    key: str
    endpoint: Endpoint | None
    psk: Secret | None = None
    keepalive: int = 0


class LivePeer(Value):
    """A peer as it is, its last handshake in Unix seconds, 0 for none, and the bytes of both ways.

    Packets for `networks` go to it, and only packets from there are taken from it.
    """

    peer: Peer
    networks: frozenset[Net]
    handshake: int
    sent: int = 0
    received: int = 0


class Change(Value):
    """What becomes of a peer: it is made as `peer`, or left as it is, and gets `networks`, if `alone` no others."""

    peer: Peer | None = None
    networks: frozenset[Net] = frozenset()
    alone: bool = False
    gone: bool = False


class Device(Value):
    """A device as it is. `private` is None while it has no key."""

    private: Secret | None
    port: int
    peers: tuple[LivePeer, ...]


class Server(OnLink):
    """The process that serves a device where the kernel has no WireGuard."""

    rank = 1
    code_if_changed = "VTEP-004"
    vital = True
    patience = 4.0
    unwanted = Link.unwanted
    code_if_refused = "VTEP-004"

    def __post_init__(self) -> None:
        put_in(self, "key", ("wgserver", self.dev))

    def __str__(self) -> str:
        return f"wireguard-go for {self.dev}"


class WireguardDevice(OnLink):
    private: Secret
    port: int

    rank = 2
    code_if_changed = "VTEP-003"
    vital = True
    patience = 4.0
    unwanted = Link.unwanted
    code_if_refused = "VTEP-004"  # as a rule its port is another program's, which the message names
    advice = "Stop what has the port, or see `wg show`"

    def __post_init__(self) -> None:
        put_in(self, "key", ("wireguard", self.dev))

    def __str__(self) -> str:
        return f"wireguard {self.dev} port {self.port}"


class WireguardPeer(OnLink):
    peer: Peer

    rank = 4
    code_if_changed = "FDB-001"
    unwanted = "no lease that is served asks for it"

    def __post_init__(self) -> None:
        put_in(self, "key", ("wgpeer", self.dev, self.peer.key))

    def __str__(self) -> str:
        return f"wireguard peer {self.peer.key} dev {self.dev} at {self.peer.endpoint}"


class WireguardRoute(OnLink):
    """Which peer of the device has a network, by its key: one that goes to another peer leaves the one before."""

    net: Net
    peer: str

    rank = 5
    code_if_changed = "FDB-001"
    unwanted = WireguardPeer.unwanted

    def __post_init__(self) -> None:
        put_in(self, "key", ("wgroute", self.dev, number_of(self.net.network_address), self.net.prefixlen))

    def __str__(self) -> str:
        return f"wireguard route {self.net} dev {self.dev} to peer {self.peer}"


def key_bytes(text: str) -> bytes:
    """Raises `ValueError`."""
    try:
        key = b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("no base64") from None
    if len(key) != KEY_BYTES:
        raise ValueError(f"{len(key)} bytes")
    return key


def private_key(raw: bytes) -> Secret:
    """A key with the bits that the curve wants, as WireGuard shows it (RFC 7748 §5)."""
    return Secret(b64encode(bytes([raw[0] & 248, *raw[1:31], raw[31] & 127 | 64])).decode())
