"""Namespaces and pods, as the API's JSON has them, and files that hold these and policies as YAML or JSON.

Of the API's objects only what policies look at is decoded: a Pod takes 5 KB and more.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from sys import intern
from typing import Any, Final

import msgspec
import yaml

from weft.model.errors import ConfigError, Problem
from weft.model.net import ip_in
from weft.model.policy import (
    NAME_LABEL,
    PROTOCOLS,
    ClusterPolicy,
    Id,
    Labels,
    NamedPort,
    Namespace,
    Pod,
    Policy,
    Protocol,
    Service,
    ServicePort,
    Thing,
)
from weft.model.text import one_line
from weft.model.value import Value, field, replace
from weft.wire.clusterpolicy import read_cluster_policy
from weft.wire.policy import Unreadable, names, read_policy

ENDINGS: Final = (".yaml", ".yml", ".json")  # of files in a directory
_PROTOCOL: Final[Mapping[str, Protocol]] = {each.upper(): each for each in PROTOCOLS}
_ENDED: Final = ("Succeeded", "Failed")
# Objects of these groups are policies, but for those kinds; a misspelt kind must not leave pods open.
_GROUPS: Final = ("networking.k8s.io", "policy.networking.k8s.io")
_NO_POLICIES: Final = ("Ingress", "IngressClass", "IPAddress", "ServiceCIDR")
# Their schemas are the same.
_CLUSTER: Final = ("policy.networking.k8s.io/v1beta1", "policy.networking.k8s.io/v1alpha2")
# The last three are for a value of a wrong form, as the day 2026-02-30.
_NO_YAML: Final = (yaml.YAMLError, RecursionError, AttributeError, LookupError, ValueError)
_OTHERS: Final = "weft enforces no other kind. Leave it out, or write it as one of these"


class Annotations(Value):
    mirrored: str = field(name="kubernetes.io/config.mirror", default="")


class Meta(Value):
    name: str
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    labels: dict[str, str] | None = None
    annotations: Annotations | None = None
    version: str = field(name="resourceVersion", default="")


class PortObject(Value):
    number: int = field(name="containerPort")
    name: str = ""
    protocol: str = "TCP"


class ContainerObject(Value):
    ports: list[PortObject] | None = None
    restart: str = field(name="restartPolicy", default="")

    @property
    def is_sidecar(self) -> bool:
        """An init container that runs beside the others (KEP-753): its ports are the pod's, as for a Service."""
        return self.restart == "Always"


class SpecObject(Value):
    containers: list[ContainerObject] | None = None
    init: list[ContainerObject] | None = field(name="initContainers", default=None)
    node: str = field(name="nodeName", default="")
    host_network: bool = field(name="hostNetwork", default=False)


class IpObject(Value):
    ip: str = ""


class StatusObject(Value):
    phase: str = ""
    ips: list[IpObject] | None = field(name="podIPs", default=None)


class PodObject(Value):
    metadata: Meta
    spec: SpecObject = field(default_factory=SpecObject)
    status: StatusObject = field(default_factory=StatusObject)


class NamespaceObject(Value):
    metadata: Meta


class ServicePortObject(Value):
    number: int = field(name="port")
    target: int | str = field(name="targetPort", default=0)
    protocol: str = "TCP"


class ServiceSpec(Value):
    selector: dict[str, str] | None = None
    ports: list[ServicePortObject] | None = None
    ips: list[str] | None = field(name="clusterIPs", default=None)


class ServiceObject(Value):
    metadata: Meta
    spec: ServiceSpec = field(default_factory=ServiceSpec)


class Objects(Value):
    """What files hold. `problems` are those of policies, which are in effect as far as they are understood.

    Namespaces that are only named are `assumed`. `written` is when the newest file was, in seconds since 1970.
    """

    namespaces: tuple[Namespace, ...] = ()
    assumed: frozenset[str] = frozenset()
    pods: tuple[Pod, ...] = ()
    policies: tuple[Policy, ...] = ()
    cluster: tuple[ClusterPolicy, ...] = ()
    services: tuple[Service, ...] = ()
    problems: tuple[Problem, ...] = ()
    written: float = 0.0

    @property
    def things(self) -> tuple[Thing, ...]:
        return (*self.namespaces, *self.pods, *self.policies, *self.cluster)


def namespace_of(found: NamespaceObject) -> Namespace:
    name = found.metadata.name
    return Namespace(name=name, labels=_shared((*(found.metadata.labels or {}).items(), (NAME_LABEL, name))))


def pod_of(found: PodObject) -> Pod:
    """Its UID is the one that a runtime is given: of a static pod, that of its file, which its Pod object tells."""
    meta, spec, status = found.metadata, found.spec, found.status
    containers = [*(spec.containers or ()), *(each for each in spec.init or () if each.is_sidecar)]
    ports = (port for container in containers for port in container.ports or () if port.name)
    ips = (ip_in(each.ip) for each in status.ips or ())
    return Pod(
        namespace=intern(meta.namespace or "default"),
        name=meta.name,
        uid=(meta.annotations.mirrored if meta.annotations else "") or meta.uid,
        labels=_shared(tuple((meta.labels or {}).items())),
        ips=tuple(ip for ip in ips if ip is not None),
        ports=tuple(
            NamedPort(port.name, _PROTOCOL[port.protocol], port.number) for port in ports if port.protocol in _PROTOCOL
        ),
        node=spec.node,
        host_network=spec.host_network,
        ended=status.phase in _ENDED,
    )


