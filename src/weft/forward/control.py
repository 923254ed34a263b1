"""The protocol between a daemon and a relay, over a socket that only root may serve.

The socket is SOCK_SEQPACKET in the instance's directory, so that a daemon finds the relay of an earlier one. It has no
abstract name, which any root in the network namespace could take. A request is a letter and three zero bytes, then:

| letter | then | answer |
|---|---|---|
| S | | `State` and what the relay was started for, text |
| C | changes | error number or 0, four zero bytes, the number of changes ever made (u64) |
| R | number of the first (u32) | routes from that one on, as changes that set them; nothing after the last |
| P | number of the first (u32) | counters of peers, likewise |
| E | | none: it ends |

A change is 36 bytes: what (u8: 1 sets a route, 2 deletes one, 3 deletes all), the prefix length (u8), two zero bytes,
network and peer's address. Addresses are IPv6's or mapped ones (RFC 4291 section 2.5.5.2), whose prefixes are 96 bits
longer. Other numbers are in the machine's order. `relay/control.c` is the other end.
"""

import os
import socket
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from pathlib import Path
from struct import Struct
from typing import Any, Final, Self

from weft.kernel.unixsockets import is_root
from weft.model.net import Ip, Net
from weft.model.value import Value

PROTOCOL: Final = 3
SOCKET: Final = "relay.socket"  # in the instance's directory
DROPS: Final = (
    "no route",
    "unknown peer",
    "malformed",
    "expired",
    "too large",
    "not sent",
    "not written",
    "local address",  # of IPv6: multicast, link-local, and what else means nothing to another node
)
SET, DELETE, CLEAR = 1, 2, 3

_PATIENCE: Final = 2.0  # seconds
_LARGEST: Final = 1 << 16
CHANGE: Final = Struct("BBxx16s16s")
AT_ONCE: Final = 1024  # changes in a message
MAPPED: Final = 96  # bits before an IPv4 address
_MAPPED: Final = bytes(10) + b"\xff\xff"
STATE: Final = Struct(f"=III4xQ4Q{len(DROPS)}Q")
PEER: Final = Struct("=16s4Q")  # address, packets and bytes sent, and received
DONE: Final = Struct("=IxxxxQ")


class State(Value):
    protocol: int
    pid: int
    confined: bool  # the kernel has taken its unneeded rights
    generation: int  # how often its routes were changed
    about: str  # what it was started for
    sent: tuple[int, int]  # packets and bytes, as `received`
    received: tuple[int, int]
    dropped: dict[str, int]  # packets, by reason


class Change(Value, kw_only=False):
    """`peer` is None for a route that goes."""

    network: Net
    peer: Ip | None


def listen(path: Path) -> socket.socket:
    """Make the socket at which a relay answers, in place of an earlier one's. Raises `OSError`."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        path.unlink(missing_ok=True)
        with _short(path) as name:
            listener.bind(name)
        listener.listen()
    except OSError:
        listener.close()
        raise
    return listener


class Call:
    """A connection to a relay. Each method raises `OSError` when it has gone, or answers nonsense."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    @classmethod
    def to(cls, path: Path) -> Self | None:
        """Connect to the relay at a socket; None if there is none, or it is not root's."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.settimeout(_PATIENCE)
        with suppress(OSError):
            with _short(path) as name:
                connection.connect(name)
            if is_root(connection):
                return cls(connection)
        connection.close()
        return None

    def close(self) -> None:
        self._connection.close()

    def state(self) -> State:
        answer = self._ask(b"S")
        _check(len(answer) >= STATE.size)
        protocol, pid, confined, generation, *counters = STATE.unpack_from(answer)
        return State(
            protocol=protocol,
            pid=pid,
            confined=bool(confined),
            generation=generation,
            about=answer[STATE.size :].decode(errors="replace"),
            sent=(counters[0], counters[1]),
            received=(counters[2], counters[3]),
            dropped=dict(zip(DROPS, counters[4:], strict=True)),
        )

    def change(self, changes: Iterable[Change]) -> int:
        """Change routes, in order; returns how often they were ever changed."""
        return self._change([encode(change) for change in changes])

    def clear(self) -> int:
        return self._change([CHANGE.pack(CLEAR, 0, bytes(16), bytes(16))])

    def routes(self) -> dict[Net, Ip]:
        return {
            _read_network(network, length): read_address(peer) for _, length, network, peer in self._all(b"R", CHANGE)
        }

    def peers(self) -> dict[Ip, tuple[tuple[int, int], tuple[int, int]]]:
        """Packets and bytes that were sent to each peer, and received from it."""
        found = {}
        for peer, sent, sent_bytes, received, received_bytes in self._all(b"P", PEER):
            found[read_address(peer)] = (sent, sent_bytes), (received, received_bytes)
        return found

    def end(self) -> None:
        self._connection.send(b"E\0\0\0")
        with suppress(ConnectionResetError):
            self._connection.recv(1)

    def _change(self, encoded: list[bytes]) -> int:
        generation = 0
        for start in range(0, len(encoded), AT_ONCE):
            answer = self._ask(b"C", b"".join(encoded[start : start + AT_ONCE]))
            _check(len(answer) == DONE.size)
            error, generation = DONE.unpack(answer)
            if error:
                raise OSError(error, os.strerror(error))
        return int(generation)

    def _all(self, letter: bytes, form: Struct) -> Iterator[tuple[Any, ...]]:
        number = 0
        while answer := self._ask(letter, number.to_bytes(4, sys.byteorder)):
            _check(len(answer) % form.size == 0)
            yield from form.iter_unpack(answer)
            number += len(answer) // form.size

    def _ask(self, letter: bytes, rest: bytes = b"") -> bytes:
        self._connection.send(letter + b"\0\0\0" + rest)
        return self._connection.recv(_LARGEST)


@contextmanager
def _short(path: Path) -> Iterator[str]:
    """A short name for a socket: names have room for 107 bytes (unix(7)), and `--state-dir` may be longer."""
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


def encode(change: Change) -> bytes:
    network = change.network
    length = network.prefixlen + (MAPPED if network.version == 4 else 0)
    peer = bytes(16) if change.peer is None else write_address(change.peer)
    kind = DELETE if change.peer is None else SET
    return CHANGE.pack(kind, length, write_address(network.network_address), peer)


def write_address(address: Ip) -> bytes:
    return _MAPPED + address.packed if address.version == 4 else address.packed


def read_address(packed: bytes) -> Ip:
    return IPv4Address(packed[12:]) if packed.startswith(_MAPPED) else IPv6Address(packed)


def _read_network(packed: bytes, length: int) -> Net:
    if length >= MAPPED and packed.startswith(_MAPPED):
        return IPv4Network((packed[12:], length - MAPPED))
    return IPv6Network((packed, length))


def _check(sane: bool) -> None:  # noqa: FBT001 - as assert
    if not sane:
        raise OSError("the relay has sent an answer that cannot be read, or none")
