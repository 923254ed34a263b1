"""Messages about the VLANs of bridge ports: values to bytes and back (linux/if_bridge.h).

RTM_SETLINK of family AF_BRIDGE sets VLANs and RTM_DELLINK removes them; ranges are pairs of IFLA_BRIDGE_VLAN_INFO.
EOPNOTSUPP without CONFIG_BRIDGE_VLAN_FILTERING.
"""

from collections.abc import Iterable
from struct import Struct
from typing import Final

from weft.kernel.rtnetlink.attributes import attribute, fixed, nest, parse, parse_list, u16, u32
from weft.kernel.rtnetlink.link import IFLA_AF_SPEC, IFLA_EXT_MASK, RTM_DELLINK, RTM_GETLINK, RTM_SETLINK
from weft.kernel.rtnetlink.netlink import Message
from weft.model.kernel.reported import PortVlans

IFLA_BRIDGE_FLAGS: Final = 0
IFLA_BRIDGE_VLAN_INFO: Final = 2

BRIDGE_FLAGS_MASTER: Final = 1  # the bridge is meant, not the port's own driver
PVID: Final = 1 << 1
UNTAGGED: Final = 1 << 2
RANGE_BEGIN: Final = 1 << 3
RANGE_END: Final = 1 << 4

_AF_BRIDGE: Final = 7
_RTEXT_FILTER_BRVLAN_COMPRESSED: Final = 1 << 2
_FIRST_VLAN: Final = 1
_LAST_VLAN: Final = 4094
_IFINFOMSG: Final = Struct("=BxHiII")  # family, device type, index, flags, mask of flags to change
_VLAN_INFO: Final = Struct("=HH")  # flags, VLAN id


def add_own_vlan(index: int, vlan: int) -> Message:
    """The port's untagged frames belong to it (PVID) and leave untagged."""
    return _message(RTM_SETLINK, index, _info(vlan, PVID | UNTAGGED))


def add_tagged_vlans(index: int, vlans: Iterable[int]) -> Message:
    """At least one. Neighbouring ids travel as ranges."""
    infos = [
        _info(first, 0) if first == last else _info(first, RANGE_BEGIN) + _info(last, RANGE_END)
        for first, last in ranges(vlans)
    ]
    return _message(RTM_SETLINK, index, *infos)


def delete_vlans(index: int) -> Message:
    """No error if there are none."""
    return _message(RTM_DELLINK, index, _info(_FIRST_VLAN, RANGE_BEGIN) + _info(_LAST_VLAN, RANGE_END))


def list_vlans() -> tuple[int, bytes]:
    return RTM_GETLINK, _IFINFOMSG.pack(_AF_BRIDGE, 0, 0, 0, 0) + u32(IFLA_EXT_MASK, _RTEXT_FILTER_BRVLAN_COMPRESSED)


def parse_vlans(body: bytes) -> PortVlans:
    """Raises `Malformed`."""
    _, _, index, _, _ = fixed(_IFINFOMSG, body)
    own = 0
    untagged: set[int] = set()
    tagged: set[int] = set()
    first = 0
    for kind, value in parse_list(parse(body, _IFINFOMSG.size).get(IFLA_AF_SPEC, b"")):
        if kind != IFLA_BRIDGE_VLAN_INFO:
            continue
        flags, vlan = fixed(_VLAN_INFO, value)
        if flags & RANGE_BEGIN:
            first = vlan
            continue
        own = vlan if flags & PVID else own
        ids = range(first if flags & RANGE_END else vlan, vlan + 1)
        (untagged if flags & UNTAGGED else tagged).update(ids)
    return PortVlans(index=index, own=own, untagged=frozenset(untagged), tagged=frozenset(tagged))


def ranges(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Runs of neighbouring numbers as (first, last), in order."""
    runs: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if runs and runs[-1][1] == number - 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs


def _message(kind: int, index: int, *infos: bytes) -> Message:
    spec = nest(IFLA_AF_SPEC, u16(IFLA_BRIDGE_FLAGS, BRIDGE_FLAGS_MASTER), *infos)
    return Message(kind, 0, _IFINFOMSG.pack(_AF_BRIDGE, 0, index, 0, 0) + spec)


def _info(vlan: int, flags: int) -> bytes:
    return attribute(IFLA_BRIDGE_VLAN_INFO, _VLAN_INFO.pack(flags, vlan))
