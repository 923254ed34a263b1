"""nft rules at the lab's switch that lose, cut, count and translate packets. Pure.

Their tables are of the family bridge in the lab's own namespace, and for NAT in the router's: a node sees only its own
rules.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from weft.lab.spec import Nat
from weft.model.kernel.nftset import Table
from weft.model.net import Ip, with_port
from weft.model.value import Value
from weft.wire import nft

TABLE: Final = Table("bridge", "weft-lab")
COUNTING: Final = Table("bridge", "weft-lab-count")
_NAT: Final = Table("inet", "weft-lab-nat")
INSIDE, OUTSIDE = "inside", "outside"  # links of a router with NAT
WIREGUARD: Final = 51820
SENT, LOST = "sent", "lost"  # sets of packets by the MACs from and to which they go
_PAIRS: Final = "{ type ether_addr . ether_addr; flags dynamic; size 65535; }"
_PAIR: Final = "{ ether saddr . ether daddr counter }"
_PARTS: Final = 1_000_000  # the loss of a packet is drawn among so many numbers


class Place(Value):
    """A port of a segment's switch, or without one the lab itself, where the store is.

    Behind a NAT it has the addresses `outside` for other segments, and its WireGuard perhaps always the same port.
    """

    port: str = ""
    segment: int = 1
    addresses: tuple[Ip, ...]
    outside: tuple[Ip, ...] = ()
    wireguard: int = 0


def transaction(losses: Mapping[str, float], cuts: Iterable[tuple[Place, Place]]) -> str:
    """A transaction after which the table holds these alone; without any, it is removed.

    `losses` is the share of packets by port, in percent and in each direction.
    """
    rules: dict[str, list[str]] = {}
    for port, loss in losses.items():
        last = max(1, round(loss * _PARTS / 100)) - 1
        lose = f"numgen random mod {_PARTS} <= {last}"
        rules.setdefault("prerouting", []).append(f'iifname "{port}" {lose}')
        rules.setdefault("postrouting", []).append(f'oifname "{port}" {lose}')
    for source, target in cuts:
        hook, matches = _cut(source, target)
        rules.setdefault(hook, []).extend(matches)
    # Adding first makes deleting succeed where there is no table.
    lines = [f"add table {TABLE}", f"delete table {TABLE}"]
    if rules:
        lines += [
            f"add table {TABLE}",
            f"add set {TABLE} {LOST} {_PAIRS}",
            f"add chain {TABLE} lose",
            # Two rules: one that cannot count, because the set is full, goes no further.
            f"add rule {TABLE} lose update @{LOST} {_PAIR}",
            f"add rule {TABLE} lose drop",
        ]
    for hook, texts in rules.items():
        lines.append(f"add chain {TABLE} {hook} {{ type filter hook {hook} priority 0; }}")
        lines += [f"add rule {TABLE} {hook} {text} goto lose" for text in texts]
    return nft.payload(lines)


def counting(*, wanted: bool) -> str:
    lines = [f"add table {COUNTING}", f"delete table {COUNTING}"]
    if wanted:
        chain = "{ type filter hook prerouting priority -300; }"
        lines += [
            f"add table {COUNTING}",
            f"add set {COUNTING} {SENT} {_PAIRS}",
            f"add chain {COUNTING} prerouting {chain}",
            f"add rule {COUNTING} prerouting update @{SENT} {_PAIR}",
        ]
    return nft.payload(lines)


def _cut(source: Place, target: Place) -> tuple[str, list[str]]:
    if source.port and target.port and source.segment == target.segment:
        return "forward", [f'iifname "{source.port}" oifname "{target.port}"']
    if target.outside and not source.outside:  # its NAT hands on what it has asked for
        return "forward", [f'oifname "{target.port}" {_family(ip)} saddr {ip}' for ip in source.addresses]
    if source.outside:  # of one behind another NAT it sees the address of all there
        port = f" udp dport {target.wireguard}" if target.wireguard else ""
        seen = target.outside or target.addresses
        return "forward", [f'iifname "{source.port}" {_family(ip)} daddr {ip}{port}' for ip in seen]
    if source.port:  # to the store, or by the router: the switch takes it in
        return "input", [f'iifname "{source.port}" {_family(ip)} daddr {ip}' for ip in target.addresses]
    return "output", [f'oifname "{target.port}" {_family(ip)} saddr {ip}' for ip in source.addresses]


def _family(ip: Ip) -> str:
    return "ip" if ip.version == 4 else "ip6"


def nat(kind: Nat, *, lab: Iterable[Ip], nodes: Iterable[Place]) -> str:
    """The rules of a router between its links `inside` and `outside`, as one transaction.

    What nodes begin leaves with the router's address, and answers come back; what others than the lab itself begin is
    dropped. So is what is for the router: it would be known as a connection of its own, and a node whose packet goes
    the same way back would get another port than others were told (`kind` cone: the same for all).
    """
    lines = [
        f"add table {_NAT}",
        f"add chain {_NAT} input {{ type filter hook input priority filter; }}",
        f"add chain {_NAT} forward {{ type filter hook forward priority filter; }}",
        f"add chain {_NAT} postrouting {{ type nat hook postrouting priority srcnat; }}",
        *(f'add rule {_NAT} forward iifname "{OUTSIDE}" {_family(ip)} saddr {ip} accept' for ip in lab),
        *(f'add rule {_NAT} {chain} iifname "{OUTSIDE}" ct state new drop' for chain in ("input", "forward")),
    ]
    leaves = f'add rule {_NAT} postrouting oifname "{OUTSIDE}"'
    if kind == "hard":
        return nft.payload([*lines, f"{leaves} masquerade fully-random"])
    for node in nodes:
        for own, seen in zip(node.addresses, node.outside, strict=True):
            family, to = _family(own), with_port(seen, node.wireguard)
            lines.append(f"{leaves} {family} saddr {own} udp sport {WIREGUARD} snat {family} to {to}")
    return nft.payload([*lines, f"{leaves} masquerade"])
