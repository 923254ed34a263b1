"""What a lab consists of: it comes from flags or from a lab file, and goes to the supervisor as JSON."""

import json
import re
from collections.abc import Sequence
from itertools import cycle
from typing import Any, Final, Literal

from weft.diag.trace.hops import OUTSIDE
from weft.lab.links import STORE, Cut, Link
from weft.lab.topology import Pair, Wanted, cuts
from weft.model.errors import Problem
from weft.model.net import Family
from weft.model.value import Value, field, replace

Store = Literal["etcd", "kubernetes", "mesh"]
Protocol = Literal["TCP", "UDP"]
Nat = Literal["cone", "hard"]  # a node's UDP port 51820 looks the same to all outside, or to each another one
FAMILIES: Final[dict[str, tuple[Family, ...]]] = {"4": (4,), "6": (6,), "46": (4, 6)}

# Flannel's usual pod network, and its IPv6 companion. Nothing outside the lab ever sees them.
_POD_NETWORK: Final = "10.244.0.0/16"
_POD_NETWORK6: Final = "2001:cafe:42::/56"

# Where Services have their addresses: Kubernetes', and those of a lab on etcd.
SERVICES: Final[dict[Family, str]] = {4: "10.96.0.0/16", 6: "fd31:96::/112"}

MOST_NODES: Final = 1000
MOST_SEGMENTS: Final = 8
MOST_PODS: Final = 250  # of one node: a node's subnet is a /24
NAMESPACE: Final = "lab"  # of pods, and of policies, that do not say
ALL: Final = "all"  # what commands call all nodes, or all logs
# Names that mean something else already: all, the loopback (hosts(5)), the store, what is outside of all nodes, and the
# logs that are no node's.
_PROGRAMS: Final = ("etcd", "containerd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
TAKEN: Final = frozenset((ALL, STORE, OUTSIDE, "localhost", "supervisor", *_PROGRAMS))
NAME: Final = re.compile(r"[a-z]([a-z0-9-]{0,30}[a-z0-9])?")


class Port(Value):
    """A port of the machine's loopback that leads to port `inside` of a node."""

    address: str
    outside: int
    inside: int


class Node(Value):
    """`index` counts from 1 and, with the `segment`, decides its underlay addresses.

    `daemon` is the program that serves it in weftd's place, found by PATH unless it has a slash; or empty.
    """

    name: str
    index: int
    segment: int = 1
    daemon: str = ""
    ports: tuple[Port, ...] = ()


class HostPort(Value):
    """A port of a pod's node, `outside`, that leads to port `inside` of the pod."""

    outside: int
    inside: int
    protocol: Protocol = "TCP"


class Pod(Value):
    """It asks for `network`, else the node's first, and for the address `ip`, if there is one; `ports` lead to it.

    Policies know it by `namespace` and `labels`.
    """

    name: str
    node: str
    ports: tuple[HostPort, ...] = ()
    network: str = ""
    ip: str = ""
    namespace: str = NAMESPACE
    labels: dict[str, str] = field(default_factory=dict)


class Service(Value):
    """Packets to `port` of its addresses go to `target_port` of one of its pods.

    `pods` are names; one that ends in `*` means all that begin so. `addresses` are one of each family; without any they
    are chosen. Every node leads its `node_port` to it, if that is not 0.
    """

    name: str
    port: int
    target_port: int
    pods: tuple[str, ...]
    protocol: Protocol = "TCP"
    addresses: tuple[str, ...] = ()
    node_port: int = 0


class Lab(Value):
    """`network` is the net-conf, verbatim as the store will hold it.

    With `kubelets` each node is one of Kubernetes', and weft is a pod: the store is Kubernetes' API then. `bare` nodes
    have neither daemon nor pod network. Segments of `nat` are behind one: outside, their nodes have its address, and
    nothing begins a connection to them. With `password` the nodes of a mesh share one. `topology` has the pairs of
    nodes that reach each other, from the start on; all do if it is empty. `links` and `cuts` are set once all is up.
    `policies` are objects of Kubernetes that nodes enforce; with None they enforce nothing. With `kubelets` they are
    what the API has at the start.
    """

    name: str
    network: str
    families: tuple[Family, ...]
    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]
    store: Store = "etcd"
    kubelets: bool = False
    services: tuple[Service, ...] = ()
    bare: bool = False
    nat: dict[int, Nat] = field(default_factory=dict)
    topology: tuple[Pair, ...] = ()
    password: bool = False
    links: dict[str, Link] = field(default_factory=dict)
    cuts: tuple[Cut, ...] = ()
    policies: tuple[dict[str, Any], ...] | None = None

    @property
    def option(self) -> str:
        """For a command in a message: ` --lab NAME`, whatever other labs are up by then."""
        return f" --lab {self.name}"

    @property
    def segments(self) -> tuple[int, ...]:
        """Those that have nodes, and the first, where the store is."""
        return tuple(sorted({1, *(node.segment for node in self.nodes)}))

    @property
    def apart(self) -> frozenset[Cut]:
        """What its topology cuts."""
        return cuts(self.topology, [node.name for node in self.nodes])

    @property
    def nftables(self) -> bool:
        keys = {key.casefold(): value for key, value in json.loads(self.network).items()}  # net-conf's have no case
        return bool(keys.get("enablenftables"))


