"""A packet under way on a node: the hops that it has passed, and what NAT makes of it. Pure."""

from collections.abc import Iterable
from typing import Final, NoReturn

from weft.diag.finding import setting
from weft.diag.owners import refusal
from weft.diag.rules.matching import Packet
from weft.diag.rules.nat import Translation, outcomes
from weft.diag.rules.policed import apart, policed
from weft.diag.rules.verdict import Verdict, judge
from weft.diag.sight.node import Sight
from weft.diag.sight.routing import UNICAST, Choice, address_on, fixed_neighbour, is_own, remedy, unanswered, words
from weft.diag.sizes import SMALLEST
from weft.diag.trace.hops import Ending, Hop, Way
from weft.model.errors import Problem
from weft.model.kernel.marks import MAIN_TABLE
from weft.model.kernel.reported import NO_CARRIER, LinkInfo, RouteInfo
from weft.model.net import Ip, with_port
from weft.model.value import replace

_FIXED: Final = "If that MAC is wrong, nothing arrives. To have the kernel ask: ip neighbour delete {} dev {}"
_NAMED: Final = 4  # of the ends that chance chooses from
_BEFORE_ROUTING: Final = ("prerouting", "output")


def behind(sight: Sight, hook: str, packet: Packet, original: Packet | None) -> tuple[Packet, list[Hop]]:
    """Return the packet behind the NAT chains of a hook, and the hops that say so.

    `original` is the packet that an answer answers, as that came to this node.
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

    None where rules translate it, or nothing decides.
    """
    found = outcomes(sight.rules, "postrouting", replace(packet, kind="unicast"))
    if "rules" in sight.unseen or any(each.translation is not None or each.doubt for each in found):
        return None
    return found[0].spared


def _translated(sight: Sight, packet: Packet, made: list[Translation]) -> tuple[Packet, Hop]:
    """The other translations are as likely."""
    first = made[0]
    link = sight.link(packet.oif or packet.iif)
    own = None if link is None else address_on(sight, link.index, packet.source.version)
    address = first.address or own
    translated = packet.translated | {first.kind}
    if first.kind == "dnat":
        port = first.port or packet.target_port
        changed = replace(packet, target=address or packet.target, target_port=port, translated=translated)
        here, there = with_port(packet.target, packet.target_port), with_port(changed.target, port)
    else:
        changed = replace(packet, source=address or packet.source, translated=translated)
        here, there = str(packet.source), str(changed.source)
    ends = dict.fromkeys(with_port(each.address, each.port) for each in made)
    others = list(ends)[1:]
    chance = f", or by chance {', '.join(others[:_NAMED])}{', …' if len(others) > _NAMED else ''}" if others else ""
    seen = f"{here} becomes {there}{chance}, by {first.by}"
    passes = None if address is None else True
    chosen = dict.fromkeys(str(each.address) for each in made if first.kind == "dnat" and each.address is not None)
    return changed, Hop(what=first.kind.upper(), seen=seen, passes=passes, others=tuple(chosen)[1:])


def _restored(hook: str, packet: Packet, original: Packet) -> tuple[Packet, list[Hop]]:
    """Before routing its target changes back, after it its source."""
    if hook in _BEFORE_ROUTING:
        changed = replace(packet, target=original.source, target_port=original.source_port)
        before, after = packet.target, changed.target
    else:
        changed = replace(packet, source=original.target, source_port=original.target_port)
        before, after = packet.source, changed.source
    hop = Hop(what="conntrack", seen=f"{before} becomes {after} again")
    return changed, [] if before == after else [hop]


class OverError(Exception):
    """The packet's way on this node is over; `way` has no hops."""

    def __init__(self, way: Way) -> None:
        super().__init__(way.end)
        self.way = way


