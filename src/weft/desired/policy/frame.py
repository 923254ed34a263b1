"""What the tables of policies hold whatever the policies: base chains, sets, what refuses, and who may send what.

A base chain leads a packet by its address to the pod's class. What no pod here is known to have is refused; `accept`
ends one direction alone, so there are two chains. In the audit mode what would be refused is counted and let through.
"""

from collections.abc import Iterator
from functools import cache
from typing import Final, Literal

from weft.desired.policy.inputs import Attached, Mode, PolicySettings
from weft.desired.policy.names import ADDRESS, CUT, MAP, interface
from weft.model.kernel.marks import NFT_WORD
from weft.model.kernel.nftset import field
from weft.model.kernel.objects import Object
from weft.model.kernel.policytable import BRIDGE, INET, PolicyChain, PolicyElement, PolicySet, named
from weft.model.policy import DIRECTIONS, Direction

Hook = Literal["forward", "output"]

_OWN_SIDE: Final[dict[Direction, str]] = {"egress": "saddr", "ingress": "daddr"}
_PRIORITY: Final[dict[Direction, int]] = {"egress": -2, "ingress": -1}
# Neighbours, routers and groups: bridge netfilter brings them to hook forward. What is routed has fewer hops than 255
# left there (RFC 4861, 11.2), and groups are asked and told by their own addresses (RFC 3810): so none of it is routed.
_NEIGHBOURS: Final = (
    "icmpv6 type 133-137 ip6 hoplimit 255",
    "icmpv6 type 130-132 ip6 daddr ff00::/8",
    "icmpv6 type 143 ip6 daddr ff00::/8",
)
# No pod is a router.
_PODS_NEIGHBOURS: Final = ("131-133", "135-136", "143")
REMEMBERED: Final = 600  # seconds
_DENIED: Final = (
    f"type {{ip}} . {{ip}} . inet_proto . inet_service; size 4096; flags dynamic,timeout; timeout {REMEMBERED // 60}m;"
)
# The address that a neighbour advertisement claims, and its first ten bits, which fe80::/10 says (RFC 4861, 4.4).
_CLAIMED: Final = "@th,64,128"
_NOT_OF_THE_LINK: Final = "@th,64,10 != 0x3fa"
# Three hours: longer than TCP asks a silent peer whether it is there.
_CUT: Final = (
    "type {ip} . {ip} . inet_proto . inet_service . inet_service; size 65536; flags dynamic,timeout; timeout 3h;"
)
# Before connection tracking, and before what others drop or accept.
_FIRST: Final = -350


@cache
def refusal(direction: Direction, mode: Mode) -> PolicyChain:
    """The chain in which a class ends. It refuses packets, and remembers whose for ten minutes, also without a daemon.

    Packets without ports are remembered with port 0. The last rule counts those that the full set cannot remember.
    """
    way = MAP[direction]
    end = f"counter {'accept' if mode == 'audit' else 'drop'}"
    remembered = (
        f"meta nfproto ipv{family} meta l4proto {which}{{ tcp, udp, sctp }}"
        f" update @denied-{way}{family} {{ {ip} saddr . {ip} daddr . meta l4proto . {port} counter }} {end}"
        for family, ip in NFT_WORD.items()
        for which, port in (("", "th dport"), ("!= ", "0"))
    )
    return named(f"denied-{way}", (*remembered, end))


def frame(settings: PolicySettings) -> frozenset[Object]:
    hooks: tuple[Hook, ...] = ("forward", "output") if settings.ipvs else ("forward",)
    chains = [_base(direction, settings, hook) for hook in hooks for direction in DIRECTIONS]
    chains += [refusal(direction, settings.mode) for direction in DIRECTIONS]
    return frozenset((*_sets(), *chains))


