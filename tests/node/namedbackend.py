"""A back end of a kind that weft has not: a device of another kind, and a process that serves it.

As a program: weftd with this back end beside its own. The device is an IFB, the process writes down what it is told.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from types import SimpleNamespace

from weft.config.jsonfields import Fields
from weft.daemon import main
from weft.daemon.backends import BACKENDS
from weft.daemon.backends.backend import Backend
from weft.daemon.planes.contract import Place
from weft.daemon.world import real
from weft.desired.claims import addresses
from weft.desired.inputs import Device, Inputs
from weft.model.errors import Failure
from weft.model.kernel.links import Link
from weft.model.kernel.objects import Address, KernelState, Key, Object, Objects, Ownership, Route
from weft.model.lease import Lease, LeaseAttrs
from weft.model.value import Value, put_in, replace
from weft.plan.diff import Put, Step

DEVICE = "relay0"


class RelayOptions(Value):
    """`Backend` of type relay."""

    word: str


class RelayLink(Link):
    """What packets go into."""

    kind = "ifb"


class Process(Object):
    """A process that runs with a word; another word is another process."""

    word: str

    rank = 6
    code_if_changed = "VTEP-004"

    def __post_init__(self) -> None:
        put_in(self, "key", ("process", DEVICE))

    def __str__(self) -> str:
        return f"process for {DEVICE} with {self.word}"

    def is_within(self, ownership: Ownership) -> bool:
        return DEVICE in ownership.devices


def options(fields: Fields, _families: Collection[int]) -> RelayOptions:
    return RelayOptions(word=fields.text("Word") or "none")


def check(_inputs: Inputs) -> None:
    """It runs anywhere."""


def devices(_inputs: Inputs) -> Sequence[Device]:
    return (Device(DEVICE, RelayLink, frozenset({4})),)


def mtu(inputs: Inputs) -> int:
    return inputs.facts.uplink.mtu - 28


def advertise(inputs: Inputs) -> LeaseAttrs:
    return LeaseAttrs(public_ip=inputs.facts.public_v4, backend="relay")


def shared(inputs: Inputs) -> KernelState:
    chosen = inputs.netconf.options
    assert isinstance(chosen, RelayOptions)
    own = frozenset(
        Address(dev=DEVICE, ip=net.network_address, prefixlen=32) for net in (inputs.v4,) if net is not None
    )
    return own | {RelayLink(name=DEVICE, mtu=mtu(inputs)), Process(word=chosen.word)}


def peer(_inputs: Inputs, lease: Lease) -> KernelState:
    return frozenset(Route(dst=net, dev=DEVICE) for net in lease.subnets)


RELAY = SimpleNamespace(
    LINKS=(RelayLink,),
    options=options,
    check=check,
    devices=devices,
    mtu=mtu,
    advertise=advertise,
    claims=addresses,
    shared=shared,
    peer=peer,
)


class Processes:
    """The plane that owns the process. It announces nothing: a look a second finds one that has died."""

    kinds = frozenset({"process"})
    sweep = 1.0
    announces = False
    blind = False
    counts: Mapping[str, int] = {}

    def __init__(self, _place: Place) -> None:
        self._running: dict[Key, tuple[Process, subprocess.Popen[bytes]]] = {}

    async def look(self, _known: Objects, _only: Collection[Key] | None, /) -> Objects:
        return {key: thing for key, (thing, process) in self._running.items() if process.poll() is None}

    async def apply(self, steps: Sequence[Step], /) -> list[Failure]:
        for step in steps:
            assert isinstance(step.object, Process)
            self.end(step.object.key)
            if isinstance(step, Put):
                command = [sys.executable, "-c", "import signal; signal.pause()", "relay", step.object.word]
                process = await asyncio.to_thread(subprocess.Popen, command)
                self._running[step.object.key] = step.object, process
        return []

    def end(self, key: Key) -> None:
        _, process = self._running.pop(key, (None, None))
        if process is not None:
            process.send_signal(signal.SIGKILL)
            process.wait()

    def close(self) -> None:
        for key in tuple(self._running):
            self.end(key)


if __name__ == "__main__":
    relay = Backend(desired=RELAY, planes={"processes": Processes})
    world = replace(real(), backends={**BACKENDS, "relay": relay})
    sys.exit(main.run(sys.argv[1:], os.environ, world))
