"""Two nodes with real daemons, pods by real plugins and a real etcd, for troubles that come one after the other.

A trouble breaks something that the first node stands on. While it lasts weftd runs, answers, says what is wrong by
code, and is ready exactly if the node can serve pods; afterwards all is as it was. tests.campaign.troubles holds them,
`tests/campaign/test_broken_environments.py` draws them.
"""

import json
import random
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from ipaddress import ip_interface
from pathlib import Path
from typing import Final

from tests.support.netns import Netns
from tests.support.plugincalls import Runtime
from tests.support.traffic import reaches
from tests.support.waiting import in_time, looks
from tests.support.wallclock import WallClock
from tests.support.weftd import DUAL, HOST_GW, VXLAN, Cluster, eventually
from weft.model.net import Ip

FLAGS: Final = ("--ip-masq",)
PEERS: Final = range(50, 60)
SECONDS: Final = 30  # a limit against waiting for ever, far beyond what anything here may take
_HEALTH_SECONDS: Final = 10.0
_MORE_DESCRIPTORS: Final = 24
_MORE_THREADS: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """A way in which what a node stands on breaks: `lasts` breaks it, and makes it whole again when its block ends.

    `says` is a pattern that the log or /readyz?verbose shows meanwhile: the code first; "" where all is mended at once
    or nothing is wrong. `flows`: packets between the two nodes' pods flow meanwhile. `answers`: so does the daemon.
    """

    lasts: Callable[["World"], AbstractContextManager[None]]
    says: str = ""
    flows: bool = True
    answers: bool = True


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


