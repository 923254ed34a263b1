"""Two nodes with two pods each, as flanneld and upstream's plugins leave them, in namespaces: no daemon of ours runs.

Nodes hear each other by `eth0`, in both families, on back end vxlan or host-gw. `look` runs in a node what its user
would run there, in a forked child.
"""

import json
import os
import pickle
import shutil
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from ctypes import CDLL
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from tests.support import namespaces
from tests.support.netns import Netns, wire
from weft.cni.runtime.cache import Cache
from weft.diag.check.proof import examined
from weft.diag.checks import CHECKS
from weft.diag.doctor.forms import DoctorReport, report
from weft.diag.finding import ask
from weft.diag.rules.matching import ECHO, Packet
from weft.diag.sight.look import Places, look
from weft.diag.trace.probe_report import TraceReport
from weft.diag.trace.proving import prove
from weft.model.net import Family
from weft.wire.cnicache import Entry
from weft.wire.cnichain import RuntimeConf

T = TypeVar("T")
Backend = Literal["vxlan", "host-gw"]

NODES: Final = ("node1", "node2")
PODS: Final = ("pod1-1", "pod1-2", "pod2-1", "pod2-2")
FAMILIES: Final[tuple[Family, ...]] = (4, 6)
_CLONE_NEWNS, _MS_BIND, _MS_REC, _MS_PRIVATE = 0x20000, 4096, 16384, 1 << 18
_PLUGINS: Final = ("flannel", "bridge", "host-local", "portmap", "loopback")
_CONFLIST: Final = {
    "cniVersion": "1.0.0",
    "name": "cbr0",
    "plugins": [{"type": "flannel", "delegate": {"hairpinMode": True, "isDefaultGateway": True}}, {"type": "portmap"}],
}
_PEER_NAMED: Final = {4: "flannel.1", 6: "flannel-v6.1"}


def node_of(place: str) -> str:
    return place if place in NODES else f"node{place[3]}"


def public(node: str, family: Family) -> str:
    return f"192.168.77.{node[-1]}" if family == 4 else f"fd77::{node[-1]}"


def pod_address(pod: str, family: Family) -> str:
    node, number = pod[3], int(pod[-1]) + 1
    return f"10.244.{node}.{number}" if family == 4 else f"fd01:0:0:{node}::{number}"


def subnet(node: str, family: Family) -> str:
    return f"10.244.{node[-1]}.0/24" if family == 4 else f"fd01:0:0:{node[-1]}::/64"


def vtep(node: str, family: Family) -> str:
    return subnet(node, family).partition("/")[0]


def host_end(pod: str) -> str:
    return f"veth{pod[3:]}"


def device(family: Family) -> str:
    return _PEER_NAMED[family]


