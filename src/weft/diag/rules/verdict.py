"""What the packet filter does with a packet at a hook, and which rule or policy decides it. Pure.

The kernel asks the chains of a hook in their order; "accept" ends a chain alone, "drop" ends the packet (nf_tables(8),
"Verdict statements"). Where nothing here decides, both ends are kept in mind: the verdict is then undecided, unless
both come to the same.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal

from weft.diag.rules.matching import Packet, is_one_of, matches, value_of
from weft.diag.rules.ruleset import Chain, Name, Rule, Ruleset
from weft.diag.rules.xtables import Statement, may_end
from weft.model.value import Value, replace

_DROPS: Final = frozenset(("drop", "reject"))
_VERDICTS: Final = frozenset(("accept", "drop", "reject", "return", "jump", "goto", "queue"))
_LEAVES: Final = frozenset(("return", "goto"))  # no later rule of this chain is asked
_KINDS: Final = {"input": "local", "forward": "unicast"}  # of a target's address; of none that is a group's
_DEEPEST: Final = 16  # NFT_JUMP_STACK_SIZE (net/netfilter/nf_tables.h)


class Verdict(Value):
    """`passes` is None where nothing decides. `by` is the rule or policy that decides, or may decide.

    `place` is the chain of what drops. `trail` are the rules of the last chain of the hook that lead to its end.
    """

    passes: bool | None
    by: str = ""
    place: Name | None = None
    trail: tuple[Rule, ...] = ()


class _End(Value):
    kind: Literal["accept", "drop", "on"]
    by: str = ""
    place: Name | None = None
    trail: tuple[Rule, ...] = ()
    may_accept: str = ""
    may_drop: tuple[str, ...] = ()


def judge(rules: Ruleset, hook: str, packet: Packet) -> Verdict:
    """Ask all filtering chains of a hook (`input`, `forward`, `output`)."""
    walk = _Walk(rules, replace(packet, kind=_KINDS.get(hook, "")))
    doubts, trail = list[str](), tuple[Rule, ...]()
    for chain in rules.at(hook, packet.source.version):
        end = walk.through(chain, depth=0)
        trail = end.trail
        policy = "drop" if end.kind == "on" and chain.policy == "drop" else end.kind
        by = end.by or _policy_of(chain)
        doubts += end.may_drop
        if policy == "drop" and end.may_accept:
            doubts.append(f"{by}, unless {end.may_accept} accepts it first")
        elif policy == "drop":
            by = f"{by}, if not by {' or '.join(dict.fromkeys(doubts))}" if doubts else by
            return Verdict(passes=False, by=by, place=end.place or chain.place, trail=trail)
    return Verdict(passes=None, by=" or ".join(dict.fromkeys(doubts))) if doubts else Verdict(passes=True, trail=trail)


def _policy_of(chain: Chain) -> str:
    return f"the policy of {chain}"


class _Walk:
    """A packet's way through the chains. A chain to which many rules jump is walked once at each depth."""

    def __init__(self, rules: Ruleset, packet: Packet) -> None:
        self._rules, self._packet = rules, packet
        self._ends: dict[tuple[Name, int], _End] = {}

    def through(self, chain: Chain, *, depth: int) -> _End:
        key = (chain.place, depth)
        if key not in self._ends:
            self._ends[key] = self._through(chain, depth)
        return self._ends[key]

    def _through(self, chain: Chain, depth: int) -> _End:
        may_accept = may_leave = ""
        may_drop = list[str]()
        for rule in chain.rules:
            found = [matches(each, self._packet, self._rules, rule.place) for each in rule.statements]
            if False in found:
                continue
            end = self._ended(rule, depth)
            leaves = self._verdict(rule)[0] in _LEAVES
            may_accept = may_accept or end.may_accept
            may_drop += end.may_drop
            if None in found:
                may_accept = may_accept or (end.by if end.kind == "accept" else "")
                may_drop += [end.by] if end.kind == "drop" else []
                may_leave = may_leave or (str(rule) if leaves else "")
            elif end.kind != "on" or leaves:
                # What may have left the chain before is not met by what ends it here, but by the policy at a hook.
                if may_leave and chain.hook and chain.policy == "drop":
                    may_drop.append(_policy_of(chain))
                elif may_leave and end.kind == "drop":
                    may_accept = may_accept or may_leave
                elif may_leave and end.kind == "accept" and not chain.hook:
                    may_drop.append(may_leave)
                return replace(end, may_accept=may_accept, may_drop=tuple(may_drop))
        return _End(kind="on", may_accept=may_accept, may_drop=tuple(may_drop))

    def _ended(self, rule: Rule, depth: int) -> _End:
        kind, said = self._verdict(rule)
        if kind in _DROPS:
            return _End(kind="drop", by=str(rule), place=rule.place, trail=(rule,))
        if kind in ("accept", "queue"):
            return _End(kind="accept", by=str(rule), trail=(rule,), may_drop=(str(rule),) if kind == "queue" else ())
        if kind in ("jump", "goto") and depth < _DEEPEST:
            target = self._rules.chains.get((*rule.place[:2], said["target"]))
            if target is not None:
                end = self.through(target, depth=depth + 1)
                return replace(end, trail=(rule, *end.trail))
        return _End(kind="on")

    def _verdict(self, rule: Rule) -> Statement:
        """The statement of a rule that decides; "" if none does. A program that is asked is a queue."""
        for kind, said in rule.statements:
            if kind in _VERDICTS:
                return kind, said
            if may_end((kind, said)):
                return ("reject" if said.get("name") == "REJECT" else "queue"), None
            if kind == "vmap":
                return self._looked_up(said, rule)
        return "", None

    def _looked_up(self, said: Mapping[str, Any], rule: Rule) -> Statement:
        """What a verdict map has for the packet; where nothing decides its key, the worst it has."""
        rules, data = self._rules, said["data"]
        have = value_of(said["key"], self._packet, rules)
        pairs = rules.sets.get((*rule.place[:2], data[1:]), []) if isinstance(data, str) else data.get("set", [])
        worst_first = sorted(pairs, key=lambda pair: _DROPS.isdisjoint(pair[1])) if have is None else pairs
        for key, verdict in worst_first:
            if have is None or is_one_of(have, key, rules, rule.place):
                [found] = verdict.items()
                return str(found[0]), found[1]
        return "", None
