"""The rules at the lab's switch that lose packets and cut ways, as one transaction for nft. Pure.

They are a table of the family bridge in the lab's own namespace: no node sees a rule that is not its own, and frames
of both families and of ARP are treated alike.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from weft.model.nftset import Table
from weft.wire import nft

TABLE: Final = Table("bridge", "weft-lab")
SWITCH: Final = ""  # in a cut: the lab's own address at the switch, instead of a port
_PARTS: Final = 1_000_000  # the loss of a packet is drawn among so many numbers


def transaction(losses: Mapping[str, float], cuts: Iterable[tuple[str, str]]) -> str:
    """Write what makes the table hold these alone, whatever it held; without any, what removes it.

    `losses` is the share of packets by port, in percent and in each direction; a cut is from a port to a port.
    """
    rules: dict[str, list[str]] = {}
    for port, loss in losses.items():
        last = max(1, round(loss * _PARTS / 100)) - 1
        drop = f"numgen random mod {_PARTS} <= {last} drop"
        rules.setdefault("prerouting", []).append(f'iifname "{port}" {drop}')
        rules.setdefault("postrouting", []).append(f'oifname "{port}" {drop}')
    for source, target in sorted(cuts):
        hook = "input" if target == SWITCH else "output" if source == SWITCH else "forward"
        ends = [f'iifname "{source}"'] * (source != SWITCH) + [f'oifname "{target}"'] * (target != SWITCH)
        rules.setdefault(hook, []).append(f"{' '.join(ends)} drop")
    # Adding first makes deleting succeed where there is no table.
    lines = [f"add table {TABLE}", f"delete table {TABLE}"]
    if rules:
        lines.append(f"add table {TABLE}")
    for hook, texts in rules.items():
        lines.append(f"add chain {TABLE} {hook} {{ type filter hook {hook} priority 0; }}")
        lines += [f"add rule {TABLE} {hook} {text}" for text in texts]
    return nft.payload(lines)
