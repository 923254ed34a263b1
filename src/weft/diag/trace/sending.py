"""Sends a trace's probes from a pod or the node, and counts them at links of this node and its pods (packet(7)).

They leave as a program's packets do, through the rules and connection tracking of where they come from.
"""

import os
import select
import socket
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from itertools import repeat
from typing import Final, Self

from weft.diag.sight.host import counters
from weft.diag.sight.listings import PLAIN, said
from weft.diag.sight.node import Hanging
from weft.diag.sight.onlinks import queues
from weft.diag.sight.pods import Pods
from weft.diag.trace.grown import by_probes, difference, queues_in, telling
from weft.diag.trace.probes import Kind, ProbesSeen, Sent, Wanted, datagram, source_port, syn
from weft.diag.trace.ruled import Ruling, dropped
from weft.kernel import icmp, packetsocket
from weft.kernel.netfilter import nftrace
from weft.kernel.netfilter.nfnetlink import NFPROTO, NfSocket
from weft.kernel.rtnetlink.attributes import AF
from weft.model.kernel.nftrace import Step
from weft.model.kernel.nftset import Table
from weft.model.net import Ip, family_of
from weft.model.value import replace
from weft.wire.icmp import IP_HEADER, marked_request

_HEADER: Final = 8  # bytes of UDP's

_BUFFER: Final = 32 << 20  # bytes: a busy node has much else to tell
_SHOWN: Final = 256  # bytes of each frame: a probe lies within, whatever it is wrapped in
_LONGEST: Final = 400  # bytes: a probe that has no size is short, and so is what answers it
_AROUND: Final = 100  # bytes: what a probe of some size may be wrapped in
_QUOTING: Final = 1300  # bytes: an error about a probe quotes much of it (RFC 1812 §4.3.2.3, RFC 4443 §3.2)
_AT_ONCE: Final = 1000  # frames of one socket, before the others get a turn
_SECONDS: Final = 1.0  # for the answers
_WITHOUT: Final = 0.3  # to see which counters grow without probes
_SLICE: Final = 0.05  # between looks at what rules have dropped
_REST_OF_DROPPED: Final = 0.2  # for an answer all the same: a copy of a probe may have been dropped
_REST: Final = 0.05  # for what is still on its way to other links when the last answer is seen


def send(source: Ip, target: Ip, *, kind: Kind, port: int, numbers: Iterable[int], sizes: Sequence[int] = ()) -> Sent:
    """Send all from where the thread is. Returns what the kernel says if it refuses one.

    A probe with one of `sizes` has so many bytes with all headers, and is never fragmented.
    """
    family = family_of(target)
    sent = Sent()
    for number, size in zip(numbers, sizes or repeat(0)):  # noqa: B905 - `numbers` end it
        inside = size - IP_HEADER[family]
        if kind == "icmp":
            sock, to, data = icmp.listen(family, ()), 0, marked_request(family, number, size=inside)
        elif kind == "udp":
            sock, to = socket.socket(AF[family], socket.SOCK_DGRAM), port
            data = datagram(number, size=inside - _HEADER)
        else:
            sock, to = socket.socket(AF[family], socket.SOCK_RAW, socket.IPPROTO_TCP), 0
            data = syn(number, source=source, target=target, port=port)
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


def watch(
    pods: Pods,
    places: Iterable[str],
    wanted: Wanted,
    *,
    source: str,
    send: Callable[[], Sent],
    largest: int = 0,
    are_dropped: Callable[[], bool] = lambda: False,
) -> ProbesSeen:
    """Send the probes from a place and count them there and at the others, for a second if one is not answered.

    `largest` is the size of the largest probe in bytes, 0 if they have no size. Less time is due if all `are_dropped`.
    """
    counted, longest = ProbesSeen(), max(_QUOTING, largest + _AROUND) if largest else _LONGEST
    listen = partial(packetsocket.listen, room=_BUFFER, longest=longest, shown=_SHOWN)
    waiting = select.poll()
    with ExitStack() as held:
        sockets: dict[int, tuple[str, socket.socket]] = {}
        for place in dict.fromkeys([source, *places]):
            sock = held.enter_context(pods.run(place, listen))
            sockets[sock.fileno()] = place, sock
            waiting.register(sock, select.POLLIN)
        sent = pods.run(source, send)

        def take(place: str, sock: socket.socket) -> bool:
            return _take(place, sock, counted, wanted, all_macs=not pods.has(place))

        def read(seconds: float) -> None:
            for descriptor, _ in waiting.poll(1000 * seconds):
                take(*sockets[descriptor])

        while_awaited(read, lambda: len(counted.anywhere(source, "back")) == len(wanted.numbers), are_dropped)
        behind = sum(take(*each) for each in sockets.values())
        unread = behind + sum(packetsocket.dropped(sock) for _, sock in sockets.values())
    return replace(counted, unread=unread, sent=sent)


