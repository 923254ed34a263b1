"""Sends probes inside a lab, as a program in the node or pod would: they pass its own rules and connection tracking."""

import socket
from contextlib import suppress
from functools import partial
from ipaddress import ip_address
from typing import Final

from weft.kernel import icmp
from weft.lab.inside.cluster import World
from weft.lab.inside.reaching.echoes import request
from weft.lab.protocol import Probe
from weft.lab.spec import Family
from weft.lab.tracing.probes import datagram, source_port, syn
from weft.model.net import Ip

_FAMILIES: Final = {4: socket.AF_INET, 6: socket.AF_INET6}


async def send(world: World, wanted: Probe) -> None:
    """Send all of them at once. One that the kernel refuses to send is seen nowhere."""
    await world.inside.run(world.place(wanted.source).room, partial(_send, wanted))


def _send(wanted: Probe) -> None:
    source, target = ip_address(wanted.address), ip_address(wanted.target)
    for number in wanted.numbers:
        with suppress(OSError):  # no route, or a rule at output
            _one(wanted, number, source, target)


def _one(wanted: Probe, number: int, source: Ip, target: Ip) -> None:
    family: Family = 4 if target.version == 4 else 6
    if wanted.kind == "icmp":
        sock, port, data = icmp.listen(family, ()), 0, request(family, number)
    elif wanted.kind == "udp":
        sock, port, data = socket.socket(_FAMILIES[family], socket.SOCK_DGRAM), wanted.port, datagram(number)
    else:
        sock, port = socket.socket(_FAMILIES[family], socket.SOCK_RAW, socket.IPPROTO_TCP), 0
        data = syn(number, source=source, target=target, port=wanted.port)
    with sock:
        sock.bind((str(source), source_port(number) if wanted.kind == "udp" else 0))
        sock.sendto(data, (str(target), port))
