"""The plane of WireGuard: keys, ports and peers of our devices, and where the kernel has none, what serves these.

WireGuard announces nothing, so all of it is looked at every ten seconds. A peer may be reached at another address than
its lease says, which it has proved by its key (behind NAT, as after a move): that stays while handshakes succeed.
"""

import errno
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from threading import Lock
from typing import Final

from weft.beside.threads import beside
from weft.daemon.backends.wireguard import inprocess
from weft.daemon.backends.wireguard.inkernel import InKernel
from weft.daemon.backends.wireguard.inprocess import InProcess
from weft.daemon.planes.contract import Place
from weft.daemon.planes.serving import Children, ThreadPlane, attempt, wait_for_device
from weft.daemon.planes.traffic import Traffic
from weft.desired.tunnels.wireguard import (
    DEVICE,
    DEVICE_V6,
    Change,
    Device,
    LivePeer,
    Server,
    WireguardDevice,
    WireguardPeer,
    WireguardRoute,
)
from weft.model.errors import Failure
from weft.model.kernel.objects import Key, Object, Objects
from weft.model.net import Net
from weft.model.value import replace
from weft.plan.diff import Put, Step

log = logging.getLogger(__name__)

_DEVICES: Final = (DEVICE, DEVICE_V6)
_SESSION_SECONDS: Final = 180  # REJECT_AFTER_TIME: after that a handshake was needed, and there was none


class WireguardPlane(ThreadPlane):
    """Devices of both makers, which one namespace may have at a time."""

    kinds = frozenset({"wgserver", "wireguard", "wgpeer", "wgroute"})
    sweep = 10.0

    def __init__(self, _place: Place) -> None:
        self._kernel: InKernel | None = None
        self._other: InKernel | None = None  # for `tunnels`, which waits for no look
        self._asking = Lock()
        self._seen: Mapping[Key, LivePeer] = {}
        self._processes = InProcess()
        self._children = Children()

    def close(self) -> None:
        """Leave all as it is: packets go on."""
        for kernel in (self._kernel, self._other):
            if kernel is not None:
                kernel.close()

    async def tunnels(self) -> Mapping[str, LivePeer]:
        """See the peers of the device that a mesh has; a look may be under way meanwhile."""
        return await beside(self._tunnels)

    def _tunnels(self) -> Mapping[str, LivePeer]:
        with self._asking:
            if self._processes.process(DEVICE):
                device = self._processes.device(DEVICE)
            else:
                self._other = self._other or InKernel.open()
                device = None if self._other is None else self._other.device(DEVICE)
        return {} if device is None else {each.peer.key: each for each in device.peers}

    async def traffic(self) -> Mapping[Key, Traffic]:
        """When each peer proved itself last, and bytes, as of the latest look."""
        now = time.time()
        return {
            key: Traffic(
                sent_bytes=each.sent,
                received_bytes=each.received,
                heard=round(now - each.handshake, 1) if each.handshake else None,
            )
            for key, each in self._seen.items()
        }

    def _look(self, known: Objects, /) -> dict[Key, Object]:
        self._children.reap()
        found: dict[Key, Object] = {}
        peers = sessions = 0
        by_key: dict[Key, LivePeer] = {}
        now = int(time.time())
        for name in _DEVICES:
            maker = self._maker(name)
            device = None if maker is None else maker.device(name)
            if device is None:
                continue
            seen = [_peer(name, each, known, now) for each in device.peers]
            own = _own(name, device, served=maker is self._processes)
            found.update((thing.key, thing) for thing in (*own, *seen, *_routes(name, device, known)))
            peers += len(seen)
            sessions += sum(now - each.handshake < _SESSION_SECONDS for each in device.peers)
            by_key.update((thing.key, each) for thing, each in zip(seen, device.peers, strict=True))
        self._seen = by_key
        self.counts = {"peers": peers, "sessions": sessions}
        return found

    def _maker(self, name: str) -> InKernel | InProcess | None:
        """What serves a device, or will.

        That is a process if there is one, else the kernel, whose module may be loaded at any time.
        """
        if self._processes.process(name):
            return self._processes
        self._kernel = self._kernel or InKernel.open()
        return self._kernel

    def _maker_now(self, name: str) -> InKernel | InProcess:
        """The same; `OSError` while there is none."""
        maker = self._maker(name)
        if maker is None:
            raise OSError(errno.EOPNOTSUPP, "neither the kernel nor a process has it")
        return maker

    def _apply(self, steps: Sequence[Step]) -> list[Failure]:
        failures: list[Failure] = []
        peers: dict[str, dict[str, list[Step]]] = {}  # by device and key
        for step in steps:
            match step.object:
                case Server() as server if isinstance(step, Put):
                    failures += attempt([step], partial(self._serve, server))
                case WireguardDevice() as device if isinstance(step, Put):
                    failures += attempt([step], partial(self._set_device, device))
                case WireguardPeer(dev=name, peer=peer):
                    peers.setdefault(name, {}).setdefault(peer.key, []).append(step)
                case WireguardRoute(dev=name, peer=key):
                    peers.setdefault(name, {}).setdefault(key, []).append(step)
        for name, steps_on in peers.items():
            failures += self._set_peers(name, steps_on)
        return failures

    def _set_device(self, wanted: WireguardDevice) -> None:
        wait_for_device(wanted.dev)
        self._maker_now(wanted.dev).set_device(wanted.dev, private=wanted.private, port=wanted.port)

    def _set_peers(self, name: str, steps: Mapping[str, Sequence[Step]]) -> list[Failure]:
        """All at once, and if that is refused peer by peer: then one that cannot be costs no other."""
        try:
            self._change(name, steps)
        except OSError:
            failed = (attempt(each, partial(self._change, name, {key: each})) for key, each in steps.items())
            return [failure for failures in failed for failure in failures]
        return []

    def _change(self, name: str, steps: Mapping[str, Sequence[Step]]) -> None:
        """A network can be added to a peer's, but to remove one the whole of them has to be set."""
        maker = self._maker_now(name)
        device = maker.device(name) if any(map(_narrows, steps.values())) else None
        keeps = {} if device is None else {each.peer.key: each.networks for each in device.peers}
        changes = {key: _change(each, keeps.get(key, frozenset())) for key, each in steps.items()}
        maker.set_peers(name, changes)

    def _serve(self, wanted: Server) -> None:
        """Start the process for a device; it ends with its device."""
        wait_for_device(wanted.dev, one_queue=True)
        pid = inprocess.start(wanted.dev)
        self._children.add(pid)
        log.info("%s: started, process %d", wanted, pid)
        self._children.wait_for(pid, lambda: bool(self._processes.process(wanted.dev)))


