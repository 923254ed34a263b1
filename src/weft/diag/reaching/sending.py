"""Sends a trace's probes, as a program of the node or pod would: they pass its own rules and connection tracking."""

import os
import socket
from collections.abc import Iterable
from typing import Final

from weft.diag.reaching.echoes import request
from weft.diag.tracing.probes import Kind, datagram, source_port, syn
from weft.kernel import icmp
from weft.model.net import Family, Ip

_FAMILIES: Final = {4: socket.AF_INET, 6: socket.AF_INET6}


def send(source: Ip, target: Ip, *, kind: Kind, port: int, numbers: Iterable[int]) -> str:
    """Send all of them at once from where the thread is. Returns what the kernel says if it refuses one, or nothing."""
    refusal = ""
    for number in numbers:
        try:
            _one(source, target, kind, port, number)
        except OSError as error:  # no route, or a rule at output
            refusal = os.strerror(error.errno or 0)
    return refusal


def _one(source: Ip, target: Ip, kind: Kind, port: int, number: int) -> None:
    family: Family = 4 if target.version == 4 else 6
    if kind == "icmp":
        sock, to, data = icmp.listen(family, ()), 0, request(family, number)
    elif kind == "udp":
        sock, to, data = socket.socket(_FAMILIES[family], socket.SOCK_DGRAM), port, datagram(number)
    else:
        sock, to = socket.socket(_FAMILIES[family], socket.SOCK_RAW, socket.IPPROTO_TCP), 0
        data = syn(number, source=source, target=target, port=port)
    with sock:
        sock.bind((str(source), source_port(number) if kind == "udp" else 0))
        sock.sendto(data, (str(target), to))
