"""What the tables of policies have refused, and by what: one look by netlink."""

from collections.abc import Iterator
from contextlib import closing

from weft.desired.policy.frame import refusal
from weft.desired.policy.inputs import Mode
from weft.desired.policy.names import MAP
from weft.desired.policy.refusals import Held
from weft.kernel.netfilter.nfnetlink import NfSocket
from weft.model.kernel.nftset import Element
from weft.model.kernel.policytable import INET, table_of
from weft.model.net import FAMILIES
from weft.model.policy import DIRECTIONS


def counted(mode: Mode) -> dict[str, int]:
    """The packets that were refused since the tables were made, by direction. Raises `OSError`."""
    with closing(NfSocket.open()) as nf:
        return {
            direction: sum(each.packets for each in nf.rules(table_of(INET), refusal(direction, mode).name))
            for direction in DIRECTIONS
        }


def flows(nf: NfSocket) -> tuple[Element, ...]:
    """What was refused and is remembered, with its counters; nothing without the table. Raises `NetlinkError`."""
    return tuple(_of_sets(nf, "denied-"))


def look(nf: NfSocket) -> Held | None:
    """None without the table. Raises `NetlinkError`."""
    table = table_of(INET)
    if not nf.has_table(table):
        return None
    return Held(refused=flows(nf), pods=tuple(_of_sets(nf, "")), rules=tuple(nf.rules(table)))


def _of_sets(nf: NfSocket, prefix: str) -> Iterator[Element]:
    for way in MAP.values():
        for family in FAMILIES:
            yield from nf.elements(table_of(INET), f"{prefix}{way}{family}")
