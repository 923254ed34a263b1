"""Echo requests to peers, all at once: into the overlay, as large as a pod's packet may be, and to public IPs.

Raw sockets (icmp(7)); a probe is known by its number in the sequence field, and its process by the identifier. An error
from the address that was asked is an answer, too: a firewall there refuses echo requests, and has got this one.
"""

import os
import select
import socket
import struct
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from ipaddress import ip_address
from typing import Final

from weft.diag.sight import Peer, Probed, Way
from weft.kernel import icmp, pathmtu
from weft.model.net import Ip
from weft.model.value import Value

_HEADER: Final = struct.Struct("!BBHHH")  # type, code, checksum, identifier, sequence (RFC 792, RFC 4443 §4)
_REQUEST: Final = {4: 8, 6: 128}
_REPLY: Final = {4: 0, 6: 129}
_UNREACHABLE: Final = {4: 3, 6: 1}  # "destination unreachable"; behind its header stands the packet that it is about
_IP_HEADER: Final = {4: 20, 6: 40}
_SMALL: Final = 64
_TRIES: Final = 3
_SECONDS: Final = 0.35  # for the answers to one try
_REFUSED: Final = (2, 0.2)  # datagrams to a port, and seconds for an error to come back to each
_AT_ONCE: Final = 64  # requests before answers are read: a socket's room is for some hundreds
_PAUSE: Final = 0.002
_ROOM: Final = 1 << 22  # bytes of answers that wait to be read
_MOST: Final = 65535  # probes in one look: their numbers have 16 bits


class _Question(Value):
    """A probe that is to be sent. `size` is that of the IP packet."""

    peer: str
    address: Ip
    way: Way
    size: int


def probe(peers: Sequence[Peer], *, mtu: int) -> tuple[Probed, ...]:
    """Ask each peer, and wait for the answers: about a second if one is missing. `OSError` without the right to."""
    questions = list(_questions(peers, mtu))[:_MOST]
    if not questions:
        return ()
    with ExitStack() as held:
        versions = {question.address.version for question in questions}
        sockets: dict[int, socket.socket] = {version: held.enter_context(_open(version)) for version in versions}
        answered = _exchange(sockets, questions)
    return tuple(
        Probed(peer=q.peer, address=q.address, way=q.way, size=q.size, answered=number in answered)
        for number, q in enumerate(questions)
    )


def refusing(addresses: Sequence[Ip], port: int) -> frozenset[Ip]:
    """Of these nodes, those that say that nothing listens at a UDP port: a datagram got there, and the answer back."""
    found = set[Ip]()
    with ExitStack() as held:
        sockets = {held.enter_context(_connected(address, port)): address for address in addresses}
        tries, seconds = _REFUSED
        for _ in range(tries):
            missing = [sock for sock, address in sockets.items() if address not in found]
            for sock in missing:
                with suppress(OSError):  # the answer to the one before, or no way at all
                    sock.send(b"")
            end = time.monotonic() + seconds
            while missing and (rest := end - time.monotonic()) > 0:
                for sock in select.select(missing, [], [], rest)[0]:
                    missing.remove(sock)
                    if _is_refused(sock):
                        found.add(sockets[sock])
    return frozenset(found)


def _is_refused(sock: socket.socket) -> bool:
    try:
        sock.recv(1)
    except ConnectionRefusedError:
        return True
    except OSError:  # a firewall's word, or a router's: it did not get there
        return False
    return False


def _connected(address: Ip, port: int) -> socket.socket:
    """A socket that hears of errors from one address (udp(7): of a connected one they are reported)."""
    sock = socket.socket(socket.AF_INET if address.version == 4 else socket.AF_INET6, socket.SOCK_DGRAM)
    sock.settimeout(0)
    with suppress(OSError):  # no route: it never answers
        sock.connect((str(address), port))
    return sock


def _questions(peers: Iterable[Peer], mtu: int) -> Iterable[_Question]:
    for peer in peers:
        if peer.inner is not None and mtu > _SMALL:
            yield _Question(peer=str(peer.subnet), address=peer.inner, way="overlay", size=_SMALL)
            yield _Question(peer=str(peer.subnet), address=peer.inner, way="large", size=mtu)
        if peer.public is not None:
            yield _Question(peer=str(peer.subnet), address=peer.public, way="underlay", size=_SMALL)


def _open(version: int) -> socket.socket:
    sock = icmp.listen(version, (_REPLY[version], _UNREACHABLE[version]))
    pathmtu.never_fragment(sock, version)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _ROOM)
    return sock


def _exchange(sockets: dict[int, socket.socket], questions: Sequence[_Question]) -> set[int]:
    """Send until all is answered, three times at most; the numbers of what was."""
    answered = set[int]()
    identifier = os.getpid() & 0xFFFF
    for _ in range(_TRIES):
        missing = [number for number in range(len(questions)) if number not in answered]
        for start in range(0, len(missing), _AT_ONCE):
            for number in missing[start : start + _AT_ONCE]:
                _send(sockets[questions[number].address.version], questions[number], identifier, number)
            answered |= _heard(sockets, identifier, questions, _PAUSE)
        end = time.monotonic() + _SECONDS
        while len(answered) < len(questions) and (rest := end - time.monotonic()) > 0:
            answered |= _heard(sockets, identifier, questions, rest)
        if len(answered) == len(questions):
            break
    return answered


def _heard(
    sockets: dict[int, socket.socket], identifier: int, questions: Sequence[_Question], seconds: float
) -> set[int]:
    """What is answered within so long, at the first answers' coming."""
    ready, _, _ = select.select(list(sockets.values()), [], [], seconds)
    return {number for sock in ready for number in _received(sock, identifier, questions)}


def _send(sock: socket.socket, question: _Question, identifier: int, number: int) -> None:
    version = question.address.version
    data = bytes(question.size - _IP_HEADER[version] - _HEADER.size)
    head = _HEADER.pack(_REQUEST[version], 0, 0, identifier, number)
    if version == 4:
        head = _HEADER.pack(_REQUEST[4], 0, _checksum(head), identifier, number)
    with suppress(OSError):  # no route, too long for the link: it is not answered
        sock.sendto(head + data, (str(question.address), 0))


def _checksum(head: bytes) -> int:
    """The checksum of RFC 1071; all that follows the header is zero."""
    total: int = sum(struct.unpack("!4H", head))
    total = (total & 0xFFFF) + (total >> 16)
    return ~(total + (total >> 16)) & 0xFFFF


def _received(sock: socket.socket, identifier: int, questions: Sequence[_Question]) -> set[int]:
    version = 4 if sock.family == socket.AF_INET else 6
    found = set[int]()
    with suppress(BlockingIOError):
        while True:
            data, (sender, *_) = sock.recvfrom(65536)
            answer = data[(data[0] & 0xF) * 4 :] if version == 4 else data
            number = _about(answer, version, identifier)
            if number is not None and number < len(questions) and questions[number].address == ip_address(sender):
                found.add(number)
    return found


def _about(answer: bytes, version: int, identifier: int) -> int | None:
    """Which of our probes a message is about; None if it is about another program's."""
    if answer[:1] == bytes([_UNREACHABLE[version]]):
        packet = answer[_HEADER.size :]
        answer = packet[(packet[0] & 0xF) * 4 if version == 4 and packet else _IP_HEADER[6] :]
    if len(answer) < _HEADER.size:
        return None
    _, _, _, seen, number = _HEADER.unpack_from(answer)
    return number if seen == identifier else None
