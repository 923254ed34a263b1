"""A packet behind NAT on a node: the first of a connection by rules, an answer as connection tracking has it. Pure."""

from typing import Final

from weft.diag.rules.matching import Packet
from weft.diag.rules.nat import Translation, outcomes
from weft.diag.sight.node import Sight
from weft.diag.sight.routing import address_on, is_own
from weft.diag.trace.hops import Hop
from weft.model.net import Ip
from weft.model.value import replace

_NAMED: Final = 4  # of the ends that chance chooses from
_BEFORE_ROUTING: Final = ("prerouting", "output")


def behind(sight: Sight, hook: str, packet: Packet, original: Packet | None) -> tuple[Packet, list[Hop]]:
    """Return the packet behind the chains for NAT of a hook, and what there is to say of it.

    Of an answer `original` is the packet that it answers, as that came to this node.
    """
    if packet.state != "new":
        return (packet, []) if original is None else _restored(hook, packet, original)
    hops: list[Hop] = []
    kind = "local" if is_own(sight, packet.target) else "unicast"
    found = outcomes(sight.rules, hook, replace(packet, kind=kind))
    doubt = next((each.doubt for each in found if each.doubt), "")
    packet = replace(packet, mark=None if doubt else found[0].mark)
    if doubt:
        hops.append(Hop(what=f"NAT at {hook}", seen=f"undecided: {doubt}", passes=None))
    if found[0].translation is None:
        return packet, hops
    made = list(dict.fromkeys(each.translation for each in found if each.translation is not None))
    packet, hop = _translated(sight, packet, made)
    return packet, [*hops, hop]


def kept(sight: Sight, packet: Packet) -> str | None:
    """The rule by which a packet keeps its source on leaving, "" if no rule knows it.

    None where rules translate it, or can't be told.
    """
    found = outcomes(sight.rules, "postrouting", replace(packet, kind="unicast"))
    if "rules" in sight.unseen or any(each.translation is not None or each.doubt for each in found):
        return None
    return found[0].spared


def _translated(sight: Sight, packet: Packet, made: list[Translation]) -> tuple[Packet, Hop]:
    """The packet as the first translation makes it; the others are as likely."""
    first = made[0]
    link = sight.link(packet.oif or packet.iif)
    own = None if link is None else address_on(sight, link.index, packet.source.version)
    address = first.address or own
    translated = packet.translated | {first.kind}
    if first.kind == "dnat":
        port = first.port or packet.target_port
        changed = replace(packet, target=address or packet.target, target_port=port, translated=translated)
        here, there = _end(packet.target, packet.target_port), _end(changed.target, port)
    else:
        changed = replace(packet, source=address or packet.source, translated=translated)
        here, there = str(packet.source), str(changed.source)
    ends = dict.fromkeys(_end(each.address, each.port) for each in made)
    others = list(ends)[1:]
    chance = f", or by chance {', '.join(others[:_NAMED])}{', …' if len(others) > _NAMED else ''}" if others else ""
    seen = f"{here} becomes {there}{chance}, by {first.by}"
    passes = None if address is None else True
    chosen = dict.fromkeys(str(each.address) for each in made if first.kind == "dnat" and each.address is not None)
    return changed, Hop(what=first.kind.upper(), seen=seen, passes=passes, others=tuple(chosen)[1:])


def _restored(hook: str, packet: Packet, original: Packet) -> tuple[Packet, list[Hop]]:
    """An answer, as connection tracking changes it back: before routing where it goes, after it where it comes from."""
    if hook in _BEFORE_ROUTING:
        changed = replace(packet, target=original.source, target_port=original.source_port)
        before, after = packet.target, changed.target
    else:
        changed = replace(packet, source=original.target, source_port=original.target_port)
        before, after = packet.source, changed.source
    hop = Hop(what="conntrack", seen=f"{before} becomes {after} again")
    return changed, [] if before == after else [hop]


def _end(address: Ip | None, port: int) -> str:
    """An address with its port, if there is one."""
    if not port:
        return str(address)
    return f"[{address}]:{port}" if address is not None and address.version == 6 else f"{address}:{port}"
