"""The back ends as the daemon runs them: a folder for each that has more than what it decides, and a line here."""

from collections.abc import Mapping
from typing import Final

from weft.daemon.backends.backend import Backend
from weft.daemon.backends.extension import EXTENSION
from weft.daemon.backends.ipsec import IPSEC
from weft.daemon.backends.mesh import MESH
from weft.daemon.backends.udp import UDP
from weft.daemon.backends.wireguard import WIREGUARD
from weft.desired import backends

BACKENDS: Final[Mapping[str, Backend]] = {
    **{name: Backend(desired=desired) for name, desired in backends.BACKENDS.items()},
    "udp": UDP,
    "wireguard": WIREGUARD,
    "ipsec": IPSEC,
    "extension": EXTENSION,
    "mesh": MESH,
}
