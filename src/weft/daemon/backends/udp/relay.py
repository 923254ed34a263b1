"""The plane of the relay: a process that carries packets, and what it knows of peers.

The process belongs to nobody: a daemon that starts finds the one of before, so no packet is lost. It ends with its
device. What it was started for it tells with its state, and one of another weft is replaced.
"""

import errno
import hashlib
import logging
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from ipaddress import IPv6Address, ip_address
from pathlib import Path

import msgspec

from weft.beside.threads import beside
from weft.daemon.planes.contract import Place
from weft.daemon.planes.serving import Children, ThreadPlane, attempt, wait_for_device
from weft.daemon.planes.traffic import Traffic
from weft.desired.backends.udp import DEVICE, Forward, Relay
from weft.forward import start
from weft.forward.build import PROGRAM
from weft.forward.control import PROTOCOL, SOCKET, Call, Change, State
from weft.kernel import tun
from weft.model.errors import Failure
from weft.model.kernel.objects import Key, Object, Objects
from weft.model.net import Ip, Net
from weft.model.value import Value
from weft.plan.diff import Put, Step

log = logging.getLogger(__name__)

_UNCONFINED = (
    "the kernel refuses to take from it the system calls that it does not need (seccomp). It relays without any"
    " capability all the same"
)


class _About(Value):
    """What a relay was started for, as it tells."""

    local: str
    port: int
    joined: bool
    own6: str | None
    program: str
    namespace: str  # one of another may answer: it outlives a node whose files are kept


class _Running(Value, frozen=False):
    """A relay that answers, and what it was told: `forwards` after so many changes (`generation`)."""

    call: Call
    relay: Relay
    generation: int
    forwards: dict[Net, Forward]


class RelayPlane(ThreadPlane):
    """The relay of `flannel0`. It announces nothing: a look a second finds one that has died."""

    kinds = frozenset({"relay", "forward"})
    sweep = 1.0

    def __init__(self, place: Place) -> None:
        self._socket = place.directory / SOCKET
        self._running: _Running | None = None
        self._children = Children()

    def close(self) -> None:
        """Leave the relay running: packets go on."""
        self._drop()

    async def traffic(self) -> Mapping[Key, Traffic]:
        """What the relay has carried for each peer. What the kernel path carries it does not see."""
        return await beside(self._traffic)

    def _traffic(self) -> dict[Key, Traffic]:
        call, running = Call.to(self._socket), self._running  # a connection of its own: a look may be under way
        if call is None:
            return {}
        with closing(call):
            peers = call.peers()
        if running is None:
            return {}
        keys = {each.via: each.key for each in [*running.forwards.values()]}  # one of a peer's subnets
        return {
            keys[peer]: Traffic(sent=sent, sent_bytes=sent_bytes, received=received, received_bytes=received_bytes)
            for peer, ((sent, sent_bytes), (received, received_bytes)) in peers.items()
            if peer in keys
        }

    def _look(self, _known: Objects, /) -> dict[Key, Object]:
        """See the relay and all its routes; these are asked for only if somebody else has changed them."""
        self._children.reap()
        running = self._found()
        if running is None or tun.is_unserved(DEVICE):
            return {}
        return {thing.key: thing for thing in (running.relay, *running.forwards.values())}

    def _found(self) -> _Running | None:
        """The relay as it is now, if it is one of ours."""
        with suppress(OSError):
            if self._running is None:
                self._running = _connect(self._socket)
            running = self._running
            if running is None:
                return None
            state = running.call.state()
            self.counts = _counts(state)
            if state.generation != running.generation:
                running.forwards = _forwards(running.call.routes())
                running.generation = state.generation
            return running
        self._drop()
        return None

    def _apply(self, steps: Sequence[Step]) -> list[Failure]:
        failures = []
        changes: list[Change] = []
        told: list[Step] = []
        for step in steps:
            thing = step.object
            if isinstance(thing, Relay):
                failures += attempt([step], self._end)
                if isinstance(step, Put):
                    failures += attempt([step], partial(self._start, thing))
            elif isinstance(thing, Forward):
                changes.append(Change(thing.dst, thing.via if isinstance(step, Put) else None))
                told.append(step)
        if changes:
            failures += attempt(told, lambda: self._tell(changes))
        return failures

    def _tell(self, changes: Sequence[Change]) -> None:
        running = self._found()
        if running is None:
            if all(change.peer is None for change in changes):
                return  # a relay that is gone knows nothing
            raise OSError(errno.ENOTCONN, "no relay runs")
        running.generation = running.call.change(changes)
        for change in changes:
            if change.peer is None:
                running.forwards.pop(change.network, None)
            else:
                running.forwards[change.network] = Forward(dev=DEVICE, dst=change.network, via=change.peer)

    def _start(self, wanted: Relay) -> None:
        """Start a relay and wait until it answers; it knows again what the one before knew."""
        known = self._running.forwards if self._running else {}
        wait_for_device(wanted.dev)
        job = start.Job(device=wanted.dev, local=wanted.local, port=wanted.port, joined=wanted.joined, own6=wanted.own6)
        about = msgspec.json.encode(_about(wanted)).decode()
        pid = start.start(job, about, PROGRAM.path, self._socket)
        self._children.add(pid)
        log.info("%s: started, process %d", wanted, pid)
        self._children.wait_for(pid, self._connect)
        if known:
            self._tell([Change(each.dst, each.via) for each in known.values()])

    def _end(self) -> None:
        """End the relay that is there, if it is another one than is wanted, and those that answer elsewhere or not."""
        call = Call.to(self._socket)
        if call is not None:
            with suppress(OSError):
                call.end()
            call.close()
        if self._running is not None:
            self._running.call.close()
        start.end_all()
        self._children.wait_for_end()

    def _drop(self) -> None:
        if self._running is not None:
            self._running.call.close()
        self._running = None

    def _connect(self) -> bool:
        """Find the relay that has just been started: it alone has the socket."""
        self._running = _connect(self._socket)
        return self._running is not None


