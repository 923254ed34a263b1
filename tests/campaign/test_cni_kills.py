"""Kill -9 at named points of CNI work: a runtime that goes on as runtimes do finds nothing lost and nothing left.

Who dies is the daemon, the plugin in its own process, or the client while the daemon works. The seed is printed, and
another one each time; set WEFT_SEED to repeat a run.
"""

import json
import os
import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from ipaddress import ip_interface
from pathlib import Path
from typing import Any

import pytest

from tests.support.cnikills import CLIENT, DAEMON, LOCAL, POINTS, VICTIMS, Point
from tests.support.cninode import SECONDS, Node, finish
from tests.support.netns import Netns
from weft.cni import build
from weft.cni.install import install

PODS = 5
SOON = 5
LOST, ALONE = "begun, and lost with the daemon", "not begun, and done without it"
Meanwhile = Callable[["subprocess.Popen[bytes]"], None]
ENV = "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.7.1/26\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n"


class Site(Node):
    """A node with pods that come and go, and what a runtime knows of them."""

    def __init__(self, directory: Path, bin_dir: Path) -> None:
        super().__init__(directory, bin_dir)
        self.free = {f"pod{number}": Netns() for number in range(PODS)}
        self.live: dict[str, tuple[Netns, str]] = {}
        self.said = ""
        (directory / "subnet.env").write_text(ENV)

    def close(self) -> None:
        super().close()
        for netns in (*self.free.values(), *(netns for netns, _ in self.live.values())):
            netns.close()

    def call(
        self, command: str, pod: str, path: str, *, bridge: str = "cni0", meanwhile: Meanwhile | None = None
    ) -> Any:
        """Run the conflist: the result of ADD, True for DEL; None if it failed. `meanwhile` gets flannel's process."""
        result: Any = None
        for plugin in ("flannel", "portmap") if command == "ADD" else ("portmap", "flannel"):
            config: dict[str, Any] = {"cniVersion": "1.0.0", "name": "cbr0"}
            if command == "ADD" and result is not None:
                config["prevResult"] = result
            if plugin == "flannel":
                config |= self.flannel(bridge)
            child = self.start(command, plugin, config, pod=pod, path=path)
            if plugin == "flannel" and meanwhile is not None:
                meanwhile(child)
            said = finish(child)
            self.said = said.text
            if said.exit != 0:
                return None
            result = said.json if command == "ADD" else True
        return result

    def flannel(self, bridge: str = "cni0") -> dict[str, Any]:
        """The network's first plugin."""
        return {
            "cniVersion": "1.0.0",
            "name": "cbr0",
            "subnetFile": str(self.directory / "subnet.env"),
            "dataDir": str(self.directory / "flannel"),
            "ipam": {"dataDir": str(self.directory / "networks")},
            "delegate": {"bridge": bridge, "isDefaultGateway": True, "hairpinMode": True},
        }

    def attach(self, pod: str) -> None:
        """ADD as it should be."""
        result = self.call("ADD", pod, self.free[pod].path)
        assert result, self.said
        self.attached(pod, result)

    def attached(self, pod: str, result: Any) -> None:
        """Note what a runtime knows after an ADD that succeeded."""
        address = str(ip_interface(result["ips"][0]["address"]).ip)
        assert address not in {ip for _, ip in self.live.values()}, f"{address} given twice"
        self.live[pod] = self.free.pop(pod), address

    def detach(self, pod: str) -> None:
        """DEL as it should be."""
        assert self.call("DEL", pod, self.live[pod][0].path), self.said
        self.free[pod] = self.live.pop(pod)[0]

    def renew(self, pod: str) -> None:
        """Have a pod's namespace go, and another one come in its place."""
        self.free[pod].close()
        self.free[pod] = Netns()

    def check(self) -> None:
        """Everything that is there belongs to a live attachment, and everything of those is there."""
        pods = sorted(self.live)
        addresses = {ip: f"{pod}\r\neth0".encode() for pod, (_, ip) in self.live.items()}
        reserved = {path.name: path.read_bytes() for path in (self.directory / "networks" / "cbr0").glob("10.*")}
        assert reserved == addresses
        assert sorted(path.name for path in (self.directory / "flannel").glob("pod*")) == pods
        state = self.directory / "state" / "cni"
        records = [json.loads(path.read_text()) for path in state.glob("attachments/*.json")]
        assert sorted(record["container"] for record in records) == pods
        assert len(list(state.glob("flannel/*.json"))) == len(pods)
        for pod, (netns, ip) in self.live.items():
            link = netns.rtnl.link("eth0")
            assert link is not None, pod
            assert ip in {str(address.ip) for address in netns.rtnl.addresses(link.index)}
        # Besides them nothing: no end of a pair on the host, no link in a pod that is detached.
        names = sorted(record["veth"] for record in records)
        assert sorted(link.name for link in self.host.rtnl.links() if link.kind == "veth") == names
        for netns in self.free.values():
            assert [link.name for link in netns.rtnl.links()] == ["lo"]

    def check_soon(self) -> None:
        """As `check`, but what is done after the answer gets its time."""
        end = time.monotonic() + SOON
        while True:
            try:
                self.check()
            except AssertionError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.01)
            else:
                return


