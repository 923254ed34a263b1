"""The plane of WireGuard: keys, ports and peers of our devices, and where the kernel has none, what serves these.

WireGuard announces nothing, so all of it is looked at every ten seconds. A peer may be reached at another address than
its lease says, which it has proved by its key (behind NAT, as after a move): that stays while handshakes succeed.
"""

import errno
import logging
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final, Self

from weft.beside.threads import beside
from weft.daemon.backends.wireguard import inprocess
from weft.daemon.backends.wireguard.inkernel import InKernel
from weft.daemon.backends.wireguard.inprocess import InProcess
from weft.daemon.planes.contract import Place
from weft.daemon.planes.serving import Children, attempt, wait_for_device
from weft.daemon.planes.traffic import Traffic
from weft.desired.backends.wireguard import DEVICE, DEVICE_V6
from weft.desired.tunnels.wireguard import Device, LivePeer, Peer, Server, WireguardDevice, WireguardPeer
from weft.model.errors import Failure
from weft.model.kernel.objects import Key, Object, Objects
from weft.model.value import replace
from weft.plan.diff import Put, Step

log = logging.getLogger(__name__)

_DEVICES: Final = (DEVICE, DEVICE_V6)
_SESSION_SECONDS: Final = 180  # REJECT_AFTER_TIME: after that a handshake was needed, and there was none


class WireguardPlane:
    """Devices of both makers, which one namespace may have at a time."""

    kinds = frozenset({"wgserver", "wireguard", "wgpeer"})
    sweep = 10.0
    announces = False
    blind = False

    def __init__(self) -> None:
        self.counts: Mapping[str, int] = {}
        self._kernel: InKernel | None = None
        self._seen: Mapping[Key, LivePeer] = {}
        self._processes = InProcess()
        self._children = Children()

    @classmethod
    @contextmanager
    def opened(cls, _place: Place) -> Iterator[Self]:
        """Leaves all as it is at the end: packets go on."""
        made = cls()
        try:
            yield made
        finally:
            if made._kernel is not None:
                made._kernel.close()

    async def look(self, known: Objects, _only: Collection[Key] | None, /) -> dict[Key, Object]:
        """See all devices whole."""
        return await beside(partial(self._look, known))

    async def apply(self, steps: Sequence[Step], /) -> list[Failure]:
        """Carry out steps on a device, and those on its peers in one go."""
        return await beside(partial(self._apply, steps))

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

    def _look(self, known: Objects) -> dict[Key, Object]:
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
            found.update((thing.key, thing) for thing in (*own, *seen))
            peers += len(seen)
            sessions += sum(now - each.handshake < _SESSION_SECONDS for each in device.peers)
            by_key.update((thing.key, each) for thing, each in zip(seen, device.peers, strict=True))
        self._seen = by_key
        self.counts = {"peers": peers, "sessions": sessions}
        return found

    def _maker(self, name: str) -> InKernel | InProcess | None:
        """What has the device, or is to have it: the kernel, whose module may come any time, unless a process does."""
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
        peers: dict[str, list[Step]] = {}
        for step in steps:
            match step.object:
                case Server() as server if isinstance(step, Put):
                    failures += attempt([step], partial(self._serve, server))
                case WireguardDevice() as device if isinstance(step, Put):
                    failures += attempt([step], partial(self._set_device, device))
                case WireguardPeer() as peer:
                    peers.setdefault(peer.dev, []).append(step)
        for name, each in peers.items():
            failures += self._set_peers(name, each)
        return failures

    def _set_device(self, wanted: WireguardDevice) -> None:
        wait_for_device(wanted.dev)
        self._maker_now(wanted.dev).set_device(wanted.dev, private=wanted.private, port=wanted.port)

    def _set_peers(self, name: str, steps: Sequence[Step]) -> list[Failure]:
        """All at once, and if that is refused one by one: then one that cannot be costs no other."""
        try:
            self._maker_now(name).set_peers(name, dict(map(_change, steps)))
        except OSError:
            failed = (attempt([step], partial(self._set_peer, name, step)) for step in steps)
            return [failure for failures in failed for failure in failures]
        return []

    def _set_peer(self, name: str, step: Step) -> None:
        self._maker_now(name).set_peers(name, dict([_change(step)]))

    def _serve(self, wanted: Server) -> None:
        """Start the process for a device; it ends with its device."""
        wait_for_device(wanted.dev)
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
    """A peer as it is; one that has proved to be elsewhere than its lease says counts as it is wanted."""
    thing = WireguardPeer(dev=name, peer=seen.peer)
    wanted = known.get(thing.key)
    if isinstance(wanted, WireguardPeer) and now - seen.handshake < _SESSION_SECONDS:
        return wanted if replace(seen.peer, endpoint=wanted.peer.endpoint) == wanted.peer else thing
    return thing


def _change(step: Step) -> tuple[str, Peer | None]:
    if not isinstance(step.object, WireguardPeer):
        raise TypeError(f"no peer: {step}")
    return step.object.peer.key, step.object.peer if isinstance(step, Put) else None
