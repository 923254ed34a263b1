"""Objects of Kubernetes as a lab has them: its policies and namespaces, and those that stand for its pods. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from weft.lab.spec import NAMESPACE, Pod

Manifest = dict[str, Any]


def name_of(manifest: Manifest) -> str:
    """`NetworkPolicy lab/web`, `Namespace shop`."""
    meta = manifest["metadata"]
    namespace = f"{meta['namespace']}/" if meta.get("namespace") else ""
    return f"{manifest['kind']} {namespace}{meta['name']}"


def by_name(manifests: Iterable[Manifest]) -> dict[str, Manifest]:
    return {name_of(each): each for each in manifests}


def at_home(manifest: Manifest, *, in_api: bool) -> Manifest:
    """A NetworkPolicy that names no namespace is in that of the lab's pods, or of the API's."""
    meta = manifest["metadata"]
    if manifest["kind"] != "NetworkPolicy" or meta.get("namespace"):
        return manifest
    return manifest | {"metadata": meta | {"namespace": "default" if in_api else NAMESPACE}}


def of_pod(name: str, namespace: str, node: str, labels: Mapping[str, str], ips: Sequence[str]) -> Manifest:
    """Each pod has a label of its name and one of its node, unless it says otherwise."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {"pod": name, "node": node, **labels}},
        "spec": {"nodeName": node},
        "status": {"podIPs": [{"ip": ip} for ip in ips]},
    }


def of_spec(pod: Pod, ips: Sequence[str]) -> Manifest:
    return of_pod(pod.name, pod.namespace, pod.node, pod.labels, ips)


def listed(manifests: Iterable[Manifest]) -> Manifest:
    return {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
