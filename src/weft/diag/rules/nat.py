"""What NAT makes of the first packet of a connection at a hook; later ones go the same way. Pure.

The kernel asks the chains for NAT of a hook in their order, until a rule of one translates the packet. Rules may leave
it to chance (kube-proxy's do), or ask what nothing here decides: so there may be several outcomes, the likeliest first
of those that chance decides.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, Literal

from weft.diag.rules.matching import Packet, calculated, looked_up, matches
from weft.diag.rules.ruleset import Chain, Name, Rule, Ruleset
from weft.diag.rules.xtables import CHANCE, Statement, may_end
from weft.model.net import Ip, ip_in
from weft.model.value import Value, replace

_DEEPEST: Final = 16  # NFT_JUMP_STACK_SIZE (net/netfilter/nf_tables.h)
_MOST: Final = 256  # outcomes that are kept in mind
_OWN_ADDRESS: Final = ("masquerade", "redirect")
_TRANSLATES: Final = ("dnat", "snat", *_OWN_ADDRESS)
_DECIDES: Final = frozenset(("accept", "drop", "reject", "queue", "return", "continue", "jump", "goto", *_TRANSLATES))
_MARK: Final = {"meta": {"key": "mark"}}
_TARGETS: Final = [{"payload": {"protocol": protocol, "field": "daddr"}} for protocol in ("ip", "ip6")]


class Translation(Value):
    """A new destination (`dnat`), or a new source; a masquerade without an address takes the outgoing link's."""

    kind: Literal["dnat", "snat"]
    by: str
    address: Ip | None = None
    port: int = 0


class Outcome(Value):
    """How a packet may leave the chains for NAT: with this mark, and translated or not.

    `doubt` is a rule on the way that nothing decides. `spared` is the first rule that lets packets for its target go on
    as they are.
    """

    mark: int | None
    translation: Translation | None = None
    doubt: str = ""
    spared: str = ""


# How a rule, or a chain, was left: to what comes next, to the calling chain, or out of the base chain.
_How = Literal["on", "back", "out"]


class _At(Value):
    outcome: Outcome
    how: _How = "on"


def outcomes(rules: Ruleset, hook: str, packet: Packet) -> list[Outcome]:
    chains = rules.at(hook, packet.source.version, kind="nat")
    found = _through(rules, chains, packet)
    for one, other in _undecided_order(chains):
        swapped = [other if chain is one else one if chain is other else chain for chain in chains]
        if _ends(_through(rules, swapped, packet)) != _ends(found):
            doubt = f"the order of {one} and {other}, of one priority"
            found = [replace(each, doubt=each.doubt or doubt) for each in found]
    return found


def _undecided_order(chains: Sequence[Chain]) -> list[tuple[Chain, Chain]]:
    """Neighbours of one priority in two tables: the kernel asks the newest first, which a listing does not say."""
    return [
        (one, other)
        for one, other in pairwise(chains)
        if one.priority == other.priority and one.place[:2] != other.place[:2]
    ]


def _ends(found: Iterable[Outcome]) -> list[tuple[str, Ip | None, int] | None]:
    made = (each.translation for each in found)
    return [None if each is None else (each.kind, each.address, each.port) for each in made]


def _through(rules: Ruleset, chains: Iterable[Chain], packet: Packet) -> list[Outcome]:
    walk, found = _Walk(rules, packet), [Outcome(mark=packet.mark)]
    for chain in chains:
        reached: list[Outcome] = []
        for each in found:
            if each.translation is not None:
                reached.append(each)
            else:
                reached += [at.outcome for at in walk.through(chain, each, depth=0)]
        found = list(dict.fromkeys(reached))[:_MOST]
    return found