def service_of(found: ServiceObject) -> Service:
    meta, spec = found.metadata, found.spec
    ips = (ip_in(each) for each in spec.ips or ())  # `None` of one without an address
    return Service(
        namespace=meta.namespace or "default",
        name=meta.name,
        selector=spec.selector or {},
        ips=tuple(ip for ip in ips if ip is not None),
        ports=tuple(
            ServicePort(_PROTOCOL[port.protocol], port.number, port.target or port.number)
            for port in spec.ports or ()
            if port.protocol in _PROTOCOL
        ),
    )


@lru_cache(maxsize=1 << 14)  # the pods of a Deployment have the same
def _shared(items: tuple[tuple[str, str], ...]) -> Labels:
    return dict(items)


def read_objects(texts: Mapping[str, str]) -> Objects:
    """What files hold, by where they are: documents of YAML, lists among them. `ConfigError` has all faults.

    A namespace that is named, and no object is, has no label but its name. Objects of other kinds are passed over,
    unless they are policies of the network.
    """
    reader = _Reader()
    for where, text in texts.items():
        for obj in reader.documents(text, where):
            reader.take(obj, where)
    if reader.faults:
        raise ConfigError(*reader.faults)
    return reader.objects()


class _Reader:
    def __init__(self) -> None:
        self.faults: list[Problem] = []
        self._problems: list[Problem] = []
        self._found: dict[Id, Thing] = {}
        self._services: dict[str, Service] = {}

    def documents(self, text: str, where: str) -> Iterator[Any]:
        try:
            documents = list(yaml.safe_load_all(text))
        except _NO_YAML as error:
            self._fault(where, one_line(str(error)), "YAML")
            return
        for document in documents:
            if isinstance(document, dict) and str(document.get("kind")).endswith("List"):
                items = document.get("items")
                yield from items if isinstance(items, list) else [items]
            elif document is not None:
                yield document

    def take(self, obj: Any, where: str) -> None:
        if not isinstance(obj, dict) or not obj.get("kind") or not obj.get("apiVersion"):
            self._fault(where, "a document without apiVersion and kind", "an object of Kubernetes")
            return
        kind, group = str(obj["kind"]), str(obj["apiVersion"])
        try:
            found = self._read(obj, kind, group)
        except Unreadable as error:
            self.faults.append(replace(error.problem, where=f"{where}: {error.problem.where}"))
        except msgspec.ValidationError as error:
            self._fault(f"{where}: {kind}", str(error), "the API's types")
        else:
            if found is not None and self._found.setdefault(found.id, found) is not found:
                self._fault(where, f"{kind} {found} a second time", "each object once")

    def _read(self, obj: dict[str, Any], kind: str, group: str) -> Thing | None:
        if (kind, group) == ("NetworkPolicy", "networking.k8s.io/v1"):
            policy, problems = read_policy(obj)
            self._problems += problems
            return policy
        if kind == "ClusterNetworkPolicy" and group in _CLUSTER:
            cluster, problems = read_cluster_policy(obj)
            self._problems += problems
            return cluster
        if (kind, group) in (("Namespace", "v1"), ("Pod", "v1"), ("Service", "v1")):
            names(obj)
            if kind == "Service":
                service = service_of(msgspec.convert(obj, ServiceObject))
                self._services[str(service)] = service
                return None
            if kind == "Namespace":
                return namespace_of(msgspec.convert(obj, NamespaceObject))
            return pod_of(msgspec.convert(obj, PodObject))
        ours = group.partition("/")[0] in _GROUPS and kind not in _NO_POLICIES
        if ours or "NetworkPolicy" in kind:
            expected = f"NetworkPolicy of networking.k8s.io/v1 or ClusterNetworkPolicy of {_CLUSTER[0]}"
            seen = f"{kind} of {group}"
            raise Unreadable(Problem(code="POL-005", where=kind, seen=seen, expected=expected, hint=_OTHERS))
        return None

    def _fault(self, where: str, seen: str, expected: str) -> None:
        self.faults.append(Problem(code="POL-005", where=where, seen=seen, expected=expected))

    def objects(self) -> Objects:
        found = self._found.values()
        namespaces = {each.name: each for each in found if isinstance(each, Namespace)}
        pods = tuple(each for each in found if isinstance(each, Pod))
        policies = tuple(each for each in found if isinstance(each, Policy))
        assumed = {pod.namespace for pod in pods}.union(policy.namespace for policy in policies) - namespaces.keys()
        for name in sorted(assumed):
            namespaces[name] = namespace_of(NamespaceObject(metadata=Meta(name=name)))
        return Objects(
            namespaces=tuple(namespaces.values()),
            assumed=frozenset(assumed),
            pods=pods,
            policies=policies,
            cluster=tuple(each for each in found if isinstance(each, ClusterPolicy)),
            services=tuple(self._services.values()),
            problems=tuple(self._problems),
        )
