"""What a node takes from outside, passed in by `main`: time, chance, where to report, and what it is made of."""

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from weft.cluster.store import Means, StoreKind
from weft.config.options import Options
from weft.daemon.backends import BACKENDS
from weft.daemon.backends.backend import Backend
from weft.daemon.disk import instance
from weft.daemon.process.rights import Modules
from weft.daemon.stores import BY_FLAGS
from weft.model.node.history import History
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
    `backends` are those that a network may ask for. `store` holds the leases. `modules` may load the kernel's modules.
    """

    now: Callable[[], float]
    monotonic: Callable[[], float]
    unix: Callable[[], float]
    boot: str
    random: Callable[[int], bytes]
    backends: Mapping[str, Backend]
    store: StoreKind
    modules: Modules
    notify_socket: str = ""

    def directory(self, options: Options) -> Path:
        return instance.directory(Path(options.state_dir), options.subnet_file, self.store.identity(options))

    def means(self, options: Options, history: History) -> Means:
        """For the store."""
        own = self.directory(options) / "store"
        return Means(directory=own, now=self.now, random=self.random, history=history)

    def moment(self) -> Moment:
        return Moment(unix=self.unix(), now=self.now(), boot=self.boot)


def real(notify_socket: str = "") -> World:
    return World(
        now=lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
        monotonic=time.monotonic,
        unix=time.time,
        boot=_BOOT_ID.read_text().strip(),
        random=os.urandom,
        backends=BACKENDS,
        store=BY_FLAGS,
        modules=Modules(),
        notify_socket=notify_socket,
    )