def _connect(path: Path) -> _Running | None:
    """Find the relay of a socket; None if there is none, or one that this weft would not have started."""
    call = Call.to(path)
    if call is None:
        return None
    try:
        state = call.state()
        relay = _relay(state)
        if relay is not None:
            forwards = _forwards(call.routes())
            if not state.confined:
                log.warning("%s, process %d: %s", relay, state.pid, _UNCONFINED)
            return _Running(call=call, relay=relay, generation=state.generation, forwards=forwards)
    except OSError:
        pass
    call.close()
    return None


def _relay(state: State) -> Relay | None:
    if state.protocol != PROTOCOL:
        return None
    try:
        about = msgspec.json.decode(state.about, type=_About)
        own6 = None if about.own6 is None else IPv6Address(about.own6)
        relay = Relay(dev=DEVICE, local=ip_address(about.local), port=about.port, joined=about.joined, own6=own6)
    except (msgspec.MsgspecError, ValueError):
        return None
    return relay if about == _about(relay) else None


def _counts(state: State) -> dict[str, int]:
    """What a relay has counted since its start: packets, and of those that were dropped why."""
    dropped = {f"dropped, {why}": number for why, number in state.dropped.items() if number}
    return {"packets sent": state.sent[0], "packets received": state.received[0], **dropped}


def _about(relay: Relay) -> _About:
    own6 = None if relay.own6 is None else str(relay.own6)
    return _About(
        local=str(relay.local),
        port=relay.port,
        joined=relay.joined,
        own6=own6,
        program=_fingerprint(),
        namespace=start.namespace(),
    )


def _fingerprint() -> str:
    """What tells one build of the relay from another."""
    return hashlib.sha256(PROGRAM.path.read_bytes()).hexdigest()[:16]


def _forwards(routes: Mapping[Net, Ip]) -> dict[Net, Forward]:
    return {net: Forward(dev=DEVICE, dst=net, via=via) for net, via in routes.items()}
