"""ipsec, as the daemon runs it: a plane of charon, one of the kernel's policies, and what these leave.

Policies bear no mark of ours, and flanneld's have the same form: only those within networks of ours are ours.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

from weft.beside.threads import beside
from weft.daemon.backends.backend import Backend, Ground, Left, Remains
from weft.daemon.backends.ipsec import policies, process
from weft.daemon.planes.contract import Place, ServedPlane
from weft.desired.backends import ipsec
from weft.desired.backends.ipsec import Esp
from weft.desired.backends.ipsec.objects import DEVICE, Policy
from weft.model.errors import ConfigError, Problem, Unavailable
from weft.model.kernel.objects import Ownership
from weft.model.net import Net
from weft.model.value import Value

log = logging.getLogger(__name__)


async def _esp(_chosen: Value, ground: Ground, /, *, look_only: bool = False) -> Esp:
    """Whether the kernel has ESP: it has taken a state, as a trial.

    Raises `ConfigError` for a directory whose path leaves no room for charon's socket.
    """
    from weft.daemon.backends.ipsec.talk import LONGEST_PATH

    path = ground.directory / process.SOCKET
    if len(bytes(path)) > LONGEST_PATH:
        seen, expected = f"{len(bytes(path))} bytes in {path}", f"{LONGEST_PATH} at most, for a socket of charon's"
        raise ConfigError(Problem(code="FLAG-001", where="--state-dir", seen=seen, expected=expected))
    try:
        why = await beside(policies.missing)
    except OSError as error:
        seen = error.strerror or str(error)
        raise Unavailable(Problem(code="VTEP-002", where="IPsec in the kernel", seen=seen)) from None
    if not look_only:
        if why:
            log.warning("the kernel has no ESP (%s): charon carries packets itself, at a fraction of the speed", why)
        else:
            log.info("the kernel encrypts; charon agrees on keys")
    return Esp(in_kernel=not why)


def _charon(place: Place) -> ServedPlane:
    from weft.daemon.backends.ipsec.charon import CharonPlane

    return CharonPlane(place)


def _look(networks: Collection[Net]) -> Left:
    """Find which charons of ours run, and judge all policies of our form. Raises `OSError`."""
    charons = tuple(f"charon, process {pid}" for pid in process.running())
    return judged(policies.present(), networks, charons)


def judged(found: Collection[Policy], networks: Collection[Net], charons: tuple[str, ...] = ()) -> Left:
    """Tell which policies are ours; without a network of ours nobody knows."""
    ownership = Ownership(devices=frozenset({DEVICE}), networks=tuple(networks))
    ours, others = list[Policy](), list[Policy]()
    for policy in found:
        (ours if policy.is_within(ownership) else others).append(policy)
    named = (*charons, *map(str, ours))
    if not networks:
        return Left(ours=named, unknown=tuple(others))
    why = f"it is not between subnets of {', '.join(map(str, networks))}"
    return Left(ours=named, foreign=tuple(f"{policy}: {why}" for policy in others))


def _remove(networks: Callable[[], Iterable[Net]], /, *, wholly: bool = False) -> Sequence[str]:  # noqa: ARG001 - nothing is left
    """End charon, remove the policies within `networks`, and say where there were any. Raises `OSError`."""
    found = ["the processes"] if process.end_all() else []
    return [*found, *(["the kernel's IPsec policies"] if policies.remove(networks) else [])]


IPSEC: Final = Backend(
    desired=ipsec,
    prepare=_esp,
    planes={"policies": policies.PoliciesPlane, "charon": _charon},
    goes_on="strongSwan's charon",
    remains=Remains(device=DEVICE, look=_look, remove=_remove),
)
