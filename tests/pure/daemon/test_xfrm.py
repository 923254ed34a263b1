"""Policies as netlink's bytes, against what iproute2 sends and the kernel lists (linux/xfrm.h)."""

from ipaddress import IPv4Address, IPv4Network
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.daemon.backends.ipsec import xfrm
from weft.desired.backends.ipsec.objects import Policy
from weft.kernel.rtnetlink.attributes import Malformed
from weft.model.value import replace

POLICY = Policy(
    direction="out",
    src=IPv4Network("10.5.1.0/24"),
    dst=IPv4Network("10.5.2.0/23"),
    tunnel_src=IPv4Address("192.168.0.1"),
    tunnel_dst=IPv4Address("192.168.0.2"),
)
SELECTOR = (
    bytes((10, 5, 2, 0)) + bytes(12) + bytes((10, 5, 1, 0)) + bytes(12) + bytes(8) + pack("=HBB", 2, 23, 24) + bytes(12)
)
REST = pack("=4Q", *(2**64 - 1,) * 4) + bytes(32) + bytes(32)  # struct xfrm_lifetime_cfg, _cur
HEAD = SELECTOR + REST + pack("=IIBBBB4x", 0, 0, 1, 0, 0, 0)
TEMPLATE = (
    pack("=HH", 68, 5)
    + bytes((192, 168, 0, 2))
    + bytes(16)
    + bytes((50, 0, 0, 0))
    + pack("=H2x", 2)
    + bytes((192, 168, 0, 1))
    + bytes(12)
    + pack("=IBBBxIII", 11, 1, 0, 0, *(2**32 - 1,) * 3)
)


@pytest.mark.spec("flannel.md §6.7/policies")
def test_a_policy_as_bytes_and_back():
    message = xfrm.put_policy(POLICY)
    assert (message.kind, message.flags) == (0x19, 0)
    assert len(HEAD) == 168, "struct xfrm_userpolicy_info"
    assert message.body == HEAD + TEMPLATE
    for direction in ("in", "out", "fwd"):
        policy = replace(POLICY, direction=direction)
        assert xfrm.policy_in(xfrm.put_policy(policy).body) == policy


def test_removing_one():
    message = xfrm.delete_policy(POLICY)
    assert message.kind == 0x14
    assert message.body == SELECTOR + pack("=IB3x", 0, 1)


@pytest.mark.parametrize(
    "body",
    [
        HEAD,  # without a template
        HEAD + pack("=HH", 132, 5) + TEMPLATE[4:] * 2,  # two tunnels, one in the other
        (HEAD + TEMPLATE).replace(pack("=I", 11), pack("=I", 12)),
        (HEAD + TEMPLATE).replace(bytes((50, 0, 0, 0)), bytes((51, 0, 0, 0))),  # AH
        SELECTOR + REST + pack("=IIBBBB4x", 9, 0, 1, 0, 0, 0) + TEMPLATE,  # of another priority
        SELECTOR + REST + pack("=IIBBBB4x", 0, 0, 1, 1, 0, 0) + TEMPLATE,  # that blocks
        SELECTOR + REST + pack("=IIBBBB4x", 0, 0, 3, 0, 0, 0) + TEMPLATE,  # of a socket
        HEAD[:40] + pack("=H", 10) + HEAD[42:] + TEMPLATE,  # IPv6
        bytes((10, 5, 3, 0)) + HEAD[4:] + TEMPLATE,  # 10.5.3.0/23, made by hand
        HEAD.replace(bytes((10, 5, 1, 0)), bytes((10, 5, 1, 9))) + TEMPLATE,
        HEAD.replace(bytes((23, 24)), bytes((23, 33))) + TEMPLATE,
    ],
)
def test_policies_of_others(body: bytes):
    assert xfrm.policy_in(body) is None


@given(st.binary(max_size=300))
def test_whatever_comes_is_read_or_refused(body: bytes):
    try:
        xfrm.policy_in(body)
    except Malformed:
        return


def test_the_trial_is_a_state_of_esp_that_no_packet_meets():
    add, remove = xfrm.trial()
    assert (add.kind, remove.kind) == (0x10, 0x11)
    assert len(add.body) == 224 + 4 + 72 + 20, "struct xfrm_usersa_info, and the algorithm with its key"
    assert add.body[56:60] == remove.body[:4] == bytes((127, 87, 69, 2))
    assert add.body[72:77] == remove.body[16:20] + b"\x32"
    assert len(remove.body) == 24, "struct xfrm_usersa_id"
