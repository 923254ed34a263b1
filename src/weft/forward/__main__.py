"""The relay where there is no C program: `python -m weft.forward PORT QUEUES NAMES ABOUT`, with its descriptors.

Descriptor 3 is the listening socket of the daemon's questions, 4 and 5 are raw sockets for errors by ICMP and ICMPv6
(without IPv6 the one for ICMP again), 6 tells of names of network namespaces that are removed, 7 is the UDP socket,
and from 8 on come the device's queues, of which this relay serves the first. One process sends, the other receives and
answers the daemon, and tells the first of changes.
"""

import errno
import os
import select
import signal
import socket
import sys
from contextlib import suppress
from itertools import islice
from struct import Struct
from typing import Final

from weft.forward.control import DONE, DROPS, PEER, PROTOCOL, STATE
from weft.forward.loops import DeviceGoneError, Direction, Errors, Receiver, Sender
from weft.forward.routes import Routes, number_of, packed
from weft.kernel import capabilities, tun
from weft.kernel.confine import lock_out_of_files
from weft.kernel.unixsockets import is_root

_LISTENER, _ICMP, _ICMP6, _NAMES, _UDP, _TUN = range(3, 9)
_LARGEST: Final = 1 << 16
_HEAD: Final = 4
_BATCH: Final = 64  # packets between two looks at the daemon
_AT_ONCE: Final = _LARGEST // PEER.size  # peers in a message
_TOTALS: Final = Struct(f"=QQ{len(DROPS)}Q")
_COUNTED: Final = Struct("=16sQQ")  # peer, packets, bytes
_EVENT: Final = Struct("=iIII")  # struct inotify_event, before its name (inotify(7))


def _number(asked: bytes) -> int:
    """Which is the first that a message asks for."""
    return int.from_bytes(asked[_HEAD : _HEAD + 4], sys.byteorder)


def _totals(of: Direction) -> list[int]:
    return [of.packets.total(), of.bytes.total(), *(of.dropped[why] for why in DROPS)]


def send(sender: Sender, device: int, parent: socket.socket) -> None:
    """Serve the device, and do what the other process says."""
    while True:
        readable, _, _ = select.select([device, parent.fileno()], [], [])
        if device in readable:
            for _ in range(_BATCH):
                if not sender.once():
                    break
        if parent.fileno() in readable:
            asked = parent.recv(_LARGEST)
            if not asked:
                return
            if asked[:1] == b"C":
                sender.routes.change(asked[_HEAD:])
                parent.send(asked[:1])
            elif asked[:1] == b"S":
                parent.send(_TOTALS.pack(*_totals(sender)))
            else:
                peers = islice(sender.routes.uses, _number(asked), _number(asked) + _AT_ONCE)
                counted = ((packed(peer), sender.packets[peer], sender.bytes[peer]) for peer in peers)
                parent.send(b"".join(_COUNTED.pack(*each) for each in counted))


class Answers:
    """What the daemon is told. `child` is the process that sends."""

    def __init__(self, receiver: Receiver, child: socket.socket, about: str, *, confined: bool) -> None:
        self.child = child
        self._confined = confined
        self._receiver = receiver
        self._about = about.encode()

    def to(self, asked: bytes) -> bytes | None:
        """The answer to one message; None if it makes no sense. `SystemExit` at the end of the relay."""
        routes = self._receiver.routes
        match asked[:1]:
            case b"S":
                return self._state()
            case b"C":
                error = routes.change(asked[_HEAD:])
                self.child.send(asked)
                self.child.recv(1)  # it knows them, too
                return DONE.pack(error, routes.generation)
            case b"R":
                return routes.told(_number(asked))
            case b"P":
                return self._peers(asked)
            case b"E":
                sys.exit(0)
        return None

    def _state(self) -> bytes:
        self.child.send(b"S")
        sent, sent_bytes, *dropped = _TOTALS.unpack(self.child.recv(_LARGEST))
        received, received_bytes, *more = _totals(self._receiver)
        both = (a + b for a, b in zip(dropped, more, strict=True))
        counters = (sent, sent_bytes, received, received_bytes, *both)
        own = PROTOCOL, os.getpid(), self._confined, self._receiver.routes.generation
        return STATE.pack(*own, *counters) + self._about

    def _peers(self, asked: bytes) -> bytes:
        self.child.send(asked)
        receiver = self._receiver
        counted = ((number_of(each[0]), each) for each in _COUNTED.iter_unpack(self.child.recv(_LARGEST)))
        return b"".join(PEER.pack(*each, receiver.packets[peer], receiver.bytes[peer]) for peer, each in counted)


def _answer(client: socket.socket, answers: Answers) -> bool:
    """Answer a message; False if the client has gone, makes no sense, or does not take its answers."""
    asked = b""
    with suppress(OSError):
        asked = client.recv(_LARGEST)
    answer = answers.to(asked) if len(asked) >= _HEAD else None  # its errors are of the other process
    if answer is None:
        return False
    try:
        client.send(answer, socket.MSG_DONTWAIT)
    except OSError:
        return False
    return True


def _is_nameless(names: set[bytes]) -> bool:
    """Take names that were removed off those of this network namespace; tells whether it has lost the last."""
    before = len(names)
    heard = os.read(_NAMES, _LARGEST)
    while heard:
        *_, size = _EVENT.unpack_from(heard)
        names.discard(heard[_EVENT.size : _EVENT.size + size].rstrip(b"\0"))
        heard = heard[_EVENT.size + size :]
    return len(names) < before and not names


def receive(
    receiver: Receiver, udp: socket.socket, listener: socket.socket, answers: Answers, names: set[bytes]
) -> None:
    """Serve peers, and answer the daemon, until the other process has ended, or the namespace has lost its names."""
    clients: set[socket.socket] = set()
    ends = [answers.child.fileno(), *([_NAMES] if names else [])]
    while True:
        readable, _, _ = select.select(
            [*ends, udp.fileno(), listener.fileno(), *(each.fileno() for each in clients)], [], []
        )
        if ends[0] in readable or (_NAMES in readable and _is_nameless(names)):
            return  # the other answers when it is asked, so this is its end
        if udp.fileno() in readable:
            for _ in range(_BATCH):
                if not receiver.once():
                    break
        for client in [each for each in clients if each.fileno() in readable]:
            if not _answer(client, answers):
                clients.discard(client)
                client.close()
        if listener.fileno() in readable:
            _admit(listener, clients)


def _admit(listener: socket.socket, clients: set[socket.socket]) -> None:
    client, _ = listener.accept()
    if is_root(client):
        clients.add(client)
    else:
        client.close()


def main() -> None:
    """Relay until the device is gone, or the daemon says that this is the end."""
    port, _, called, about = sys.argv[1:]
    capabilities.keep(0)  # all that it works with is open
    confined = lock_out_of_files()
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    listener, udp = (socket.socket(fileno=number) for number in (_LISTENER, _UDP))
    errors = Errors(_ICMP, _ICMP6)
    parent, child = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        if os.fork() == 0:
            listener.close()
            child.close()
            send(Sender(Routes(), _TUN, udp, errors, int(port)), _TUN, parent)
        else:
            parent.close()
            receiver = Receiver(Routes(), _TUN, udp, errors, joins_udp=tun.takes_udp(_TUN))
            answers = Answers(receiver, child, about, confined=confined)
            receive(receiver, udp, listener, answers, {os.fsencode(name) for name in called.split("/") if name})
    except DeviceGoneError:
        pass
    except ConnectionError as error:  # the other process has ended
        if error.errno not in (errno.EPIPE, errno.ECONNRESET):
            raise


if __name__ == "__main__":
    main()
