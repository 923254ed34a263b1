"""Hostile input by chance: configurations, variables and frames that no sane runtime sends.

Each call gets one CNI error object with a right code, or a correct success that DEL undoes, within limits; nothing is
left behind. The seed is printed, and another one each time; set WEFT_SEED to repeat a run.
"""

import json
import os
import random
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.campaign.hostile import site
from tests.campaign.hostile.cases import BODY, Case, make
from tests.campaign.hostile.daemon import PLANTED
from tests.campaign.hostile.frames import CODES, Hostile, attempt
from tests.campaign.hostile.good import CHAINED, good_configurations
from tests.campaign.hostile.site import MEMORY, Answer, Site
from tests.support.waiting import looks
from weft.cni import registry
from weft.wire import cni
from weft.wire.cni import Ran

# Without the daemon a call takes 150 ms, and is the same Python from the same start.
ALONE = 0.04
# What is done after the answer gets its time.
SOON = 4.0
# How many are no plugin's client at all, but speak to the daemon's socket.
FRAMES = 0.3

# What stays after DEL as it does with the reference: chains and a bridge's own rules, routes that moved from the main
# table to another and go with the interface, the qdiscs of a host's end that go with it; an ADD that fails takes those
# away.
STAYS = {
    "bandwidth": re.compile(r"host: (\d+: |qdisc (tbf|noqueue|ingress) .* dev )veth"),
    "firewall": re.compile(
        r"host: ((table|chain) .+ \{|counter jump .+|[io]ifname .*(CNI-ISOLATION-STAGE-2|counter drop) ?$)"
    ),
    "sbr": re.compile(r"held pod: (.* table \d+|unicast .* dev eth0 table main )"),
}


class Campaign:
    """Hostile calls on a site, each judged."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.counts: Counter[str] = Counter()
        self.patience = SOON
        held = self._hold()
        self.good = good_configurations(held)
        self.env = {name: self._env(name in CHAINED) for name in self.good}
        self._warm_up()
        self.start_over()

    def _env(self, held: bool) -> dict[str, str]:
        return {
            "CNI_CONTAINERID": "held" if held else "c1",
            "CNI_NETNS": (self.site.held if held else self.site.free).path,
            "CNI_IFNAME": "eth0",
            "CNI_PATH": "/weft",
        }

    def _hold(self) -> Any:
        """Attach the pod that chained plugins work on."""
        ipam = {"type": "host-local", "dataDir": "/var/lib/held", "subnet": "10.95.0.0/24"}
        config = {
            "cniVersion": "1.1.0",
            "name": "held",
            "type": "bridge",
            "bridge": "held0",
            "isGateway": True,
            "ipam": ipam,
        }
        return self.succeed("bridge", "ADD", config, held=True)

    def succeed(self, plugin: str, command: str, config: Any, *, held: bool) -> Any:
        """A call that must go well; returns its result."""
        case = Case(plugin=plugin, command=command, env={**self._env(held), "CNI_COMMAND": command}, config=config)
        answer = self._call(case.encoded())
        assert answer.exit == 0, (plugin, command, answer)
        return answer.json if command == "ADD" else None

    def _warm_up(self) -> None:
        """Have every plugin do its best once: what stays for all, as chains do, is there from now on."""
        for name, config in self.good.items():
            for _ in range(2):
                for command in ("ADD", "DEL"):
                    self.succeed(name, command, {**config, "cniVersion": "1.1.0"}, held=name in CHAINED)
        self.site.rest()

    def start_over(self) -> None:
        """Take what is there now for what was there before."""
        site = self.site
        self.bridges = site.bridges()
        self.before = site.look()
        self.descriptors, self.threads, self.memory = site.descriptors(), site.threads(), site.memory()

    def _call(self, case: Case, *, alone: bool = False) -> Answer:
        return self.site.call(case.plugin, case.env, case.stdin, alone=alone)

    def round(self, chance: random.Random) -> None:
        """One hostile call, and what a runtime does after it."""
        alone = chance.random() < ALONE
        case = make(chance, self.good, self.env, framed=not alone)
        if alone and case.plugin in {"sbr", "tuning"}:
            return  # they leave an eth0 that is another's, and whose the pod's is stands in the daemon's records alone
        answer = None
        try:
            answer = self._call(case, alone=alone)
            self.judge(case, answer)
            if case.command == "ADD" and answer.exit == 0:
                undone = self._call(case.again("DEL"), alone=alone)
                assert undone.exit == 0, ("what ADD did, DEL cannot undo", undone)
            self.check_nothing_left(case.plugin)
        except BaseException:
            print(f"{'alone' if alone else 'daemon'}: {case}\nanswer: {answer}")
            raise
        self.counts[f"{case.plugin} {case.command[:9]!r} {'ok' if answer.exit == 0 else answer.json['code']}"] += 1

    def frame_round(self, chance: random.Random) -> None:
        """One hostile client of the daemon's socket."""
        command = chance.choice(("ADD", "ADD", "DEL", "CHECK"))
        config = {**self.good["bridge"], "cniVersion": "1.1.0"}
        if chance.random() < 0.3:
            config["ipam"] = {"type": "foreign"}
        env = {**self.env["bridge"], "CNI_COMMAND": command}
        hostile, done = attempt(chance, self.site, config, env)
        try:
            self.judge_frame(hostile, done)
            # A delegate whose end is not known is owed its DEL; a runtime asks for it after a failure, and again for
            # a DEL without an answer.
            added = command == "ADD" and done is not None and done.exit == 0
            unanswered = command == "DEL" and done is None and hostile.call.plugin == "bridge"
            if hostile.delegated or added or unanswered:
                self.succeed(hostile.call.plugin, "DEL", config, held=False)
            self.check_nothing_left(hostile.call.plugin)
        except BaseException:
            names = [name for name, _ in hostile.named]
            print(f"{command}: {hostile.what}, {names}, {hostile.data[:200]!r}\nanswer: {done}")
            raise
        code = "silence" if done is None else "ok" if done.exit == 0 else json.loads(done.stdout)["code"]
        self.counts[f"frame {command} {code}"] += 1

    def judge_frame(self, hostile: Hostile, done: Ran | None) -> None:
        """Refuse silence for those who wait, and what is no answer."""
        if done is None:
            # Nor for those who answer an order with something else.
            assert hostile.hangs_up or hostile.delegated, "no answer"
            return
        assert b"Traceback" not in done.stderr
        if done.exit == 0:
            assert not hostile.fails, "this should have failed"
            return
        assert done.exit == 1
        error = json.loads(done.stdout)
        assert {"code", "msg"} <= set(error) <= {"cniVersion", "code", "msg", "details"}
        assert "internal fault" not in error["msg"]
        codes = CODES if hostile.fails else CODES | BODY
        assert error["code"] in codes, f"code {error['code']} is none of {sorted(codes)}"

    def judge(self, case: Case, answer: Answer) -> None:
        """Refuse what is no answer, or not the right one."""
        assert b"Traceback" not in answer.stderr
        if answer.exit == 0:
            assert not case.fails, "this should have failed"
            if case.command == "ADD":
                assert answer.json["cniVersion"] == case.config["cniVersion"]
            elif case.command == "VERSION":
                plugin = registry.find(case.plugin)
                assert answer.json["supportedVersions"] == list(plugin.versions if plugin else cni.VERSIONS)
            else:
                assert answer.stdout == b""
            return
        assert answer.exit == 1
        error = answer.json
        assert {"code", "msg"} <= set(error) <= {"cniVersion", "code", "msg", "details"}
        assert type(error["code"]) is int
        assert error["msg"]
        assert "internal fault" not in error["msg"]
        waits = error["code"] == cni.TRY_AGAIN and "LEASE-001" in error["msg"] and not case.fails
        assert error["code"] in case.codes or waits, f"code {error['code']} is none of {sorted(case.codes)}"

    def check_nothing_left(self, plugin: str) -> None:
        """Compare with before; what is done after an answer gets its time."""
        fault = AssertionError()
        for _ in looks(self.patience):
            try:
                self.site.tidy(self.bridges)
                return self._check(STAYS.get(plugin))
            except AssertionError as error:
                fault = error
        raise fault

    def _check(self, stays: re.Pattern[str] | None) -> None:
        site, now = self.site, self.site.look()
        changes = {
            "left behind": sorted(now.items() - self.before.items()),
            "gone": sorted(self.before.items() - now.items()),
        }
        for what, lines in changes.items():
            bad = [f"{line} {content}" for line, content in lines if not (stays and stays.match(line))]
            assert not bad, f"{what}: {bad[:9]}"
        self.before = now
        assert site.descriptors() <= self.descriptors, "descriptors are kept"
        assert site.threads() <= self.threads, "threads are kept"
        assert site.memory() < self.memory + MEMORY, "memory is kept"
        assert site.daemon.poll() is None


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Campaign]:
    with ExitStack() as stack:
        yield Campaign(Site(tmp_path_factory.mktemp("hostile") / "site", stack))


