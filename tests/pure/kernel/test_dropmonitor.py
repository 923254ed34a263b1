"""What drop_monitor tells, as bytes (linux/net_dropmon.h), and how generic netlink numbers a family."""

from struct import pack

import pytest

from weft.kernel.dropmonitor import drops_in
from weft.kernel.genetlink import ask_family, family_in
from weft.kernel.rtnetlink.attributes import Malformed, attribute, nest, text, u16
from weft.model.kernel.dropped import Drop

FAMILY, ALERT = 30, 5
FRAME = bytes(14) + b"\x45"


def datagram(*attributes: bytes, family: int = FAMILY, command: int = ALERT) -> bytes:
    body = bytes([command, 2, 0, 0]) + b"".join(attributes)
    return pack("=IHHII", 16 + len(body), family, 0, 0, 0) + body


WHOLE = (
    text(3, "nf_hook_slow+0xc3/0xe0"),
    text(23, "NETFILTER_DROP"),
    nest(4, attribute(0, b"\7\0\0\0"), text(1, "veth1")),
    u16(6, 0x0800),
    attribute(7, FRAME),
)


def test_a_drop_has_the_kernels_word_and_the_function_without_an_offset():
    expected = Drop(reason="NETFILTER_DROP", function="nf_hook_slow", device="veth1", protocol=0x0800, frame=FRAME)
    assert list(drops_in(datagram(*WHOLE) + datagram(*WHOLE), FAMILY)) == [expected] * 2


def test_an_older_kernel_names_no_reason_and_a_packet_of_this_machine_no_link():
    [found] = drops_in(datagram(WHOLE[0]), FAMILY)
    assert found == Drop(reason="", function="nf_hook_slow", device="", protocol=0, frame=b"")


@pytest.mark.parametrize("other", [datagram(*WHOLE, family=2), datagram(*WHOLE, command=1), datagram(command=7)])
def test_other_messages_are_no_drops(other: bytes):
    assert not list(drops_in(other, FAMILY))


def test_what_cannot_be_read_is_said():
    with pytest.raises(Malformed):
        list(drops_in(datagram(*WHOLE)[:-1], FAMILY))


def test_a_family_is_asked_for_by_its_name():
    assert ask_family("wireguard") == b"\x03\x01\0\0" + attribute(2, b"wireguard\0")
    assert family_in(b"\x01\x02\0\0" + u16(1, 29)) == 29
    with pytest.raises(Malformed):
        family_in(bytes(4))
