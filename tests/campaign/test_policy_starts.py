"""Never open: pods start while weftd is killed, stopped and restarted, and no forbidden packet arrives anywhere.

Each pod sends before its ADD is asked for: to whom it may not, as another pod, and claims another's addresses. A foe
sends to addresses before they are given, also as another pod and in tagged frames. A pod's first packet that is allowed
arrives. The seed is printed and another one each time; set WEFT_SEED to repeat a run.
"""

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from tests.campaign.policystarts import Ears, Mouth, claiming, datagrams, first_arrives, tagged
from tests.node.plugincalls import Runtime
from tests.node.policyworld import PORT, World, attach, listen
from tests.support import etcd
from tests.support.netns import Netns
from tests.support.weftd import DUAL, VXLAN, Cluster, Underlay, clusters
from weft.cni import build
from weft.cni.install.executables import install
from weft.model.net import Ip

WHOEVER = "0.0.0.0"  # noqa: S104 - the kernel puts the sender's address in its place
NAMES = [f"s{number}" for number in range(40)]
AT_ONCE = 3
TRIES = 200  # a call may meet a daemon that is gone: it is answered by an error, and the kubelet tries again
AHEAD = 12  # addresses that are sent to before they are given


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    underlay = Underlay(tmp_path / "etcd", etcd.wheel())
    try:
        yield from clusters(underlay, tmp_path)
    finally:
        underlay.close()


