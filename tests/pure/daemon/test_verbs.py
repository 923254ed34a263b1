"""What `weft plan` and `weft cleanup` print, to the letter, and how they end; what they find is tested on nodes."""

import json
import os
from pathlib import Path

import pytest

from weft import cli
from weft.daemon.commands import verbs
from weft.daemon.commands.cleanup import Done, Found, Site
from weft.daemon.commands.verbs import Started
from weft.model.attachment import Attachment
from weft.model.errors import Problem
from weft.model.kernel.reported import LinkInfo
from weft.model.node.nodestate import Plan, Planned

WRONG = Problem(code="PEER-001", where="lease 10.5.9.0-24", seen="no\nMAC", expected="one", hint="Look.")
WRONG_TEXT = "PEER-001 lease 10.5.9.0-24: no"
STEPS = (
    Planned(do="put", kind="route", text="+ route 10.5.2.0/24", why="lease of\x1b[2J node2"),
    Planned(do="delete", kind="link", text="- link x", why="nothing asks for it"),
)


@pytest.fixture(autouse=True)
def _root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)


def weft(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = cli.run(words)
    return status, *capsys.readouterr()


def planned(monkeypatch: pytest.MonkeyPatch, shown: Plan, running: Started | None = None) -> list[object]:
    asked: list[object] = []

    async def start(options: object, _world: object) -> Plan:
        asked.append(options)
        return shown

    def answer(instance: str) -> Plan:
        asked.append(instance)
        return shown

    monkeypatch.setattr(verbs, "running_here", lambda *_: running)
    monkeypatch.setattr(verbs.daemons, "plan", answer)
    monkeypatch.setattr(verbs, "_start", start)
    monkeypatch.setattr(verbs.logs, "quiet", lambda: asked.append("quiet"))
    return asked


def test_a_plan_is_notes_problems_and_steps_a_line_each(monkeypatch, capsys):
    asked = planned(monkeypatch, Plan(notes=("one", "two"), problems=(WRONG,), steps=STEPS))
    status, out, err = weft(capsys, "plan", "--", "--iface=eth7")
    assert (status, err) == (3, "")
    first, second, problem, *rest = out.splitlines()
    assert (first, second, problem.startswith(f"! {WRONG_TEXT}; MAC")) == ("# one", "# two", True)
    assert rest == [
        "+ route 10.5.2.0/24  # lease of\\x1b[2J node2",
        "- link x  # nothing asks for it",
        "# 2 steps",
    ]
    quiet, options = asked
    assert (quiet, options.iface) == ("quiet", ("eth7",))


def test_a_plan_of_nothing(monkeypatch, capsys):
    planned(monkeypatch, Plan(notes=(), problems=(), steps=()))
    assert weft(capsys, "plan") == (0, "# nothing to do\n", "")
    assert weft(capsys, "plan", "-o", "json") == (0, '{\n  "notes": [],\n  "problems": [],\n  "steps": []\n}\n', "")
    planned(monkeypatch, Plan(notes=(), problems=(), steps=STEPS[:1]))
    assert weft(capsys, "plan")[1].endswith("\n# 1 step\n")


RUNNING = Started(
    instance="one", flags=["--ip-masq", "--iface-regex=^eth"], environ={"FLANNELD_PUBLIC_IP": "192.0.2.1"}
)


@pytest.mark.parametrize(
    "flags",
    [
        (),
        ("--ip-masq",),
        ("--ip-masq=1", "--public-ip=192.0.2.1", "--iface-regex", "^eth", "--state-dir=/var/lib/weft"),
    ],
)
def test_the_weftd_that_runs_here_is_asked_for_its_plan_whatever_of_its_flags_is_said_again(monkeypatch, capsys, flags):
    asked = planned(monkeypatch, Plan(notes=("one",)), RUNNING)
    status, out, err = weft(capsys, "plan", "--", *flags)
    assert (status, err) == (0, "")
    assert out == "# answered by the weftd that runs here, instance one\n# one\n# nothing to do\n"
    assert asked == ["one"]


def test_with_other_flags_a_start_is_tried_with_what_the_weftd_here_has_of_all_others(monkeypatch, capsys):
    monkeypatch.setenv("FLANNELD_PUBLIC_IP", "192.0.2.2")
    asked = planned(monkeypatch, Plan(), RUNNING)
    status, out, _ = weft(capsys, "plan", "--", "--iface=eth7")
    assert status == 0
    assert out.startswith("# a start with the flags of the weftd that runs here, but for those given here\n")
    _, options = asked
    assert (options.iface, options.ip_masq, str(options.public_ip)) == (("eth7",), True, "192.0.2.2")


def test_a_plan_for_programs_holds_all_of_it(monkeypatch, capsys):
    planned(monkeypatch, Plan(notes=("one",), problems=(WRONG,), steps=STEPS))
    status, out, _ = weft(capsys, "plan", "-o", "json")
    assert status == 3
    assert json.loads(out) == {
        "notes": ["one"],
        "problems": [
            {"code": "PEER-001", "where": "lease 10.5.9.0-24", "seen": "no\nMAC", "expected": "one", "hint": "Look."}
        ],
        "steps": [
            {"do": "put", "kind": "route", "text": "+ route 10.5.2.0/24", "why": "lease of\x1b[2J node2"},
            {"do": "delete", "kind": "link", "text": "- link x", "why": "nothing asks for it"},
        ],
    }


LINKS = (
    LinkInfo(index=7, name="cni0", kind="bridge", alias="weft:bridge"),
    LinkInfo(index=8, name="x", alias="weft:pod:1"),
)
FOUND = Found(
    links=LINKS,
    tables=("inet weft-hostport",),
    files=(Path("/run/subnet.env"),),
    attachments=(Attachment(network="cbr0", container_id="c1", ifname="eth0"),),
    foreign=("link theirs: weft makes no link of this kind with this alias",),
)
LINES = (
    "link cni0 (bridge, weft:bridge)",
    "link x (device, weft:pod:1)",
    "table inet weft-hostport",
    "what c1 eth0 holds in cbr0",
    "file /run/subnet.env",
)
LEFT = "left link theirs: weft makes no link of this kind with this alias\n"
FILES = {"/s": "who this node is"}
KEPT = "left /s: who this node is\n"
UNSEEN = Problem(code="CLEAN-001", where="route x", seen="nothing tells whose it is")


def cleaned(monkeypatch: pytest.MonkeyPatch, done: Done) -> list[object]:
    asked: list[object] = []

    async def clean_up(site: Site, *, dry_run: bool) -> Done:
        asked.append((str(site.subnet_file), str(site.state_dir), dry_run))
        return done

    monkeypatch.setattr(verbs, "clean_up", clean_up)
    monkeypatch.setattr(verbs, "files_left", lambda *_: FILES)
    return asked


def test_a_clean_up_says_what_it_removes_and_what_it_leaves(monkeypatch, capsys):
    asked = cleaned(monkeypatch, Done(found=FOUND, still=Found(foreign=FOUND.foreign)))
    removed = "".join(f"removed {line}\n" for line in LINES)
    assert weft(capsys, "cleanup", "--state-dir=/s") == (
        0,
        f"{removed}{LEFT}{KEPT}nothing of weft is left in the kernel\n",
        "",
    )
    would = removed.replace("removed", "would remove")
    dry = weft(capsys, "cleanup", "--dry-run", "--subnet-file=/f", "--state-dir=/s")
    assert dry == (0, f"{would}{LEFT}{KEPT}5 found\n", "")
    assert asked == [("/run/flannel/subnet.env", "/s", False), ("/f", "/s", True)]


@pytest.mark.parametrize("refused, still", [(("no",), Found()), ((), Found(links=LINKS[:1]))])
def test_a_clean_up_that_was_refused_something_has_failed(monkeypatch, capsys, refused, still):
    cleaned(monkeypatch, Done(found=FOUND, refused=refused, still=still))
    left = [*refused, *(f"still there: {line}" for line in still.lines)]
    removed = "".join(f"removed {line}\n" for line in LINES if line not in still.lines)
    said = "".join(f"CLEAN-001 {line}\n" for line in left)
    assert weft(capsys, "cleanup", "--state-dir=/s") == (1, f"{removed}{KEPT}5 found\n", said)
    document = json.loads(weft(capsys, "cleanup", "--state-dir=/s", "-o", "json")[1])
    assert document == {
        "dry_run": False,
        "found": list(LINES),
        "left": left,
        "foreign": [],
        "files": FILES,
        "problems": [],
    }


@pytest.mark.parametrize("options, unseen_in", [((), "still"), (("--dry-run",), "found")])
def test_what_a_clean_up_cannot_see_is_not_proved_to_be_gone(monkeypatch, capsys, options, unseen_in):
    unseen = {unseen_in: Found(unseen=(UNSEEN,), foreign=FOUND.foreign)}
    cleaned(monkeypatch, Done(**({"found": Found()} | unseen)))
    said = (1, f"{LEFT}{KEPT}0 found\n", "CLEAN-001 route x: nothing tells whose it is\n")
    assert weft(capsys, "cleanup", "--state-dir=/s", *options) == said
    document = json.loads(weft(capsys, "cleanup", "--state-dir=/s", "-o", "json", *options)[1])
    assert [problem["where"] for problem in document["problems"]] == ["route x"]
    assert document["foreign"] == list(FOUND.foreign)


@pytest.mark.parametrize("command", ["plan", "cleanup"])
def test_who_is_not_root_is_refused(monkeypatch, capsys, command):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    said = f"weft: HOST-002 weft {command}: run by user 1000; expected root. Run the same command as root.\n"
    assert weft(capsys, command) == (2, "", said)
