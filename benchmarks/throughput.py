"""TCP from pod to pod through vxlan and host-gw, against the same paths made by hand with `ip`; and in a mesh.

One stream of iperf3, cubic: the machine's own default may be bbr, which halves what a veth carries.
"""

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

from benchmarks.figures import Figure
from benchmarks.lab import NAME, inside, lab
from benchmarks.world import until
from tests.support.netns import Netns, wire

ROUNDS = 5
REST = 0.5  # the server is still busy with the run before
CLIENT = ["iperf3", "-J", "-C", "cubic", "-t", "3", "-c"]
SERVER = ["iperf3", "-s", "-D"]
# The least that does what a pod network needs. A NAT table makes the kernel track connections, which has its price.
RULES = (
    "iptables -t nat -A POSTROUTING -s 10.9.0.0/16 ! -d 10.9.0.0/16 -j MASQUERADE",
    "iptables -A FORWARD -s 10.9.0.0/16 -j ACCEPT",
)
ADDRESS = "10.9.2.2"
Client = Callable[[], str]
Connect = Callable[[Netns, int, int], None]


def measure() -> list[Figure]:
    figures = []
    for backend in ("vxlan", "host-gw"):
        ours, theirs = [], []
        with in_lab("--backend", backend) as in_ours, by_hand(backend) as in_theirs:
            for _ in range(ROUNDS):  # in turns, so that both see the machine as it is
                ours.append(gbits(in_ours))
                theirs.append(gbits(in_theirs))
        what = f"pod to pod through {backend}"
        figures.append(Figure(what=what, unit="Gbit/s", ours=ours, more=True, peer="by hand", theirs=theirs))
    return [*figures, *in_a_mesh()]


def in_a_mesh() -> Iterator[Figure]:
    """Each kind of way against the back end that has it alone."""
    for kind, options, backend in (("vxlan", [], "vxlan"), ("direct", ["--password"], "wireguard")):
        ours, theirs = [], []
        with (
            in_lab("--store", "mesh", *options, name=f"{NAME}-mesh") as in_ours,
            in_lab("--backend", backend) as in_theirs,
        ):
            for _ in range(ROUNDS):
                ours.append(gbits(in_ours))
                theirs.append(gbits(in_theirs))
        what, peer = f"pod to pod in a mesh, {kind}", f"back end {backend}"
        yield Figure(what=what, unit="Gbit/s", ours=ours, ratio=0.95, more=True, peer=peer, theirs=theirs)


def gbits(client: Client) -> float:
    """Gbit/s of one run of the client, which prints iperf3's report."""
    time.sleep(REST)
    report = json.loads(client())
    if "error" in report:
        raise RuntimeError(report["error"])
    rate: float = report["end"]["sum_received"]["bits_per_second"]
    return rate / 1e9


@contextmanager
def in_lab(*options: str, name: str = NAME) -> Iterator[Client]:
    """Two nodes of a lab, with a server in a pod of the second."""
    here = partial(inside, name=name)
    with lab("--nodes", "2", "--pods", "1", *options, name=name) as report:
        [address] = [pod["addresses"][0].partition("/")[0] for pod in report["pods"] if pod["name"] == "pod2-1"]
        here("pod2-1", *SERVER)
        until(lambda: ":5201" in here("pod2-1", "ss", "-ltn"), "iperf3")
        yield lambda: here("pod1-1", *CLIENT, address)


@contextmanager
def by_hand(backend: str) -> Iterator[Client]:
    """The lab's shape, by `ip` alone, with a server."""

    def connect(node: Netns, own: int, other: int) -> None:
        for command in _tunnel(backend, own=own, other=other):
            node.run(command)

    with served(1450 if backend == "vxlan" else 1500, connect) as pod:
        yield lambda: pod.run([*CLIENT, ADDRESS])


@contextmanager
def served(mtu: int, connect: Connect, *, bridged: bool = True) -> Iterator[Netns]:
    """A pod of a `network` whose other pod, ADDRESS, is a server."""
    with network(mtu, connect, bridged=bridged) as (client, server):
        server.popen(["iperf3", "-s"], stdout=subprocess.DEVNULL)
        until(lambda: ":5201" in server.run("ss -ltn"), "iperf3")
        yield client


@contextmanager
def network(mtu: int, connect: Connect, *, bridged: bool) -> Iterator[tuple[Netns, Netns]]:
    """Two nodes on a bridge, 172.31.0.1 and .2, each with a pod on `cni0`, 10.9.1.2 and 10.9.2.2: yields the pods.

    Unless they are `bridged`, the pods have no `cni0`, but the node's end of a veth pair, as the ptp plugin makes it.
    `connect` makes the way from one node to the other, whose numbers it is given.
    """
    with ExitStack() as stack:
        underlay, one, other, *pods = (stack.enter_context(Netns()) for _ in range(5))
        underlay.run("ip link add br0 type bridge && ip link set br0 up")
        for number, (node, pod) in enumerate(zip((one, other), pods, strict=True), 1):
            wire(underlay, node, names=(f"n{number}", "eth0"))
            underlay.run(f"ip link set n{number} master br0")
            wire(node, pod, names=("veth0", "eth0"))
            if bridged:
                node.run("ip link add cni0 type bridge && ip link set veth0 master cni0")
            gateway = "cni0" if bridged else "veth0"
            node.run(f"ip link set {gateway} mtu {mtu} up && ip addr add 10.9.{number}.1/24 dev {gateway}")
            node.run(f"ip addr add 172.31.0.{number}/16 dev eth0")
            node.run(f"ip link set veth0 mtu {mtu} && echo 1 > /proc/sys/net/ipv4/ip_forward")
            pod.run(f"ip link set eth0 mtu {mtu} && ip addr add 10.9.{number}.2/24 dev eth0")
            pod.run(f"ip route add default via 10.9.{number}.1")
            connect(node, number, 3 - number)
            for command in RULES:
                node.run(command)
        client, server = pods
        yield client, server


def _tunnel(backend: str, *, own: int, other: int) -> list[str]:
    if backend == "host-gw":
        return [f"ip route add 10.9.{other}.0/24 via 172.31.0.{other}"]
    return [
        (
            f"ip link add flannel.1 address 02:00:00:00:00:0{own} mtu 1450 type vxlan id 1 dev eth0"
            f" local 172.31.0.{own} dstport 8472 nolearning"
        ),
        f"ip addr add 10.9.{own}.0/32 dev flannel.1 && ip link set flannel.1 up",
        f"ip neigh add 10.9.{other}.0 lladdr 02:00:00:00:00:0{other} dev flannel.1 nud permanent",
        f"bridge fdb append 02:00:00:00:00:0{other} dev flannel.1 dst 172.31.0.{other}",
        f"ip route add 10.9.{other}.0/24 via 10.9.{other}.0 dev flannel.1 onlink",
    ]
