"""What tests put into Kubernetes' API: nodes, pods, accounts, rules; and the files by which a program reaches it.

Names are a test's own choice; the fixture `apiserver` removes nodes afterwards, and whatever else bears `MARK`.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import yaml

from tests.support.kubernetes.kubeapi import Api, ApiError, Json
from tests.support.weftd import eventually

NODES: Final = "/api/v1/nodes"
RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
MARK: Final = "weft.test/made"
PREFIX: Final = "flannel.alpha.coreos.com/"


def add_node(api: Api, name: str, *pod_cidrs: str, wait: bool = True, **meta: Any) -> Json:
    """Register a node. Without `pod_cidrs` the controller manager assigns them, which is waited for if so wished.

    `meta` are fields of its metadata: labels, annotations. Returns the node.
    """
    spec = {"podCIDR": pod_cidrs[0], "podCIDRs": list(pod_cidrs)} if pod_cidrs else {}
    node = api.post(NODES, {"metadata": {"name": name, **meta}, "spec": spec})
    if pod_cidrs or not wait:
        return node
    return eventually(lambda: _with_cidrs(api.get(f"{NODES}/{name}")), seconds=20)


def _with_cidrs(node: Json) -> Json | None:
    return node if node["spec"].get("podCIDRs") else None


def annotate(api: Api, name: str, **annotations: str | None) -> Json:
    """Change annotations of a node as a node does, through its status; None removes one."""
    return api.patch(f"{NODES}/{name}/status", {"metadata": {"annotations": annotations}})


def flannel(address: str, mac: str = "02:00:00:00:00:02", **more: str) -> dict[str, str]:
    """The annotations by which flannel publishes a VTEP; `more` are others, with `_` for `-` in their names."""
    texts = {
        "kube-subnet-manager": "true",
        "backend-type": "vxlan",
        "backend-data": f'{{"VNI":1,"VtepMAC":"{mac}"}}',
        "public-ip": address,
        **{name.replace("_", "-"): text for name, text in more.items()},
    }
    return {PREFIX + name: text for name, text in texts.items()}


def published(api: Api, name: str) -> dict[str, str]:
    """What a node publishes: annotations without their prefix."""
    annotations = api.get(f"{NODES}/{name}")["metadata"].get("annotations", {})
    return {key.removeprefix(PREFIX): text for key, text in annotations.items() if key.startswith(PREFIX)}


def add_namespace(api: Api, name: str) -> None:
    """Have a namespace with the account `default`, which pods need; it stays, for it would go slowly."""
    for path, what in (("/api/v1/namespaces", name), (f"/api/v1/namespaces/{name}/serviceaccounts", "default")):
        _have(api, path, {"metadata": {"name": what}})


def add_pod(
    api: Api, namespace: str, name: str, node: str, *, account: str = "default", ip: str = "", **labels: str
) -> Json:
    """Make a pod that is bound to a node and has a namespace's account, which is there; nothing runs it.

    `ip` is its address, as if its kubelet had reported it.
    """
    add_namespace(api, namespace)
    container = {"name": "main", "image": "localhost/none:1"}
    spec = {"nodeName": node, "serviceAccountName": account, "containers": [container]}
    meta = _marked(name)
    meta["labels"] |= labels
    path = f"/api/v1/namespaces/{namespace}/pods"
    made = api.post(path, {"metadata": meta, "spec": spec})
    if ip:
        made = api.patch(f"{path}/{name}/status", {"status": {"phase": "Running", "podIPs": [{"ip": ip}], "podIP": ip}})
    return made


def service_account(api: Api, namespace: str, name: str, *, pod: Json | None = None, seconds: int = 3600) -> str:
    """Have an account, and return a token of its own for it, bound to a pod when one is given."""
    add_namespace(api, namespace)
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    _have(api, path, {"metadata": _marked(name)})
    spec: Json = {"expirationSeconds": seconds}
    if pod is not None:
        spec["boundObjectRef"] = {"kind": "Pod", "apiVersion": "v1", "name": pod["metadata"]["name"]}
    token: str = api.post(f"{path}/{name}/token", {"spec": spec})["status"]["token"]
    return token


def grant(api: Api, name: str, subject: Json, rules: Sequence[Json]) -> None:
    """Allow a subject (`user(…)`, `account(…)`) these rules, instead of those granted by this name before."""
    for kind in ("clusterrolebindings", "clusterroles"):
        with _unless(HTTPStatus.NOT_FOUND):
            api.delete(f"{RBAC}/{kind}/{name}")
    api.post(f"{RBAC}/clusterroles", {"metadata": _marked(name), "rules": list(rules)})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    api.post(f"{RBAC}/clusterrolebindings", {"metadata": _marked(name), "roleRef": role, "subjects": [subject]})


def user(name: str) -> Json:
    return {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}


def account(namespace: str, name: str) -> Json:
    return {"kind": "ServiceAccount", "namespace": namespace, "name": name}


def clear(api: Api) -> None:
    """Remove all nodes, and all that is marked as made by a test."""
    api.delete(NODES)
    marked = {"labelSelector": MARK}
    for kind in ("clusterrolebindings", "clusterroles"):
        api.delete(f"{RBAC}/{kind}", **marked)
    for pod in api.get("/api/v1/pods", **marked)["items"]:
        meta = pod["metadata"]
        api.delete(f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}", gracePeriodSeconds=0)


def write_kubeconfig(path: Path, api: Api, **user_fields: Any) -> Path:
    """Write a kubeconfig for a server and as whom to ask it; `user_fields` replace the latter (exec, tokenFile)."""
    fields: Json = dict(user_fields)
    if not fields and api.certificate is not None:
        fields = dict(zip(("client-certificate", "client-key"), api.certificate, strict=True))
    elif not fields:
        fields = {"token": api.token}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": {"server": api.url, "certificate-authority": api.ca}}],
        "users": [{"name": "test", "user": fields}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "current-context": "test",
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(config, indent=2))  # JSON is YAML too
    return path


def write_in_cluster(folder: Path, api: Api, namespace: str) -> Path:
    """Write what a pod finds below /var/run/secrets/kubernetes.io/serviceaccount."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "ca.crt").write_text(Path(api.ca).read_text())
    (folder / "token").write_text(api.token)
    (folder / "namespace").write_text(namespace)
    return folder


def objects(text: str) -> dict[tuple[str, str], Any]:
    """Objects of a manifest by kind and name, the JSON in a ConfigMap as values."""
    found = {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(text) if each}
    for (kind, _), each in found.items():
        if kind == "ConfigMap":
            each["data"] = {name: json.loads(value) for name, value in each["data"].items()}
    return found


def _marked(name: str) -> Json:
    return {"name": name, "labels": {MARK: "true"}}


def _have(api: Api, path: str, body: Json) -> None:
    with _unless(HTTPStatus.CONFLICT):
        api.post(path, body)


@contextmanager
def _unless(code: HTTPStatus) -> Iterator[None]:
    try:
        yield
    except ApiError as error:
        if error.code != code:
            raise
