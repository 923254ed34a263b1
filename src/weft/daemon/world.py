"""What a node takes from outside, passed in by `main`: time, chance, where to report, and what it is made of."""

import os
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Final

from weft.cluster.store import StoreKind
from weft.config.netconf import NetConf
from weft.config.options import Options
from weft.daemon.planes import commands, opening
from weft.daemon.planes.contract import Plane
from weft.daemon.planes.place import Place
from weft.daemon.preparing import PREPARATIONS, Preparation
from weft.daemon.process.modules import Modules
from weft.daemon.stores import BY_FLAGS
from weft.desired.backends import BACKENDS, udp
from weft.desired.inputs import Backend
from weft.forward import hooks
from weft.kernel.charon import remains as ipsecremains
from weft.model.kernel import ipsec
from weft.model.net import Net
from weft.model.value import Value

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class Moment(Value):
    """A point in time by the clock that people set (`unix`, Unix time) and by that of the boot `boot` (`now`)."""

    unix: float
    now: float
    boot: str


class World(Value):
    """`now` and `monotonic` only go forward and cannot be set; `now` goes on while the machine sleeps. In seconds.

    `unix` is Unix time, which may jump: only for what must be compared across boots. `random(n)` gives n bytes.
    `backends` are those that a network may ask for; what some need before there is a lease, `preparations` make, by the
    back end's name. `planes` open what keeps its objects that are neither rtnetlink's nor rules, by the back end's name
    and one for the log. `remains` remove what a back end leaves beside its device, which it is named by, and say where;
    they are told how to find the networks that are ours. What a back end has done that no device is named for, `undo`
    undoes once another one has its place.
    `store` holds the leases. `modules` may load the kernel's modules.
    """

    now: Callable[[], float]
    monotonic: Callable[[], float]
    unix: Callable[[], float]
    boot: str
    random: Callable[[int], bytes]
    backends: Mapping[str, Backend]
    preparations: Mapping[str, Preparation]
    planes: Mapping[str, Mapping[str, Callable[[Place], AbstractContextManager[Plane]]]]
    remains: Mapping[str, Callable[[Callable[[], Iterable[Net]]], Sequence[str]]]
    undo: Mapping[str, Callable[[Place], Awaitable[None]]]
    store: StoreKind
    modules: Modules
    notify_socket: str = ""

    async def prepare(
        self, netconf: NetConf, options: Options, directory: Path, *, look_only: bool = False
    ) -> Value | None:
        """What the network's back end needs before there is a lease, None for most. Raises `Unavailable`."""
        prepare = self.preparations.get(netconf.backend)
        return None if prepare is None else await prepare(netconf.options, options, directory, look_only=look_only)

    def open_planes(self, backend: str, directory: Path, held: ExitStack) -> dict[str, Plane]:
        """Open a back end's own planes for the instance with this directory, by their names, until `held` ends."""
        place = Place(directory=directory, boot=self.boot)
        return {name: held.enter_context(opened(place)) for name, opened in self.planes.get(backend, {}).items()}

    def moment(self) -> Moment:
        """Now, in a form that can be written down."""
        return Moment(unix=self.unix(), now=self.now(), boot=self.boot)


def real(notify_socket: str = "") -> World:
    """The machine's own clocks and chance."""
    return World(
        now=lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
        monotonic=time.monotonic,
        unix=time.time,
        boot=_BOOT_ID.read_text().strip(),
        random=os.urandom,
        backends=BACKENDS,
        preparations=PREPARATIONS,
        planes=opening.PLANES,
        remains={udp.DEVICE: lambda _: hooks.detach_all(), ipsec.DEVICE: ipsecremains.remove},
        undo={"extension": commands.undo},
        store=BY_FLAGS,
        modules=Modules(),
        notify_socket=notify_socket,
    )