class Runtime:
    """Attaches and detaches pods while somebody is killed, and then does what runtimes do."""

    def __init__(self, site: Site, chance: random.Random) -> None:
        self.site = site
        self.chance = chance
        self.hits: Counter[str] = Counter()

    def round(self, point: Point | None, victim: str) -> None:
        """One kill, at a point or (None) at any time; then go on until all is as it should be."""
        site = self.site
        command = point.command if point else self.chance.choice(["ADD", "DEL"])
        pod = self._choose(command)
        if victim == LOCAL:
            site.end()
        else:
            site.serve()
        bridge = "fresh0" if point and point.fresh else "cni0"
        result = self._die(command, pod, bridge, point, victim)
        if self.chance.random() < 0.7:
            site.serve()  # else what follows is done without it
        if command == "ADD":
            self._after_add(pod, result, undone=victim == CLIENT and point is not None and not point.late)
        else:
            self._after_del(pod, result)
        site.host.run("ip link del fresh0 2>/dev/null || true")
        site.serve()
        site.check_soon()
        if site.live:
            assert site.host.run(f"ping -c1 -W2 {site.live[self.chance.choice(sorted(site.live))][1]}")

    def _choose(self, command: str) -> str:
        site = self.site
        while len(site.live) > 3 or (command == "ADD" and not site.free):
            site.detach(self.chance.choice(sorted(site.live)))
        while not site.live:
            site.attach(self.chance.choice(sorted(site.free)))
        return self.chance.choice(sorted(site.free if command == "ADD" else site.live))

    def _die(self, command: str, pod: str, bridge: str, point: Point | None, victim: str) -> Any:
        """Call with somebody killed meanwhile; what the runtime sees."""
        site = self.site
        path = (site.free[pod] if command == "ADD" else site.live[pod][0]).path

        def any_time(child: "subprocess.Popen[bytes]") -> None:
            # A call takes some 10 ms with the daemon, without it 150.
            time.sleep(self.chance.uniform(0, 0.15 if victim == LOCAL else 0.012))
            site.end(9) if victim == DAEMON else child.kill()

        if point is None:
            self.hits[f"{command}: any time"] += 1
            return site.call(command, pod, path, meanwhile=any_time)
        site.trap.set(point, victim)
        result = site.call(command, pod, path, bridge=bridge)
        end = time.monotonic() + SOON
        while point.late and not site.trap.sprung and time.monotonic() < end:
            time.sleep(0.005)
        sprung = site.trap.sprung
        site.trap.clear()
        if sprung:
            self.hits[str(point)] += 1
            self.hits[f"killed: {victim}"] += 1
            if victim == DAEMON and site.daemon is not None:
                site.daemon.wait(SECONDS)
        return result

    def _after_add(self, pod: str, result: Any, *, undone: bool) -> None:
        site = self.site
        if result:
            site.attached(pod, result)
            return
        if undone and self.chance.random() < 0.5:
            site.serve()
            site.check_soon()  # without a DEL: the daemon saw its client go
        else:
            self._delete_again(pod, site.free[pod])
        if self.chance.random() < 0.7:
            site.attach(pod)

    def _after_del(self, pod: str, result: Any) -> None:
        site = self.site
        netns, _ = site.live[pod]
        site.free[pod] = netns
        if not result:
            self._delete_again(pod, netns)
        del site.live[pod]

    def _delete_again(self, pod: str, netns: Netns) -> None:
        """DEL until it works, which is at once; sometimes the namespace has gone meanwhile."""
        path = netns.path
        if self.chance.random() < 0.2:
            self.site.renew(pod)
            path = ""
        assert self.site.call("DEL", pod, path), self.site.said