def _sets() -> Iterator[PolicySet]:
    yield PolicySet(table=INET, name="links", spec="type ifname;")
    for family, ip in ADDRESS.items():
        specs = {"self": f"type {ip} . {ip};", CUT: _CUT.format(ip=ip)}
        for way in MAP.values():
            specs |= {way: f"type {ip} : verdict;", f"denied-{way}": _DENIED.format(ip=ip)}
        yield from (PolicySet(table=INET, name=f"{name}{family}", spec=spec) for name, spec in specs.items())
        for table in (INET, BRIDGE):
            yield PolicySet(table=table, name=f"bound{family}", spec=f"type ifname . {ip};")
    for table in (INET, BRIDGE):
        yield PolicySet(table=table, name="ports", spec="type ifname;")
        # Another set, for nft takes these bytes for no address.
        yield PolicySet(table=table, name="claims", spec=f"typeof iifname . {_CLAIMED};")


def _base(direction: Direction, settings: PolicySettings, hook: Hook) -> PolicyChain:
    """IPVS sends on from hook output what came for a Service, with the source that it has."""
    side, way, refused = _OWN_SIDE[direction], MAP[direction], refusal(direction, settings.mode).name
    rules = ["ct state established,related accept"]
    if hook == "output":
        rules.append("fib saddr type local accept")
    for family, ip in NFT_WORD.items():  # whose address is known of IPv4 is asked for nothing of IPv6
        if direction == "egress" and settings.mode == "enforce":
            # Answers of what was cut: connection tracking would take them for the beginning of another connection. What
            # is in the place of ports where a protocol has none counts for nothing: the set has no such protocol.
            ends = f"{ip} saddr . {ip} daddr . meta l4proto . th sport . th dport"
            # Each keeps the door shut, also of who never stops.
            rules.append(f"{ends} @{CUT}{family} update @{CUT}{family} {{ {ends} }} counter drop")
        if family == 6:
            rules += [f"{match} accept" for match in _NEIGHBOURS]
        rules.append(f"{ip} {side} vmap @{way}{family}")
    rules += [f"{NFT_WORD[net.version]} {side} {net} goto {refused}" for net in settings.subnets]
    if hook == "forward":
        # From where pods are, and no pod's address. Groups, broadcasts and addresses of the link reach pods of one
        # bridge, and are no pod's.
        to = "" if direction == "egress" else " oifname @links"
        rules.append(f"iifname @links{to} goto {refused}")
    where = f"type filter hook {hook} priority {_PRIORITY[direction]}; policy accept;"
    return named(direction, tuple(rules), where)


@cache
def _senders(table: str, mode: Mode) -> PolicyChain:
    """What a pod may send at all: from its own addresses, and without VLAN tags. Ports of a bridge need the bridge's.

    Addresses of the link are for neighbour discovery alone, which claims no other pod's address.
    """
    ether, last = table == BRIDGE, f"counter {'accept' if mode == 'audit' else 'drop'}"
    bound4, bound6 = (
        f"{f'ether type {ip} ' if ether else ''}iifname . {ip} saddr @bound{family} accept"
        for family, ip in NFT_WORD.items()
    )
    rules = [bound4, "iifname != @ports accept"]  # most packets are asked for once
    rules += [f"icmpv6 type 136 {_NOT_OF_THE_LINK} iifname . {_CLAIMED} != @claims {last}", bound6]
    rules += [
        f"ip6 saddr {source} icmpv6 type {types} accept" for source in ("::", "fe80::/10") for types in _PODS_NEIGHBOURS
    ]
    if ether:
        rules.append("ether type arp iifname . arp saddr ip @bound4 accept")
    rules.append(last)
    return named("senders", tuple(rules), f"type filter hook prerouting priority {_FIRST}; policy accept;", table)


def senders(attached: Attached, mode: Mode) -> tuple[Object, ...]:
    """By what a port sends from its pod's addresses alone, and by what its packets are known.

    The chain of a table that no port needs would cost each packet of the node.
    """
    found: list[Object] = []
    if attached.link:
        found.append(PolicyElement(table=INET, set="links", element=interface(attached.link)))
    if attached.port:
        table, name = INET if attached.port == attached.link else BRIDGE, interface(attached.port)
        found += [
            PolicyElement(table=table, set=f"bound{ip.version}", element=name + field(ip.packed)) for ip in attached.ips
        ]
        found += [
            PolicyElement(table=table, set="claims", element=name + ip.packed) for ip in attached.ips if ip.version == 6
        ]
        found.append(PolicyElement(table=table, set="ports", element=name))
        found.append(_senders(table, mode))
    return tuple(found)
