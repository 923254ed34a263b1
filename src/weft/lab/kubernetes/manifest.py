"""The objects that a lab puts into its API: weft's own manifest with the lab's network, and nodes."""

import json
from collections.abc import Sequence
from importlib import resources
from typing import Any, Final

import yaml

from weft.lab.inside import underlay
from weft.lab.spec import Lab

Object = dict[str, Any]

NAMESPACE: Final = "kube-flannel"
CONFIG: Final = "kube-flannel-cfg"
DAEMON: Final = "kube-flannel-ds"
ZONE: Final = "topology.kubernetes.io/zone"


def objects(lab: Lab) -> list[Object]:
    """Return the objects of deploy/kubernetes.yaml, with the network of this lab and the uplink of its nodes."""
    text = resources.files("weft.lab.kubernetes").joinpath("weft.yaml").read_text()
    found: list[Object] = list(yaml.load_all(text, Loader=yaml.SafeLoader))
    for entry in found:
        if entry["kind"] == "ConfigMap":
            entry["data"]["net-conf.json"] = lab.network
        if entry["kind"] == "DaemonSet":
            [container] = entry["spec"]["template"]["spec"]["containers"]
            container["args"].append(f"--iface={underlay.UPLINK}")
    return found


def nodes(lab: Lab) -> list[Object]:
    """Return the nodes of a lab without kubelets, as a kubelet would register them."""
    return [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": node.name, "labels": {"kubernetes.io/hostname": node.name}},
            "spec": {},
        }
        for node in lab.nodes
    ]


def as_json(entries: Sequence[Object]) -> str:
    """Return objects as what kubectl reads at once."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(entries)})
