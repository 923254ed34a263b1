"""What a trace does in one namespace, where its thread is: sends probes, and reads what counters and filters say.

Probes leave as a program's packets do, through the rules and connection tracking of where they come from.
"""

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from ipaddress import ip_address
from itertools import repeat
from typing import Final

from weft.diag.sight.host import counters
from weft.diag.sight.listings import PLAIN, said
from weft.diag.sight.onlinks import queues
from weft.diag.trace.probes import Probe, Sent, source_port, syn
from weft.diag.trace.ruled import Ruling
from weft.kernel import icmp
from weft.kernel.netfilter.nfnetlink import NFPROTO, NfSocket
from weft.kernel.rtnetlink.attributes import AF
from weft.model.kernel.nftset import Table
from weft.model.net import family_of
from weft.model.value import replace
from weft.wire.icmp import IP_HEADER, marked, marked_request

_HEADER: Final = 8  # bytes of UDP's


def send(probe: Probe) -> Sent:
    """Send all from where the thread is. Returns what the kernel says if it refuses one.

    A probe that has a size is never fragmented.
    """
    source, target, kind = ip_address(probe.address), ip_address(probe.target), probe.kind
    family = family_of(target)
    sent = Sent()
    for number, size in zip(probe.numbers, probe.sizes or repeat(0)):  # noqa: B905 - the numbers end it
        inside = size - IP_HEADER[family]
        if kind == "icmp":
            sock, to, data = icmp.listen(family, ()), 0, marked_request(family, number, size=inside)
        elif kind == "udp":
            sock, to = socket.socket(AF[family], socket.SOCK_DGRAM), probe.port
            data = marked(number, size=inside - _HEADER)
        else:
            sock, to = socket.socket(AF[family], socket.SOCK_RAW, socket.IPPROTO_TCP), 0
            data = syn(number, source=source, target=target, port=probe.port)
        with sock:
            try:
                if size:
                    icmp.never_fragment(sock, family)
                    icmp.keep_errors(sock, family)
                sock.bind((str(source), source_port(number) if kind == "udp" else 0))
                sock.sendto(data, (str(target), to))
            except OSError as error:  # no route, a rule at output, or too large for the link
                own = (each.mtu for each in (icmp.refusals(sock, family) if size else ()) if not each.by)
                sent = Sent(refusal=os.strerror(error.errno or 0), mtu=next(own, sent.mtu))
    return sent


def told(ruling: Ruling) -> Ruling:
    """Read the rule's text and the names of the table's chains, where the thread is."""
    words, beside = "", set[str]()
    named = (ruling.table, ruling.chain)
    with suppress(OSError):
        # Names go into nft's own language, and those who made them may be anybody in the namespace.
        if ruling.handle and all(PLAIN.fullmatch(each) for each in named):
            listed = said(("nft", "-a", "list", "chain", ruling.family, *named)).splitlines()
            lines = (each.strip().rpartition(" # handle ") for each in listed)
            words = next((text for text, _, handle in lines if handle == str(ruling.handle)), "")
        if ruling.family in NFPROTO:
            with closing(NfSocket.open()) as nf:
                beside = nf.chains(Table(ruling.family, ruling.table))
    return replace(ruling, text=words, beside=tuple(sorted(beside)))


@contextmanager
def counters_there() -> Iterator[Callable[[], dict[str, int]]]:
    """Give what reads the kernel's counters of the namespace that its thread is in, whatever is mounted there."""
    proc = os.open("/proc", os.O_PATH | os.O_CLOEXEC)
    try:
        yield lambda: counters(proc, own="thread-self") | queues()
    finally:
        os.close(proc)