def _own(name: str, device: Device, *, served: bool) -> Iterator[Object]:
    if served:
        yield Server(dev=name)
    if device.private is not None:
        yield WireguardDevice(dev=name, private=device.private, port=device.port)


def _peer(name: str, seen: LivePeer, known: Objects, now: int) -> WireguardPeer:
    """A peer as it is; one that has proved to be elsewhere than its lease says counts as it is wanted.

    So does one that is being made: the address that it had before cannot be taken away, and does no harm.
    """
    thing = WireguardPeer(dev=name, peer=seen.peer)
    wanted = known.get(thing.key)
    if not isinstance(wanted, WireguardPeer):
        return thing
    if wanted.peer.endpoint is None or now - seen.handshake < _SESSION_SECONDS:
        return wanted if replace(seen.peer, endpoint=wanted.peer.endpoint) == wanted.peer else thing
    return thing


def _routes(name: str, device: Device, known: Objects) -> Iterator[Object]:
    """What is known so is not copied."""
    for each in device.peers:
        for net in each.networks:
            thing = WireguardRoute(dev=name, net=net, peer=each.peer.key)
            wanted = known.get(thing.key)
            yield wanted if wanted is not None and wanted == thing else thing


def _narrows(steps: Sequence[Step]) -> bool:
    """Tell whether a peer stays that loses a network."""
    removed = {type(step.object) for step in steps if not isinstance(step, Put)}
    return removed == {WireguardRoute}


def _change(steps: Sequence[Step], keeps: frozenset[Net]) -> Change:
    """What becomes of a peer that has the networks `keeps`, where steps remove any."""
    peer, gets, loses = None, set[Net](), set[Net]()
    for step in steps:
        match step.object:
            case WireguardRoute(net=net):
                (gets if isinstance(step, Put) else loses).add(net)
            case WireguardPeer() as wanted:
                if not isinstance(step, Put):
                    return Change(gone=True)
                peer = wanted.peer
    if not loses:
        return Change(peer=peer, networks=frozenset(gets))
    return Change(peer=peer, networks=keeps - loses | gets, alone=True)
