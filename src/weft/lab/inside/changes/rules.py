"""nft rules at the lab's switch that lose, cut, count and translate packets. Pure.

Their tables are in the lab's own namespace, of the family bridge but for NAT: a node sees only its own rules.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from weft.model.kernel.nftset import Table
from weft.model.net import Ip
from weft.model.value import Value
from weft.wire import nft

TABLE: Final = Table("bridge", "weft-lab")
COUNTING: Final = Table("bridge", "weft-lab-count")
_NAT: Final = Table("inet", "weft-lab-nat")
SENT, LOST = "sent", "lost"  # sets of packets by the MACs from and to which they go
_PAIRS: Final = "{ type ether_addr . ether_addr; flags dynamic; size 65535; }"
_PAIR: Final = "{ ether saddr . ether daddr counter }"
_PARTS: Final = 1_000_000  # the loss of a packet is drawn among so many numbers


class Place(Value):
    """A port of a segment's switch, or without one the lab itself, where the store is."""

    port: str = ""
    segment: int = 1
    addresses: tuple[Ip, ...]


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
    if source.port:  # to the store, or by the router: the switch takes it in
        return "input", [f'iifname "{source.port}" {_family(ip)} daddr {ip}' for ip in target.addresses]
    return "output", [f'oifname "{target.port}" {_family(ip)} saddr {ip}' for ip in source.addresses]


def _family(ip: Ip) -> str:
    return "ip" if ip.version == 4 else "ip6"


def nat(bridges: Iterable[str]) -> str:
    """The router's rules for segments behind a NAT, as one transaction.

    What their nodes begin leaves with the router's address, and answers come back; what others begin is dropped. The
    store is the router's own, so it knows nodes by their own addresses.
    """
    lines = [
        f"add table {_NAT}",
        f"add chain {_NAT} forward {{ type filter hook forward priority filter; }}",
        f"add chain {_NAT} postrouting {{ type nat hook postrouting priority srcnat; }}",
    ]
    for bridge in bridges:
        lines.append(f'add rule {_NAT} forward iifname != "{bridge}" oifname "{bridge}" ct state new drop')
        lines.append(f'add rule {_NAT} postrouting iifname "{bridge}" oifname != "{bridge}" masquerade')
    return nft.payload(lines)
