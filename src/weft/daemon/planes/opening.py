"""The planes of back ends. Those with much code are imported when a network asks for them: a node has one back end."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Final

from weft.daemon.planes.commands import CommandsPlane
from weft.daemon.planes.contract import Plane
from weft.daemon.planes.place import Place

Open = Callable[[Place], AbstractContextManager[Plane]]


def _relay(place: Place) -> AbstractContextManager[Plane]:
    from weft.daemon.planes.relay import RelayPlane

    return RelayPlane.opened(place)


def _kernel_path(place: Place) -> AbstractContextManager[Plane]:
    from weft.daemon.planes.kernelpath import KernelPathPlane

    return KernelPathPlane.opened(place)


def _wireguard(place: Place) -> AbstractContextManager[Plane]:
    from weft.daemon.planes.wireguard import WireguardPlane

    return WireguardPlane.opened(place)


def _policies(place: Place) -> AbstractContextManager[Plane]:
    from weft.daemon.planes.policies import PoliciesPlane

    return PoliciesPlane.opened(place)


def _charon(place: Place) -> AbstractContextManager[Plane]:
    from weft.daemon.planes.charon import CharonPlane

    return CharonPlane.opened(place)


# By the back end's name, and by one for the log.
PLANES: Final[Mapping[str, Mapping[str, Open]]] = {
    "udp": {"relay": _relay, "kernelpath": _kernel_path},
    "wireguard": {"wireguard": _wireguard},
    "ipsec": {"policies": _policies, "charon": _charon},
    "extension": {"commands": CommandsPlane.opened},
}
