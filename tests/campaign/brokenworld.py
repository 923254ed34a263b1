"""Two nodes with real daemons, pods by real plugins and a real store, for troubles that come one after the other.

A trouble breaks something that the first node stands on. While it lasts weftd runs, answers, says what is wrong by
code, and is ready exactly if the node serves pods, as packets show: those of its pods and of a new one. Afterwards all
is as it was. tests.campaign.troubles holds them, `tests/campaign/test_broken_environments.py` draws them.
"""

import json
import random
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from ipaddress import ip_address, ip_interface
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.node.plugincalls import Runtime
from tests.support import etcd
from tests.support.kubernetes import kubeobjects
from tests.support.kubernetes.apiserver import ApiServer
from tests.support.kubernetes.kubecluster import KubeCluster, KubeDaemon
from tests.support.kubernetes.kubecluster import clusters as kube_clusters
from tests.support.netns import Netns
from tests.support.server import Server
from tests.support.traffic import reaches
from tests.support.waiting import in_time, looks
from tests.support.wallclock import WallClock
from tests.support.weftd import (
    DUAL,
    HOST_GW,
    VXLAN,
    Cluster,
    Daemon,
    Underlay,
    clusters,
    eventually,
    peer_mac,
    public_v4,
)
from weft.model.net import Ip

FLAGS: Final = ("--ip-masq",)
PEERS: Final = range(50, 60)
SECONDS: Final = 30  # a limit against waiting for ever, far beyond what anything here may take
_HEALTH_SECONDS: Final = 10.0
_MORE_DESCRIPTORS: Final = 24
_MORE_THREADS: Final = 12
_OUTSIDE: Final = (ip_address(public_v4(254)),)
_BACKENDS: Final = {
    "vxlan": VXLAN,
    "host-gw": HOST_GW,
    "udp": {**VXLAN, "Backend": {"Type": "udp", "KernelPath": False}},
}


class Kind(NamedTuple):
    """What a world is like: where leases are kept, and how packets travel."""

    store: str
    backend: str


