"""The backends: how packets travel between nodes. A file each, and a line here; nothing registers itself."""

from collections.abc import Mapping
from typing import Final

from weft.desired.backends import alloc, extension, hostgw, ipip, ipsec, mesh, udp, vxlan, wireguard
from weft.desired.inputs import Backend

BACKENDS: Final[Mapping[str, Backend]] = {
    "vxlan": vxlan,
    "host-gw": hostgw,
    "ipip": ipip,
    "udp": udp,
    "wireguard": wireguard,
    "ipsec": ipsec,
    "alloc": alloc,
    "extension": extension,
    "mesh": mesh,
}