class Trial:
    """A node that enforces, with a friend, whom pods that start may talk with, and a foe."""

    def __init__(self, cluster: Cluster, folder: Path, *, program: str = "weft.daemon.main") -> None:
        assert build.PROGRAM.build(), "musl-gcc is missing"
        self.world = World(folder / "world")
        for name in ("friend", "foe"):
            self.world.pod(name, app=name)
        for name in NAMES:
            self.world.pod(name, app="shut")
        self.say(0)
        cluster.configure(VXLAN, DUAL)
        self.node = cluster.node(1)
        self.node.program = program
        self.node.start(*self.world.flags)
        self.runtime = Runtime(self.node, folder, install(folder / "bin").bin_dir)
        (self.friend, self.friends_ip), (self.foe, self.foes_ip) = (
            attach(self.runtime, each) for each in ("friend", "foe")
        )
        self.friends_ips, self.friends_mac = ips_of(self.friend), mac_of(self.friend)
        [self.friends_v6], [self.foes_v6] = (
            [str(ip) for ip in ips_of(pod) if ip.version == 6] for pod in (self.friend, self.foe)
        )
        self.next = 4  # the number of an address that is given soon
        self.counts = Counter[str]()
        self.faults: list[str] = []

    def say(self, number: int) -> None:
        """Write the policy again, in other words."""
        rule = {"ports": [{"port": PORT}, {"port": 9000, "endPort": 9000 + number % 9}]}
        friend = [{"podSelector": {"matchLabels": {"app": "friend"}}}]
        self.world.policy("shut", {"app": "shut"}, ingress=[{"from": friend, **rule}], egress=[{"to": friend, **rule}])
        self.world.write()

    # What may not arrive

    def attack(self) -> Iterable[tuple[str, bytes]]:
        """Of the foe."""
        mac, numbers = mac_of(self.foe), range(self.next - AT_ONCE, self.next + AHEAD)
        hosts = sorted({2 + (number - 2) % 253 for number in numbers})
        all_v4, all_v6 = ([str(subnet[host]) for host in hosts] for subnet in self.node.subnets)
        targets = tuple(ip for ip in all_v4 if ip not in (self.friends_ip, self.foes_ip))
        targets_v6 = tuple(ip for ip in all_v6 if ip not in (self.friends_v6, self.foes_v6))
        return [
            *datagrams(self.foes_ip, targets),
            *datagrams(self.friends_ip, targets),
            *datagrams(self.foes_v6, targets_v6),
            *datagrams(self.friends_v6, targets_v6),
            *tagged(mac, self.foes_ip, targets),
            *claiming(mac, self.friends_ips),
        ]

    def mischief(self, pod: Netns) -> Iterable[tuple[str, bytes]]:
        """Of a pod that starts, once there is a link."""
        link = pod.rtnl.link("eth0")
        if link is None:
            return []
        foe, mac = (self.foes_ip,), str(link.mac)
        return [
            *datagrams(WHOEVER, foe),
            *datagrams(self.friends_ip, foe),
            *datagrams(self.friends_v6, (self.foes_v6,)),
            *tagged(mac, self.friends_ip, foe),
            *claiming(mac, self.friends_ips),
        ]

    # Starts

    def start(self, number: int) -> None:
        name = NAMES[number % len(NAMES)]
        with Netns() as pod:
            listen(pod)
            with closing(Ears(pod)) as ears, closing(Mouth(pod, partial(self.mischief, pod))) as mouth:
                ip = self._added(name, pod)
                for source, target, said in ((pod, self.friends_ip, "to"), (self.friend, ip, "from")):
                    if not first_arrives(source, target):
                        self.faults.append(f"{name} at {ip}: its first packet {said} its friend is lost")
                time.sleep(0.03)
                assert mouth.sent
            self._deleted(name, pod)
            self.listened(f"{name} at {ip}", ears)

    def _added(self, name: str, pod: Netns) -> str:
        for _ in range(TRIES):
            answer = self.runtime.ask("ADD", name, pod)
            if "ips" in answer:
                ip = answer["ips"][0]["address"].split("/")[0]
                self.next = int(ip.split(".")[-1]) + 1
                return str(ip)
            self.counts["refused"] += 1
            self._deleted(name, pod)  # as runtimes do
        raise AssertionError(answer)

    def _deleted(self, name: str, pod: Netns) -> None:
        for _ in range(TRIES):
            if not self.runtime.ask("DEL", name, pod):
                return
        raise AssertionError(f"{name} is not deleted")

    def listened(self, who: str, ears: Ears) -> None:
        self.faults += [f"{who} gets {frame.hex()}" for frame in ears.heard]
        claimed = {(ip, mac) for ip, mac in ears.claims if ip in map(str, self.friends_ips) and mac != self.friends_mac}
        self.faults += [f"{who} hears that {ip} is at {mac}" for ip, mac in claimed]

    # weftd

    def meddle(self, chance: random.Random) -> None:
        what = chance.choice(("kill", "stop", "freeze", "freeze", "say", "say"))
        self.counts[what] += 1
        if what in ("kill", "stop"):
            (self.node.kill if what == "kill" else self.node.stop)()
            time.sleep(chance.uniform(0, 0.3))
            self.node.start(*self.world.flags)
        elif what == "freeze":
            self.node.signal(signal.SIGSTOP)
            time.sleep(chance.uniform(0, 0.3))
            self.node.signal(signal.SIGCONT)
        else:
            self.say(self.counts[what])
        time.sleep(chance.uniform(0, 1))

    def run(self, starts: int, chance: random.Random, *, meddles: bool = True) -> None:
        with (
            closing(Ears(self.foe)) as ears,
            closing(Mouth(self.foe, self.attack)),
            ThreadPoolExecutor(AT_ONCE) as threads,
        ):
            begun: list[Future[None]] = [threads.submit(self.start, number) for number in range(starts)]
            while not all(each.done() for each in begun):
                if meddles:
                    self.meddle(chance)
            for each in begun:
                each.result()
        self.listened("the foe", ears)


def ips_of(pod: Netns) -> tuple[Ip, ...]:
    return tuple(each.ip for each in pod.rtnl.addresses() if each.scope == 0)


def mac_of(pod: Netns) -> str:
    link = pod.rtnl.link("eth0")
    assert link is not None
    return str(link.mac)


def never_open(trial: Trial, starts: int) -> None:
    seed = int(os.environ.get("WEFT_SEED") or random.randrange(1 << 32))
    print(f"WEFT_SEED={seed}")
    trial.run(starts, random.Random(seed))
    print(trial.counts)
    assert not trial.faults
    assert trial.counts["kill"] + trial.counts["stop"]


def test_no_forbidden_packet_arrives(cluster, tmp_path):
    never_open(Trial(cluster, tmp_path), 40)


@pytest.mark.soak
def test_no_forbidden_packet_arrives_in_ten_thousand_starts(cluster, tmp_path):
    never_open(Trial(cluster, tmp_path), 10_000)


def test_elements_that_come_late_are_seen(cluster, tmp_path):
    trial = Trial(cluster, tmp_path, program="tests.campaign.lateelements")
    trial.run(3, random.Random(0), meddles=False)
    assert any("is lost" in fault for fault in trial.faults)
    assert any("the foe gets" in fault for fault in trial.faults)
