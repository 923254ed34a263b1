"""What `weft ipam` prints, to the letter, and how it ends; what it finds is tested on nodes."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path

import pytest

from weft import cli
from weft.cni.commands import ipam
from weft.cni.commands.ipam import Reservation
from weft.desired.leaks import State, Verdict
from weft.model.attachment import Attachment

ATTACHED = Verdict(state=State.ATTACHED)
LEAKED = Verdict(state=State.LEAKED, proof="made before the last boot")
UNKNOWN = Verdict(state=State.UNKNOWN)
VERDICTS = {"c1": ATTACHED, "c2": LEAKED, "c3": UNKNOWN, "c4": LEAKED, "c5": LEAKED}


def held(address: str, owner: str, verdict: Verdict) -> Reservation:
    return Reservation(
        network="cbr0",
        directory="/d/cbr0",
        address=ip_address(address),
        container_id=owner,
        ifname="eth0",
        verdict=verdict,
    )


RESERVATIONS = [
    held("10.5.1.2", "c1", ATTACHED),
    held("10.5.1.3", "c2", LEAKED),
    held("fd05::3", "c2", LEAKED),
    held("10.5.1.4", "c2", UNKNOWN),
    held("10.5.1.5", "c3", UNKNOWN),
]


class Node:
    """What the commands find and do."""

    def __init__(self) -> None:
        self.asked: list[object] = []
        self.found = RESERVATIONS
        self.problems: dict[str, str] = {}


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Node:
    made = Node()

    @contextmanager
    def host(*where: str) -> Iterator[str]:
        made.asked.append(where)
        yield "host"

    def attachments(_host: object, *, data_dir: str) -> Iterator[Attachment]:
        made.asked.append(data_dir)
        for name in sorted(VERDICTS):
            yield Attachment(network="cbr0", container_id=name, ifname="eth0")

    def free(_host: object, attachment: Attachment) -> str:
        made.asked.append(attachment.container_id)
        return made.problems.get(attachment.container_id, "")

    monkeypatch.setattr(ipam, "_node", host)
    monkeypatch.setattr(ipam, "_free", free)
    monkeypatch.setattr(ipam, "reservations", lambda _host, _data_dir: made.found)
    monkeypatch.setattr(ipam.sweep, "attachments", attachments)
    monkeypatch.setattr(ipam.sweep, "judge", lambda _host, attachment: VERDICTS[attachment.container_id])
    return made


def weft(capsys: pytest.CaptureFixture[str], line: str) -> tuple[int, str, str]:
    status = cli.run(["ipam", *line.split(), "--state-dir=/s"])
    return status, *capsys.readouterr()


HEADING = "NETWORK  ADDRESS   CONTAINER  INTERFACE  STATE\n"
ROWS = (
    "cbr0     10.5.1.2  c1         eth0       attached\n",
    "cbr0     10.5.1.3  c2         eth0       leaked: made before the last boot\n",
    "cbr0     fd05::3   c2         eth0       leaked: made before the last boot\n",
    "cbr0     10.5.1.4  c2         eth0       unknown\n",
    "cbr0     10.5.1.5  c3         eth0       unknown\n",
)


def test_all_reservations_or_those_that_are_leaked(node: Node, capsys):
    assert weft(capsys, "list") == (0, HEADING + "".join(ROWS), "")
    assert weft(capsys, "list --leaked --data-dir=/d") == (0, HEADING + "".join(ROWS[1:3]), "")
    assert node.asked == [("weft ipam list", "/s", ""), ("weft ipam list", "/s", "/d")]
    listed = json.loads(weft(capsys, "list --leaked -o json")[1])
    assert [each["address"] for each in listed["reservations"]] == ["10.5.1.3", "fd05::3"]
    assert listed["reservations"][0] == {
        "network": "cbr0",
        "directory": "/d/cbr0",
        "address": "10.5.1.3",
        "container": "c2",
        "interface": "eth0",
        "state": "leaked",
        "proof": "made before the last boot",
    }


def test_that_nothing_is_reserved_is_said(node: Node, capsys):
    node.found = []
    assert weft(capsys, "list") == (0, "no address is reserved\n", "")
    assert weft(capsys, "list --leaked") == (0, "no leaked address\n", "")
    assert weft(capsys, "list -o json") == (0, '{\n  "reservations": []\n}\n', "")


C2 = "cbr0 c2 eth0: 10.5.1.3, fd05::3 (made before the last boot)\n"
C4, C5 = (f"cbr0 {name} eth0: no address (made before the last boot)\n" for name in ("c4", "c5"))
SUM = "{} leaked, 2 addresses unknown (another program's, or made before weft kept records)\n"


def test_what_is_leaked_is_freed_and_nothing_else(node: Node, capsys):
    out = f"freed {C2}freed {C4}freed {C5}{SUM.format(3)}"
    assert weft(capsys, "gc --data-dir=/d") == (0, out, "")
    assert node.asked == [("weft ipam gc", "/s", "/d"), "/d", "c2", "c4", "c5"]


def test_a_dry_run_frees_nothing(node: Node, capsys):
    node.found = RESERVATIONS[:3]
    out = f"would free {C2}would free {C4}would free {C5}3 leaked\n"
    assert weft(capsys, "gc --dry-run") == (0, out, "")
    assert node.asked == [("weft ipam gc", "/s", ""), ""]


def test_what_cannot_be_freed_is_told_and_the_others_are_freed(node: Node, capsys):
    node.problems = {"c4": "it is locked"}
    said = f"weft: IPAM-001 {C4[:-1]}: it is locked\n"
    assert weft(capsys, "gc") == (1, f"freed {C2}freed {C5}{SUM.format(2)}", said)
    status, out, err = weft(capsys, "gc -o json")
    assert (status, err) == (1, "")
    who = {"network": "cbr0", "container": "c2", "interface": "eth0"}
    proof = {"proof": "made before the last boot"}
    assert json.loads(out) == {
        "dry_run": False,
        "freed": [
            {**who, "addresses": ["10.5.1.3", "fd05::3"], **proof},
            {**who, "container": "c5", "addresses": [], **proof},
        ],
        "failed": [{**who, "container": "c4", "addresses": [], **proof, "error": "it is locked"}],
        "unknown": 2,
    }


def test_a_data_directory_that_is_none_is_refused(monkeypatch, capsys, tmp_path: Path):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    for verb in ("list", "gc"):
        said = f"weft: FLAG-001 --data-dir: {tmp_path}/none; expected a directory of networks\n"
        assert weft(capsys, f"{verb} --data-dir {tmp_path}/none") == (2, "", said)
    monkeypatch.setattr(os, "geteuid", lambda: 7)
    said = "weft: HOST-002 weft ipam gc: run by user 7; expected root. Run the same command as root.\n"
    assert weft(capsys, "gc") == (2, "", said)