class _Walk:
    """A packet's ways through the chains of a ruleset.

    A chain to which many rules jump is walked once for each outcome at each depth.
    """

    def __init__(self, rules: Ruleset, packet: Packet) -> None:
        self._rules, self._packet = rules, packet
        self._walked: dict[tuple[Name, Outcome, int], list[_At]] = {}

    def through(self, chain: Chain, start: Outcome, *, depth: int) -> list[_At]:
        key = (chain.place, start, depth)
        if key not in self._walked:
            self._walked[key] = self._through(chain, start, depth)
        return self._walked[key]

    def _through(self, chain: Chain, start: Outcome, depth: int) -> list[_At]:
        under_way, left = [start], list[_At]()
        for rule in chain.rules:
            going: list[Outcome] = []
            for each in under_way:
                for at in self._asked(rule, each, depth):
                    if at.how == "on":
                        going.append(at.outcome)
                    else:
                        left.append(at)
            under_way = going[:_MOST]
        return list(dict.fromkeys((*left, *(_At(outcome=each) for each in under_way))))[:_MOST]

    def _asked(self, rule: Rule, start: Outcome, depth: int) -> Iterator[_At]:
        """How a packet may leave a rule. Where that is not certain, it may also pass as if the rule were not there."""
        at, sure = start, True
        for statement in rule.statements:
            kind, said = statement
            marked = replace(self._packet, mark=at.mark)
            if kind == "vmap" or kind in _DECIDES:
                yield from self._decided(rule, statement, at, depth)
                break
            if may_end(statement):  # it may translate
                yield _At(outcome=replace(at, doubt=at.doubt or str(rule)), how="out")
                break
            met = matches(statement, marked, self._rules, rule.place)
            if met is False:
                yield _At(outcome=at if sure else start)
                return
            if met is None:
                at = at if kind == CHANCE else replace(at, doubt=at.doubt or str(rule))
                sure = False
            if kind == "mangle" and said.get("key") == _MARK:
                at = replace(at, mark=calculated(said.get("value"), marked, self._rules))
        else:
            yield _At(outcome=at)
        if not sure:
            yield _At(outcome=replace(start, doubt=at.doubt))

    def _decided(self, rule: Rule, statement: Statement, at: Outcome, depth: int) -> Iterator[_At]:
        kind, said = statement
        if kind == "vmap":
            for verdict, doubtful in looked_up(said, replace(self._packet, mark=at.mark), self._rules, rule.place):
                known = replace(at, doubt=at.doubt or str(rule)) if doubtful else at
                if verdict is None:
                    yield _At(outcome=known)
                else:
                    [found] = verdict.items()
                    yield from self._decided(rule, found, known, depth)
        elif kind in ("jump", "goto"):
            chain = self._rules.chains.get((*rule.place[:2], said["target"]))
            if chain is None or depth == _DEEPEST:
                yield _At(outcome=at)
                return
            for end in self.through(chain, at, depth=depth + 1):
                how: _How = "out" if end.how == "out" else "on" if kind == "jump" else "back"
                yield _At(outcome=end.outcome, how=how)
        elif kind in _TRANSLATES:
            yield from self._translated(rule, kind, said or {}, at)
        else:
            spares = kind in ("return", "accept") and any(_asks_target(each) for each in rule.statements)
            at = replace(at, spared=at.spared or str(rule)) if spares else at
            yield _At(outcome=at, how="back" if kind == "return" else "on" if kind == "continue" else "out")

    def _translated(self, rule: Rule, kind: str, said: Mapping[str, Any], at: Outcome) -> Iterator[_At]:
        family = "ip" if self._packet.source.version == 4 else "ip6"
        if said.get("family", family) != family:
            yield _At(outcome=at)
            return
        wanted = said.get("addr")
        found = [(wanted, False)]
        by_map = isinstance(wanted, dict) and "map" in wanted
        if isinstance(wanted, dict) and "map" in wanted:
            found = looked_up(wanted["map"], replace(self._packet, mark=at.mark), self._rules, rule.place)
        for value, doubtful in found:
            known = replace(at, doubt=at.doubt or str(rule)) if doubtful else at
            if by_map and value is None:
                yield _At(outcome=known)
                continue
            address, port = value["concat"] if isinstance(value, dict) and "concat" in value else (value, None)
            yield _At(outcome=_made(rule, kind, address, port or said.get("port"), known), how="out")


def _asks_target(statement: Statement) -> bool:
    kind, said = statement
    return kind == "match" and said["left"] in _TARGETS


def _made(rule: Rule, kind: str, address: Any, port: Any, at: Outcome) -> Outcome:
    into: Literal["dnat", "snat"] = "dnat" if kind in ("dnat", "redirect") else "snat"
    ip = None if kind in _OWN_ADDRESS else ip_in(str(address))
    if ip is None and kind not in _OWN_ADDRESS:
        at = replace(at, doubt=at.doubt or str(rule))
    number = port if isinstance(port, int) else 0
    return replace(at, translation=Translation(kind=into, by=str(rule), address=ip, port=number))
