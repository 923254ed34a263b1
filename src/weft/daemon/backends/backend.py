"""What a back end is to the daemon: the half that decides, and what of it is not the kernel's links and routes."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Protocol

from weft.cluster.store import TunnelKeys, no_keys
from weft.config.jsonfields import Fields
from weft.config.options import Options
from weft.daemon.planes.contract import Place, Plane, ServedPlane
from weft.desired import inputs
from weft.model.kernel.objects import Object
from weft.model.net import Net
from weft.model.value import Value


class Ground(Value):
    """What a preparation may use: flags, the instance's directory for what is kept, and the store's keys."""

    options: Options
    directory: Path
    keys: Callable[[], Awaitable[TunnelKeys | None]] = no_keys


class Preparation(Protocol):
    """Makes what a back end with these options needs before there is a lease, because the lease tells of it.

    With `look_only` nothing is run or written: for a plan. Raises `Unavailable` for what may go better later.
    """

    def __call__(self, chosen: Value, ground: Ground, /, *, look_only: bool = False) -> Awaitable[Value | None]:
        """Prepare."""
        ...


async def _nothing(_chosen: Value, _ground: Ground, /, *, look_only: bool = False) -> None:
    """Most back ends need nothing."""


class Removal(Protocol):
    """Removes what a back end has left, and returns where that was.

    `networks` returns those that are ours; it is called only if needed. With `wholly` it also removes what interrupts
    traffic for a moment.
    """

    def __call__(self, networks: Callable[[], Iterable[Net]], /, *, wholly: bool = False) -> Sequence[str]:
        """Remove it."""
        ...


class Left(Value):
    """What a back end has left: `ours` in words, what may be ours (`unknown`), and why the rest is not (`foreign`)."""

    ours: tuple[str, ...] = ()
    unknown: tuple[Object, ...] = ()
    foreign: tuple[str, ...] = ()


class Remains(Value):
    """What a back end leaves beside its links and routes; a daemon that runs it has claimed `device`.

    `look` finds it, by the networks that are ours.
    """

    device: str
    look: Callable[[Collection[Net]], Left]
    remove: Removal


class Backend(Value):
    """One back end.

    Code that only its own nodes need is imported when it is called. `remains` and `undo` are called at each start,
    whatever the node's back end, and must import nothing for that. `prepares_each_lease`: what it prepares depends on
    the own lease, and is prepared again for each that is taken. `planes` open what keeps its objects that are neither
    rtnetlink's nor rules, by a name for the log. `goes_on` names the process that serves pods without weftd. `undo`
    removes what no device is named for, once another back end serves the network.
    """

    desired: inputs.Backend
    prepare: Preparation = _nothing
    prepares_each_lease: bool = False
    planes: Mapping[str, Callable[[Place], ServedPlane]] = {}
    goes_on: str = ""
    remains: Remains | None = None
    undo: Callable[[Place], Awaitable[None]] | None = None

    @property
    def options(self) -> Callable[[Fields, Collection[int]], Any]:
        """Reads its options, for `parse_netconf`."""
        return self.desired.options

    def open_planes(self, place: Place, held: ExitStack) -> dict[str, Plane]:
        """Open its planes, by their names, until `held` ends."""
        return {name: held.enter_context(closing(opened(place))) for name, opened in self.planes.items()}
