"""Messages about ports of bridges and their VLANs: values to bytes and back (linux/if_bridge.h).

Messages about VLANs get EOPNOTSUPP from a kernel without CONFIG_BRIDGE_VLAN_FILTERING. Readers raise `Malformed`.
"""

from collections.abc import Iterable
from struct import Struct
from typing import Final

from weft.kernel.rtnetlink.attributes import attribute, fixed, nest, parse, parse_list, u8, u16, u32
from weft.kernel.rtnetlink.link import (
    IFINFOMSG,
    IFLA_AF_SPEC,
    IFLA_BRPORT_ISOLATED,
    IFLA_BRPORT_MODE,
    IFLA_EXT_MASK,
    IFLA_PROTINFO,
    RTM_DELLINK,
    RTM_GETLINK,
    RTM_SETLINK,
    header,
)
from weft.kernel.rtnetlink.netlink import Message
from weft.model.kernel.reported import PortVlans

_IFLA_BRIDGE_FLAGS: Final = 0
_IFLA_BRIDGE_VLAN_INFO: Final = 2

_BRIDGE_FLAGS_MASTER: Final = 1  # the bridge is meant, not the port's own driver
_PVID: Final = 1 << 1
_UNTAGGED: Final = 1 << 2
_RANGE_BEGIN: Final = 1 << 3
_RANGE_END: Final = 1 << 4
_AF_BRIDGE: Final = 7
_RTEXT_FILTER_BRVLAN_COMPRESSED: Final = 1 << 2
_FIRST_VLAN: Final = 1
_LAST_VLAN: Final = 4094
_VLAN_INFO: Final = Struct("=HH")  # flags, VLAN id


def set_port(index: int, *, hairpin: bool | None, isolated: bool | None) -> Message:
    """None leaves a setting as it is.

    By IFLA_INFO_SLAVE_DATA the kernel would take the link's state to have changed, and walk all IPv6 routes: 0.2 ms on
    a bridge with 1,000 ports.
    """
    data = b"" if hairpin is None else u8(IFLA_BRPORT_MODE, hairpin)
    data += b"" if isolated is None else u8(IFLA_BRPORT_ISOLATED, isolated)
    return Message(RTM_SETLINK, 0, header(index, family=_AF_BRIDGE) + nest(IFLA_PROTINFO, data))


def add_own_vlan(index: int, vlan: int) -> Message:
    """The port's untagged frames belong to it (_PVID) and leave untagged."""
    return _vlans(RTM_SETLINK, index, _vlan(vlan, _PVID | _UNTAGGED))


def add_tagged_vlans(index: int, vlans: Iterable[int]) -> Message:
    """At least one. Neighbouring ids travel as ranges."""
    infos = [
        _vlan(first, 0) if first == last else _vlan(first, _RANGE_BEGIN) + _vlan(last, _RANGE_END)
        for first, last in ranges(vlans)
    ]
    return _vlans(RTM_SETLINK, index, *infos)


def delete_vlans(index: int) -> Message:
    """No error if there are none."""
    return _vlans(RTM_DELLINK, index, _vlan(_FIRST_VLAN, _RANGE_BEGIN) + _vlan(_LAST_VLAN, _RANGE_END))


def list_vlans() -> tuple[int, bytes]:
    return RTM_GETLINK, header(family=_AF_BRIDGE) + u32(IFLA_EXT_MASK, _RTEXT_FILTER_BRVLAN_COMPRESSED)


def parse_vlans(body: bytes) -> PortVlans:
    _, _, index, _, _ = fixed(IFINFOMSG, body)
    own = 0
    untagged: set[int] = set()
    tagged: set[int] = set()
    first = 0
    for kind, value in parse_list(parse(body, IFINFOMSG.size).get(IFLA_AF_SPEC, b"")):
        if kind != _IFLA_BRIDGE_VLAN_INFO:
            continue
        flags, vlan = fixed(_VLAN_INFO, value)
        if flags & _RANGE_BEGIN:
            first = vlan
            continue
        own = vlan if flags & _PVID else own
        ids = range(first if flags & _RANGE_END else vlan, vlan + 1)
        (untagged if flags & _UNTAGGED else tagged).update(ids)
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


def _vlans(kind: int, index: int, *infos: bytes) -> Message:
    spec = nest(IFLA_AF_SPEC, u16(_IFLA_BRIDGE_FLAGS, _BRIDGE_FLAGS_MASTER), *infos)
    return Message(kind, 0, header(index, family=_AF_BRIDGE) + spec)


def _vlan(vlan: int, flags: int) -> bytes:
    return attribute(_IFLA_BRIDGE_VLAN_INFO, _VLAN_INFO.pack(flags, vlan))
