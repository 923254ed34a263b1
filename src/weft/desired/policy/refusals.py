"""Pods and who was refused, as the kernel has them: by pods' names, with the policies that restrict the pod.

It needs no daemon: a pod's element has its name, and the chain of its class names the policies.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import ip_address
from typing import Final

from weft.desired.policy.frame import REMEMBERED
from weft.desired.policy.names import MAP, PROTOCOL_NAMES
from weft.model.errors import Problem
from weft.model.kernel.nftset import Element, RuleSeen
from weft.model.kernel.policytable import unnamed
from weft.model.net import Ip, number_of
from weft.model.node.nodestate import PoliciesTold, PolicyEffect
from weft.model.policy import DIRECTIONS, Direction
from weft.model.value import Value

# The chains that classes end in, without their checksums.
REFUSING: Final = frozenset(f"denied-{way}" for way in MAP.values())
# As `meta l4proto` says them: in the sets are all protocols, also those that a policy cannot name.
_PROTOCOLS: Final = {**PROTOCOL_NAMES, 1: "icmp", 58: "icmpv6"}
_WAYS: Final[dict[str, Direction]] = {way: direction for direction, way in MAP.items()}


class Held(Value):
    """What the kernel has: `refused` of the sets that count, `pods` of the maps, and the rules of all chains."""

    refused: tuple[Element, ...]
    pods: tuple[Element, ...]
    rules: tuple[RuleSeen, ...]


class Refusal(Value):
    """A flow, by its addresses and by the names of pods where they are known; else these are empty.

    `port` is 0 where the protocol has none. Its last packet was refused `seconds` ago. `policies` are those that
    restrict the pod in this direction; none where no pod here is known to have the address.
    """

    direction: Direction
    source: str
    source_pod: str
    target: str
    target_pod: str
    protocol: str
    port: int
    packets: int
    seconds: float
    policies: tuple[str, ...]


class Refused(Value):
    """`flows` of the last ten minutes, the latest first. `packets` are all since the tables were made."""

    flows: tuple[Refusal, ...]
    packets: dict[Direction, int]
    audit: bool = False


class PodHere(Value):
    """A pod of this node; `pod` is empty for what was attached without a name. `policies` restrict it, by direction."""

    pod: str
    addresses: tuple[str, ...]
    policies: dict[Direction, tuple[str, ...]]


class PodsHere(Value):
    """This node's pods by their names; in an audit nothing is refused. `problems` say what is not in effect.

    A pod that is attached and not known is not in the tables: all of its packets are refused. A daemon knows since when
    its policies are in `effect`, and which other nodes do not say that they enforce any; both are None without one.
    """

    pods: tuple[PodHere, ...]
    audit: bool
    problems: tuple[Problem, ...]
    effect: PolicyEffect | None = None
    unenforced: tuple[str, ...] | None = None


def here(held: Held, problems: Iterable[Problem] = (), told: PoliciesTold | None = None) -> PodsHere:
    """`problems` and what is `told` are a daemon's."""
    known, found = _Names(held, {}), dict[tuple[str, str], set[Ip]]()
    for each in held.pods:
        ip = ip_address(each.key)
        pod = known.pod(ip)
        found.setdefault((pod, each.comment if pod else str(ip)), set()).add(ip)
    pods = (
        PodHere(
            pod=pod,
            addresses=tuple(map(str, sorted(ips, key=number_of))),
            policies={
                way: tuple(sorted({of for ip in ips for of in known.policies(MAP[way], ip)})) for way in DIRECTIONS
            },
        )
        for (pod, _), ips in sorted(found.items())
    )
    return PodsHere(
        pods=tuple(pods),
        audit=_is_audit(held),
        problems=tuple(problems),
        effect=None if told is None else told.effect,
        unenforced=None if told is None else told.unenforced,
    )


def _is_audit(held: Held) -> bool:
    return any(rule.leads == "accept" for rule in held.rules if unnamed(rule.chain) in REFUSING)


