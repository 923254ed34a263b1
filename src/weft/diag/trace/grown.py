"""Counters of the kernel that grew by the probes that were lost: its own word for why. Pure."""

from collections.abc import Mapping
from typing import Final

from weft.model.errors import Problem
from weft.model.value import Value

Counted = Mapping[str, int]  # by the counter's name


class _Reason(Value, kw_only=False):
    code: str
    words: str
    hint: str


_NO_ROUTE: Final = _Reason("ROUTE-003", "the kernel has no route for them", "'ip rule' and 'ip route get' show which")
_NO_SOCKET: Final = _Reason("VTEP-004", "nothing listens at the port that they came to", "See the daemon there")
_NO_MAC: Final = _Reason(
    "REACH-001", "the kernel waits in vain for a MAC", "The next machine is off, or cut off: 'ip neighbour'"
)
_FILTERED: Final = ("clsact", "ingress")  # qdiscs that queue nothing: what they drop, a filter of theirs does
_QUEUE: Final = "Queue"
_MOST: Final = 3  # times the lost probes: a counter that grew by more tells of others' packets
_IPSEC: Final = "a policy or state of IPsec (xfrm) drops them"
# Counters of proc(5) that say why a packet ends here (linux/snmp.h), the most telling first.
_REASONS: Final[dict[str, _Reason]] = {
    "TcpExt.IPReversePathFilter": _Reason(
        "KERN-003",
        "the kernel takes their source for a wrong one, because answers would go by another link (rp_filter)",
        "Mend the route back, or set rp_filter of that link to 2",
    ),
    "IpExt.InNoRoutes": _NO_ROUTE,
    "Ip.OutNoRoutes": _NO_ROUTE,
    "Ip6InNoRoutes": _NO_ROUTE,
    "Ip6OutNoRoutes": _NO_ROUTE,
    "Ip.InAddrErrors": _Reason(
        "KERN-002",
        "the kernel forwards nothing to where they go",
        "'sysctl -a -r forwarding' shows which links forward",
    ),
    "Udp.NoPorts": _NO_SOCKET,
    "Udp6NoPorts": _NO_SOCKET,
    "Neighbours4.unresolved_discards": _NO_MAC,
    "Neighbours6.unresolved_discards": _NO_MAC,
}


def difference(before: Counted, after: Counted) -> dict[str, int]:
    """What has grown."""
    return {name: grown for name, count in after.items() if (grown := count - before.get(name, 0)) > 0}


def by_probes(grown: Counted, without: Counted, *, times: float) -> dict[str, int]:
    """What grew with probes, less `times` what grew in a while without, unless that is far less: a packet is chance."""
    found = dict[str, int]()
    for name, count in grown.items():
        expected = round(without.get(name, 0) * times)
        found[name] = count if 2 * expected <= count else count - expected
    return {name: count for name, count in found.items() if count > 0}


def explained(place: str, grown: Counted, lost: int) -> Problem | None:
    """What the kernel of a place says of `lost` probes; None if no counter grew by as many, or all by far more.

    A full queue drops what else comes, too.
    """
    enough = {
        name: count
        for name, count in grown.items()
        if count >= lost > 0 and (count <= _MOST * lost or name.startswith(_QUEUE))
    }
    for name, reason in _REASONS.items():
        if name in enough:
            return _problem(place, reason, name, enough[name])
    for name, count in enough.items():
        if (one_of_many := _of_kind(*name.partition(".")[::2])) is not None:
            return _problem(place, one_of_many, name, count)
    return None


def _of_kind(kind: str, which: str) -> _Reason | None:
    """The reason of a counter that is one of many: of IPsec, and of links' queues and filters."""
    if kind.startswith("Xfrm"):
        return _Reason("XFRM-001", _IPSEC, "See 'ip xfrm policy' and 'ip xfrm state' there")
    if kind != _QUEUE:
        return None
    discipline, _, link = which.partition(".")
    if discipline in _FILTERED:
        hint = f"'tc -s filter show dev {link} ingress' (or egress) shows them, and 'bpftool net' who they are"
        return _Reason("PROG-001", f"a filter or program of tc on {link} drops them", hint)
    hint = f"'tc -s qdisc show dev {link}': give it a larger rate or limit, or find who has made it"
    return _Reason("QDISC-001", f"the queueing discipline {discipline} of {link} drops them", hint)


def _problem(place: str, reason: _Reason, name: str, count: int) -> Problem:
    return Problem(reason.code, place, f"{reason.words}: its counter {name} grew by {count}", hint=reason.hint)
