"""`spec.Lab` → a topology file of containerlab: the same nodes in containers, with the store in one of its own. Pure.

All nodes are in the management network there, by which containers know each other by name. Segments are left out: they
would be bridges of the machine, with addresses and a router to be made beside the file. Comments say what is left out.
"""

import shlex
from collections.abc import Iterator
from typing import Any, Final

import yaml

from weft import __version__
from weft.lab import spec
from weft.lab.files.clabfile import LINUX
from weft.lab.links import STORE

_IMAGES: Final = {"weft": f"localhost/weft:{__version__}", "etcd": "localhost/etcd"}
_WEFTD: Final = "/opt/weft/bin/weftd"  # deploy/Containerfile
_KEY: Final = "/coreos.com/network/config"  # weftd's default


def written(lab: spec.Lab) -> str:
    """Return the file, which `clabfile` reads again as a lab of the same nodes."""
    topology = {"nodes": {STORE: _store(lab), **{node.name: _node(lab, node) for node in lab.nodes}}}
    file = yaml.safe_dump({"name": lab.name, "topology": topology}, sort_keys=False, width=200)
    return "".join(f"# {line}\n" for line in _comments(lab)) + file


def _store(lab: spec.Lab) -> dict[str, Any]:
    key = shlex.join(("etcdctl", "put", _KEY, lab.network))
    urls = f"--listen-client-urls=http://0.0.0.0:2379 --advertise-client-urls={_url(lab)}"
    return {"kind": LINUX, "image": _IMAGES["etcd"], "entrypoint": "etcd", "cmd": urls, "exec": [key]}


def _node(lab: spec.Lab, node: spec.Node) -> dict[str, Any]:
    flags = f"--etcd-endpoints={_url(lab)} --ip-masq"
    made = {"kind": LINUX, "image": _IMAGES["weft"], "entrypoint": _WEFTD, "cmd": flags}
    ports = [f"{port.url_address}:{port.outside}:{port.inside}" for port in node.ports]
    return {**made, "ports": ports} if ports else made


def _url(lab: spec.Lab) -> str:
    """Of the store, by the name that containerlab gives a container."""
    return f"http://clab-{lab.name}-{STORE}:2379"


def _comments(lab: spec.Lab) -> Iterator[str]:
    yield f"The lab {lab.name} as a topology of containerlab: each node runs weftd, and `{STORE}` is an etcd."
    yield f"{_IMAGES['weft']} is built by deploy/Containerfile."
    yield f"{_IMAGES['etcd']} is an image of your own, with etcd and etcdctl."
    left_out = {
        "pods (`weft cni` attaches them)": lab.pods,
        "Services": lab.services,
        "nodes of Kubernetes": lab.kubelets,
        "segments of the underlay": len(lab.segments) > 1,
        "NAT": lab.nat,
        "what links do to packets, and cuts": lab.links or lab.cuts,
        "daemons that are not weft's": any(node.daemon for node in lab.nodes),
    }
    if said := [what for what, there in left_out.items() if there]:
        yield f"Left out of it is what the lab has besides: {', '.join(said)}."
