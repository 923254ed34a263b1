"""The keys of a lab file, with their meaning and their values: for the reader, and for the JSON Schema.

Whether names are distinct and a network has room, only the reader knows.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, get_args

from weft.desired.backends import BACKENDS
from weft.lab import spec
from weft.lab.services.choice import NODE_PORTS
from weft.lab.topology import PATTERN, SHAPES
from weft.model.value import Value

API: Final = "weft.dev/v1"
KIND: Final = "Lab"
PORTS: Final = "extraPortMappings"
SERVICES: Final = "services"
POLICIES: Final = "policies"
MANIFESTS: Final = ("NetworkPolicy", "ClusterNetworkPolicy", "Namespace")
MOST_PORT: Final = 65535

Schema = dict[str, Any]


class Key(Value, kw_only=False):
    """`values` is JSON Schema."""

    about: str
    values: Schema
    needed: bool = False


Keys = Mapping[str, Key]


def needed(keys: Keys) -> tuple[str, ...]:
    return tuple(name for name, key in keys.items() if key.needed)


def _number(least: int, most: int) -> Schema:
    return {"type": "integer", "minimum": least, "maximum": most}


def _list(of: Schema) -> Schema:
    return {"type": "array", "items": of}


def _either(*values: Schema) -> Schema:
    return {"anyOf": list(values)}


def _object(keys: Keys) -> Schema:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(needed(keys)),
        "properties": {name: {"description": key.about, **key.values} for name, key in keys.items()},
    }


_TEXT: Final[Schema] = {"type": "string"}
_LAB_NAME: Final[Schema] = {**_TEXT, "pattern": f"^{spec.NAME.pattern}$"}
_NAME: Final[Schema] = {**_LAB_NAME, "not": {"enum": sorted(spec.TAKEN)}}
_FILE: Final[Schema] = {**_TEXT, "pattern": "."}
_PORT: Final = _number(1, MOST_PORT)
_POD_COUNT: Final = _number(0, spec.MOST_PODS)
_MANIFEST: Final[Schema] = {
    "type": "object",
    "required": ["apiVersion", "kind", "metadata"],
    "properties": {"kind": {"enum": list(MANIFESTS)}},
}
_BEHIND: Final = _number(2, spec.MOST_SEGMENTS)

PORT: Final[Keys] = MappingProxyType(
    {
        "containerPort": Key("The port of the node.", _PORT, needed=True),
        "hostPort": Key("The TCP port of the machine that leads to it.", _PORT, needed=True),
        "listenAddress": Key("An address of the machine's loopback: 127.0.0.1 by default.", _TEXT),
        "protocol": Key("TCP, and nothing else.", {"const": "TCP"}),
    }
)
LINK: Final[Keys] = MappingProxyType(
    {
        "down": Key("Whether it is down: false by default.", {"type": "boolean"}),
        "delay": Key("How long each packet takes longer in each direction, as `20ms`.", _TEXT),
        "loss": Key("The share of packets that is lost in each direction, as `5%`.", _TEXT),
        "rate": Key("What may pass in each direction, as `50mbit`.", _TEXT),
    }
)
NODE: Final[Keys] = MappingProxyType(
    {
        "name": Key("The node's name.", _NAME, needed=True),
        "pods": Key("How many pods it has, or their names.", _either(_POD_COUNT, _list(_NAME))),
        "segment": Key("The part of the underlay that it is in: 1 by default.", _number(1, spec.MOST_SEGMENTS)),
        "daemon": Key("The program that serves it in weftd's place, with flannel's flags: flanneld, say.", _FILE),
        PORTS: Key("Ports of the machine's loopback that lead to ports of the node.", _list(_object(PORT))),
        "link": Key("What its link does to packets once all is up: nothing by default.", _object(LINK)),
    }
)
HOST_PORT: Final[Keys] = MappingProxyType(
    {
        "hostPort": Key("The port of the node that leads to it.", _PORT, needed=True),
        "containerPort": Key("The port of the pod.", _PORT, needed=True),
        "protocol": Key("TCP by default.", {"enum": list(get_args(spec.Protocol))}),
    }
)
POD: Final[Keys] = MappingProxyType(
    {
        "name": Key("The pod's name.", _NAME, needed=True),
        "node": Key("The node that it runs on.", _TEXT, needed=True),
        "ip": Key("The address that it asks for: the next that is free by default.", _TEXT),
        "ports": Key("Ports of its node that lead to it.", _list(_object(HOST_PORT))),
        "namespace": Key(f"By which policies know it: {spec.NAMESPACE} by default.", _LAB_NAME),
        "labels": Key(
            "By which policies select it, beside `pod` and `node`, which are its name and that of its node.",
            {"type": "object", "additionalProperties": _TEXT},
        ),
    }
)
NAT: Final[Keys] = MappingProxyType(
    {
        "segment": Key("The number of the segment, from 2 on.", _BEHIND, needed=True),
        "kind": Key(
            "`hard` if it takes another port for each target: `cone` by default.", {"enum": list(get_args(spec.Nat))}
        ),
    }
)
CUT: Final[Keys] = MappingProxyType(
    {
        "from": Key("The node whose packets are lost, or `store`.", _TEXT, needed=True),
        "to": Key("The node that they are for, or `store`.", _TEXT, needed=True),
    }
)
SERVICE: Final[Keys] = MappingProxyType(
    {
        "name": Key("By which nodes and pods know it.", _NAME, needed=True),
        "port": Key("The port of its address.", _PORT, needed=True),
        "targetPort": Key("The port of the pods: that of the Service by default.", _PORT),
        "protocol": Key("TCP by default.", {"enum": list(get_args(spec.Protocol))}),
        "pods": Key("The pods behind it: names, or `web*` for all such.", _either(_TEXT, _list(_TEXT)), needed=True),
        "clusterIP": Key("Its address, or one of each family: chosen by default.", _either(_TEXT, _list(_TEXT))),
        "nodePort": Key("A port of each node that leads to it.", _number(*NODE_PORTS)),
    }
)
LAB: Final[Keys] = MappingProxyType(
    {
        "apiVersion": Key("The version of this format.", {"const": API}),
        "kind": Key("What the file describes.", {"const": KIND}),
        "name": Key("The lab's name: weft by default.", _LAB_NAME),
        "network": Key(
            "flannel's network configuration (net-conf.json): vxlan in 10.244.0.0/16 by default.",
            {
                "type": "object",
                "properties": {
                    "Backend": {
                        "description": "How packets travel between nodes, with the options of that back end.",
                        "type": "object",
                        "properties": {"Type": {"examples": list(BACKENDS)}},
                    }
                },
            },
        ),
        "nodes": Key(
            "How many nodes, 3 by default: node1, node2, …; or a list of names, or of nodes in detail.",
            _either(
                _number(1, spec.MOST_NODES),
                {**_list(_either(_NAME, _object(NODE))), "minItems": 1, "maxItems": spec.MOST_NODES},
            ),
        ),
        "pods": Key(
            "How many pods on each node that does not say, 2 by default: pod1-1, pod1-2, …; or a list of pods.",
            _either(_POD_COUNT, _list(_object(POD))),
        ),
        "store": Key("What holds the leases: etcd by default.", {"enum": list(get_args(spec.Store))}),
        "password": Key("Whether the nodes of a mesh share one, which seals all between them.", {"type": "boolean"}),
        "kubernetes": Key("Whether nodes are ones of Kubernetes, with weft as a DaemonSet.", {"type": "boolean"}),
        "nat": Key("Segments behind a NAT of their own: numbers, or in detail.", _list(_either(_BEHIND, _object(NAT)))),
        "topology": Key(
            f"Which nodes reach each other: {SHAPES}, or lists of a node and those that it reaches; all by default.",
            _either({**_TEXT, "pattern": PATTERN}, _list({**_list(_NAME), "minItems": 2})),
        ),
        "cuts": Key("Ways from a node to another on which no packet gets, once all is up.", _list(_object(CUT))),
        POLICIES: Key(
            "NetworkPolicies, ClusterNetworkPolicies and Namespaces, or files of them; nodes enforce none by default.",
            _list(_either(_FILE, _MANIFEST)),
        ),
        SERVICES: Key("Services, each with an address that leads to some of the pods.", _list(_object(SERVICE))),
    }
)


def schema() -> Schema:
    """An empty file is a lab, too."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A lab of weft",
        "description": "What `weft lab up FILE` starts.",
        **_object(LAB),
        "type": "object",
    }