class Growth:
    """The kernel's counters in some places, from now on. `read` gives those of one, `hanging` what is on its links."""

    def __init__(
        self,
        places: Iterable[str],
        read: Callable[[str], Mapping[str, int]],
        hanging: Callable[[str], list[Hanging]],
    ) -> None:
        self._read = read
        self._hanging = hanging
        self._before = {place: read(place) for place in dict.fromkeys(places)}
        self._began = time.monotonic()

    def explain(self, seen: ProbesSeen, source: str, numbers: Collection[int]) -> None:
        """Note in `seen` what grew by the probes that were sent from there since, if some were not answered."""
        if len(seen.anywhere(source, "back")) < len(numbers):
            after, took = {place: self._read(place) for place in self._before}, time.monotonic() - self._began
            grown = {place: telling(difference(before, after[place])) for place, before in self._before.items()}
            seen.queues.update({place: queues_in(each) for place, each in grown.items()})
            without, waited = self._without(after, took) if any(grown.values()) else (grown, took)
            times = took / waited
            seen.grown.update({place: by_probes(each, without[place], times=times) for place, each in grown.items()})
            seen.on_links.update({place: self._hanging(place) for place in self._before})

    def _without(self, before: Mapping[str, Mapping[str, int]], took: float) -> tuple[dict[str, dict[str, int]], float]:
        """What grows in a while without probes, as long as with them if anything does; and the while."""
        without, waited = dict[str, dict[str, int]](), 0.0
        for seconds in (_WITHOUT, took - _WITHOUT):
            if not waited or (seconds > 0 and any(without.values())):
                time.sleep(seconds)
                waited += seconds
                without = {place: telling(difference(counted, self._read(place))) for place, counted in before.items()}
        return without, waited


class Filters:
    """What the packet filters of some places do with probes, from now on. A context manager.

    `listen` opens nftrace's socket in a place, and `tell` completes a ruling there.
    """

    def __init__(
        self,
        places: Iterable[str],
        listen: Callable[[str], socket.socket],
        tell: Callable[[str, Ruling], Ruling],
    ) -> None:
        self._tell = tell
        self._sockets = dict[str, socket.socket]()
        self._steps: dict[str, list[Step]] = defaultdict(list)
        with ExitStack() as held:
            for place in dict.fromkeys(places):
                with suppress(OSError):  # no nf_tables
                    self._sockets[place] = listen(place)
                    held.callback(nftrace.close, self._sockets[place])
            self._held = held.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def have_dropped(self, count: int) -> bool:
        """True if they have told of so many drops, of which one is the end of a probe."""
        return sum(each.count for found in self._dropped().values() for each in found if not each.asking) >= count

    def explain(self, seen: ProbesSeen) -> None:
        """Note in `seen` who dropped probes."""
        for place, found in self._dropped().items():
            seen.ruled[place] = [self._tell(place, each) for each in found]

    def _dropped(self) -> dict[str, list[Ruling]]:
        found = dict[str, list[Ruling]]()
        for place, sock in self._sockets.items():
            with suppress(OSError):  # more than were kept: what came is true
                self._steps[place] += nftrace.take(sock)
            if drops := dropped(self._steps[place], nftrace.tables(sock)):
                found[place] = drops
        return found


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


def while_awaited(
    read: Callable[[float], None], answered: Callable[[], bool], are_dropped: Callable[[], bool] = lambda: False
) -> None:
    """Call `read` with the seconds that it may wait, for a second or until shortly after no answer is awaited."""
    until, settled = time.monotonic() + _SECONDS, False
    while (left := until - time.monotonic()) > 0:
        read(min(left, _SLICE))
        if not settled and (rest := _REST if answered() else _REST_OF_DROPPED if are_dropped() else 0.0):
            until, settled = min(until, time.monotonic() + rest), True


def _take(place: str, sock: socket.socket, counted: ProbesSeen, wanted: Wanted, *, all_macs: bool) -> bool:
    """True if some are left. A pod takes no frame for the MAC of another, which a port of a bridge passes on."""
    try:
        for _ in range(_AT_ONCE):
            frame, (link, _, kind, *_) = sock.recvfrom(_SHOWN)
            if all_macs or kind != packetsocket.OTHERHOST:
                counted.note(place, link, frame, wanted)
    except OSError:  # nothing more, or a link went down
        return False
    return True
