"""Kill -9 at named points of CNI work: a runtime that goes on as runtimes do finds nothing lost and nothing left.

What dies is the daemon, its stand-in, or the client while one of them works. The seed is printed, and
another one each time; set WEFT_SEED to repeat a run.
"""

import os
import random
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.campaign.cnikills import ALONE, ANEW, BEGINS, BEGUN, CLIENT, DAEMON, POINTS, STAND_IN, VICTIMS, Point, noted
from tests.campaign.cninode import SECONDS
from tests.campaign.cnisite import SOON, Site
from tests.support.cni.call import Answer
from tests.support.cni.standins import kill_stand_ins
from tests.support.netns import Netns
from weft.cni import build
from weft.cni.install.executables import install

LOST_ONES, LONE_ONES = "begun, and done again without the daemon", "not begun, and done without it"


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
        if victim == STAND_IN:
            site.end()
        else:
            site.serve()
        bridge = "fresh0" if point and point.fresh else "cni0"
        result = self._die(command, pod, bridge, point, victim)
        assert result or victim == CLIENT or point is None, site.said
        if self.chance.random() < 0.7:
            site.serve()  # else what follows is done without it
        if command == "ADD":
            self._after_add(pod, result, undone=victim == CLIENT and point is not None and not point.late)
        else:
            self._after_del(pod, result)
        if bridge != "cni0" and pod in site.live:
            site.detach(pod)
        site.host.run("ip link del fresh0 2>/dev/null || true")
        site.serve()
        site.check_soon()
        if site.live:
            pod = self.chance.choice(sorted(site.live))
            assert site.answers(pod), f"{pod} cannot be reached"

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
            # A call takes some 10 ms, and 150 where a stand-in has to be started first.
            time.sleep(self.chance.uniform(0, 0.15 if victim == STAND_IN else 0.012))
            if victim == DAEMON:
                site.end(9)
            elif victim != STAND_IN or not kill_stand_ins(site.directory):
                child.kill()

        if point is None:
            self.hits[f"{command}: any time"] += 1
            return site.run(command, pod, path, meanwhile=any_time)
        site.trap.set(point, victim)
        result = site.run(command, pod, path, bridge=bridge)
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
        assert self.site.run("DEL", pod, path), self.site.said


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What became of the requests of many pods: what their clients said, and what was noted where the work is done.

    `begins` are those whose clients somebody was about to tell that they begin, `begun` those whose clients the daemon
    had told so, `alone` those that were done without it, `anew` those that were begun once more.
    """

    said: dict[str, Answer]
    begins: set[str]
    begun: set[str]
    alone: set[str]
    anew: set[str]

    def violations(self) -> list[str]:
        """No request fails, and only one that was begun and lost is begun once more, as such a one."""
        found = [f"{pod}: begun by the daemon, and by another as if it were not" for pod in self.begun & self.alone]
        found += [f"{pod}: begun once more, and never before" for pod in self.anew - self.begins]
        found += [f"{pod}: failed: {said}" for pod, said in self.said.items() if said.exit != 0]
        return found + [f"{pod}: done by nothing" for pod in self.said.keys() - self.begun - self.alone - self.anew]


def storm(site: Site, command: str, paths: dict[str, str], *, dies_after: float | None) -> Account:
    """Have many pods come or go at once, and the daemon killed some seconds after the last was started."""
    site.serve()
    (site.directory / "begun").unlink(missing_ok=True)
    with ThreadPoolExecutor(1) as killer:
        config = site.flannel()
        # Until all have been started, and a little more.
        if dies_after is not None:
            dies = killer.submit(lambda: (time.sleep(dies_after), site.end(9)))
        calls = {
            pod: site.start(command, config, plugin="flannel", container=pod, CNI_NETNS=path).feed()
            for pod, path in paths.items()
        }
        said = {pod: call.end() for pod, call in calls.items()}
        if dies_after is not None:
            dies.result()
    begins, begun, alone, anew = (noted(site.directory, what, command) for what in (BEGINS, BEGUN, ALONE, ANEW))
    return Account(said=said, begins=begins, begun=begun, alone=alone, anew=anew)


def survived(
    site: Site, command: str, paths: dict[str, str], chance: random.Random, hits: Counter[str]
) -> dict[str, Any]:
    """Have a storm; what each pod was told."""
    account = storm(site, command, paths, dies_after=chance.uniform(0, 0.05))
    assert not account.violations()
    hits[f"{command}: {LOST_ONES}"] += len(account.anew)
    hits[f"{command}: {LONE_ONES}"] += len(account.alone)
    hits[f"{command}: done by the daemon"] += len(account.begun - account.anew)
    return {pod: said.json for pod, said in account.said.items()}


def storms(site: Site, rounds: int) -> None:
    """Pods that come and go at once while the daemon is killed, as by kubelets; then what runtimes do."""
    seed = int(os.environ.get("WEFT_SEED") or random.randrange(1 << 32))
    print(f"WEFT_SEED={seed}")
    chance = random.Random(seed)
    hits: Counter[str] = Counter()
    for number in range(10 * rounds):
        if number >= rounds and all(
            hits[f"{command}: {what}"] for command in ("ADD", "DEL") for what in (LOST_ONES, LONE_ONES)
        ):
            break
        for pod, result in survived(
            site, "ADD", {pod: one.path for pod, one in site.free.items()}, chance, hits
        ).items():
            site.attached(pod, result)
        site.check_soon()
        for pod in survived(site, "DEL", {pod: one.path for pod, (one, _) in site.live.items()}, chance, hits):
            site.free[pod] = site.live.pop(pod)[0]
        site.serve()
        site.check_soon()
    print("".join(f"{count:5} {name}\n" for name, count in sorted(hits.items())))
    never = [
        f"{command}: {what}"
        for command in ("ADD", "DEL")
        for what in (LOST_ONES, LONE_ONES)
        if not hits[f"{command}: {what}"]
    ]
    assert not never, f"never hit: {never}"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    assert build.PROGRAM.build(), "musl-gcc is missing"
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


# --- each checker catches what it is for


def _one(site: Site, pattern: str) -> Path:
    return next(site.directory.glob(pattern))


def _record_of_another(site: Site) -> None:
    path = _one(site, "state/cni/attachments/*.json")
    path.with_name(f"{'0' * 32}.json").write_text(path.read_text().replace("pod0", "pod2").replace("pod1", "pod2"))


def _holder_of_another(site: Site) -> None:
    path = _one(site, "state/cni/flannel/*.json")
    path.with_name(f"{'0' * 32}.json").write_text(path.read_text().replace("pod0", "pod2").replace("pod1", "pod2"))


# Of two live pods, pod0 and pod1, and pod2, which was detached.
PLANTS: tuple[tuple[str, Callable[[Site], Any]], ...] = (
    (": left", lambda site: (site.directory / "networks/cbr0/10.244.7.9").write_bytes(b"pod2\r\neth0")),
    (": b'pod2", lambda site: _one(site, "networks/cbr0/10.244.7.2").write_bytes(b"pod2\r\neth0")),
    ("reservation 10.244.7.2: lost", lambda site: _one(site, "networks/cbr0/10.244.7.2").unlink()),
    ("configuration pod2: left", lambda site: (site.directory / "flannel/pod2").write_text("{}")),
    ("configuration pod0: lost", lambda site: (site.directory / "flannel/pod0").unlink()),
    ("record pod2: left", _record_of_another),
    ("holder pod2: left", _holder_of_another),
    ("host end veth0: left", lambda site: site.host.run("ip link add veth0 type veth peer name veth1")),
    ("link weft0 of pod2: left", lambda site: site.free["pod2"].run("ip link add weft0 type bridge")),
    ("address of pod1: lost", lambda site: site.live["pod1"][0].run("ip addr flush dev eth0")),
    ("host end veth", lambda site: site.live["pod0"][0].run("ip link del eth0")),
    ("address of pod0: lost", lambda _: None),  # with its link
    ("record pod1: lost", lambda site: [path.unlink() for path in site.directory.glob("state/cni/attachments/*.json")]),
    ("holder pod1: lost", lambda site: [path.unlink() for path in site.directory.glob("state/cni/flannel/*.json")]),
)


def test_what_is_lost_or_left_is_seen(site: Site):
    for pod in ("pod0", "pod1", "pod2"):
        site.attach(pod)
    site.detach("pod2")
    site.check_soon()
    assert site.answers("pod0")
    site.live["pod0"][0].run("ip link set eth0 down")
    assert not site.answers("pod0")
    site.live["pod0"][0].run("ip link set eth0 up")
    for says, plant in PLANTS:
        plant(site)
        assert any(says in line for line in site.violations()), says
    with pytest.raises(AssertionError, match="given twice"):
        site.attached("pod2", {"ips": [{"address": f"{site.live['pod0'][1]}/26"}]})


def test_points_that_are_never_reached_are_seen(site: Site, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(globals(), "POINTS", (Point(command="ADD", name="nowhere", at="nothing"),))
    with pytest.raises(AssertionError, match=r"never hit: .*nowhere"):
        campaign(site, 1)


def replaced(site: Site, plugin: str, script: str) -> None:
    """Have a script in place of a plugin, with its `$input`; the plugin itself is moved into a directory `real`."""
    path = site.bin_dir / plugin
    (site.bin_dir / "real").mkdir(exist_ok=True)
    if not (site.bin_dir / "real" / plugin).exists():
        shutil.move(path, site.bin_dir / "real" / plugin)
    path.write_text(f"#!/bin/sh\ninput=$(cat)\n{script}\n")
    path.chmod(0o755)


def test_a_del_that_fails_or_does_nothing_is_seen(site: Site):
    for pod in ("pod0", "pod1"):
        site.attach(pod)
    replaced(site, "flannel", "exit 0")
    site.detach("pod0")
    with pytest.raises(AssertionError, match=r"reservation .*: left"):
        site.check_soon(0)
    replaced(site, "flannel", "echo refused >&2; exit 1")
    with pytest.raises(AssertionError, match="refused"):
        Runtime(site, random.Random(1))._after_del("pod1", None)
    del site.live["pod1"]


LIES = (
    ("failed", """echo '{"code": 11, "msg": "no"}'; exit 1"""),
    ("done by nothing", "echo '{}'"),
    (
        "begun by the daemon, and by another as if it were not",
        """\
echo "$input" | {bin}/real/flannel
cp {bin}/.weft-python {bin}/real
echo "$input" | WEFT_CNI_SOCKET={bin}/alone/sock {bin}/real/flannel >&2
""",
    ),
    ("begun once more, and never before", 'echo "$input" | CNI_WEFT_CALLED=1 {bin}/real/flannel'),
)


@pytest.mark.parametrize("says, script", LIES, ids=[says for says, _ in LIES])
def test_a_client_that_does_not_do_as_it_says_is_seen(site: Site, says: str, script: str):
    """The daemon and the plugins note themselves what they do: no client is believed."""
    paths = {"pod0": site.free["pod0"].path}
    assert storm(site, "ADD", paths, dies_after=None).violations() == []
    assert storm(site, "DEL", paths, dies_after=None).violations() == []
    replaced(site, "flannel", script.replace("{bin}", str(site.bin_dir)))
    [found] = storm(site, "ADD", paths, dies_after=None).violations()[:1]
    assert found == f"pod0: {says}" or found.startswith(f"pod0: {says}: ")