class World:
    """`one` is the node that troubles come to, `two` a healthy one; each has a pod of its own."""

    def __init__(self, cluster: Cluster, folder: Path, bin_dir: Path, chance: random.Random) -> None:
        self.cluster = cluster
        self.chance = chance
        self.folder = folder
        self.patience = float(SECONDS)
        self.backend = chance.choice(("vxlan", "host-gw"))
        cluster.configure(VXLAN if self.backend == "vxlan" else HOST_GW, DUAL)
        data = "vxlan" if self.backend == "vxlan" else None
        cluster.peers(PEERS, data=data, BackendType=self.backend)
        self.clock = WallClock(_made(folder / "clock"))
        self.one, self.two = cluster.node(1), cluster.node(2)
        self.runtime = Runtime(self.one, _made(folder / "cni1"), bin_dir)
        self._far = Runtime(self.two, _made(folder / "cni2"), bin_dir)
        self._number = 0
        self.start()
        self.two.start(*FLAGS)
        self.pod, self.ip = self._attached(self.runtime, "first")
        self.far_pod, self.far_ip = self._attached(self._far, "far")
        with self.another_pod():  # once, so that the daemon has loaded all that it needs
            pass
        eventually(self.reach, seconds=SECONDS)
        self.whole = eventually(lambda: self.kernel() if str(self.far_ip)[:7] in self.kernel() else "")
        self.normal = Usage.of(self.one.pid)
        self._right_file = self._subnet_file()
        self._right_rules = self._rules()

    def start(self, *flags: str, wrap: tuple[str, ...] = ()) -> None:
        """Start the daemon of the first node, and wait until it is ready."""
        self.one.spawn(*FLAGS, *flags, env=self.clock.env, wrap=wrap).wait_ready(SECONDS)

    @contextmanager
    def restarted(self, *flags: str, wrap: tuple[str, ...] = ()) -> Iterator[None]:
        """Run the daemon in another way while the block runs; it is started, not waited for."""
        self.one.stop()
        self.one.spawn(*FLAGS, *flags, env=self.clock.env, wrap=wrap)
        try:
            yield
        finally:
            self.one.stop()
            self.one.spawn(*FLAGS, env=self.clock.env)

    # --- What is looked at

    def kernel(self) -> str:
        """All of the first node's network that packets and plugins need, and nothing that a repair may number anew."""
        return self.one.netns.run(
            "{ ip route; ip -6 route show table main; ip neigh show nud permanent; bridge fdb show;"
            " iptables-save; ip6tables-save; sysctl net.ipv4.ip_forward net.ipv6.conf.all.forwarding; }"
            " | grep -vE '^[#:]|33:33|^fe80|veth|linkdown|eth0 (master|permanent)|^1[0-9.]+ dev cni0|self permanent'"
            f" | grep -vE 'dev cni0|01:00:5e' | sort; cat {self.one.subnet_file}"
        )

    def serves(self) -> bool:
        """Tell whether the first node can serve pods, by looking at the kernel and the file: what readiness means."""
        links = {link["ifname"]: link for link in self.one.netns.json("ip -j -d link")}
        if self.backend == "vxlan":
            device = links.get("flannel.1")
            if device is None or device["linkinfo"].get("info_kind") != "vxlan" or "UP" not in device["flags"]:
                return False
            if device["address"] != self.one.macs["mac_v4"]:
                return False
        owner = [
            link["ifname"]
            for link in self.one.netns.json("ip -j -4 address")
            if any(info["local"] == str(self.one.public_v4) for info in link["addr_info"])
        ]
        if not owner or links[owner[0]]["operstate"] != "UP":
            return False
        return self._rules() == self._right_rules and self._subnet_file() == self._right_file

    def _rules(self) -> int:
        """How many rules of ours masquerade."""
        return self.one.netns.run("iptables-save -t nat; ip6tables-save -t nat").count("-A FLANNEL-POSTRTG")

    def _subnet_file(self) -> str:
        path = self.one.subnet_file
        return path.read_text() if path.is_file() else ""

    def reach(self) -> bool:
        """Tell whether packets between the pods flow, both ways."""
        return reaches(self.pod, self.far_ip, seconds=2) and reaches(self.far_pod, self.ip, seconds=2)

    def said(self, pattern: str) -> bool:
        """Tell whether the log or the long form of readiness shows a pattern."""
        return bool(self.one.lines(pattern) or re.search(pattern, self.one.get("/readyz?verbose")[1]))

    # --- Pods

    @contextmanager
    def another_pod(self) -> Iterator[Ip]:
        """Attach one more pod to the first node, and detach it."""
        self._number += 1
        name = f"pod{self._number}"
        pod, ip = self._attached(self.runtime, name)
        try:
            yield ip
        finally:
            answer = self.runtime.call("DEL", name, pod)
            self.one.pods.remove(pod)
            pod.close()
        assert answer is None, answer

    def _attached(self, runtime: Runtime, name: str) -> tuple[Netns, Ip]:
        pod = Netns()
        runtime.node.pods.append(pod)
        answer = runtime.call("ADD", name, pod)
        assert answer is not None and "ips" in answer, f"{name}: {answer}\n{runtime.node.log}"  # noqa: PT018
        return pod, ip_interface(answer["ips"][0]["address"]).ip

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
            assert self._comes(lambda: self.one.ready == self.serves()), (
                f"{name}: readiness does not tell the truth{self._all()}"
            )
        if trouble.flows:
            assert self._comes(self.reach), f"{name}: packets do not flow{self._all()}"
        assert self.one.running, f"{name}: weftd has ended{self._all()}"

    def check_after(self, name: str) -> None:
        """After a trouble: all is as it was, and nothing is kept of it."""
        comes = self._comes
        assert comes(lambda: self.one.running and self.one.ready), f"{name}: not ready again{self._all()}"
        assert comes(lambda: self.kernel() == self.whole), f"{name}: not as before{self._difference()}{self._all()}"
        assert comes(self.reach), f"{name}: packets do not flow again{self._all()}"
        with self.another_pod() as ip:
            assert reaches(self.far_pod, ip), f"{name}: a new pod is not reached{self._all()}"
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


def play(world: World, troubles: Mapping[str, Trouble], name: str) -> None:
    """Have one trouble come and go, with all checks."""
    trouble = troubles[name]
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