class Walk:
    """A packet under way; each step adds hops, and the last one raises `OverError`.

    `original` is the packet that an answer answers, as that came to this node.
    """

    def __init__(self, sight: Sight, packet: Packet, original: Packet | None) -> None:
        self.hops: list[Hop] = []
        self.sight = sight
        self.packet = packet
        self.original = original

    def by_nat(self, hook: str, packet: Packet) -> Packet:
        packet, hops = behind(self.sight, hook, packet, self.original)
        self.hops += hops
        self.packet = packet
        return packet

    def passes(self, what: str, seen: str, device: str = "") -> None:
        self.hops.append(Hop(what=what, seen=seen, device=device))

    def doubts(self, what: str, suspect: Problem) -> None:
        """Note a hop that the packet passes, or where it is lost."""
        self.hops.append(Hop(what=what, seen=suspect.seen, passes=None, suspect=suspect))

    def drop(self, what: str, seen: str, problem: Problem) -> NoReturn:
        self.hops.append(Hop(what=what, seen=seen, passes=False))
        raise OverError(Way(hops=(), end="dropped", problem=problem))

    def has_ipv6(self, address: Ip, links: Iterable[LinkInfo], what: str, seen: str) -> None:
        """Drop what finds no way to an IPv6 address, as `seen` says, if one of `links` has IPv6 off (and no routes)."""
        names = (f"net/ipv6/conf/{link.name}/disable_ipv6" for link in links if address.version == 6)
        off = next((name for name in names if self.sight.settings.get(name) == "1"), "")
        if off:
            problem = Problem("V6-001", f"sysctl {off}", f"IPv6 is off, and {seen}", hint=str(setting(off, "0", "")))
            self.drop(what, seen, problem)

    def over(self, end: Ending, to: str = "", carried: str = "") -> NoReturn:
        raise OverError(Way(hops=(), end=end, to=to, carried=carried))

    def up(
        self,
        link: LinkInfo,
        what: str,
        code: str,
        *,
        carrier: bool = False,
        seen_there: bool = True,
        asks: Ip | None = None,
    ) -> None:
        """Pass a link that must be up, and have a `carrier` if it is between nodes.

        An address that did not answer when the link asked for its MAC may answer now: that is not decided.
        """
        if not link.up:
            problem = Problem(code, f"link {link.name}", "it is down", hint=f"ip link set {link.name} up")
            self.drop(what, f"{link.name} is down", problem)
        if carrier and link.operstate in NO_CARRIER:
            problem = Problem(code, f"link {link.name}", "it has no carrier", hint="See its cable or peer")
            self.drop(what, f"{link.name} has no carrier", problem)
        if asks is not None and (silence := unanswered(self.sight, link, asks)):
            astray = (hop.suspect for hop in self.hops if hop.what == "route" and hop.suspect is not None)
            # Where the route leads elsewhere than the lease's, nobody there has the address.
            silent = _silent(silence, link, is_pods=link in self.sight.bridges)
            self.doubts("neighbour", next(astray, silent))
        self.passes(what, f"{link.name}, MTU {link.mtu}", device=link.name if seen_there else "")
        if asks is not None and (fixed := fixed_neighbour(self.sight, asks)):
            problem = Problem("NEIGH-002", f"link {link.name}", fixed, hint=_FIXED.format(asks, link.name))
            self.hops.append(Hop(what="fixed MAC", seen=fixed, suspect=problem))

    def fits(self, packet: Packet, route: RouteInfo, link: LinkInfo) -> None:
        """Drop what must not be fragmented and is larger than the link carries by which it leaves.

        What IPv4 forwards must fit the route, too (ip_dst_mtu_maybe_forward in include/net/ip.h).
        """
        by_route = route.mtu if packet.source.version == 4 and packet.iif else 0
        mtu, what = (by_route, f"route {route.dst}") if by_route else (link.mtu, link.name)
        if packet.size <= mtu:
            return
        seen = f"{packet.size} bytes are too large for {what}, MTU {mtu}"
        hint, pods = "", max(self.sight.mtus_of_pods.values(), default=0)
        if link in self.sight.devices and self.sight.mtu:
            hint = f"ip link set {link.name} mtu {self.sight.mtu}" if mtu < self.sight.mtu else ""
            hint = f"Pods here have MTU {pods}, from before: recreate them" if pods > self.sight.mtu else hint
        problem = Problem("MTU-001", what, seen, hint=hint)
        self.drop("size", f"{seen}: the kernel tells the sender", problem)

    def chosen(self, packet: Packet, choice: Choice, *, code: str = "ROUTE-001") -> None:
        """Pass the rule that chose another table than the main one."""
        if choice.doubt:
            seen = f"undecided: the rule '{choice.doubt}' may choose another table"
            self.hops.append(Hop(what="policy", seen=seen, passes=None))
        if choice.rule is None or choice.rule.table == MAIN_TABLE:
            return
        seen = f"rule {words(choice.rule)}"
        if choice.route is None or choice.route.kind != UNICAST:
            hint = f"'{remedy(self.sight, choice)}' removes what decides so"
            self.drop("policy", seen, Problem(code, f"way of {packet}", seen, hint=hint))
        self.passes("policy", seen)

    def filtered(self, hook: str, packet: Packet, *, code: str = "FW-002") -> None:
        what = f"rules at {hook}"
        if "rules" in self.sight.unseen:
            self.hops.append(Hop(what=what, seen=f"not seen: {self.sight.unseen['rules']}", passes=None))
            return
        verdict = judge(apart(self.sight.rules), hook, packet)
        if verdict.passes is False:
            self._refuse(what, f"dropped by {verdict.by}", verdict, (hook, packet), code=code)
        seen = "accepted" if verdict.passes else f"undecided: {verdict.by}"
        self.hops.append(Hop(what=what, seen=f"{packet}: {seen}", passes=verdict.passes))
        for each in policed(self.sight.rules, hook, packet):
            if each.verdict.passes is False:
                self._refuse("policies", f"{each.words}, by {each.verdict.by}", each.verdict, (hook, packet), code=code)
            self.hops.append(Hop(what="policies", seen=each.words, passes=each.verdict.passes))

    def _refuse(self, what: str, seen: str, verdict: Verdict, asked: tuple[str, Packet], *, code: str) -> NoReturn:
        hook, packet = asked
        own, hint = refusal(self.sight.rules.chains, verdict.place)
        code = own if code == "FW-002" else code
        if packet.size and judge(self.sight.rules, hook, replace(packet, size=SMALLEST)).passes is not False:
            code, seen = "MTU-001", f"{seen}, which lets small ones pass"
        self.drop(what, f"{packet}: {seen}", Problem(code, f"{hook} of {packet}", seen, hint=hint))

    def quietly(self, hook: str, packet: Packet, *, code: str = "FW-002") -> None:
        """Do as `filtered`, with a hop only if a rule says something: few have rules at this hook."""
        if judge(self.sight.rules, hook, packet).passes is not True:
            self.filtered(hook, packet, code=code)


def _silent(seen: str, link: LinkInfo, *, is_pods: bool) -> Problem:
    """An uplink may be a bridge, too."""
    if is_pods:
        hint = "Its pod has ended, or lost its address or its link: see 'ip address' in it"
        return Problem("CHECK-001", f"link {link.name}", seen, hint=hint)
    hint = "That machine is off, or cut off from this link: see its power, cable, switch port and VLAN"
    return Problem("REACH-001", f"link {link.name}", seen, hint=hint)
