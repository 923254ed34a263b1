"""Messages about traffic control: shapers, redirections, eBPF programs (linux/pkt_sched.h, pkt_cls.h).

Only what plugins, the lab and back end udp need: a token bucket and a delay at a device's root, the ingress qdisc with
one u32 filter that redirects everything, and programs at a clsact qdisc. A program of ours has `BPF_PRIORITY`, or a
later one where somebody else has that; it decides itself (direct action) or leaves a packet to those behind it. Readers
raise `Malformed`.
"""

import sys
from collections.abc import Iterator
from struct import Struct
from typing import Final

from weft.kernel.rtnetlink.attributes import Attributes, Malformed, attribute, fixed, nest, parse, parse_list, text, u32
from weft.kernel.rtnetlink.netlink import NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, Message
from weft.model.kernel.reported import Bucket
from weft.model.value import Value

RTM_NEWQDISC: Final = 36
RTM_DELQDISC: Final = 37
RTM_GETQDISC: Final = 38
RTM_NEWTFILTER: Final = 44
RTM_DELTFILTER: Final = 45
RTM_GETTFILTER: Final = 46

TCA_KIND: Final = 1
TCA_OPTIONS: Final = 2
_TCA_STATS2: Final = 7
_TCA_STATS_QUEUE: Final = 3
_STATS_QUEUE: Final = Struct("=5I")  # length, backlog, drops, requeues, overlimits
TCA_TBF_PARMS: Final = 1
TCA_TBF_RATE64: Final = 4
TCA_U32_CLASSID: Final = 1
TCA_U32_SEL: Final = 5
TCA_U32_ACT: Final = 7
TCA_ACT_KIND: Final = 1
TCA_ACT_OPTIONS: Final = 2
TCA_MIRRED_PARMS: Final = 2
TCA_EGRESS_REDIR: Final = 1

# NLM_F_ECHO: without it the kernel answers no question about a qdisc. Of a builtin one (on a device that was never up,
# in the place of an ingress qdisc that was deleted) it says nothing even so (tc_get_qdisc in net/sched/sch_api.c).
_QUESTION: Final = 0x008 | NLM_F_ACK
_TC_H_ROOT: Final = 0xFFFFFFFF
_TC_H_INGRESS: Final = 0xFFFFFFF1
_INGRESS_HANDLE: Final = 0xFFFF0000  # ffff:
_TBF_HANDLE: Final = 0x00010000  # 1:
_CLASS: Final = 0x00010001  # 1:1
_NETEM_HANDLE: Final = 0x00020000  # 2:
_NETEM_CLASS: Final = 0x00020001  # 2:1, the queue of what has been delayed
_TICK_NANOSECONDS: Final = 64  # include/net/pkt_sched.h
_MOST_DELAYED: Final = 100_000  # packets: a second of full ones at 1 Gbit/s
_TC_ACT_STOLEN: Final = 4
_TC_U32_TERMINAL: Final = 1
_ETH_P_ALL: Final = 3
_PRIORITY: Final = 1
_LARGEST_SHORT_RATE: Final = 0xFFFFFFFF

_TCMSG: Final = Struct("=BxxxiIII")  # family, interface index, handle, parent, info
# struct tc_tbf_qopt: of the rate and of the peak rate cell_log, linklayer, overhead, cell_align, mpu and bytes per
# second; then limit (bytes), buffer (ticks), mtu (ticks).
_TBF: Final = Struct("=BBHhHI" + "BBHhHI" + "III")
# struct tc_netem_qopt: latency (ticks), limit (packets), loss, gap, duplicate, jitter.
_NETEM: Final = Struct("=6I")
# struct tc_u32_sel, its flags and nkeys; then one struct tc_u32_key: all zero, it fits every packet.
_U32_SELECTOR: Final = Struct("=BxB13x" + "16x")
# struct tc_mirred: index, capab, action, refcnt, bindcnt, eaction, ifindex. The kernel chooses a free index.
_MIRRED: Final = Struct("=8xi8xiI")

# eBPF programs at a qdisc `clsact`, which has the handle and the parent of `ingress`.
HOOK_IN: Final = 0xFFFFFFF2  # TC_H_CLSACT with TC_H_MIN_INGRESS
HOOK_OUT: Final = 0xFFFFFFF3
BPF_PRIORITY: Final = 165  # of our programs
_CLSACT: Final = "clsact"
_TCA_BPF_FD, _TCA_BPF_NAME, _TCA_BPF_FLAGS, _TCA_BPF_ID = 6, 7, 8, 11
_DIRECT_ACTION: Final = 1


def set_bucket(index: int, bucket: Bucket, *, delayed: bool = False) -> Message:
    """Make a token bucket the root qdisc, 1:, or if `delayed` that of its delay; it replaces any other.

    A packet waits for its turn after its delay.
    """
    short = min(bucket.rate, _LARGEST_SHORT_RATE)
    rate = (0, 0, 0, 0, 0, short)
    options = attribute(TCA_TBF_PARMS, _TBF.pack(*rate, *(0,) * 6, bucket.limit, bucket.buffer, 0))
    if bucket.rate > _LARGEST_SHORT_RATE:
        options += attribute(TCA_TBF_RATE64, bucket.rate.to_bytes(8, sys.byteorder))
    parent = _NETEM_CLASS if delayed else _TC_H_ROOT
    body = _TCMSG.pack(0, index, _TBF_HANDLE, parent, 0) + text(TCA_KIND, "tbf") + nest(TCA_OPTIONS, options)
    return Message(RTM_NEWQDISC, NLM_F_CREATE | NLM_F_REPLACE, body)


def set_delay(index: int, *, nanoseconds: int) -> Message:
    """Make a delay the root qdisc, 2:, in place of any other; ENOENT where the kernel has no netem."""
    options = _NETEM.pack(nanoseconds // _TICK_NANOSECONDS, _MOST_DELAYED, 0, 0, 0, 0)
    body = _TCMSG.pack(0, index, _NETEM_HANDLE, _TC_H_ROOT, 0) + text(TCA_KIND, "netem")
    return Message(RTM_NEWQDISC, NLM_F_CREATE | NLM_F_REPLACE, body + attribute(TCA_OPTIONS, options))


def delete_root(index: int) -> Message:
    """ENOENT if the device has only the kernel's own."""
    return Message(RTM_DELQDISC, 0, _TCMSG.pack(0, index, 0, _TC_H_ROOT, 0))


def get_root(index: int) -> Message:
    return Message(RTM_GETQDISC, _QUESTION, _TCMSG.pack(0, index, 0, _TC_H_ROOT, 0))


def parse_bucket(body: bytes) -> Bucket | None:
    """None for another kind than a token bucket."""
    attrs = parse(body, _TCMSG.size)
    if attrs.text(TCA_KIND) != "tbf":
        return None
    options = attrs.nest(TCA_OPTIONS)
    values = fixed(_TBF, options.get(TCA_TBF_PARMS, b""))
    return Bucket(rate=options.number(TCA_TBF_RATE64) or values[5], limit=values[-3], buffer=values[-2])


def add_ingress(index: int) -> Message:
    """The qdisc ffff:, where received packets can be filtered. EEXIST if it has one."""
    body = _TCMSG.pack(0, index, _INGRESS_HANDLE, _TC_H_INGRESS, 0) + text(TCA_KIND, "ingress")
    return Message(RTM_NEWQDISC, NLM_F_CREATE | NLM_F_EXCL, body)


def get_ingress(index: int) -> Message:
    """The qdisc there may be a clsact as well."""
    return Message(RTM_GETQDISC, _QUESTION, _TCMSG.pack(0, index, 0, _TC_H_INGRESS, 0))


def kind_of(body: bytes) -> str:
    """Of RTM_NEWQDISC."""
    return parse(body, _TCMSG.size).text(TCA_KIND)


def delete_ingress(index: int) -> Message:
    """With its filters; EINVAL or ENOENT if there is nothing."""
    return Message(RTM_DELQDISC, 0, _TCMSG.pack(0, index, _INGRESS_HANDLE, _TC_H_INGRESS, 0))


def redirect(index: int, *, to: int) -> Message:
    """The device needs an ingress qdisc."""
    selector = _U32_SELECTOR.pack(_TC_U32_TERMINAL, 1)
    mirred = attribute(TCA_MIRRED_PARMS, _MIRRED.pack(_TC_ACT_STOLEN, TCA_EGRESS_REDIR, to))
    # Actions are numbered by the attribute's type, from 1.
    action = nest(1, text(TCA_ACT_KIND, "mirred"), nest(TCA_ACT_OPTIONS, mirred))
    options = nest(
        TCA_OPTIONS, u32(TCA_U32_CLASSID, _CLASS), attribute(TCA_U32_SEL, selector), nest(TCA_U32_ACT, action)
    )
    info = _PRIORITY << 16 | _ETH_P_ALL << 8  # the protocol is in network order
    body = _TCMSG.pack(0, index, 0, _INGRESS_HANDLE, info) + text(TCA_KIND, "u32") + options
    return Message(RTM_NEWTFILTER, NLM_F_CREATE | NLM_F_EXCL, body)


def list_ingress_filters(index: int) -> tuple[int, bytes]:
    return RTM_GETTFILTER, _TCMSG.pack(0, index, 0, _INGRESS_HANDLE, 0)


def redirected_to(body: bytes) -> list[int]:
    """The indexes of the devices to which a u32 filter (RTM_NEWTFILTER) sends packets."""
    attrs = parse(body, _TCMSG.size)
    if attrs.text(TCA_KIND) != "u32":
        return []
    return list(_targets(attrs.nest(TCA_OPTIONS).get(TCA_U32_ACT, b"")))


def _targets(actions: bytes) -> Iterator[int]:
    for _, action in parse_list(actions):
        attrs = parse(action)
        parameters = attrs.nest(TCA_ACT_OPTIONS).get(TCA_MIRRED_PARMS)
        if attrs.text(TCA_ACT_KIND) != "mirred" or parameters is None:
            continue
        if len(parameters) < _MIRRED.size:
            raise Malformed(f"a redirection of {len(parameters)} bytes")
        _, what, to = _MIRRED.unpack_from(parameters)
        if what == TCA_EGRESS_REDIR:
            yield to


class Hooked(Value):
    """A filter at a hook. `program` is the number by which bpf(2) finds it, 0 for no program.

    What is not `whole` is the head of a list, or of a hash table, of filters.
    """

    priority: int
    kind: str
    name: str
    program: int
    is_whole: bool = False


def add_clsact(index: int) -> Message:
    """The qdisc to which programs are attached. EEXIST if the device has one."""
    body = _TCMSG.pack(0, index, _INGRESS_HANDLE, _TC_H_INGRESS, 0) + text(TCA_KIND, _CLSACT)
    return Message(RTM_NEWQDISC, NLM_F_CREATE | NLM_F_EXCL, body)


def delete_clsact(index: int) -> Message:
    return Message(RTM_DELQDISC, 0, _TCMSG.pack(0, index, _INGRESS_HANDLE, _TC_H_INGRESS, 0))


def list_qdiscs() -> tuple[int, bytes]:
    return RTM_GETQDISC, _TCMSG.pack(0, 0, 0, 0, 0)


def dropped_by(body: bytes) -> tuple[int, str, int]:
    """Read RTM_NEWQDISC: the device's index, the kind, and the packets that it dropped (struct gnet_stats_queue)."""
    attrs = parse(body, _TCMSG.size)
    counted = attrs.nest(_TCA_STATS2).get(_TCA_STATS_QUEUE, b"")
    drops: int = _STATS_QUEUE.unpack_from(counted)[2] if len(counted) >= _STATS_QUEUE.size else 0
    return fixed(_TCMSG, body[: _TCMSG.size])[1], attrs.text(TCA_KIND), drops


def hooks_in(body: bytes) -> tuple[int, tuple[int, ...]]:
    """Read RTM_NEWQDISC: the device's index, and where programs can be attached to it.

    Somebody else's qdisc `ingress` takes programs for received packets.
    """
    kind = parse(body, _TCMSG.size).text(TCA_KIND)
    index: int = fixed(_TCMSG, body[: _TCMSG.size])[1]
    return index, {_CLSACT: (HOOK_IN, HOOK_OUT), "ingress": (HOOK_IN,)}.get(kind, ())


def set_program(index: int, hook: int, priority: int, name: str, descriptor: int) -> Message:
    """Attach a program at `HOOK_IN` or `HOOK_OUT` in place of one with its priority; no packet is missed."""
    options = nest(
        TCA_OPTIONS, u32(_TCA_BPF_FD, descriptor), text(_TCA_BPF_NAME, name), u32(_TCA_BPF_FLAGS, _DIRECT_ACTION)
    )
    return Message(RTM_NEWTFILTER, NLM_F_CREATE, _program(index, hook, priority) + options)


def delete_program(index: int, hook: int, priority: int) -> Message:
    """ENOENT if there is none."""
    return Message(RTM_DELTFILTER, 0, _program(index, hook, priority))


def _program(index: int, hook: int, priority: int) -> bytes:
    info = priority << 16 | _ETH_P_ALL << 8  # the protocol is in network order
    return _TCMSG.pack(0, index, 1, hook, info) + text(TCA_KIND, "bpf")


def _is_whole(kind: str, attrs: Attributes) -> bool:
    """A filter of u32 has a selector, and each filter has options."""
    options = attrs.nest(TCA_OPTIONS)
    return TCA_U32_SEL in options if kind == "u32" else bool(options)


def list_hooked(index: int, hook: int) -> tuple[int, bytes]:
    return RTM_GETTFILTER, _TCMSG.pack(0, index, 0, hook, 0)


def parse_hooked(body: bytes) -> Hooked:
    """Read RTM_NEWTFILTER: a filter, or the head of a list of them, which has only a priority."""
    attrs = parse(body, _TCMSG.size)
    priority: int = fixed(_TCMSG, body[: _TCMSG.size])[4] >> 16
    kind = attrs.text(TCA_KIND)
    if kind != "bpf":
        return Hooked(priority=priority, kind=kind, name="", program=0, is_whole=_is_whole(kind, attrs))
    options = attrs.nest(TCA_OPTIONS)
    name, program = options.text(_TCA_BPF_NAME), options.number(_TCA_BPF_ID)
    return Hooked(priority=priority, kind=kind, name=name, program=program or 0)
