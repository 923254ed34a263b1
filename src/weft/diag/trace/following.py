"""Follows a packet by probes like it: sends them, counts them at links (packet(7)), and asks who lost those that miss.

This is the same on a node with its pods and in a lab; `Ground` is what tells the two apart.
"""

import select
import socket
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from functools import partial
from secrets import randbits
from typing import Final, Protocol

from weft.diag.sight.node import Hanging
from weft.diag.trace.grown import by_probes, difference, queues_in, telling
from weft.diag.trace.hops import Visit
from weft.diag.trace.probe_report import Following, LookAgain, TraceReport, proved
from weft.diag.trace.probes import Probe, ProbesSeen, Sent, Wanted, so_many
from weft.diag.trace.ruled import Ruling, dropped
from weft.kernel import packetsocket
from weft.kernel.netfilter import nftrace
from weft.model.kernel.nftrace import Step
from weft.model.value import replace

SHOWN: Final = 256  # bytes of each frame: a probe lies within, whatever it is wrapped in
_LONGEST: Final = 400  # bytes: a probe that has no size is short, and so is what answers it
_AROUND: Final = 100  # bytes: what a probe of some size may be wrapped in
_QUOTING: Final = 1300  # bytes: an error about a probe quotes much of it (RFC 1812 §4.3.2.3, RFC 4443 §3.2)
_AT_ONCE: Final = 1000  # frames of one socket, before the others get a turn
_SECONDS: Final = 1.0  # for the answers
_WITHOUT: Final = 0.3  # to see which counters grow without probes
_SLICE: Final = 0.05  # between looks at what rules have dropped
_REST_OF_DROPPED: Final = 0.2  # for an answer all the same: a copy of a probe may have been dropped
_REST: Final = 0.05  # for what is still on its way to other links when the last answer is seen

_Dropped = Callable[[], bool]  # whether all probes are known to be dropped


class Ground(Protocol):
    """Places with network namespaces, nodes and pods, in which a trace asks and does things by their names."""

    def is_pod(self, place: str) -> bool: ...

    def send(self, probe: Probe) -> Sent: ...

    def capture(self, place: str, link: str, longest: int) -> socket.socket:
        """Open a non-blocking packet socket on one link, or with "" on all, for frames of up to `longest` bytes."""
        ...

    def filtered(self, place: str, probe: Probe) -> socket.socket:
        """Have packet filters tell what they do with a probe. `OSError` without nf_tables."""
        ...

    def told(self, place: str, ruling: Ruling) -> Ruling:
        """Complete a ruling of the packet filter there."""
        ...

    def counters(self, place: str) -> Mapping[str, int]: ...

    def hanging(self, place: str) -> list[Hanging]: ...


def followed(ground: Ground, what: Following, visits: Sequence[Visit], look_again: LookAgain) -> TraceReport:
    """Say what became of the probes, beside the predicted `visits`."""
    probe = what.probe
    watched = list(dict.fromkeys([probe.source, *what.places]))
    with closing(Filters(ground, watched, probe)) as filters:
        growth = Growth(ground, watched)
        seen = _counted(ground, what, probe, what.places, partial(filters.have_dropped, len(probe.numbers)))
        filters.explain(seen)
        growth.explain(seen, probe)

    def of_sizes(sizes: Sequence[int]) -> tuple[Sequence[int], ProbesSeen]:
        tries = so_many(randbits(32), len(sizes))
        return tries, _counted(ground, what, replace(probe, numbers=tries, sizes=list(sizes)), what.ends)

    return proved(what, visits, seen, count=of_sizes, look_again=look_again)


