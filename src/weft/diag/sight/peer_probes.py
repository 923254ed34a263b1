"""Echo requests to peers, all at once: into the overlay, as large as a pod's packet may be, and to public IPs.

A probe is known by its number in the sequence field, and its process by the identifier (icmp(7)). An error from the
address that was asked is an answer, too: a firewall there refuses echo requests, and has got this one.
"""

import os
import select
import socket
import struct
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from ipaddress import ip_address
from itertools import islice
from typing import Final

from weft.diag.sight.node import Knock, Knocked, Probed
from weft.diag.sight.peers import Peer
from weft.kernel import icmp
from weft.kernel.rtnetlink.attributes import AF
from weft.model.net import Ip
from weft.model.value import replace
from weft.wire.icmp import HEADER, IP_HEADER, REPLY, UNREACHABLE, behind_ip, echo_request

_SMALL: Final = 64
_TRIES: Final = 3
_SECONDS: Final = 0.35  # for the answers to one try
_MOST_KNOCKS: Final = 100  # peers whose ports are asked: what eats a port, eats it of all
# Codes of "destination unreachable": nothing listens at the port; a firewall rejects it.
_REFUSED: Final = {4: 3, 6: 4}
_REJECTED: Final = {4: (9, 10, 13), 6: (1, 5, 6)}
_PORTS: Final = struct.Struct("!HH")
_AT_ONCE: Final = 64  # requests before answers are read: a socket's room is for some hundreds
_READ_AT_ONCE: Final = 4096  # before the time is looked at: others may send more than we read
_PAUSE: Final = 0.002
_ROOM: Final = 1 << 22  # bytes of answers that wait to be read
_MOST: Final = 65535  # probes in one look: their numbers have 16 bits

_Said = dict[tuple[Ip, int], Knock]  # by the address and the UDP port that packets did not reach


def probe(peers: Sequence[Peer], *, mtu: int, port: int = 0) -> tuple[tuple[Probed, ...], tuple[Knocked, ...]]:
    """Ask each peer, and wait for the answers: about a second if one is missing. `OSError` without the right to.

    What is wrapped goes to a UDP `port` of a peer's public IP, unless that is 0; of peers that do not answer so, what
    they say of it and of the port beside it.
    """
    questions = list(_questions(peers, mtu))[:_MOST]
    if not questions:
        return (), ()
    said: _Said = {}
    with ExitStack() as held:
        versions = {question.address.version for question in questions}
        sockets: dict[int, socket.socket] = {version: held.enter_context(_open(version)) for version in versions}
        answered = _exchange(sockets, questions, said)
        probes = tuple(replace(each, answered=number in answered) for number, each in enumerate(questions))
        silent = _silent(probes) if port else {}
        if silent:
            _knock(sockets, silent.values(), port + 1, said)
    return probes, tuple(
        Knocked(peer=peer, device=said.get((address, port), "silent"), beside=said.get((address, port + 1), "silent"))
        for peer, address in silent.items()
    )


def _silent(probes: Sequence[Probed]) -> dict[str, Ip]:
    dead = {each.peer for each in probes if each.way == "overlay" and not each.answered}
    outside = ((each.peer, each.address) for each in probes if each.way == "underlay" and each.peer in dead)
    return dict(islice(outside, _MOST_KNOCKS))


def _knock(sockets: dict[int, socket.socket], addresses: Iterable[Ip], port: int, said: _Said) -> None:
    for address in addresses:
        with socket.socket(AF[address.version], socket.SOCK_DGRAM) as sock, suppress(OSError):  # no way at all
            sock.sendto(b"", (str(address), port))
    end = time.monotonic() + _SECONDS
    while (rest := end - time.monotonic()) > 0:
        _heard(sockets, 0, (), said, rest)


