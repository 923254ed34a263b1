"""NetworkPolicies, as the API's JSON or a file's YAML has them, become values.

What cannot be enforced as written is a `Problem` (POL-005) with its path in the object. It allows nothing: a rule, a
peer or a port that is not understood is left out, and its policy restricts all the same.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from ipaddress import ip_network
from typing import Any, Final, TypeGuard, TypeVar, get_args

from weft.model.errors import Problem
from weft.model.net import Net, within
from weft.model.policy import (
    LAST_PORT,
    PROTOCOLS,
    IpBlock,
    Operator,
    Peer,
    PodPeer,
    Policy,
    Port,
    Protocol,
    Requirement,
    Rule,
    Selector,
)

T = TypeVar("T")

# What the API server lets pass, and files have to keep to: names become parts of rules.
_NAMESPACE: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_NAME: Final = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
PORT_NAME: Final = re.compile(r"(?=.{1,15}\Z)(?=.*[a-z])[a-z0-9]+(-[a-z0-9]+)*")
_LABEL: Final = re.compile(r"([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE: Final = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")
_PEERS: Final = {"Ingress": "from", "Egress": "to"}
_OPERATORS: Final = get_args(Operator)
_PROTOCOLS: Final[Mapping[str, Protocol]] = {each.upper(): each for each in PROTOCOLS}
_LONGEST_SHOWN: Final = 80


class Unreadable(Exception):
    """An object, or a part of it, that cannot be enforced as written."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


def read_policy(obj: Mapping[str, Any]) -> tuple[Policy, tuple[Problem, ...]]:
    """Raises `Unreadable` where it is not known which pods the policy selects."""
    namespace, name, uid = names(obj)
    return Reader(f"NetworkPolicy {namespace}/{name}").policy(obj.get("spec"), namespace, name, uid)


def names(obj: Mapping[str, Any]) -> tuple[str, str, str]:
    """The namespace, the name and the UID of an object. Raises `Unreadable`."""
    reader = Reader(str(obj.get("kind", "an object")))
    meta = reader.mapping(obj.get("metadata"), "metadata")
    namespace = reader.text(meta.get("namespace") or "default", "metadata.namespace")
    name = reader.text(meta.get("name"), "metadata.name")
    if not _NAMESPACE.fullmatch(namespace):
        raise reader.wrong("metadata.namespace", namespace, "the name of a namespace")
    if not _NAME.fullmatch(name):
        raise reader.wrong("metadata.name", name, "small letters, digits, - and .")
    return namespace, name, reader.text(meta.get("uid") or "", "metadata.uid")