KINDS: Final = (*(Kind("etcd", name) for name in _BACKENDS), Kind("kubernetes", "vxlan"), Kind("kubernetes", "host-gw"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """A way in which what a node stands on breaks: `lasts` breaks it, and makes it whole again when its block ends.

    `says` is a pattern that the log or /readyz?verbose shows meanwhile: the code first; "" where all is mended at once
    or nothing is wrong. `flows`: packets between the two nodes' pods flow meanwhile. `answers`: so does the daemon.
    `attaches`: what becomes of new pods is weftd's matter, and readiness tells it. `on` are the kinds of worlds that
    have what it breaks: stores and back ends.
    """

    lasts: Callable[["World"], AbstractContextManager[None]]
    says: str = ""
    flows: bool = True
    answers: bool = True
    attaches: bool = True
    on: frozenset[str] = frozenset(("etcd", *_BACKENDS, "kubernetes"))

    def fits(self, kind: Kind) -> bool:
        """Tell whether a world of this kind has what it breaks."""
        return self.on.issuperset(kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a process uses: bytes of memory, open descriptors, threads."""

    resident: int
    descriptors: int
    threads: int

    @classmethod
    def of(cls, pid: int) -> "Usage":
        status = Path(f"/proc/{pid}/status").read_text()
        [resident], [threads] = (re.findall(rf"{name}:\s+(\d+)", status) for name in ("VmRSS", "Threads"))
        return cls(resident=int(resident) * 1024, descriptors=descriptors_of(pid), threads=int(threads))


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod that a plugin has attached, and its addresses."""

    netns: Netns
    ips: tuple[Ip, ...]

    def misses(self, ips: tuple[Ip, ...]) -> str:
        """The first of the addresses that does not answer it; "" if all do."""
        missed = (ip for ip in ips if not reaches(self.netns, ip, seconds=2))
        return next((f"{self.ips[0]} gets no answer of {ip}" for ip in missed), "")


class FiledDaemon(KubeDaemon):
    """A node of Kubernetes whose token, CA and network configuration are files of a directory of its own."""

    @property
    def files(self) -> Path:
        return self.folder / "files"

    def store_flags(self) -> list[str]:
        if not self.files.exists():
            self.files.mkdir()
            (self.files / "token").write_text(self.token)
            (self.files / "ca").write_text(Path(self.server.ca).read_text())
            (self.files / "net-conf").write_text(self._net_conf.read_text())
        api = replace(self.server.api(), ca=str(self.files / "ca"))
        config = self.folder / "kubeconfig"
        kubeobjects.write_kubeconfig(config, api, tokenFile=str(self.files / "token"))
        return ["--kube-subnet-mgr", f"--kubeconfig-file={config}", f"--net-config-path={self.files / 'net-conf'}"]


class World:
    """`one` is the node that troubles come to, `two` a healthy one; each has a pod of its own."""

    def __init__(self, kind: Kind, underlay: Underlay, folder: Path, bin_dir: Path, chance: random.Random) -> None:
        self.kind = kind
        self.underlay = underlay
        self.chance = chance
        self.folder = folder
        self.patience = float(SECONDS)
        self.clock = WallClock(_made(folder / "clock"))
        self.held = ExitStack()
        try:
            self._begin(folder, bin_dir)
        except BaseException:
            self.held.close()
            raise

    def _begin(self, folder: Path, bin_dir: Path) -> None:
        if self.kind.store == "etcd":
            self._in_etcd(folder / "nodes")
        else:
            self._in_kubernetes(folder)
        self.runtime = Runtime(self.one, _made(folder / "cni1"), bin_dir)
        far = Runtime(self.two, _made(folder / "cni2"), bin_dir)
        self.mark = 0  # in the log of all runs: what a trouble may say comes after it
        self.missed = ""  # of the latest look at packets
        self._number = 0
        self._owed: list[str] = []  # pods whose DEL was refused
        self.start()
        self.two.start(*FLAGS)
        self.pod = self._attached(self.runtime, "first")
        self.far = self._attached(far, "far")
        with self.another_pod():  # once, so that the daemon has loaded all that it needs
            pass
        eventually(self.serves, seconds=SECONDS)
        if self.kind.backend != "udp":  # which has one route for all
            eventually(lambda: str(self.two.v4[0]) in self.kernel(), seconds=SECONDS)
        self.whole = self.kernel()
        self.normal = Usage.of(self.one.pid)

    def _in_etcd(self, folder: Path) -> None:
        self.cluster: Cluster = self.held.enter_context(contextmanager(clusters)(self.underlay, folder))
        self.store: Server = self.cluster.etcd
        self.port = self.cluster.etcd.port
        self.cluster.configure(_BACKENDS[self.kind.backend], DUAL)
        self.cluster.peers(PEERS, **self.peer_fields)
        self.one, self.two = self.cluster.node(1), self.cluster.node(2)

    def _in_kubernetes(self, folder: Path) -> None:
        self.server = ApiServer(folder / "apiserver", self.underlay.etcd, netns=self.underlay.switch)
        self.store, self.port = self.server, self.server.port
        self.held.callback(self.server.kill)
        self.server.start()
        nodes = kube_clusters(self.underlay, self.server, _made(folder / "nodes"))
        self.nodes: KubeCluster = self.held.enter_context(contextmanager(lambda: nodes)())
        self.nodes.configure(_BACKENDS[self.kind.backend], DUAL)
        more = {} if self.kind.backend == "vxlan" else {"backend_type": self.kind.backend, "backend_data": "null"}
        for number in PEERS:  # which are older than the two
            said = kubeobjects.flannel(public_v4(number), peer_mac(number), **more)
            kubeobjects.add_node(self.server.admin, f"node{number}", f"10.5.{number}.0/24", annotations=said)
        self.one, self.two = (self.nodes.node(number, kind=FiledDaemon).register() for number in (1, 2))

    def close(self) -> None:
        """End all of it."""
        self.held.close()

    @property
    def peer_fields(self) -> dict[str, Any]:
        """What a lease by hand says of the back end."""
        return {"data": "vxlan" if self.kind.backend == "vxlan" else None, "BackendType": self.kind.backend}

    def start(self) -> None:
        """Start the daemon of the first node, and wait until it is ready."""
        self.spawn().wait_ready(SECONDS)

    def spawn(self, *flags: str, wrap: tuple[str, ...] = ()) -> Daemon:
        """Start the daemon of the first node, and wait until it answers."""
        self.one.spawn(*FLAGS, *flags, env=self.clock.env, wrap=wrap)
        eventually(lambda: self.one.get("/healthz")[0] == 200 or not self.one.running, seconds=SECONDS)
        return self.one

    @contextmanager
    def restarted(self, *flags: str, wrap: tuple[str, ...] = ()) -> Iterator[None]:
        """Run the daemon in another way while the block runs; it answers, and need not be ready."""
        self.one.stop()
        self.spawn(*flags, wrap=wrap)
        try:
            yield
        finally:
            self.one.stop()
            self.spawn()

    def start_store(self) -> None:
        """Start the store again."""
        self.store.start(*(["--unsafe-no-fsync"] if self.kind.store == "etcd" else []))

    # --- What is looked at

    def kernel(self) -> str:
        """All of the first node's network that packets and plugins need, and nothing that a repair may number anew."""
        return self.one.netns.run(
            "{ ip route; ip -6 route show table main; ip neigh show nud permanent; bridge fdb show;"
            " iptables-save; ip6tables-save; sysctl net.ipv4.ip_forward net.ipv6.conf.all.forwarding; }"
            " | grep -vE '^[#:]|33:33|^fe80|veth|linkdown|eth0 (master|permanent)|^1[0-9.]+ dev cni0|self permanent'"
            f" | grep -vE 'dev cni0|01:00:5e' | sort; cat {self.one.subnet_file}"
        )

    def reach(self) -> bool:
        """Tell whether packets flow between the two nodes' pods, both ways."""
        self.missed = self.pod.misses(self.far.ips) or self.far.misses(self.pod.ips)
        return not self.missed

    def serves(self, *, attaches: bool = True) -> bool:
        """Tell by packets whether the first node serves its pod, to the outside, too, and a new one."""
        if not self.reach():
            return False
        self.missed = self.pod.misses(_OUTSIDE)
        if attaches and not self.missed:
            self.missed = self._misses_of_another()
        return not self.missed

    def _misses_of_another(self) -> str:
        """What does not work of a new pod."""
        try:
            with self.another_pod() as pod:
                if pod is None:
                    return "ADD is refused"
                return pod.misses((*self.far.ips, *_OUTSIDE)) or self.far.misses(pod.ips)
        except subprocess.TimeoutExpired:
            return "a plugin gives no answer"

    def said(self, pattern: str) -> bool:
        """Tell whether the log, since the trouble began, or the long form of readiness shows a pattern."""
        log = self.one.log_file.read_text(errors="replace")[self.mark :]
        return bool(re.search(pattern, log) or re.search(pattern, self.one.get("/readyz?verbose")[1]))

    # --- Pods

    @contextmanager
    def another_pod(self) -> Iterator[Pod | None]:
        """Attach one more pod to the first node, and detach it; None if it is refused."""
        self._number += 1
        name = f"pod{self._number}"
        self._owed.append(name)
        with Netns() as netns:
            answer = self.runtime.ask("ADD", name, netns)
            yield self._pod(netns, answer) if "ips" in answer else None
            if self.runtime.ask("DEL", name, netns) is None:
                self._owed.remove(name)

    def _attached(self, runtime: Runtime, name: str) -> Pod:
        netns = Netns()
        self.held.callback(netns.close)
        answer = runtime.ask("ADD", name, netns)
        assert answer is not None and "ips" in answer, f"{name}: {answer}\n{runtime.node.log}"  # noqa: PT018
        return self._pod(netns, answer)

    def _pod(self, netns: Netns, answer: dict[str, list[dict[str, str]]]) -> Pod:
        """A pod by those of its addresses that packets are sent to.

        What takes neighbour discovery between nodes is left out: the kernel has one table of neighbours for all network
        namespaces of a machine, and other tests fill it.
        """
        ips = (ip_interface(each["address"]).ip for each in answer["ips"])
        return Pod(netns, tuple(ip for ip in ips if ip.version == 4 or self.kind.backend != "host-gw"))

    # --- The trouble's two moments

    def check_during(self, name: str, trouble: Trouble) -> None:
        """While a trouble lasts: alive, true, and no packet of peers that agree is lost to it."""
        if trouble.answers:
            start = time.monotonic()
            status, text = self.one.get("/healthz")
            assert status == 200, f"{name}: health answers {text!r}{self._all()}"
            assert in_time(start, _HEALTH_SECONDS), f"{name}: health took too long"
            if trouble.says:
                assert self._comes(lambda: self.said(trouble.says)), f"{name}: does not say {trouble.says}{self._all()}"
            assert self._comes(lambda: self.one.ready == self.serves(attaches=trouble.attaches)), (
                f"{name}: readiness does not tell the truth: {self.missed or 'packets flow'}{self._all()}"
            )
        if trouble.flows:
            assert self._comes(self.reach), f"{name}: packets do not flow: {self.missed}{self._all()}"
        assert self.one.running, f"{name}: weftd has ended{self._all()}"

    def check_after(self, name: str) -> None:
        """After a trouble: all is as it was, and nothing is kept of it."""
        comes = self._comes
        assert comes(lambda: self.one.running and self.one.ready), f"{name}: not ready again{self._all()}"
        assert comes(lambda: self.kernel() == self.whole), f"{name}: not as before{self._difference()}{self._all()}"
        assert comes(self.serves), f"{name}: pods are not served again: {self.missed}{self._all()}"
        while self._owed:
            answer = self.runtime.ask("DEL", self._owed.pop())
            assert answer is None, f"{name}: DEL is refused: {answer}"
        assert self.runtime.owners == {"first"}, f"{name}: addresses of pods that are gone: {self.runtime.owners}"
        assert not self.one.lines("Traceback"), f"{name}: {self._all()}"
        assert comes(self._is_small), f"{name}: {Usage.of(self.one.pid)} after {self.normal}"

    def _comes(self, look: Callable[[], bool]) -> bool:
        return any(look() for _ in looks(self.patience))

    def _is_small(self) -> bool:
        now = Usage.of(self.one.pid)
        return (
            now.resident < 2 * self.normal.resident
            and now.descriptors <= self.normal.descriptors + _MORE_DESCRIPTORS
            and now.threads <= self.normal.threads + _MORE_THREADS
        )

    def _difference(self) -> str:
        before, now = set(self.whole.splitlines()), set(self.kernel().splitlines())
        lines = [f"- {line}" for line in sorted(before - now)] + [f"+ {line}" for line in sorted(now - before)]
        return "\n" + "\n".join(lines)

    def _all(self) -> str:
        verbose = self.one.get("/readyz?verbose") if self.one.running else "weftd does not run"
        return f"\n{verbose}\n{self.one.log[-6000:]}"


@contextmanager
def worlds(kind: Kind, folder: Path, bin_dir: Path, chance: random.Random) -> Iterator[World]:
    """Make a world, and end it."""
    underlay = Underlay(folder / "etcd", etcd.wheel())
    try:
        world = World(kind, underlay, folder / "world", bin_dir, chance)
        try:
            yield world
        finally:
            world.close()
    finally:
        underlay.close()


def play(world: World, troubles: Mapping[str, Trouble], name: str) -> None:
    """Have one trouble come and go, with all checks."""
    trouble = troubles[name]
    world.mark = len(world.one.log_file.read_text(errors="replace"))
    with trouble.lasts(world):
        world.check_during(name, trouble)
    world.check_after(name)


def descriptors_of(pid: int) -> int:
    """How many descriptors a process holds."""
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def run_in(netns: Netns, program: list[str]) -> "subprocess.Popen[bytes]":
    """Start a program in a namespace, without input and output."""
    return netns.popen(program, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def scramble(chance: random.Random) -> bytes:
    """What may lie where a file of ours was: chance bytes, deep or torn JSON, nothing, or a lot."""
    return chance.choice(
        [
            chance.randbytes(200),
            b"[" * 100_000,
            b'{"a":' * 5_000,
            b"",
            b"\0" * 4096,
            json.dumps({"mac_v4": 7, "own": [], "leases": {}}).encode(),
            b"x" * 3_000_000,
        ]
    )


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder
