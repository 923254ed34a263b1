"""Messages about eBPF programs that see a device's packets (linux/pkt_sched.h, pkt_cls.h). Pure.

Ours have a priority of their own, or one behind it where somebody else has that. A program decides by itself what
becomes of a packet (direct action), or leaves it to those behind it. Readers raise `Malformed`.
"""

from struct import Struct
from typing import Final

from weft.kernel.rtnetlink.attributes import fixed, nest, parse, text, u32
from weft.kernel.rtnetlink.netlink import NLM_F_CREATE, NLM_F_EXCL, Message
from weft.kernel.rtnetlink.tc import RTM_DELQDISC, RTM_GETQDISC, RTM_GETTFILTER, RTM_NEWQDISC, RTM_NEWTFILTER
from weft.model.value import Value

RTM_DELTFILTER: Final = 45
INGRESS: Final = 0xFFFFFFF2  # TC_H_CLSACT with TC_H_MIN_INGRESS
EGRESS: Final = 0xFFFFFFF3

_CLSACT: Final = "clsact"
_INGRESS: Final = "ingress"
_BPF: Final = "bpf"
_TCA_KIND, _TCA_OPTIONS = 1, 2
_TCA_BPF_FD, _TCA_BPF_NAME, _TCA_BPF_FLAGS, _TCA_BPF_ID = 6, 7, 8, 11
_DIRECT_ACTION: Final = 1
_TC_H_CLSACT: Final = 0xFFFFFFF1
_CLSACT_HANDLE: Final = 0xFFFF0000  # ffff:
_ETH_P_ALL: Final = 3
_HANDLE: Final = 1
PRIORITY: Final = 165
_TCMSG: Final = Struct("=BxxxiIII")  # family, interface index, handle, parent, info


class Filter(Value):
    """What is attached to a device; `program` is the number by which bpf(2) finds it, 0 for no program."""

    priority: int
    kind: str
    name: str
    program: int


def add_clsact(index: int) -> Message:
    """The qdisc to which programs are attached. EEXIST if the device has one."""
    body = _TCMSG.pack(0, index, _CLSACT_HANDLE, _TC_H_CLSACT, 0) + text(_TCA_KIND, _CLSACT)
    return Message(RTM_NEWQDISC, NLM_F_CREATE | NLM_F_EXCL, body)


def delete_clsact(index: int) -> Message:
    return Message(RTM_DELQDISC, 0, _TCMSG.pack(0, index, _CLSACT_HANDLE, _TC_H_CLSACT, 0))


def list_qdiscs() -> tuple[int, bytes]:
    return RTM_GETQDISC, _TCMSG.pack(0, 0, 0, 0, 0)


def hooks_in(body: bytes) -> tuple[int, tuple[int, ...]]:
    """Read RTM_NEWQDISC: the index of the device, and where programs can be attached to it.

    Somebody else's qdisc `ingress` takes programs for what is received.
    """
    kind = parse(body, _TCMSG.size).text(_TCA_KIND)
    index: int = fixed(_TCMSG, body[: _TCMSG.size])[1]
    return index, {_CLSACT: (INGRESS, EGRESS), _INGRESS: (INGRESS,)}.get(kind, ())


def set_program(index: int, hook: int, priority: int, name: str, descriptor: int) -> Message:
    """Attach a program at `INGRESS` or `EGRESS` in place of what has its priority; no packet is missed."""
    options = nest(
        _TCA_OPTIONS, u32(_TCA_BPF_FD, descriptor), text(_TCA_BPF_NAME, name), u32(_TCA_BPF_FLAGS, _DIRECT_ACTION)
    )
    return Message(RTM_NEWTFILTER, NLM_F_CREATE, _program(index, hook, priority) + options)


def delete_program(index: int, hook: int, priority: int) -> Message:
    """ENOENT if there is none."""
    return Message(RTM_DELTFILTER, 0, _program(index, hook, priority))


def _program(index: int, hook: int, priority: int) -> bytes:
    info = priority << 16 | _ETH_P_ALL << 8  # the protocol is in network order
    return _TCMSG.pack(0, index, _HANDLE, hook, info) + text(_TCA_KIND, _BPF)


def list_filters(index: int, hook: int) -> tuple[int, bytes]:
    return RTM_GETTFILTER, _TCMSG.pack(0, index, 0, hook, 0)


def filter_in(body: bytes) -> Filter:
    """Read RTM_NEWTFILTER: a filter, or the head of a list of them, which has only a priority."""
    attrs = parse(body, _TCMSG.size)
    priority: int = fixed(_TCMSG, body[: _TCMSG.size])[4] >> 16
    kind = attrs.text(_TCA_KIND)
    if kind != _BPF:
        return Filter(priority=priority, kind=kind, name="", program=0)
    options = attrs.nest(_TCA_OPTIONS)
    name, program = options.text(_TCA_BPF_NAME), options.number(_TCA_BPF_ID)
    return Filter(priority=priority, kind=kind, name=name, program=program or 0)
