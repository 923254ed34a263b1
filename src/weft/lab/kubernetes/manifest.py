"""The objects that a lab puts into its API: weft's own manifest with the lab's network, and nodes."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from weft.lab.inside import underlay
from weft.lab.spec import Lab

Object = dict[str, Any]


def text() -> str:
    """Return deploy/kubernetes.yaml, which lies beside this module, too."""
    return Path(__file__).with_name("weft.yaml").read_text()


def objects(lab: Lab) -> list[Object]:
    """Return the objects of deploy/kubernetes.yaml, with the network of this lab and the uplink of its nodes."""
    found: list[Object] = list(yaml.safe_load_all(text()))
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
