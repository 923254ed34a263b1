"""Words of the kernel for why it loses packets, and the codes of these problems. Pure."""

from typing import Final

from weft.model.errors import Problem
from weft.model.kernel.dropped import Drop
from weft.model.value import Value


class Reason(Value, kw_only=False):
    code: str
    words: str
    hint: str

    def problem(self, where: str, evidence: str) -> Problem:
        return Problem(self.code, where, f"{self.words}: {evidence}", hint=self.hint)


_NO_ROUTE: Final = Reason("ROUTE-003", "the kernel has no route for them", "'ip rule' and 'ip route get' show which")
_NO_SOCKET: Final = Reason("VTEP-004", "nothing listens at the port that they came to", "See the daemon there")
_NO_MAC: Final = Reason(
    "REACH-001", "the kernel waits in vain for a MAC", "The next machine is off, or cut off: 'ip neighbour'"
)
_BACKWARDS: Final = Reason(
    "KERN-003",
    "the kernel takes their source for a wrong one, because answers would go by another link (rp_filter)",
    "Mend the route back, or set rp_filter of that link to 2",
)
_NOT_FORWARDED: Final = Reason(
    "KERN-002", "the kernel forwards nothing to where they go", "'sysctl -a -r forwarding' shows which links forward"
)
_IPSEC: Final = Reason(
    "XFRM-001", "a policy or state of IPsec (xfrm) drops them", "See 'ip xfrm policy' and 'ip xfrm state' there"
)
_FILTERED: Final = Reason("FW-002", "a rule of the packet filter drops them", "'weft trace --probe' names the rule")
_QUEUE: Final = Reason("QDISC-001", "a queueing discipline drops them", "'tc -s qdisc show' shows which")
_PROGRAM: Final = Reason("PROG-001", "a filter or program on a link drops them", "'bpftool net' shows what there is")
_CHECKSUM: Final = Reason("CSUM-001", "their checksum is wrong", "'ethtool -k' of the sender's link: tx-checksumming")
_TOO_LARGE: Final = Reason("MTU-001", "they are larger than the next link takes", "'weft doctor' compares MTUs")
_DOWN: Final = Reason("CHECK-001", "the link that they should leave by is down", "'ip link' shows it")
# Counters of proc(5) that say why a packet ends here (linux/snmp.h), the most telling first.
BY_COUNTER: Final = {
    "TcpExt.IPReversePathFilter": _BACKWARDS,
    "IpExt.InNoRoutes": _NO_ROUTE,
    "Ip.OutNoRoutes": _NO_ROUTE,
    "Ip6InNoRoutes": _NO_ROUTE,
    "Ip6OutNoRoutes": _NO_ROUTE,
    "Ip.InAddrErrors": _NOT_FORWARDED,
    "Udp.NoPorts": _NO_SOCKET,
    "Udp6NoPorts": _NO_SOCKET,
    "Neighbours4.unresolved_discards": _NO_MAC,
    "Neighbours6.unresolved_discards": _NO_MAC,
}
# Names of `enum skb_drop_reason` (net/dropreason-core.h; net/dropreason.h before Linux 6.3).
BY_WORD: Final = {
    "NETFILTER_DROP": _FILTERED,
    "IP_RPFILTER": _BACKWARDS,
    "IP_LOCAL_SOURCE": _BACKWARDS,
    "IP_INNOROUTES": _NO_ROUTE,
    "IP_OUTNOROUTES": _NO_ROUTE,
    "IP_INADDRERRORS": _NOT_FORWARDED,
    "NO_SOCKET": _NO_SOCKET,
    "NEIGH_CREATEFAIL": _NO_MAC,
    "NEIGH_FAILED": _NO_MAC,
    "NEIGH_QUEUEFULL": _NO_MAC,
    "NEIGH_DEAD": _NO_MAC,
    "XFRM_POLICY": _IPSEC,
    "QDISC_DROP": _QUEUE,
    "TC_INGRESS": _PROGRAM,
    "TC_EGRESS": _PROGRAM,
    "XDP": _PROGRAM,
    "IP_CSUM": _CHECKSUM,
    "TCP_CSUM": _CHECKSUM,
    "UDP_CSUM": _CHECKSUM,
    "ICMP_CSUM": _CHECKSUM,
    "PKT_TOO_BIG": _TOO_LARGE,
    "DEV_READY": _DOWN,
}
# Where answers to pings end, of which raw sockets have got copies (net/ipv4/icmp.c, net/ipv6/icmp.c).
_ENDS: Final = ("icmp_rcv", "icmpv6_rcv")
_NO_REASONS: Final = ("NO_SOCKET", "NOT_SPECIFIED")
_FILTERING: Final = ("clsact", "ingress")  # qdiscs that queue nothing: what they drop, a filter of theirs does
QUEUE: Final = "Queue"  # how names of counters of queueing disciplines begin


def has_arrived(drop: Drop) -> bool:
    """True of what the kernel takes for dropped, and that has come to its end."""
    return drop.function in _ENDS and drop.reason in _NO_REASONS


def of_counter(name: str) -> Reason | None:
    """None for one that says nothing of why. Of IPsec and of links' queues there are many."""
    kind, _, which = name.partition(".")
    if kind == QUEUE:
        return _of_queue(*which.partition(".")[::2])
    return _IPSEC if kind.startswith("Xfrm") else BY_COUNTER.get(name)


def _of_queue(discipline: str, link: str) -> Reason:
    if discipline in _FILTERING:
        hint = f"'tc -s filter show dev {link} ingress' (or egress) shows them, and 'bpftool net' who they are"
        return Reason("PROG-001", f"a filter or program of tc on {link} drops them", hint)
    hint = f"'tc -s qdisc show dev {link}': give it a larger rate or limit, or find who has made it"
    return Reason("QDISC-001", f"the queueing discipline {discipline} of {link} drops them", hint)
