"""wireguard, as the daemon runs it: this node's key, and a plane of the kernel's devices or of wireguard-go's."""

import logging
from pathlib import Path
from typing import Final, Literal

from weft.beside.threads import beside
from weft.daemon.backends.backend import Backend, Ground
from weft.daemon.planes.contract import Place, ServedPlane
from weft.desired.backends import wireguard
from weft.desired.backends.wireguard import Keys
from weft.model.value import Value

log = logging.getLogger(__name__)

SLOW: Final = "the kernel has no WireGuard: wireguard-go serves it, at a fraction of the speed"


async def _keys(_chosen: Value, ground: Ground, /, *, look_only: bool = False) -> Keys:
    """This node's key, made if there is none, and whether the kernel has WireGuard."""
    from weft.daemon.backends.wireguard import keys

    file = ground.options.wireguard_key_file
    private = await beside(
        lambda: keys.given(Path(file), look_only=look_only) if file else keys.own(ground.directory, look_only=look_only)
    )
    in_process = await beside(served_by) == "process"
    if in_process:
        log.warning("%s", SLOW)
    return Keys(private=private, public=keys.public(private), in_process=in_process)


def served_by() -> Literal["kernel", "process", "nothing"]:
    """What is to serve devices: a process where the kernel cannot, and the program is there."""
    from weft.daemon.backends.wireguard import inprocess
    from weft.daemon.backends.wireguard.inkernel import InKernel

    kernel = InKernel.open()
    if kernel is not None:
        kernel.close()
        return "kernel"
    return "process" if inprocess.installed() else "nothing"


def plane(place: Place) -> ServedPlane:
    from weft.daemon.backends.wireguard.plane import WireguardPlane

    return WireguardPlane(place)


WIREGUARD: Final = Backend(desired=wireguard, prepare=_keys, planes={"wireguard": plane})
