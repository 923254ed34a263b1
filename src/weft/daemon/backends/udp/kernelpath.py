"""The plane of the kernel path: programs that carry packets of back end udp past the relay.

They stay when the daemon ends, so no packet is lost; one that starts puts others in their place, which know the same
peers at once. Nothing announces that one was taken away: a look a second finds it, and until then the relay carries all
packets.
"""

import errno
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from ipaddress import IPv4Address, IPv4Network
from typing import Final

from weft.daemon.planes.contract import Place
from weft.daemon.planes.serving import ThreadPlane, attempt, wait_for_device
from weft.desired.backends.udp import DEVICE, KernelForward, KernelPath
from weft.forward.kernelpath import Forward, Job, Programs, detach_all, present
from weft.model.errors import Failure
from weft.model.kernel.objects import Key, Object, Objects
from weft.plan.diff import Put, Step

log = logging.getLogger(__name__)

# What is attached in part, or by another build, counts as a path that nobody wants so.
_BROKEN: Final = KernelPath(dev=DEVICE, uplink="", local=IPv4Address(0), port=0)


class KernelPathPlane(ThreadPlane):
    """The programs of `flannel0` and of the uplink."""

    kinds = frozenset({"kernelpath", "kernelforward"})
    sweep = 1.0

    def __init__(self, _place: Place) -> None:
        self._programs: Programs | None = None
        self._known: dict[IPv4Network, Forward] = {}  # by the programs: nothing else changes that

    def close(self) -> None:
        """Leave the programs attached: packets go on."""
        self._hold(None)

    def _look(self, _known: Objects, /) -> dict[Key, Object]:
        self._hold(self._found())
        if self._programs is None:
            self.counts = {}
            return {_BROKEN.key: _BROKEN} if present() else {}
        self.counts = {f"packets {name}": number for name, number in self._programs.packets().items()}
        job = self._programs.job
        path = KernelPath(dev=job.device, uplink=job.uplink, local=job.local, port=job.port)
        forwards = (_forward(network, each) for network, each in self._known.items())
        return {thing.key: thing for thing in (path, *forwards)}

    def _found(self) -> Programs | None:
        """The programs as they are: those that this daemon attached, or has the right to look at (CAP_SYS_ADMIN)."""
        if self._programs is not None and self._programs.is_attached():
            return self._programs
        with suppress(PermissionError):
            return Programs.find(DEVICE)
        return None

    def _apply(self, steps: Sequence[Step]) -> list[Failure]:
        changes = _changes(steps)
        failures: list[Failure] = []
        for step in steps:
            if isinstance(step.object, KernelPath):
                work = partial(self._attach, step.object, changes) if isinstance(step, Put) else self._detach
                failures += attempt([step], work)
        told = [step for step in steps if isinstance(step.object, KernelForward)]
        return failures + attempt(told, lambda: self._tell(changes))

    def _attach(self, wanted: KernelPath, changes: Mapping[IPv4Network, Forward | None]) -> None:
        """Attach programs that know at once what those before them knew, and what is to change."""
        wait_for_device(wanted.dev)
        job = Job(device=wanted.dev, uplink=wanted.uplink, local=wanted.local, port=wanted.port)
        known = {network: each for network, each in {**self._known, **changes}.items() if each is not None}
        programs = Programs.attach(job, known)
        self._hold(programs)
        log.info("%s: attached", wanted)
        for behind in programs.behind:
            log.warning("%s: %s", wanted, behind)

    def _detach(self) -> None:
        self._hold(None)
        detach_all()

    def _tell(self, changes: Mapping[IPv4Network, Forward | None]) -> None:
        if self._programs is not None:
            self._programs.change(changes)
            for network, forward in changes.items():
                self._known.pop(network, None)
                if forward is not None:
                    self._known[network] = forward
        elif any(changes.values()):
            raise OSError(errno.ENOTCONN, "no programs are attached")  # and those that are gone know nothing

    def _hold(self, programs: Programs | None) -> None:
        if programs is self._programs:
            return
        if self._programs is not None:
            self._programs.close()
        self._programs = programs
        self._known = {} if programs is None else programs.forwards()


def _changes(steps: Sequence[Step]) -> dict[IPv4Network, Forward | None]:
    changes: dict[IPv4Network, Forward | None] = {}
    for step in steps:
        thing = step.object
        if isinstance(thing, KernelForward):
            changes[thing.dst] = Forward(thing.via, thing.sends) if isinstance(step, Put) else None
    return changes


def _forward(network: IPv4Network, seen: Forward) -> KernelForward:
    return KernelForward(dev=DEVICE, dst=network, via=seen.via, sends=seen.kernel)