def _counted(
    ground: Ground, what: Following, probe: Probe, places: Mapping[str, str], are_dropped: _Dropped = lambda: False
) -> ProbesSeen:
    """Send the probes, and count them for a second if one is not answered; for less if all `are_dropped`."""
    wanted = Wanted(kind=probe.kind, numbers=probe.numbers, ports=what.ports, chosen=what.chosen)
    counted, longest = ProbesSeen(), max(_QUOTING, max(probe.sizes) + _AROUND) if probe.sizes else _LONGEST
    waiting = select.poll()
    with ExitStack() as held:
        sockets: dict[int, tuple[str, socket.socket]] = {}
        for place, link in {probe.source: "", **places}.items():
            sock = held.enter_context(ground.capture(place, link, longest))
            sockets[sock.fileno()] = place, sock
            waiting.register(sock, select.POLLIN)
        sent = ground.send(probe)

        def take(place: str, sock: socket.socket) -> bool:
            return _take(place, sock, counted, wanted, all_macs=not ground.is_pod(place))

        def read(seconds: float) -> None:
            for descriptor, _ in waiting.poll(1000 * seconds):
                take(*sockets[descriptor])

        _while_awaited(read, lambda: len(counted.anywhere(probe.source, "back")) == len(probe.numbers), are_dropped)
        behind = sum(take(*each) for each in sockets.values())
        unread = behind + sum(packetsocket.dropped(sock) for _, sock in sockets.values())
    return replace(counted, unread=unread, sent=sent)


def _while_awaited(read: Callable[[float], None], answered: Callable[[], bool], are_dropped: _Dropped) -> None:
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
            # Python asks the socket's own namespace for the link's name.
            frame, (link, _, kind, *_) = sock.recvfrom(SHOWN)
            if all_macs or kind != packetsocket.OTHERHOST:
                counted.note(place, link, frame, wanted)
    except OSError:  # nothing more, or a link went down
        return False
    return True


class Growth:
    """The kernel's counters in some places, from now on."""

    def __init__(self, ground: Ground, places: Sequence[str]) -> None:
        self._ground = ground
        self._before = {place: ground.counters(place) for place in places}
        self._began = time.monotonic()

    def explain(self, seen: ProbesSeen, probe: Probe) -> None:
        """Note in `seen` what grew by probes that were sent since, if some were not answered."""
        if len(seen.anywhere(probe.source, "back")) < len(probe.numbers):
            after, took = self._now(), time.monotonic() - self._began
            grown = {place: telling(difference(before, after[place])) for place, before in self._before.items()}
            seen.queues.update({place: queues_in(each) for place, each in grown.items()})
            without, waited = self._without(after, took) if any(grown.values()) else (grown, took)
            times = took / waited
            seen.grown.update({place: by_probes(each, without[place], times=times) for place, each in grown.items()})
            seen.on_links.update({place: self._ground.hanging(place) for place in self._before})

    def _now(self) -> dict[str, Mapping[str, int]]:
        return {place: self._ground.counters(place) for place in self._before}

    def _without(self, before: Mapping[str, Mapping[str, int]], took: float) -> tuple[dict[str, dict[str, int]], float]:
        """What grows in a while without probes, as long as with them if anything does; and the while."""
        without, waited = dict[str, dict[str, int]](), 0.0
        for seconds in (_WITHOUT, took - _WITHOUT):
            if not waited or (seconds > 0 and any(without.values())):
                time.sleep(seconds)
                waited += seconds
                now = self._now()
                without = {place: telling(difference(counted, now[place])) for place, counted in before.items()}
        return without, waited


class Filters:
    """What the packet filters of some places do with a probe, from now on. `close` it."""

    def __init__(self, ground: Ground, places: Sequence[str], probe: Probe) -> None:
        self._ground = ground
        self._sockets = dict[str, socket.socket]()
        self._steps: dict[str, list[Step]] = defaultdict(list)
        with ExitStack() as held:
            for place in places:
                with suppress(OSError):  # no nf_tables
                    self._sockets[place] = ground.filtered(place, probe)
                    held.callback(nftrace.close, self._sockets[place])
            self._held = held.pop_all()

    def close(self) -> None:
        self._held.close()

    def have_dropped(self, count: int) -> bool:
        """True if they have told of so many drops, of which one is the end of a probe."""
        return sum(each.count for found in self._dropped().values() for each in found if not each.asking) >= count

    def explain(self, seen: ProbesSeen) -> None:
        """Note in `seen` who dropped probes."""
        for place, found in self._dropped().items():
            seen.ruled[place] = [self._ground.told(place, each) for each in found]

    def _dropped(self) -> dict[str, list[Ruling]]:
        found = dict[str, list[Ruling]]()
        for place, sock in self._sockets.items():
            with suppress(OSError):  # more than were kept: what came is true
                self._steps[place] += nftrace.take(sock)
            if drops := dropped(self._steps[place], nftrace.tables(sock)):
                found[place] = drops
        return found