class World:
    """`places` are nodes and pods by name. What `put` says can be taken back by making another world alone.

    `home` makes node1's namespace: the machine's own, where a virtual machine is the node.
    """

    def __init__(self, folder: Path, backend: Backend, stack: ExitStack, *, home: Callable[[], Netns] = Netns) -> None:
        self.folder, self.backend = folder, backend
        self.places = {name: stack.enter_context(home() if name == NODES[0] else Netns()) for name in (*NODES, *PODS)}
        wire(self.places["node1"], self.places["node2"])
        for name in NODES:
            self._settle(name)
        for name in PODS:
            self._attach(name)
        self.run("node1", f"ping -qc1 -W2 {public('node2', 6)}; ping -qc1 -W2 {public('node2', 4)}")

    def run(self, place: str, command: str, *, check: bool = True) -> str:
        return self.places[place].run(command, check=check)

    def _settle(self, node: str) -> None:
        own, other = node, NODES[node == "node1"]
        netns, folder = self.places[node], self.folder / node
        for name in ("conf", "bin", "cni/results", "data"):
            (folder / name).mkdir(parents=True)
        for name in _PLUGINS:
            (folder / "bin" / name).touch(0o755)
        (folder / "conf/10-flannel.conflist").write_text(json.dumps(_CONFLIST))
        mtu = 1430 if self.backend == "vxlan" else 1500
        (folder / "subnet.env").write_text(
            f"FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.{own[-1]}.1/24\n"
            f"FLANNEL_IPV6_NETWORK=fd01::/48\nFLANNEL_IPV6_SUBNET=fd01:0:0:{own[-1]}::1/64\n"
            f"FLANNEL_MTU={mtu}\nFLANNEL_IPMASQ=false\n"
        )
        daemon = folder / "flanneld"
        shutil.copy2("/usr/bin/sleep", daemon)
        netns.popen([str(daemon), "100000"])
        commands = [
            "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 net.ipv6.conf.default.accept_dad=0",
            "sysctl -qw net.ipv6.conf.eth0.accept_dad=0 net.ipv4.icmp_ratelimit=0",
            f"ip address add {public(own, 4)}/24 dev eth0; ip address add {public(own, 6)}/64 dev eth0 nodad",
            f"ip link add cni0 mtu {mtu} type bridge; ip link set cni0 up",
            f"ip address add 10.244.{own[-1]}.1/24 dev cni0; ip address add fd01:0:0:{own[-1]}::1/64 dev cni0 nodad",
        ]
        commands += [line for family in FAMILIES for line in self._way(own, other, family, mtu)]
        netns.run("\n".join(commands))

    def _way(self, own: str, other: str, family: Family, mtu: int) -> Iterator[str]:
        if self.backend == "host-gw":
            yield f"ip route add {subnet(other, family)} via {public(other, family)} dev eth0"
            return
        link, mac = device(family), f"02:00:00:00:0{family}:0{other[-1]}"
        yield (
            f"ip link add {link} address 02:00:00:00:0{family}:0{own[-1]} mtu {mtu} type vxlan id 1 dstport 8472"
            f" local {public(own, family)} dev eth0 nolearning"
        )
        yield f"ip address add {vtep(own, family)}/{32 if family == 4 else 128} dev {link}; ip link set {link} up"
        yield f"ip neigh add {vtep(other, family)} lladdr {mac} dev {link} nud permanent"
        yield f"bridge fdb add {mac} dev {link} dst {public(other, family)} self permanent"
        yield f"ip route add {subnet(other, family)} via {vtep(other, family)} dev {link} onlink"

    def _attach(self, pod: str) -> None:
        node, netns = node_of(pod), self.places[pod]
        mtu = 1430 if self.backend == "vxlan" else 1500
        netns.run("sysctl -qw net.ipv6.conf.default.accept_dad=0")
        self.run(
            node,
            f"ip link add {host_end(pod)} mtu {mtu} type veth peer name eth0 mtu {mtu} netns {netns.path};"
            f"ip link set {host_end(pod)} master cni0 up; bridge link set dev {host_end(pod)} hairpin on",
        )
        netns.run(
            f"ip link set eth0 up; ip address add {pod_address(pod, 4)}/24 dev eth0;"
            f"ip address add {pod_address(pod, 6)}/64 dev eth0 nodad;"
            f"ip route add default via 10.244.{node[-1]}.1; ip -6 route add default via fd01:0:0:{node[-1]}::1"
        )
        netns.popen(["unshare", "--uts", "sh", "-c", f"hostname {pod}; exec sleep 100000"])
        result = {
            "cniVersion": "1.0.0",
            "interfaces": [{"name": "cni0"}, {"name": host_end(pod)}, {"name": "eth0", "sandbox": netns.path}],
            "ips": [
                {"address": f"{pod_address(pod, family)}/{24 if family == 4 else 64}", "interface": 2}
                for family in FAMILIES
            ],
        }
        conf = RuntimeConf(container_id=pod, netns=netns.path, ifname="eth0", args=(("K8S_POD_NAME", pod),))
        Cache(directory=self.folder / node / "cni").save(Entry(network="cbr0", conf=conf, config=b"{}", result=result))

    def reaches(self, source: str, target: str, family: Family, *, seconds: float = 0.4) -> bool:
        said = self.run(
            source, f"ping -q -c3 -i0.05 -W{seconds} {pod_address(target, family)} || true; echo -n", check=False
        )
        return " 3 received" in said

    def doctor(self, node: str) -> DoctorReport:
        return self.inside(node, _diagnosed)

    def trace(self, source: str, target: str, family: Family, *, size: int = 0) -> TraceReport:
        ends = [ip_address(pod_address(each, family)) for each in (source, target)]

        def traced(places: Places) -> TraceReport:
            packet = Packet(source=ends[0], target=ends[1], protocol=ECHO[family], size=size)
            return prove(look(places), packet)

        return self.inside(node_of(source), traced)

    def inside(self, node: str, work: Callable[[Places], T]) -> T:
        """Run in a forked child in the node, whose runtime's files it sees; what it raises is raised here."""
        folder = self.folder / node
        places = Places(
            subnet_file=folder / "subnet.env",
            conf_dir=folder / "conf",
            bin_dir=folder / "bin",
            data_dir=folder / "data",
        )

        def inside() -> Any:
            _mount_over("/var/lib/cni", folder / "cni")
            return work(places)

        return _forked(self.places[node].fd, inside)


def _diagnosed(places: Places) -> DoctorReport:
    sight = examined(places)
    return report(ask(CHECKS, sight), sight.proof)


def _mount_over(place: str, source: Path) -> None:
    libc = CDLL(None, use_errno=True)
    Path(place).mkdir(parents=True, exist_ok=True)
    steps = (
        libc.unshare(_CLONE_NEWNS),
        libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None),
        libc.mount(str(source).encode(), place.encode(), None, _MS_BIND, None),
    )
    assert not any(steps)


def _forked(netns: int, work: Callable[[], T]) -> T:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            namespaces.enter(netns)
            said: tuple[bool, Any] = True, work()
        except BaseException:  # noqa: BLE001 - it is told below
            said = False, traceback.format_exc()
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(pickle.dumps(said))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        data = pipe.read()
    os.waitpid(child, 0)
    well, found = pickle.loads(data)  # noqa: S301 - our own child's
    assert well, found
    answer: T = found
    return answer


@contextmanager
def world(folder: Path, backend: Backend) -> Iterator[World]:
    with ExitStack() as stack:
        yield World(folder, backend, stack)