class Overrides(Value):
    """None and False are what was not given."""

    nodes: int | None = None
    pods: int | None = None
    backend: str | None = None
    family: str | None = None
    nft: bool = False
    store: Store | None = None
    nat: Nat | None = None
    kubernetes: bool = False
    topology: Wanted | None = None
    password: bool = False
    policies: tuple[dict[str, Any], ...] = ()

    def given(self) -> list[str]:
        said = ((name, getattr(self, name)) for name in self.__struct_fields__)
        names = [name for name, value in said if value is not None and value is not False and value != ()]
        return ["--policy" if name == "policies" else f"--{name}" for name in names]


def switch(segment: int) -> str:
    """The segment's bridge in the lab's own namespace."""
    return "underlay" if segment == 1 else f"underlay{segment}"


def usual_backend(store: str) -> str:
    return "mesh" if store == "mesh" else "vxlan"


def net_conf(*, backend: str, families: Sequence[Family], nft: bool) -> str:
    network: dict[str, Any] = {}
    if 4 in families:
        network["Network"] = _POD_NETWORK
    else:
        network["EnableIPv4"] = False
    if 6 in families:
        network["EnableIPv6"] = True
        network["IPv6Network"] = _POD_NETWORK6
    network["EnableNFTables"] = nft
    network["Backend"] = {"Type": backend}
    return json.dumps(network)


def regular(
    *,
    name: str,
    network: str,
    families: Sequence[Family],
    nodes: int,
    pods: int,
    store: Store = "etcd",
    kubelets: bool = False,
    nat: Nat | None = None,
) -> Lab:
    """node1, node2, … with `pods` each: pod1-1, pod1-2, pod2-1 …. With `nat` all but node1 are behind one of their own.

    There are at most seven; further nodes share them.
    """
    made, on_them = nodes_and_pods(nodes, pods)
    behind = range(2, MOST_SEGMENTS + 1) if nat else range(1, 2)
    made = (made[0], *(replace(node, segment=segment) for node, segment in zip(made[1:], cycle(behind))))
    return Lab(
        name=name,
        network=network,
        families=tuple(families),
        nodes=made,
        pods=on_them,
        store=store,
        kubelets=kubelets,
        nat={node.segment: nat for node in made[1:]} if nat else {},
    )


def nodes_and_pods(nodes: int, pods: int, *, start: int = 1) -> tuple[tuple[Node, ...], tuple[Pod, ...]]:
    """The first node has number `start`."""
    made = tuple(Node(name=f"node{index}", index=index) for index in range(start, start + nodes))
    on_them = (Pod(name=f"pod{node.index}-{number}", node=node.name) for node in made for number in range(1, pods + 1))
    return made, tuple(on_them)


def name_problem(what: str, where: str, name: str) -> list[Problem]:
    """Of a lab, a node, a pod or a Service."""
    if name in TAKEN and what != "a lab":
        return [Problem("LAB-001", where, f"{what} named {name!r}", expected="a name that means nothing else in a lab")]
    if NAME.fullmatch(name):
        return []
    return [
        Problem(
            "LAB-001",
            where,
            f"{what} named {name!r}",
            expected="a lower-case letter, then letters, digits and '-', not '-' at the end, 32 characters at most",
        )
    ]