def addresses(held: Held) -> frozenset[str]:
    """Those of which names are wanted."""
    return frozenset(str(ip) for each in held.refused for ip in _ends(each))


def refused(held: Held, names: Mapping[str, str]) -> Refused:
    """`names` are those of pods elsewhere, by address."""
    known = _Names(held, names)
    ends = [rule for rule in held.rules if unnamed(rule.chain) in REFUSING]
    packets: dict[Direction, int] = {
        direction: sum(rule.packets for rule in ends if unnamed(rule.chain) == f"denied-{MAP[direction]}")
        for direction in DIRECTIONS
    }
    flows = sorted((_flow(each, known) for each in held.refused), key=lambda each: (each.seconds, -each.packets))
    return Refused(flows=tuple(flows), packets=packets, audit=_is_audit(held))


class _Names:
    def __init__(self, held: Held, elsewhere: Mapping[str, str]) -> None:
        self._elsewhere = elsewhere
        self._here: dict[Ip, str] = {}
        self._classes: dict[tuple[str, Ip], str] = {}
        for each in held.pods:
            ip = ip_address(each.key)
            _, _, name = each.comment.partition(" ")
            if "/" in name:
                self._here[ip] = name
            self._classes[each.set[:-1], ip] = each.verdict
        self._rules: dict[str, list[RuleSeen]] = {}
        for rule in held.rules:
            self._rules.setdefault(rule.chain, []).append(rule)

    def pod(self, ip: Ip) -> str:
        return self._here.get(ip) or self._elsewhere.get(str(ip), "")

    def policies(self, way: str, ip: Ip) -> tuple[str, ...]:
        return tuple(sorted(set(policies_of(self._rules, way, self._classes.get((way, ip), "")))))


def policies_of(rules: Mapping[str, Sequence[RuleSeen]], way: str, chain: str) -> Iterator[str]:
    """The policies of a class, whose `chain` is among the rules of all chains.

    NetworkPolicies have chains, which classes jump to, or are named where a class ends. Rules of ClusterNetworkPolicies
    say their policy, which has no namespace.
    """
    for rule in rules.get(chain, ()):
        to = unnamed(rule.leads)
        if to.startswith(f"{way}/"):
            yield to.removeprefix(f"{way}/")
        elif to == f"{way}-admin":
            yield from policies_of(rules, way, rule.leads)
        elif to in REFUSING:
            words = rule.comment.split()
            yield from (word for word in words if "/" in word)
            if words and "/" not in rule.comment:
                yield words[0]


def _ends(each: Element) -> tuple[Ip, Ip]:
    size = 4 if each.set.endswith("4") else 16
    return ip_address(each.key[:size]), ip_address(each.key[size : 2 * size])


def _flow(each: Element, names: _Names) -> Refusal:
    source, target = _ends(each)
    rest = each.key[2 * len(source.packed) :]
    way = each.set.removeprefix("denied-")[:-1]
    return Refusal(
        direction=_WAYS[way],
        source=str(source),
        source_pod=names.pod(source),
        target=str(target),
        target_pod=names.pod(target),
        protocol=_PROTOCOLS.get(rest[0], str(rest[0])),
        port=int.from_bytes(rest[4:6], "big"),
        packets=each.packets,
        seconds=round(max(0.0, REMEMBERED - each.left / 1000), 1),
        policies=names.policies(way, target if way == MAP["ingress"] else source),
    )


def grown(before: Refused | None, now: Refused) -> Iterator[tuple[Refusal, int]]:
    """What was refused since, the oldest first, and how many packets."""
    known = {_which(each): each.packets for each in before.flows} if before is not None else {}
    for each in reversed(now.flows):
        if (more := each.packets - known.get(_which(each), 0)) > 0:
            yield each, more


def _which(each: Refusal) -> tuple[str, str, str, str, int]:
    return each.direction, each.source, each.target, each.protocol, each.port