def calls(campaign: Campaign, number: int, *, seed: int | None = None) -> None:
    """Make so many hostile calls; the first wrong answer ends the test."""
    if seed is None:
        seed = int(os.environ.get("WEFT_SEED") or random.randrange(1 << 32))
    print(f"WEFT_SEED={seed}")
    chance = random.Random(seed)
    for _ in range(number):
        campaign.frame_round(chance) if chance.random() < FRAMES else campaign.round(chance)
    print("".join(f"{count:5} {name}\n" for name, count in sorted(campaign.counts.items())))


def test_hostile_calls_get_an_error_and_leave_nothing(campaign: Campaign):
    calls(campaign, 200)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_two_thousand_hostile_calls(campaign: Campaign):
    calls(campaign, 2000)


# By which words each planted fault is found.
FOUND = {
    "leaves a link": "left behind.*planted",
    "leaves a rule": "left behind.*planted",
    "leaves a file of the caller's": "left behind.*file of the caller: var/lib/planted",
    "leaves a file of the state": "left behind.*state: cni/planted",
    "writes to the daemon's own files": "left behind.*file of the daemon: var/lib/planted",
    "keeps a descriptor": "descriptors are kept",
    "keeps a thread": "threads are kept",
    "keeps memory": "memory is kept",
    "takes too long": "took more than",
    "ends in a fault": "no answer|code 11 is none of",
    "says something else": "Extra data",
    "says an odd code": "code 100 is none of",
    "fails without a word": "Expecting value",
    "says that it went well": "this should have failed|Expecting value",
}


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_found(campaign: Campaign, monkeypatch: pytest.MonkeyPatch, fault: str):
    monkeypatch.setattr(campaign, "patience", 0.1)
    if fault == "takes too long":
        monkeypatch.setattr(site, "slowness", lambda: 1.0)  # it is not the machine that is slow
    campaign.start_over()  # another test may have failed
    campaign.site.plant(fault)
    with pytest.raises((AssertionError, ValueError), match=FOUND[fault]):
        calls(campaign, 100, seed=1)
    campaign.site.plant("")
