"""Policies, namespaces and pods as the Kubernetes API lists them; only what policies look at is decoded.

A policy stays text until it is asked for: most select no pod of this node.
"""

from datetime import datetime
from hashlib import sha256
from typing import Any, Final, Literal

import msgspec

from weft.model.errors import Problem
from weft.model.policy import KINDS, ClusterPolicy, Id, Namespace, Pod, Policy, Service, name_of
from weft.model.value import Value, replace
from weft.wire.clusterpolicy import read_cluster_policy
from weft.wire.kube import EVENTS_OF_NODES, event_about
from weft.wire.kubelist import Kind, decode
from weft.wire.policy import Unreadable, names, read_policy
from weft.wire.policyobjects import Meta, NamespaceObject, PodObject, ServiceObject, namespace_of, pod_of, service_of

_API: Final = {"policy": "networking.k8s.io/v1", "clusterpolicy": "policy.networking.k8s.io/v1beta1"}
_HOUR: Final = 3600
_LONGEST_NAME: Final = 200  # of an Event's own 253


class PolicyText(Value, gc=False):
    """A policy as it was read; `spec` is JSON."""

    kind: Literal["policy", "clusterpolicy"]
    namespace: str
    name: str
    uid: str
    spec: bytes
    generation: int = 0

    @property
    def id(self) -> Id:
        return self.kind, self.namespace, self.name


class _PolicyObject(Value):
    metadata: Meta
    spec: msgspec.Raw = msgspec.Raw(b"{}")


class _Applied(Value):
    kind: str = ""
    items: list[msgspec.Raw] | None = None


class _Resource(Value):
    name: str = ""


class _Resources(Value):
    resources: list[_Resource] | None = None


def _text(found: _PolicyObject) -> PolicyText:
    meta, spec = found.metadata, bytes(found.spec)
    return PolicyText(
        kind="policy", namespace=meta.namespace, name=meta.name, uid=meta.uid, generation=meta.generation, spec=spec
    )


def _cluster_text(found: _PolicyObject) -> PolicyText:
    return replace(_text(found), kind="clusterpolicy", namespace="")


def _peer(found: PodObject) -> Pod:
    return replace(pod_of(found), node="")


POLICIES: Final[Kind[PolicyText]] = Kind(_PolicyObject, _text)
CLUSTER_POLICIES: Final[Kind[PolicyText]] = Kind(_PolicyObject, _cluster_text)
NAMESPACES: Final[Kind[Namespace]] = Kind(NamespaceObject, namespace_of)
PODS: Final[Kind[Pod]] = Kind(PodObject, pod_of)
SERVICES: Final[Kind[Service]] = Kind(ServiceObject, service_of)
# Of other nodes, it does not matter which.
PEERS: Final[Kind[Pod]] = Kind(PodObject, _peer)


def form_of(thing: PolicyText | Namespace) -> str:
    """Equal for what means the same: of a policy that is which object it is, and the number of its last change.

    That of a namespace are its labels, since the API numbers none of its changes.
    """
    if isinstance(thing, Namespace):
        return ",".join(f"{key}={value}" for key, value in sorted(thing.labels.items()))
    return f"{thing.uid} {thing.generation}"


def forms_in(applied: bytes) -> dict[str, str]:
    """By their names, of what `kubectl apply -o json` says that it has put. Raises `NotTheApiError`."""
    whole = decode(_APPLIED, applied)
    raw = [applied] if whole.items is None else whole.items
    kinds: dict[str, Kind[PolicyText] | Kind[Namespace]] = {
        KINDS["policy"]: POLICIES,
        KINDS["clusterpolicy"]: CLUSTER_POLICIES,
        KINDS["namespace"]: NAMESPACES,
    }
    things = [kinds[kind].one(each) for each in raw if (kind := decode(_APPLIED, each).kind) in kinds]
    return {name_of(thing.id): form_of(thing) for thing in things}


def policy_of(text: PolicyText) -> tuple[Policy | ClusterPolicy, tuple[Problem, ...]]:
    """What it says. Raises `Unreadable` where it is not known which pods it selects."""
    meta = {"name": text.name, "namespace": text.namespace, "uid": text.uid}
    try:
        spec = msgspec.json.decode(text.spec)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        where = f"{KINDS[text.kind]} {text.namespace}/{text.name}"
        raise Unreadable(Problem(code="POL-005", where=where, seen=f"its spec cannot be read: {error}")) from None
    obj: dict[str, Any] = {"kind": KINDS[text.kind], "metadata": meta, "spec": spec}
    return read_cluster_policy(obj) if text.kind == "clusterpolicy" else read_policy(obj)


def path_of(plural: Literal["pods", "services"], namespace: str, name: str) -> str:
    """Of an object in the API, whose names come from a caller. Raises `Unreadable` for what are no names."""
    names({"kind": plural, "metadata": {"namespace": namespace, "name": name}})
    return f"/api/v1/namespaces/{namespace}/{plural}/{name}"


def has_resource(body: bytes, name: str) -> bool:
    """Tell whether a version of a group of APIs has such objects. Raises `NotTheApiError`."""
    return any(each.name == name for each in decode(_RESOURCES, body).resources or ())


def event_of_policy(text: PolicyText, node: str, now: datetime, message: str) -> tuple[str, bytes]:
    """An Event that `kubectl describe networkpolicy` shows: its namespace and its body.

    Its name is the same for one message within an hour, whichever node says it.
    """
    namespace = text.namespace or EVENTS_OF_NODES
    about = {"apiVersion": _API[text.kind], "kind": KINDS[text.kind], "name": text.name, "uid": text.uid}
    if text.namespace:
        about["namespace"] = text.namespace
    seed = f"{text.uid} {int(now.timestamp() // _HOUR)} {message}"
    name = f"{text.name[:_LONGEST_NAME].rstrip('.-')}.{sha256(seed.encode()).hexdigest()[:16]}"
    made = event_about(about, namespace, node, now, kind="Warning", reason="POL-005", message=message, name=name)
    return namespace, made


_APPLIED: Final = msgspec.json.Decoder(_Applied)
_RESOURCES: Final = msgspec.json.Decoder(_Resources)