def _unreached(error: bytes, version: int) -> tuple[tuple[Ip, int], Knock] | None:
    """The address and UDP port that an error calls refused or rejected: a program's, or that of an outer packet."""
    packet = error[HEADER.size :]
    if error[:1] != bytes([UNREACHABLE[version]]) or len(packet) < IP_HEADER[version]:
        return None
    protocol, target = (packet[9], packet[16:20]) if version == 4 else (packet[6], packet[24:40])
    inside = behind_ip(version, packet)
    if protocol != socket.IPPROTO_UDP or len(inside) < _PORTS.size:
        return None
    said: Knock | None = "refused" if error[1] == _REFUSED[version] else None
    said = "rejected" if error[1] in _REJECTED[version] else said
    return None if said is None else ((ip_address(target), _PORTS.unpack_from(inside)[1]), said)


def _questions(peers: Iterable[Peer], mtu: int) -> Iterable[Probed]:
    for peer in peers:
        if peer.inner is not None and mtu > _SMALL:
            yield Probed(peer=str(peer.subnet), address=peer.inner, way="overlay", size=_SMALL)
            yield Probed(peer=str(peer.subnet), address=peer.inner, way="large", size=mtu)
        if peer.public is not None:
            yield Probed(peer=str(peer.subnet), address=peer.public, way="underlay", size=_SMALL)


def _open(version: int) -> socket.socket:
    sock = icmp.listen(version, (REPLY[version], UNREACHABLE[version]))
    icmp.never_fragment(sock, version)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _ROOM)
    return sock


def _exchange(sockets: dict[int, socket.socket], questions: Sequence[Probed], said: _Said) -> set[int]:
    """Send three times at most. Returns the numbers of what was answered."""
    answered = set[int]()
    identifier = os.getpid() & 0xFFFF
    for _ in range(_TRIES):
        missing = [number for number in range(len(questions)) if number not in answered]
        for start in range(0, len(missing), _AT_ONCE):
            for number in missing[start : start + _AT_ONCE]:
                _send(sockets[questions[number].address.version], questions[number], identifier, number)
            answered |= _heard(sockets, identifier, questions, said, _PAUSE)
        end = time.monotonic() + _SECONDS
        while len(answered) < len(questions) and (rest := end - time.monotonic()) > 0:
            answered |= _heard(sockets, identifier, questions, said, rest)
        if len(answered) == len(questions):
            break
    return answered


def _heard(
    sockets: dict[int, socket.socket], identifier: int, questions: Sequence[Probed], said: _Said, seconds: float
) -> set[int]:
    ready, _, _ = select.select(list(sockets.values()), [], [], seconds)
    return {number for sock in ready for number in _received(sock, identifier, questions, said)}


def _send(sock: socket.socket, question: Probed, identifier: int, number: int) -> None:
    version = question.address.version
    data = bytes(question.size - IP_HEADER[version] - HEADER.size)
    with suppress(OSError):  # no route, too long for the link: it is not answered
        sock.sendto(echo_request(version, identifier, number, data), (str(question.address), 0))


def _received(sock: socket.socket, identifier: int, questions: Sequence[Probed], said: _Said) -> set[int]:
    version = 4 if sock.family == socket.AF_INET else 6
    found = set[int]()
    with suppress(BlockingIOError):
        for _ in range(_READ_AT_ONCE):
            data, (sender, *_) = sock.recvfrom(65536)
            answer = behind_ip(4, data) if version == 4 else data
            number = _about(answer, version, identifier)
            if number is not None and number < len(questions) and questions[number].address == ip_address(sender):
                found.add(number)
            elif (word := _unreached(answer, version)) is not None:
                said.setdefault(*word)
    return found


def _about(answer: bytes, version: int, identifier: int) -> int | None:
    if answer[:1] == bytes([UNREACHABLE[version]]):
        answer = behind_ip(version, answer[HEADER.size :])
    if len(answer) < HEADER.size:
        return None
    _, _, _, seen, number = HEADER.unpack_from(answer)
    return number if seen == identifier else None
