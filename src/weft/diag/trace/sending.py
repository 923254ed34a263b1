"""Sends a trace's probes, as a program of the node or pod would: they pass its own rules and connection tracking."""

import os
import socket
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Final

from weft.diag.trace.probe_counts import Sent
from weft.diag.trace.probes import Kind, datagram, source_port, syn
from weft.kernel import icmp, pathmtu
from weft.model.net import Family, Ip
from weft.wire.icmp import echo_request

_FAMILIES: Final = {4: socket.AF_INET, 6: socket.AF_INET6}
_HEADERS: Final[dict[Family, int]] = {4: 20, 6: 40}  # bytes of IP's
_HEADER: Final = 8  # bytes of UDP's


def send(source: Ip, target: Ip, *, kind: Kind, port: int, numbers: Iterable[int], sizes: Sequence[int] = ()) -> Sent:
    """Send all of them at once from where the thread is. Returns what the kernel says if it refuses one.

    Of `sizes` each probe has one: so many bytes with all headers, never fragmented. A SYN has none.
    """
    family: Family = 4 if target.version == 4 else 6
    sent = Sent()
    for number, size in zip(numbers, sizes or repeat(0)):  # noqa: B905 - `numbers` end it
        inside = size - _HEADERS[family]
        if kind == "icmp":
            sock, to, data = icmp.listen(family, ()), 0, echo_request(family, number, size=inside)
        elif kind == "udp":
            sock, to = socket.socket(_FAMILIES[family], socket.SOCK_DGRAM), port
            data = datagram(number, size=inside - _HEADER)
        else:
            sock, to = socket.socket(_FAMILIES[family], socket.SOCK_RAW, socket.IPPROTO_TCP), 0
            data = syn(number, source=source, target=target, port=port)
        with sock:
            try:
                if size:
                    pathmtu.never_fragment(sock, family)
                    pathmtu.keep_errors(sock, family)
                sock.bind((str(source), source_port(number) if kind == "udp" else 0))
                sock.sendto(data, (str(target), to))
            except OSError as error:  # no route, a rule at output, or too large for the link
                own = (each.mtu for each in (pathmtu.refusals(sock, family) if size else ()) if not each.by)
                sent = Sent(refusal=os.strerror(error.errno or 0), mtu=next(own, sent.mtu))
    return sent
