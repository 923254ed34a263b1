"""IPsec policies as netlink has them: bytes to values and back (linux/xfrm.h). Pure."""

import socket
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network
from struct import Struct
from typing import Final

from weft.desired.backends.ipsec.objects import REQID, Direction, Policy
from weft.kernel.rtnetlink.attributes import Malformed, attribute, find
from weft.kernel.rtnetlink.netlink import Message

NETLINK_XFRM: Final = 6
GET_POLICY: Final = 0x15  # XFRM_MSG_GETPOLICY

_NEW_STATE: Final = 0x10  # XFRM_MSG_NEWSA
_DELETE_STATE: Final = 0x11
_DELETE_POLICY: Final = 0x14
_UPDATE_POLICY: Final = 0x19  # adds what is not there
_TEMPLATE: Final = 5  # XFRMA_TMPL
_AEAD: Final = 18  # XFRMA_ALG_AEAD
_DIRECTIONS: Final[tuple[Direction, ...]] = ("in", "out", "fwd")  # XFRM_POLICY_*
_TUNNEL: Final = 1  # XFRM_MODE_TUNNEL
_ALLOW: Final = 0  # XFRM_POLICY_ALLOW
_ANY: Final = 0xFFFFFFFF  # algorithms
_NO_LIMIT: Final = (1 << 64) - 1  # XFRM_INF

# struct xfrm_selector: dst, src, ports and masks, family, prefix lengths of dst and src, protocol, interface, user
_SELECTOR: Final = Struct("=16s16s8xHBBB3xiI")
_LIFETIME: Final = Struct("=8Q32x")  # struct xfrm_lifetime_cfg and _cur: limits, and what was used
_POLICY: Final = Struct("=IIBBBB4x")  # the rest of struct xfrm_userpolicy_info: priority, index, direction, action …
_POLICY_ID: Final = Struct("=IB3x")  # the rest of struct xfrm_userpolicy_id: index, direction
# struct xfrm_user_tmpl: dst, SPI, protocol, family, src, reqid, mode, share, optional, algorithms of three kinds
_TMPL: Final = Struct("=16s4sB3xH2x16sIBBBxIII")
_STATE: Final = Struct("=16s4sB3x16s")  # in struct xfrm_usersa_info: dst, SPI, protocol, src
_STATE_REST: Final = Struct("=12xIIHBBB7x")  # sequence number, reqid, family, mode, replay window, flags
_STATE_ID: Final = Struct("=16s4sHBx")  # struct xfrm_usersa_id
_AEAD_HEAD: Final = Struct("=64sII")  # struct xfrm_algo_aead: name, bits of the key, bits of the check value

_LONGEST: Final = 32  # bits of a prefix
_UNLIMITED: Final = _LIFETIME.pack(*(_NO_LIMIT,) * 4, 0, 0, 0, 0)
# A state that no packet meets, for a trial: between two addresses of the loopback.
_TRIAL_SRC, _TRIAL_DST = IPv4Address("127.87.69.1"), IPv4Address("127.87.69.2")
_TRIAL_SPI: Final = b"weft"
_TRIAL_KEY: Final = bytes(20)


def put_policy(policy: Policy) -> Message:
    """It replaces the one between the same subnets in the same direction."""
    info = _selector(policy) + _UNLIMITED + _POLICY.pack(0, 0, _DIRECTIONS.index(policy.direction), _ALLOW, 0, 0)
    template = _TMPL.pack(
        _packed(policy.tunnel_dst),
        bytes(4),
        socket.IPPROTO_ESP,
        socket.AF_INET,
        _packed(policy.tunnel_src),
        REQID,
        _TUNNEL,
        0,
        0,
        *(_ANY,) * 3,
    )
    return Message(_UPDATE_POLICY, 0, info + attribute(_TEMPLATE, template))


def delete_policy(policy: Policy) -> Message:
    return Message(_DELETE_POLICY, 0, _selector(policy) + _POLICY_ID.pack(0, _DIRECTIONS.index(policy.direction)))


def policy_in(body: bytes) -> Policy | None:
    """None for one that upstream or we would not have made. Raises `Malformed`."""
    head = _SELECTOR.size + _LIFETIME.size + _POLICY.size
    if len(body) < head:
        raise Malformed(f"policy of {len(body)} bytes, at least {head} needed")
    dst, src, family, dst_len, src_len, *_ = _SELECTOR.unpack_from(body)
    priority, _, direction, action, *_ = _POLICY.unpack_from(body, head - _POLICY.size)
    templates = find(body, _TEMPLATE, head)
    if family != socket.AF_INET or priority or action != _ALLOW or direction >= len(_DIRECTIONS) or templates is None:
        return None
    if len(templates) != _TMPL.size or max(dst_len, src_len) > _LONGEST:
        return None  # the first: more than one
    far, _, protocol, _, near, reqid, mode, *_ = _TMPL.unpack(templates)
    if (protocol, reqid, mode) != (socket.IPPROTO_ESP, REQID, _TUNNEL):
        return None
    near_net, far_net = (IPv4Network((ip[:4], length), strict=False) for ip, length in ((src, src_len), (dst, dst_len)))
    if (near_net.network_address.packed, far_net.network_address.packed) != (src[:4], dst[:4]):
        return None  # with bits beyond the prefix, which a message about the network would not reach
    return Policy(
        direction=_DIRECTIONS[direction],
        src=near_net,
        dst=far_net,
        tunnel_src=IPv4Address(near[:4]),
        tunnel_dst=IPv4Address(far[:4]),
    )


def trial() -> Iterator[Message]:
    """Add a state of ESP, and remove it: a kernel without ESP refuses the first."""
    family, far = socket.AF_INET, _packed(_TRIAL_DST)
    selector = _SELECTOR.pack(bytes(16), bytes(16), family, 0, 0, 0, 0, 0)
    state = _STATE.pack(far, _TRIAL_SPI, socket.IPPROTO_ESP, _packed(_TRIAL_SRC))
    rest = _STATE_REST.pack(0, 0, family, _TUNNEL, 0, 0)
    aead = _AEAD_HEAD.pack(b"rfc4106(gcm(aes))", 8 * len(_TRIAL_KEY), 128) + _TRIAL_KEY
    yield Message(_NEW_STATE, 0, selector + state + _UNLIMITED + rest + attribute(_AEAD, aead))
    yield Message(_DELETE_STATE, 0, _STATE_ID.pack(far, _TRIAL_SPI, family, socket.IPPROTO_ESP))


def _selector(policy: Policy) -> bytes:
    dst, src = policy.dst, policy.src
    near, far = _packed(src.network_address), _packed(dst.network_address)
    return _SELECTOR.pack(far, near, socket.AF_INET, dst.prefixlen, src.prefixlen, 0, 0, 0)


def _packed(ip: IPv4Address) -> bytes:
    """As xfrm_address_t."""
    return ip.packed + bytes(12)
