"""What a daemon says to a relay and asks it, over a socket that only root is answered at.

The socket is SOCK_SEQPACKET with an abstract name, `weft/relay/DEVICE`, so that a daemon finds the relay of its network
namespace that an earlier one has started. A request is a letter and three zero bytes, then what it needs:

| letter | then | answer |
|---|---|---|
| S | | `State` and what the relay was started for, text |
| C | changes | error number or 0, four zero bytes, the number of changes ever made (u64) |
| R | number of the first (u32) | routes from that one on, as changes that set them; nothing after the last |
| P | number of the first (u32) | counters of peers, likewise |
| E | | none: it ends |

A change is 12 bytes: what (u8: 1 sets a route, 2 deletes one, 3 all), the prefix length (u8), two zero bytes, network
and peer's address in network order. All else is in the machine's order. `relay/control.c` is the other end.
"""

import os
import socket
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Network
from struct import Struct
from typing import Final, Self

from weft.kernel.unixsockets import is_root
from weft.model.value import Value

PROTOCOL: Final = 1
DROPS: Final = ("no route", "unknown peer", "malformed", "expired", "too large", "not sent", "not written")
SET, DELETE, CLEAR = 1, 2, 3

_PATIENCE: Final = 2.0  # seconds
_LARGEST: Final = 1 << 16
CHANGE: Final = Struct("BBxx4s4s")
_CHANGES_AT_ONCE: Final = 4096
STATE: Final = Struct(f"=IIQ4Q{len(DROPS)}Q")
PEER: Final = Struct("=Ixxxx4Q")  # address, packets and bytes sent, and received
DONE: Final = Struct("=IxxxxQ")


class State(Value):
    """How a relay is: its protocol and process, how often its routes were changed, what it was started for.

    `sent` and `received` count packets and bytes, `dropped` packets by the reason.
    """

    protocol: int
    pid: int
    generation: int
    about: str
    sent: tuple[int, int]
    received: tuple[int, int]
    dropped: dict[str, int]


class Change(Value, kw_only=False):
    """One change of the routes: `peer` is None for a route that goes."""

    network: IPv4Network
    peer: IPv4Address | None


def listen(device: str) -> socket.socket:
    """Make the socket that the relay of a device answers at. `OSError` if there is one."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        listener.bind(_name(device))
        listener.listen()
    except OSError:
        listener.close()
        raise
    return listener


class Call:
    """A connection to a relay. Each method raises `OSError` when it has gone, or makes no sense."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    @classmethod
    def to(cls, device: str) -> Self | None:
        """Connect to the relay of a device; None if there is none, or it is not root's."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.settimeout(_PATIENCE)
        with suppress(OSError):
            connection.connect(_name(device))
            if is_root(connection):
                return cls(connection)
        connection.close()
        return None

    def close(self) -> None:
        self._connection.close()

    def state(self) -> State:
        """Ask how it is."""
        answer = self._ask(b"S")
        _check(len(answer) >= STATE.size)
        protocol, pid, generation, *counters = STATE.unpack_from(answer)
        return State(
            protocol=protocol,
            pid=pid,
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
        """Delete all routes."""
        return self._change([CHANGE.pack(CLEAR, 0, bytes(4), bytes(4))])

    def routes(self) -> dict[IPv4Network, IPv4Address]:
        """Ask for all routes: which peer has which subnet."""
        found = {}
        for _, length, network, peer in self._all(b"R", CHANGE):
            found[IPv4Network((network, length))] = IPv4Address(peer)
        return found

    def peers(self) -> dict[IPv4Address, tuple[tuple[int, int], tuple[int, int]]]:
        """Ask for packets and bytes that were sent to each peer, and received from it."""
        found = {}
        for peer, sent, sent_bytes, received, received_bytes in self._all(b"P", PEER):
            found[IPv4Address(peer)] = (sent, sent_bytes), (received, received_bytes)
        return found

    def end(self) -> None:
        """Have it end, and wait until it has."""
        self._connection.send(b"E\0\0\0")
        with suppress(ConnectionResetError):
            self._connection.recv(1)

    def _change(self, encoded: list[bytes]) -> int:
        generation = 0
        for start in range(0, len(encoded), _CHANGES_AT_ONCE):
            answer = self._ask(b"C", b"".join(encoded[start : start + _CHANGES_AT_ONCE]))
            _check(len(answer) == DONE.size)
            error, generation = DONE.unpack(answer)
            if error:
                raise OSError(error, os.strerror(error))
        return int(generation)

    def _all(self, letter: bytes, form: Struct) -> Iterator[tuple[int, ...]]:
        number = 0
        while answer := self._ask(letter, number.to_bytes(4, sys.byteorder)):
            _check(len(answer) % form.size == 0)
            yield from form.iter_unpack(answer)
            number += len(answer) // form.size

    def _ask(self, letter: bytes, rest: bytes = b"") -> bytes:
        self._connection.send(letter + b"\0\0\0" + rest)
        return self._connection.recv(_LARGEST)


def _name(device: str) -> str:
    return f"\0weft/relay/{device}"


def encode(change: Change) -> bytes:
    """Return a change as a relay takes it."""
    network = change.network
    peer = bytes(4) if change.peer is None else change.peer.packed
    kind = DELETE if change.peer is None else SET
    return CHANGE.pack(kind, network.prefixlen, network.network_address.packed, peer)


def _check(sane: bool) -> None:  # noqa: FBT001 - as assert
    if not sane:
        raise OSError("the relay has sent an answer that cannot be read, or none")
