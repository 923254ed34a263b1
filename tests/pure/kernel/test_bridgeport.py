"""VLANs of bridge ports, byte by byte against pyroute2; in a kernel that has them they are tested in the VM."""

import struct

import pytest
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg

from weft.kernel.rtnetlink import bridgeport
from weft.kernel.rtnetlink.attributes import Malformed
from weft.kernel.rtnetlink.netlink import Message
from weft.model.kernel.reported import PortVlans

HEADER = struct.Struct("=IHHII")
OWN, BEGIN, END = 0x2 | 0x4, 0x8, 0x10


def read(message: Message) -> ifinfmsg:
    """What pyroute2 makes of a message of ours."""
    data = HEADER.pack(HEADER.size + len(message.body), message.kind, 0, 0, 0) + message.body
    seen = ifinfmsg(data)
    seen.decode()
    return seen


def infos(message: Message) -> list[tuple[int, int]]:
    spec = read(message).get_attr("IFLA_AF_SPEC")
    return [(info["flags"], info["vid"]) for info in spec.get_attrs("IFLA_BRIDGE_VLAN_INFO")]


def listed(index: int, *flags_and_ids: tuple[int, int], spec: bool = True) -> bytes:
    """An answer of the kernel, as pyroute2 writes it."""
    message = ifinfmsg()
    message["family"], message["index"] = 7, index
    attrs = [["IFLA_BRIDGE_VLAN_INFO", {"flags": flags, "vid": vlan}] for flags, vlan in flags_and_ids]
    message["attrs"] = [["IFLA_AF_SPEC", {"attrs": [["IFLA_BRIDGE_FLAGS", 1], *attrs]}]] if spec else []
    message.encode()
    return bytes(message.data[HEADER.size :])


def test_the_own_vlan_of_a_port() -> None:
    message = bridgeport.add_own_vlan(7, 100)
    seen = read(message)
    assert (message.kind, seen["family"], seen["index"]) == (19, 7, 7)  # RTM_SETLINK, AF_BRIDGE
    assert seen.get_attr("IFLA_AF_SPEC").get_attr("IFLA_BRIDGE_VLAN_FLAGS") == 1
    assert infos(message) == [(OWN, 100)]


def test_tagged_vlans_travel_as_ranges() -> None:
    message = bridgeport.add_tagged_vlans(7, (101, *range(200, 211), 4094))
    assert message.kind == 19
    assert infos(message) == [(0, 101), (BEGIN, 200), (END, 210), (0, 4094)]


def test_all_vlans_of_a_port_go_in_one_message() -> None:
    message = bridgeport.delete_vlans(7)
    assert message.kind == 17  # RTM_DELLINK
    assert infos(message) == [(BEGIN, 1), (END, 4094)]


def test_asking_for_vlans() -> None:
    kind, body = bridgeport.list_vlans()
    seen = read(Message(kind, 0, body))
    assert (kind, seen["family"], seen.get_attr("IFLA_EXT_MASK")) == (18, 7, 4)


def test_what_the_kernel_says_of_a_port() -> None:
    body = listed(7, (OWN, 100), (0x4, 1), (BEGIN, 200), (END, 202), (0, 300), (BEGIN | 4, 400), (END | 4, 401))
    assert bridgeport.parse_vlans(body) == PortVlans(
        index=7, own=100, untagged=frozenset({1, 100, 400, 401}), tagged=frozenset({200, 201, 202, 300})
    )
    assert bridgeport.parse_vlans(listed(8, spec=False)) == PortVlans(index=8)


def test_an_answer_that_is_cut_off() -> None:
    with pytest.raises(Malformed):
        bridgeport.parse_vlans(b"\7")


@pytest.mark.parametrize(
    "numbers, runs",
    [
        ((), []),
        ((5,), [(5, 5)]),
        ((3, 1, 2, 2, 7, 8), [(1, 3), (7, 8)]),
        ((0, 1), [(0, 1)]),
        ((9, 1), [(1, 1), (9, 9)]),
    ],
)
def test_runs_of_numbers(numbers: tuple[int, ...], runs: list[tuple[int, int]]) -> None:
    assert list(bridgeport.ranges(numbers)) == runs
