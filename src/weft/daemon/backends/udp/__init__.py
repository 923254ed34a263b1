"""udp, as the daemon runs it: a plane of the relay, one of the kernel's programs, and what these leave."""

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

from weft.beside.threads import beside
from weft.daemon.backends.backend import Backend, Ground, Left, Remains
from weft.daemon.planes.contract import Place, ServedPlane
from weft.desired.backends import udp
from weft.desired.backends.udp import DEVICE, UdpOptions, Ways
from weft.model.errors import ConfigError, Problem
from weft.model.net import Net
from weft.model.value import Value

log = logging.getLogger(__name__)


async def _ways(chosen: Value, _ground: Ground, /, *, look_only: bool = False) -> Ways:
    """Whether the kernel carries packets itself: it has taken the programs, as a trial.

    Raises `ConfigError` (HOST-002) if weft was built without its relay, which this back end cannot do without.
    """
    from weft.forward.build import PROGRAM

    if PROGRAM.built() is None:
        seen, hint = "this weft was built without its relay", f"Build it: {PROGRAM.hint}."
        raise ConfigError(Problem(code="HOST-002", where="back end udp", seen=seen, hint=hint))
    if not isinstance(chosen, UdpOptions) or not chosen.kernel_path:
        return Ways(in_kernel=False)
    from weft.forward import kernelpath

    why = await beside(lambda: kernelpath.missing(attach=not look_only))
    if not look_only:
        log.info("the kernel carries packets itself" if not why else f"a relay carries all packets: {why}")
    return Ways(in_kernel=not why)


def _relay(place: Place) -> ServedPlane:
    from weft.daemon.backends.udp.relay import RelayPlane

    return RelayPlane(place)


def _kernel_path(place: Place) -> ServedPlane:
    from weft.daemon.backends.udp.kernelpath import KernelPathPlane

    return KernelPathPlane(place)


def _look(_networks: Collection[Net]) -> Left:
    from weft.forward.kernelpath import present

    return Left(ours=tuple(f"programs of back end udp at {device}" for device in present()))


def _remove(_networks: Callable[[], Iterable[Net]], /, *, wholly: bool = False) -> Sequence[str]:
    from weft.forward.kernelpath import detach_all

    return detach_all(wholly=wholly)


UDP: Final = Backend(
    desired=udp,
    prepare=_ways,
    planes={"relay": _relay, "kernelpath": _kernel_path},
    goes_on="the relay of flannel0, which has the UDP port,",
    remains=Remains(device=DEVICE, look=_look, remove=_remove),
)
