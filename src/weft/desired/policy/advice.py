"""What of policies is probably not meant, though it can be enforced: `weft policy check` says it."""

from collections.abc import Container, Iterable, Iterator
from itertools import pairwise
from typing import Final

from weft.desired.policy.verdict import World
from weft.model.policy import (
    DIRECTIONS,
    EVERYTHING,
    PEERS_KEY,
    ClusterPolicy,
    IpBlock,
    Namespace,
    Pod,
    PodPeer,
    Policy,
    Port,
    Rule,
)
from weft.model.text import some_of
from weft.model.value import Value

_DNS: Final = 53
_NAMED: Final = 5


class Advice(Value):
    policy: str
    path: str
    seen: str
    hint: str


def advice(world: World, assumed: Container[str] = ()) -> tuple[Advice, ...]:
    """Of what pods and namespaces say, only where these are known. Namespaces that are only named are `assumed`."""
    known = tuple(each for each in world.namespaces.values() if each.name not in assumed)
    found = (each for policy in world.policies for each in (*_places(policy, known), *_advice(policy, world)))
    return (*found, *_ties(world.cluster))


def _places(policy: Policy, known: tuple[Namespace, ...]) -> Iterator[Advice]:
    """Namespaces that are not there, where any is known."""
    if not known:
        return
    names = {each.name for each in known}
    if policy.namespace not in names:
        hint = f"It selects nothing until there is one; there {'are' if len(names) > 1 else 'is'} {_some(names)}"
        seen = f"there is no namespace {policy.namespace}"
        yield Advice(policy=str(policy), path="metadata.namespace", seen=seen, hint=hint)
    for direction in DIRECTIONS:
        for index, rule in enumerate(policy.rules(direction) or ()):
            for number, peer in enumerate(rule.peers or ()):
                where = peer.namespaces if isinstance(peer, PodPeer) else None
                if where is not None and not any(where.selects(each.labels) for each in known):
                    path = f"spec.{direction}[{index}].{PEERS_KEY[direction]}[{number}].namespaceSelector"
                    hint = "Compare it with the labels of the namespaces"
                    yield Advice(policy=str(policy), path=path, seen=f"no namespace has {where}", hint=hint)


def _some(names: Iterable[str]) -> str:
    return some_of(sorted(names), _NAMED)


def _ties(policies: Iterable[ClusterPolicy]) -> Iterator[Advice]:
    ordered = sorted(policies, key=lambda each: (each.tier, *each.order))
    for first, second in pairwise(ordered):
        if (first.tier, first.priority) == (second.tier, second.priority):
            seen = f"priority {second.priority}, as {first} in tier {first.tier}"
            hint = "Other programs may ask them in another order; weft goes by their names"
            yield Advice(policy=str(second), path="spec.priority", seen=seen, hint=hint)


def _advice(policy: Policy, world: World) -> Iterator[Advice]:
    pods = tuple(pod for pod in world.pods if pod.counts)
    mine = tuple(pod for pod in pods if pod.namespace == policy.namespace and policy.pods.selects(pod.labels))
    if pods and not mine:
        seen = f"selects no pod: none of namespace {policy.namespace} has {policy.pods}"
        yield Advice(
            policy=str(policy), path="spec.podSelector", seen=seen, hint="Compare it with the labels of the pods"
        )
    for direction in DIRECTIONS:
        for index, rule in enumerate(policy.rules(direction) or ()):
            path = f"spec.{direction}[{index}]"
            for at, seen, hint in (
                *_or_for_and(rule, PEERS_KEY[direction]),
                *_blocks_of_pods(rule, PEERS_KEY[direction], pods),
                *_unknown_names(rule, mine if direction == "ingress" else pods),
            ):
                yield Advice(policy=str(policy), path=f"{path}.{at}", seen=seen, hint=hint)
    if policy.egress is not None and not any(_asks_names(each) for each in _beside(policy, world.policies)):
        seen = "no rule allows DNS (port 53/udp)"
        hint = "The pods cannot resolve names; allow port 53 of UDP and TCP, unless they need none"
        yield Advice(policy=str(policy), path="spec.egress", seen=seen, hint=hint)


# Of a rule: where, what is seen, what to do.
_Seen = tuple[str, str, str]


def _or_for_and(rule: Rule, key: str) -> Iterator[_Seen]:
    """A `-` too many makes two peers of one."""
    peers = rule.peers or ()
    for index, (first, second) in enumerate(pairwise(peers)):
        if isinstance(first, PodPeer) and isinstance(second, PodPeer):
            kinds = {(each.namespaces is not None, each.pods != EVERYTHING) for each in (first, second)}
            if kinds == {(True, False), (False, True)}:
                seen = f"{first}, or {second}: either is enough"
                hint = "If both are meant to hold, write both selectors in one item of the list"
                yield f"{key}[{index + 1}]", seen, hint


def _blocks_of_pods(rule: Rule, key: str, pods: Iterable[Pod]) -> Iterator[_Seen]:
    for index, peer in enumerate(rule.peers or ()):
        if isinstance(peer, IpBlock) and peer.net.prefixlen:
            found = next((f"{pod} ({ip})" for pod in pods for ip in pod.ips if peer.has(ip)), None)
            if found is not None:
                hint = "Pods get other addresses when they start again; name them by selectors"
                yield f"{key}[{index}].ipBlock", f"{peer} has addresses of pods, as of {found}", hint


def _unknown_names(rule: Rule, targets: tuple[Pod, ...]) -> Iterator[_Seen]:
    names = {(each.name, each.protocol) for pod in targets for each in pod.ports}
    for index, port in enumerate(rule.ports or ()):
        if targets and port.name and (port.name, port.protocol) not in names:
            hint = "Compare it with the names and protocols of the containers' ports"
            yield f"ports[{index}]", f"no pod has a port that is called {port}", hint


def _beside(policy: Policy, policies: Iterable[Policy]) -> Iterator[Policy]:
    """It and those that surely select all of its pods, too."""
    return (each for each in policies if each.namespace == policy.namespace and each.pods in (policy.pods, EVERYTHING))


def _asks_names(policy: Policy) -> bool:
    return any(rule.ports is None or any(map(_is_dns, rule.ports)) for rule in policy.egress or ())


def _is_dns(port: Port) -> bool:
    if port.protocol != "udp":
        return False
    return (not port.name and (not port.first or port.first <= _DNS <= port.last)) or port.name.startswith("dns")
