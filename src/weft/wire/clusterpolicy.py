"""ClusterNetworkPolicies (policy.networking.k8s.io), as the API's JSON or a file's YAML has them, become values.

What cannot be enforced as written is POL-005, as of NetworkPolicies, and opens nothing: in a rule that accepts it means
nothing, and a rule that denies or passes then denies all.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, get_args

from weft.model.errors import Problem
from weft.model.policy import (
    LAST_PORT,
    PROTOCOLS,
    Action,
    ClusterPolicy,
    IpBlock,
    Peer,
    PodPeer,
    Port,
    Protocol,
    Rule,
    Tier,
)
from weft.wire.policy import PORT_NAME, Reader, names

_ACTIONS: Final = get_args(Action)
_TIERS: Final = get_args(Tier)
_MOST_PRIORITY: Final = 1000


def read_cluster_policy(obj: Mapping[str, Any]) -> tuple[ClusterPolicy, tuple[Problem, ...]]:
    """Raises `Unreadable` where it is not known which pods are meant, or when the policy is asked."""
    _, name, uid = names(obj)
    return _Reader(f"ClusterNetworkPolicy {name}").cluster_policy(obj.get("spec"), name, uid)


class _Reader(Reader):
    def cluster_policy(self, given: Any, name: str, uid: str) -> tuple[ClusterPolicy, tuple[Problem, ...]]:
        spec = self.mapping(given, "spec")
        self.noting(lambda: self.only(spec, ("tier", "priority", "subject", "ingress", "egress"), "spec"))
        tier: Any = spec.get("tier")
        priority: Any = spec.get("priority")
        if tier not in _TIERS:
            raise self.wrong("spec.tier", tier, f"one of {', '.join(_TIERS)}")
        if type(priority) is not int or not 0 <= priority <= _MOST_PRIORITY:
            raise self.wrong("spec.priority", priority, f"0 to {_MOST_PRIORITY}")
        subject = self._pods(spec.get("subject"), "spec.subject")
        if subject is None:
            raise self.wrong("spec.subject", spec.get("subject"), "namespaces or pods")
        policy = ClusterPolicy(
            name=name,
            uid=uid,
            tier=tier,
            priority=priority,
            subject=subject,
            ingress=tuple(self._cluster_rules(spec.get("ingress"), "spec.ingress", "from")),
            egress=tuple(self._cluster_rules(spec.get("egress"), "spec.egress", "to")),
        )
        return policy, tuple(self.problems)

    def _cluster_rules(self, given: Any, path: str, key: str) -> Iterator[Rule]:
        """In their order: one that is not understood denies all, unless it accepts."""
        items = self.noting(lambda: self.items(given, path))
        for index, each in enumerate([None] if items is None else items):
            before = len(self.problems)
            accepts = isinstance(each, dict) and each.get("action") == "Accept"
            rule = self.noting(lambda: self._cluster_rule(each, f"{path}[{index}]", key))  # noqa: B023 - called at once
            if rule is not None and (accepts or len(self.problems) == before):
                yield rule
            else:
                yield Rule(peers=(), ports=()) if accepts else Rule(action="Deny")

    def _cluster_rule(self, given: Any, path: str, key: str) -> Rule:
        fields = self.mapping(given, path)
        self.only(fields, ("name", "action", key, "protocols"), path)
        action: Any = fields.get("action")
        if action not in _ACTIONS:
            raise self.wrong(f"{path}.action", action, f"one of {', '.join(_ACTIONS)}")
        peers = self.several(fields.get(key), f"{path}.{key}", self._peers)
        if peers is None:
            raise self.wrong(f"{path}.{key}", fields.get(key), "at least one peer")
        ports = self.several(fields.get("protocols"), f"{path}.protocols", self._protocol)
        return Rule(
            peers=tuple(peer for each in peers for peer in each),
            ports=None if ports is None else tuple(port for each in ports for port in each),
            action=action,
        )

    def _peers(self, given: Any, path: str) -> tuple[Peer, ...]:
        pods = self._pods(given, path)
        if pods is not None:
            return (pods,)
        if "networks" not in given:  # nodes, names of domains, or what comes after this version of the API
            raise self.wrong(path, ", ".join(map(str, given)) or "nothing", "namespaces, pods or networks")
        nets = self.items(given["networks"], f"{path}.networks")
        return tuple(IpBlock(self.net(each, f"{path}.networks[{index}]")) for index, each in enumerate(nets))

    def _pods(self, given: Any, path: str) -> PodPeer | None:
        """None where no pods are spoken of."""
        fields = self.mapping(given, path)
        if len(fields) != 1:
            raise self.wrong(
                path, ", ".join(map(str, fields)) or "nothing", "one of namespaces and pods, or of a peer's fields"
            )
        if "namespaces" in fields:
            return PodPeer(namespaces=self.selector(fields["namespaces"], f"{path}.namespaces"))
        if "pods" not in fields:
            return None
        both = self.mapping(fields["pods"], f"{path}.pods")
        self.only(both, ("namespaceSelector", "podSelector"), f"{path}.pods")
        namespaces = both.get("namespaceSelector")  # optional, other than podSelector: all namespaces without it
        return PodPeer(
            pods=self.selector(both.get("podSelector"), f"{path}.pods.podSelector"),
            namespaces=self.selector({} if namespaces is None else namespaces, f"{path}.pods.namespaceSelector"),
        )

    def _protocol(self, given: Any, path: str) -> tuple[Port, ...]:
        fields = self.mapping(given, path)
        if len(fields) == 1 and PORT_NAME.fullmatch(str(fields.get("destinationNamedPort"))):
            return tuple(Port(protocol=each, name=fields["destinationNamedPort"]) for each in PROTOCOLS)
        if len(fields) != 1 or next(iter(fields)) not in PROTOCOLS:
            raise self.wrong(
                path, ", ".join(map(str, fields)), f"one of {', '.join(PROTOCOLS)} and destinationNamedPort"
            )
        protocol: Protocol = next(each for each in PROTOCOLS if each in fields)
        port = self.mapping(fields[protocol], f"{path}.{protocol}")
        self.only(port, ("destinationPort",), f"{path}.{protocol}")
        if "destinationPort" not in port:
            return (Port(protocol=protocol),)
        return (self._numbers(protocol, port["destinationPort"], f"{path}.{protocol}.destinationPort"),)

    def _numbers(self, protocol: Protocol, given: Any, path: str) -> Port:
        fields = self.mapping(given, path)
        self.only(fields, ("number", "range"), path)
        several = fields.get("range")
        ends = {"start": fields.get("number"), "end": fields.get("number")} if several is None else several
        first, last = [self.mapping(ends, f"{path}.range").get(each, 0) for each in ("start", "end")]
        if not (self.is_port(first) and self.is_port(last) and first <= last) or len(fields) != 1:
            raise self.wrong(path, given, f"a number or a range, of 1 to {LAST_PORT}")
        return Port(protocol=protocol, first=first, last=last)