class Reader:
    """`what` is how problems call the object."""

    def __init__(self, what: str) -> None:
        self._what = what
        self.problems: list[Problem] = []

    def wrong(self, path: str, seen: object, expected: str) -> Unreadable:
        text = seen if isinstance(seen, str) else repr(seen)
        shown = text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"
        return Unreadable(Problem(code="POL-005", where=f"{self._what}: {path}", seen=shown, expected=expected))

    def policy(self, spec: Any, namespace: str, name: str, uid: str) -> tuple[Policy, tuple[Problem, ...]]:
        fields = self.mapping(spec, "spec")
        if "podSelector" not in fields:
            raise self.wrong("spec.podSelector", "missing", "a selector; {} is all pods of the namespace")
        pods = self.selector(fields["podSelector"], "spec.podSelector")
        self.noting(lambda: self.only(fields, ("podSelector", "policyTypes", "ingress", "egress"), "spec"))
        types = self._types(fields)
        ingress, egress = (
            tuple(self._rules(fields.get(each.lower()), f"spec.{each.lower()}", peers)) if each in types else None
            for each, peers in _PEERS.items()
        )
        policy = Policy(namespace=namespace, name=name, uid=uid, pods=pods, ingress=ingress, egress=egress)
        return policy, tuple(self.problems)

    def _types(self, spec: Mapping[str, Any]) -> Collection[str]:
        """The directions that are restricted: both, where that is not understood."""
        given = spec.get("policyTypes")
        if given is None or given == []:  # as the API server fills it in
            return _PEERS if spec.get("egress") else ("Ingress",)
        if isinstance(given, list) and all(each in tuple(_PEERS) for each in given):
            return given
        self.problems.append(self.wrong("spec.policyTypes", given, "a list of Ingress and Egress").problem)
        return _PEERS

    def noting(self, read: Callable[[], T]) -> T | None:
        try:
            return read()
        except Unreadable as error:
            self.problems.append(error.problem)
            return None

    def _rules(self, given: Any, path: str, peers: str) -> Iterator[Rule]:
        for index, each in enumerate(self.noting(lambda: self.items(given, path)) or ()):
            rule = self.noting(lambda: self._rule(each, f"{path}[{index}]", peers))  # noqa: B023 - called at once
            yield rule or Rule(peers=(), ports=())

    def _rule(self, given: Any, path: str, peers: str) -> Rule:
        fields = self.mapping(given, path)
        self.only(fields, (peers, "ports"), path)
        return Rule(
            peers=self.several(fields.get(peers), f"{path}.{peers}", self._peer),
            ports=self.several(fields.get("ports"), f"{path}.ports", self._port),
        )

    def several(self, given: Any, path: str, read: Callable[[Any, str], T]) -> tuple[T, ...] | None:
        """Those that are understood; None for an empty list, which is all that there are."""
        if not (items := self.items(given, path)):
            return None
        found = (self.noting(lambda: read(each, f"{path}[{index}]")) for index, each in enumerate(items))  # noqa: B023
        return tuple(each for each in found if each is not None)

    def _peer(self, given: Any, path: str) -> Peer:
        fields = self.mapping(given, path)
        self.only(fields, ("podSelector", "namespaceSelector", "ipBlock"), path)
        pods, namespaces, block = (fields.get(each) for each in ("podSelector", "namespaceSelector", "ipBlock"))
        if block is not None and (pods is not None or namespaces is not None):
            raise self.wrong(path, "an ipBlock beside a selector", "one of them in each peer")
        if block is not None:
            return self._block(block, f"{path}.ipBlock")
        if pods is None and namespaces is None:
            raise self.wrong(path, "no selector and no block", "podSelector, namespaceSelector or ipBlock")
        return PodPeer(
            pods=self.selector({} if pods is None else pods, f"{path}.podSelector"),
            namespaces=None if namespaces is None else self.selector(namespaces, f"{path}.namespaceSelector"),
        )

    def _block(self, given: Any, path: str) -> IpBlock:
        fields = self.mapping(given, path)
        self.only(fields, ("cidr", "except"), path)
        net = self.net(fields.get("cidr"), f"{path}.cidr")
        exceptions = [
            (self.net(each, f"{path}.except[{index}]"), f"{path}.except[{index}]")
            for index, each in enumerate(self.items(fields.get("except"), f"{path}.except"))
        ]
        for each, where in exceptions:
            if not within(each, net):
                raise self.wrong(where, str(each), f"a part of {net}")
        return IpBlock(net, tuple(each for each, _ in exceptions))

    def net(self, given: Any, path: str) -> Net:
        try:
            return ip_network(self.text(given, path), strict=False)  # the API takes bits behind the prefix, too
        except ValueError:
            raise self.wrong(path, given, "a block of addresses, as 192.0.2.0/24") from None

    def _port(self, given: Any, path: str) -> Port:
        fields = self.mapping(given, path)
        self.only(fields, ("protocol", "port", "endPort"), path)
        word = "TCP" if fields.get("protocol") is None else fields["protocol"]
        protocol = _PROTOCOLS.get(word) if isinstance(word, str) else None
        if protocol is None:
            raise self.wrong(f"{path}.protocol", word, f"one of {', '.join(_PROTOCOLS)}")
        port, last = fields.get("port"), fields.get("endPort")
        if isinstance(port, str) and PORT_NAME.fullmatch(port) and last is None:
            return Port(protocol=protocol, name=port)
        if port is None and last is None:
            return Port(protocol=protocol)
        if not self.is_port(port):
            raise self.wrong(f"{path}.port", port, f"1 to {LAST_PORT}, or without endPort the name of a port")
        if last is not None and not (self.is_port(last) and last >= port):
            raise self.wrong(f"{path}.endPort", last, f"{port} to {LAST_PORT}")
        return Port(protocol=protocol, first=port, last=last or port)

    @staticmethod
    def is_port(given: object) -> TypeGuard[int]:
        return type(given) is int and 0 < given <= LAST_PORT

    def selector(self, given: Any, path: str) -> Selector:
        fields = self.mapping(given, path)
        self.only(fields, ("matchLabels", "matchExpressions"), path)
        labels = fields.get("matchLabels")
        labels = {} if labels is None else self.mapping(labels, f"{path}.matchLabels")
        found = {
            Requirement(self._key(key, f"{path}.matchLabels"), "In", (self._value(value, f"{path}.matchLabels.{key}"),))
            for key, value in labels.items()
        }
        for index, each in enumerate(self.items(fields.get("matchExpressions"), f"{path}.matchExpressions")):
            found.add(self._requirement(each, f"{path}.matchExpressions[{index}]"))
        return Selector(tuple(sorted(found, key=lambda each: (each.key, each.operator, each.values))))

    def _requirement(self, given: Any, path: str) -> Requirement:
        fields = self.mapping(given, path)
        self.only(fields, ("key", "operator", "values"), path)
        key = self._key(fields.get("key"), f"{path}.key")
        operator: Any = fields.get("operator")
        if operator not in _OPERATORS:
            raise self.wrong(f"{path}.operator", operator, f"one of {', '.join(_OPERATORS)}")
        values = self.items(fields.get("values"), f"{path}.values")
        if bool(values) != (operator in ("In", "NotIn")):
            expected = "at least one value" if operator in ("In", "NotIn") else f"none with {operator}"
            raise self.wrong(f"{path}.values", values, expected)
        return Requirement(key, operator, tuple(sorted({self._value(each, f"{path}.values") for each in values})))

    def _key(self, given: Any, path: str) -> str:
        if not _LABEL.fullmatch(self.text(given, path)):
            raise self.wrong(path, given, "the key of a label")
        return str(given)

    def _value(self, given: Any, path: str) -> str:
        if not _LABEL_VALUE.fullmatch(self.text(given, path)):
            raise self.wrong(path, given, "the value of a label")
        return str(given)

    def mapping(self, given: Any, path: str) -> Mapping[str, Any]:
        if not isinstance(given, dict):
            raise self.wrong(path, given, "an object")
        return given

    def items(self, given: Any, path: str) -> list[Any]:
        if given is None:
            return []
        if not isinstance(given, list):
            raise self.wrong(path, given, "a list")
        return given

    def text(self, given: Any, path: str) -> str:
        if not isinstance(given, str):
            raise self.wrong(path, given, "text")
        return given

    def only(self, fields: Mapping[str, Any], known: Collection[str], path: str) -> None:
        """What is not known may narrow what is meant."""
        if unknown := [key for key in fields if key not in known]:
            raise self.wrong(path, f"{unknown[0]}", f"no other key than {', '.join(known)}")
