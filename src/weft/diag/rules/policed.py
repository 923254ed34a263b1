"""What weft's table of policies does with a packet, in words of policies: which rule decides each direction. Pure."""

from collections.abc import Iterable, Iterator
from typing import Final

from weft.desired.policy.names import MAP
from weft.desired.policy.refusals import REFUSING, policies_of
from weft.diag.rules.matching import Packet
from weft.diag.rules.ruleset import Chain, Rule, Ruleset
from weft.diag.rules.verdict import Verdict, judge
from weft.model.kernel.nftset import RuleSeen
from weft.model.kernel.policytable import INET, unnamed
from weft.model.policy import Direction
from weft.model.value import Value, replace

_ORDER: Final[tuple[Direction, ...]] = ("egress", "ingress")


class Policed(Value):
    """`words` name the direction, the policy and its rule. `verdict` is that of the direction's chain."""

    words: str
    verdict: Verdict


def apart(rules: Ruleset) -> Ruleset:
    """All rules but those by which policies decide."""
    return replace(rules, chains={place: chain for place, chain in rules.chains.items() if not _direction(chain)})


def policed(rules: Ruleset, hook: str, packet: Packet) -> Iterator[Policed]:
    """What each direction's policies say of a packet, until one refuses it; nothing where they lead it nowhere."""
    bases = {_direction(chain): chain for chain in rules.at(hook, packet.source.version)}
    for direction in _ORDER:
        if direction not in bases:
            continue
        base = bases[direction]
        table = {place: chain for place, chain in rules.chains.items() if _is_ours(chain)}
        alone = {place: chain for place, chain in table.items() if not chain.hook or chain is base}
        verdict = judge(replace(rules, chains=alone), hook, packet)
        if verdict.trail or verdict.passes is not True:
            yield Policed(words=f"{direction} {_words(verdict, MAP[direction], table.values())}", verdict=verdict)
        if verdict.passes is False:
            return


def _is_ours(chain: Chain) -> bool:
    return " ".join(chain.place[:2]) == INET


def _direction(chain: Chain) -> str:
    """Of a chain where packets enter the policies; empty for others."""
    found = unnamed(chain.place[2]) if chain.hook and _is_ours(chain) else ""
    return found if found in _ORDER else ""


def _words(verdict: Verdict, way: str, chains: Iterable[Chain]) -> str:
    """What decides is the last rule of the trail, or the one before it, where that is where all refusals end."""
    if verdict.passes is None:
        return f"undecided: {verdict.by}"
    *before, last = verdict.trail
    refused = bool(before) and unnamed(last.place[2]) in REFUSING
    decides = before[-1] if refused else last
    names = ", ".join(sorted(set(policies_of(_seen(chains), way, decides.place[2]))))
    why = (
        _refusal(decides, way, names) if refused else _acceptance(decides, way, names) if verdict.passes else verdict.by
    )
    return f"{'refused' if not verdict.passes else 'would be refused' if refused else 'allowed'}: {why}"


def _refusal(rule: Rule, way: str, names: str) -> str:
    if not unnamed(rule.place[2]).startswith(way):  # where packets enter
        return "no pod here is known to have its address"
    return f"{_of_cluster(rule)} denies it" if _of_cluster(rule) else f"no rule of {names} allows it"


def _acceptance(rule: Rule, way: str, names: str) -> str:
    chain = unnamed(rule.place[2])
    if chain.startswith(f"{way}/"):
        return f"{rule.comment} of {chain.removeprefix(f'{way}/')} allows it"
    if _of_cluster(rule):
        return f"{_of_cluster(rule)} allows it"
    if chain != way:  # where packets enter, and one looks up whose address it is
        looks_up = any(kind == "vmap" for kind, _ in rule.statements)
        return "no policy restricts it" if looks_up else "no policy is asked about it"
    return "no NetworkPolicy can keep a pod from itself" if "/" in names else "no policy refuses it"


def _of_cluster(rule: Rule) -> str:
    """The rule of a ClusterNetworkPolicy that it says: its comment has the name, and where in it."""
    name, _, path = rule.comment.partition(" ")
    return f"{path} of {name}" if path and "/" not in rule.comment else ""


def _seen(chains: Iterable[Chain]) -> dict[str, list[RuleSeen]]:
    return {each.place[2]: [_rule_seen(rule) for rule in each.rules] for each in chains}


def _rule_seen(rule: Rule) -> RuleSeen:
    leads = next((said["target"] for kind, said in rule.statements if kind in ("jump", "goto")), "")
    return RuleSeen(chain=rule.place[2], comment=rule.comment, leads=leads, packets=0)