def campaign(site: Site, rounds: int) -> None:
    """Kill so many times, at each point at least once, each of the victims in turn."""
    seed = int(os.environ.get("WEFT_SEED") or random.randrange(1 << 32))
    print(f"WEFT_SEED={seed}")
    chance = random.Random(seed)
    runtime = Runtime(site, chance)
    every = [(point, victim) for point in POINTS for victim in point.victims]
    plan: list[tuple[Point | None, str]] = [(point, chance.choice(point.victims)) for point in POINTS]
    while len(plan) < rounds:
        plan.append((None, chance.choice(VICTIMS)) if chance.random() < 0.15 else chance.choice(every))
    chance.shuffle(plan)
    for number, (point, victim) in enumerate(plan):
        try:
            runtime.round(point, victim)
        except BaseException:
            print(f"round {number}: {victim} at {point or 'any time'}")
            raise
    print("".join(f"{count:5} {name}\n" for name, count in sorted(runtime.hits.items())))
    never = [str(point) for point in POINTS if not runtime.hits[str(point)]]
    assert not never, f"never hit: {never}"


def storm(site: Site, command: str, paths: dict[str, str], chance: random.Random, hits: Counter[str]) -> dict[str, Any]:
    """Have the daemon killed while so many pods come or go at once; what each was told, None if it failed.

    A request fails only once the daemon has begun it, and is then told what to do. All others are done without it.
    """
    site.serve()
    here = site.directory / "here"
    here.write_text("")
    with ThreadPoolExecutor(1) as killer:
        config = site.flannel()
        # Until all have been started, and a little more.
        dies = killer.submit(lambda delay: (time.sleep(delay), site.end(9)), chance.uniform(0, 0.05))
        children = {pod: site.start(command, "flannel", config, pod=pod, path=path) for pod, path in paths.items()}
        told = {pod: finish(child) for pod, child in children.items()}
        dies.result()
    then = "call DEL, which removes" if command == "ADD" else "call it again"
    for said in told.values():
        if said.exit != 0:
            assert said.json["code"] == 11, said.text
            assert f"the connection to weftd was lost in the middle of {command}" in said.json["msg"], said.text
            assert then in said.json["msg"]
    lost = sum(said.exit != 0 for said in told.values())
    alone = len(here.read_text().split())
    hits[f"{command}: {LOST}"] += lost
    hits[f"{command}: {ALONE}"] += alone
    hits[f"{command}: done by the daemon"] += len(told) - lost - alone
    return {pod: None if said.exit != 0 else said.json or True for pod, said in told.items()}


def storms(site: Site, rounds: int) -> None:
    """Pods that come and go at once while the daemon is killed, as by kubelets; then what runtimes do."""
    seed = int(os.environ.get("WEFT_SEED") or random.randrange(1 << 32))
    print(f"WEFT_SEED={seed}")
    chance = random.Random(seed)
    wrapper = site.directory / "python"
    wrapper.write_text(wrapper.read_text().replace("\n", f"\necho here >>{site.directory}/here\n", 1))
    hits: Counter[str] = Counter()
    for number in range(10 * rounds):
        if number >= rounds and all(hits[f"{command}: {what}"] for command in ("ADD", "DEL") for what in (LOST, ALONE)):
            break
        for pod, result in storm(site, "ADD", {pod: one.path for pod, one in site.free.items()}, chance, hits).items():
            if result:
                site.attached(pod, result)
            else:
                site.serve()
                assert site.call("DEL", pod, site.free[pod].path), site.said
        site.check_soon()
        for pod, result in storm(
            site, "DEL", {pod: one.path for pod, (one, _) in site.live.items()}, chance, hits
        ).items():
            if not result:
                site.serve()
                assert site.call("DEL", pod, site.live[pod][0].path), site.said
            site.free[pod] = site.live.pop(pod)[0]
        site.serve()
        site.check_soon()
    print("".join(f"{count:5} {name}\n" for name, count in sorted(hits.items())))
    never = [
        f"{command}: {what}" for command in ("ADD", "DEL") for what in (LOST, ALONE) if not hits[f"{command}: {what}"]
    ]
    assert not never, f"never hit: {never}"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    assert build.build(), "musl-gcc is missing"
    with closing(Site(tmp_path, install(tmp_path / "bin").bin_dir)) as made:
        yield made


def test_whoever_is_killed_nothing_is_lost_and_nothing_left(site: Site):
    campaign(site, len(POINTS) + 6)


def test_a_daemon_that_is_killed_fails_no_request_but_those_that_it_has_begun(site: Site):
    storms(site, 10)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_hundred_daemons_killed_while_pods_come_and_go(site: Site):
    storms(site, 50)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_three_hundred_kills(site: Site):
    campaign(site, 300)
