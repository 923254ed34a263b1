"""Says whether policies allow a flow, which rule does, and why each other rule does not fit.

It judges by values alone, apart from what is put into the kernel: tests have both agree.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

from weft.desired.policy.names import ALL_PODS, in_namespace, is_pods
from weft.desired.policy.verdict import Asked, PolicyVerdict, RuleVerdict, Side, Verdict, World
from weft.model.policy import (
    NAME_LABEL,
    PEERS_KEY,
    Action,
    ClusterPolicy,
    Direction,
    IpBlock,
    Labels,
    Peer,
    Pod,
    PodPeer,
    Policy,
    Port,
    Requirement,
    Rule,
    Selector,
    Tier,
)
from weft.model.value import replace

T = TypeVar("T")

# Whether anything fits, and what, or why nothing does.
_Fits = tuple[bool, tuple[str, ...]]

_ORDER: Final[tuple[Direction, ...]] = ("egress", "ingress")


def judged(asked: Asked, world: World) -> Verdict:
    sides = tuple(side_of(asked, direction, world) for direction in _ORDER)
    return Verdict(
        source=str(asked.source),
        target=str(asked.target),
        protocol=asked.protocol,
        port=asked.port,
        allowed=all(side.allowed for side in sides),
        sides=sides,
    )


def side_of(asked: Asked, direction: Direction, world: World) -> Side:
    """What the policies of one end say: the source's of `egress`, the target's of `ingress`."""
    return _Judge(asked, direction, world).side()


def restricting(pod: Pod, direction: Direction, policies: Iterable[Policy]) -> tuple[Policy, ...]:
    """Those that select the pod and restrict the direction."""
    return tuple(
        each
        for each in policies
        if each.rules(direction) is not None and each.namespace == pod.namespace and each.pods.selects(pod.labels)
    )


def is_subject(subject: PodPeer, pod: Pod, world: World) -> bool:
    place = world.namespaces.get(pod.namespace)
    there = subject.namespaces is None or (place is not None and subject.namespaces.selects(place.labels))
    return there and subject.pods.selects(pod.labels)


class _Judge:
    """Asks the policies of one end, `mine`, about the `other`."""

    def __init__(self, asked: Asked, direction: Direction, world: World) -> None:
        self._asked = asked
        self._direction: Direction = direction
        self._world = world
        ends = asked.source, asked.target
        self._mine, self._other = ends if direction == "egress" else reversed(ends)

    def side(self) -> Side:
        pod = self._mine.pod
        if pod is None:
            return self._free("no pod has this address, so no policy is asked")
        if pod.host_network:
            return self._free("it has its node's address (hostNetwork), so no policy selects it")
        other = self._other.pod
        if other is not None and other.host_network and other.node and other.node == pod.node:
            return self._free(f"{other} has the address of its own node, which no policy keeps from it")
        asked, ending = self._tier("Admin", pod)
        if ending is None:
            found = restricting(pod, self._direction, self._world.policies)
            if found:
                return self._final(found, asked, itself=pod == self._other.pod)
            more, ending = self._tier("Baseline", pod)
            asked = (*asked, *more)
        if ending is None:
            reason = "no rule denies it" if asked else f"no policy restricts its {self._direction}"
            return replace(self._free(reason), policies=asked)
        by, action = ending
        allowed = action == "Accept"
        return Side(
            direction=self._direction,
            pod=str(self._mine),
            allowed=allowed,
            reason=f"{by} {'allows' if allowed else 'denies'} it",
            policies=asked,
            change="" if allowed else f"put a rule that accepts it before {by}",
        )

    def _tier(self, tier: Tier, pod: Pod) -> tuple[tuple[PolicyVerdict, ...], tuple[str, Action] | None]:
        """What was asked, and which rule ends the matter, if one does. One that passes ends the tier alone."""
        asked = list[PolicyVerdict]()
        for policy in sorted(self._world.cluster, key=lambda each: each.order):
            of_tier = policy.tier == tier and policy.rules(self._direction)
            if not of_tier or not is_subject(policy.subject, pod, self._world):
                continue
            rules = list[RuleVerdict]()
            for rule, path in self._rules(policy):
                rules.append(self._rule(rule, path, policy))
                if rules[-1].fits:
                    break
            asked.append(PolicyVerdict(policy=str(policy), rules=tuple(rules), tier=tier))
            if rules[-1].fits:
                ends = None if rules[-1].action == "Pass" else (f"{rules[-1].path} of {policy}", rules[-1].action)
                return tuple(asked), ends
        return tuple(asked), None

    def _final(self, found: Sequence[Policy], before: tuple[PolicyVerdict, ...], *, itself: bool) -> Side:
        """What NetworkPolicies say; nobody can keep a pod from itself."""
        if itself:
            return replace(self._free("no NetworkPolicy can keep a pod from itself"), policies=before)
        verdicts = tuple(
            PolicyVerdict(
                policy=str(policy), rules=tuple(self._rule(rule, path, policy) for rule, path in self._rules(policy))
            )
            for policy in found
        )
        by = next((f"{rule.path} of {each.policy}" for each in verdicts for rule in each.rules if rule.fits), "")
        return Side(
            direction=self._direction,
            pod=str(self._mine),
            allowed=bool(by),
            reason=f"{by} allows it" if by else f"no rule of {', '.join(map(str, found))} allows it",
            policies=(*before, *verdicts),
            change="" if by else self._change(found),
        )

    def _free(self, reason: str) -> Side:
        return Side(direction=self._direction, pod=str(self._mine), allowed=True, reason=reason)

    def _rules(self, policy: Policy | ClusterPolicy) -> Iterator[tuple[Rule, str]]:
        for index, rule in enumerate(policy.rules(self._direction) or ()):
            yield rule, f"{self._direction}[{index}]"

    def _rule(self, rule: Rule, path: str, policy: Policy | ClusterPolicy) -> RuleVerdict:
        (peer_fits, peers), (port_fits, ports) = self._fits(rule, policy)
        fits = peer_fits and port_fits
        why = (*peers, *ports) if fits else (*(() if peer_fits else peers), *(() if port_fits else ports))
        return RuleVerdict(path=path, fits=fits, action=rule.action, why=why)

    def _fits(self, rule: Rule, policy: Policy | ClusterPolicy) -> tuple[_Fits, _Fits]:
        """Of the peers and of the ports."""
        key = PEERS_KEY[self._direction]
        return _of(rule.peers, key, lambda each: self._peer(each, policy.namespace)), _of(
            rule.ports, "ports", self._port
        )

    def _peer(self, peer: Peer, namespace: str) -> tuple[bool, str]:
        """Whether it means the other end, and which words say so or why not."""
        if isinstance(peer, IpBlock):
            return self._block(peer)
        if in_namespace(namespace, peer) == ALL_PODS:
            return self._any_pod()
        pod = self._other.pod
        if pod is None:
            return False, f"{self._other} is no pod's address"
        if pod.host_network:
            return False, f"{pod} has its node's address (hostNetwork), which no selector means"
        elsewhere = self._elsewhere(peer.namespaces, pod, namespace)
        if not elsewhere and (unmet := peer.pods.unmet(pod.labels)):
            return False, f"{pod} {_lacks(unmet, pod.labels)}"
        return not elsewhere, elsewhere or str(peer)

    def _elsewhere(self, namespaces: Selector | None, pod: Pod, own: str) -> str:
        """Why the pod's namespace is not meant."""
        if namespaces is None:
            return "" if pod.namespace == own else f"{pod} is not in namespace {own}"
        place = self._world.namespaces.get(pod.namespace)
        if place is None:
            return f"namespace {pod.namespace} is not known"
        unmet = namespaces.unmet(place.labels)
        return f"namespace {place} {_lacks(unmet, place.labels)}" if unmet else ""

    def _block(self, block: IpBlock) -> tuple[bool, str]:
        ip = self._other.ip
        if ip is None:
            return False, f"the address of {self._other} is not known"
        return block.has(ip), f"{block}" if block.has(ip) else f"{ip} is not in {block}"

    def _any_pod(self) -> tuple[bool, str]:
        """By the address, as the node's tables have it, where the networks of pods are known."""
        ip, pod = self._other.ip, self._other.pod
        nets, lens = self._world.networks, self._world.subnet_lens
        if nets and ip is not None:
            fits = any(ip in net and is_pods(ip, lens[net.version]) for net in nets)
        else:
            fits = pod is not None and pod.counts
        return fits, "any pod" if fits else f"{self._other} is no pod's address"

    def _port(self, port: Port) -> tuple[bool, str]:
        asked, pod = self._asked, self._asked.target.pod
        if asked.protocol != port.protocol:
            return False, f"{asked.protocol} is not {port.protocol}"
        if port.name:
            ports = pod.ports if pod is not None and pod.counts else ()
            numbers = [each.number for each in ports if (each.name, each.protocol) == (port.name, port.protocol)]
            if not numbers:
                return False, f"{asked.target} has no port that is called {port}"
            words = f"{port} of {asked.target} is {' and '.join(map(str, numbers))}"
            return asked.port in numbers, words if asked.port in numbers else f"{words}, not {asked.port}"
        if not port.first or port.first <= asked.port <= port.last:
            return True, f"{port}"
        among = "in" if port.last > port.first else ""
        return False, f"port {asked.port} is not {among} {port}".replace("  ", " ")

    def _change(self, policies: Sequence[Policy]) -> str:
        """Prefer to widen a rule that fits but for its ports, then one that fits but for its peers."""
        key, port = PEERS_KEY[self._direction], self._words_of_port()
        tried = [(policy, path, *self._fits(rule, policy)) for policy in policies for rule, path in self._rules(policy)]
        for policy, path, peers, _ in tried:
            if peers[0]:
                return f"add {port} to {path}.ports of {policy}"
        for policy, path, _, ports in tried:
            if ports[0]:
                return f"add {self._words_of_peer(policy)} to {path}.{key} of {policy}"
        policy = policies[0]
        return f"add to {self._direction} of {policy} a rule {key} {self._words_of_peer(policy)} with {port}"

    def _words_of_port(self) -> str:
        return f"port {self._asked.port}/{self._asked.protocol}" if self._asked.port else self._asked.protocol

    def _words_of_peer(self, policy: Policy) -> str:
        pod = self._other.pod
        if pod is None or not pod.counts:
            return f"ipBlock {self._other.ip or 'of its node'}"
        labels = ",".join(f"{key}={value}" for key, value in sorted(pod.labels.items())) or "all"
        if pod.namespace == policy.namespace:
            return f"pods {labels}"
        return f"pods {labels} of namespaces {NAME_LABEL}={pod.namespace}"


def _of(given: tuple[T, ...] | None, key: str, fits: Callable[[T], tuple[bool, str]]) -> _Fits:
    """Whether one of the items fits, and which; or why each of them does not."""
    if given is None:
        return True, (f"{key}: all",)
    if not given:
        return False, (f"{key}: nothing of it is understood",)
    found = [(*fits(each), f"{key}[{index}]") for index, each in enumerate(given)]
    if right := next((f"{where}: {why}" for fit, why, where in found if fit), ""):
        return True, (right,)
    return False, tuple(f"{where}: {why}" for _, why, where in found)


def _lacks(unmet: Requirement, labels: Labels) -> str:
    value = labels.get(unmet.key)
    if value is None:
        return f"has no label {unmet}"
    return f"has label {unmet.key}={value}, and {unmet} is asked for"
