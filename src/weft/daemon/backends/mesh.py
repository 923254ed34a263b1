"""mesh, as the daemon runs it: WireGuard with the key by which the mesh knows this node, where anything serves it."""

import logging
from typing import Final

from weft.beside.threads import beside
from weft.daemon.backends import wireguard
from weft.daemon.backends.backend import Backend, Ground
from weft.desired.backends import mesh
from weft.desired.backends.mesh.sealed import Keys, Prepared
from weft.model.errors import ConfigError, Problem
from weft.model.value import Value

log = logging.getLogger(__name__)


async def _prepare(_chosen: Value, ground: Ground, /, *, look_only: bool = False) -> Prepared:
    """Raises `ConfigError` for a mesh with a password where nothing can seal packets."""
    password, keys = bool(ground.options.password_file), await ground.keys()
    if keys is None:  # the store is another mesh
        return Prepared()
    by = await beside(wireguard.served_by)
    if by == "nothing":
        problem = Problem(
            code="VTEP-004",
            where="mesh",
            seen="the kernel has no WireGuard, and wireguard-go is not installed",
            hint="Load the module wireguard, or install wireguard-go: packets of pods are sealed by it",
        )
        if password:
            raise ConfigError(problem)
        if not look_only:
            log.info("%s; this node is reached by vxlan alone", problem.seen)
        return Prepared()
    if by == "process" and password and not look_only:
        log.warning("%s", wireguard.SLOW)
    return Prepared(password=password, keys=Keys(private=keys.private, psk=keys.psk, in_process=by == "process"))


MESH: Final = Backend(desired=mesh, prepare=_prepare, planes={"wireguard": wireguard.plane}, prepares_each_lease=True)
