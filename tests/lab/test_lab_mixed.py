"""A lab whose nodes have different daemons: this weft's, another's, and upstream's."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import flanneld, upstream
from tests.support.lab import Lab, lab, write_file
from tests.support.weftd import eventually

THEIRS = [{"name": "theirs", "pods": 1, "daemon": str(upstream.place("flanneld"))}] if flanneld.built() else []


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """As another weft there is a program beside the file that starts this one."""
    folder = tmp_path_factory.mktemp("mixed")
    other = folder / "other-weftd"
    other.write_text(f'#!/bin/sh\nexec {sys.executable} -m weft.daemon.main "$@"\n')
    other.chmod(0o755)
    nodes = [{"name": "ours", "pods": 1}, {"name": "other", "pods": 1, "daemon": "./other-weftd"}, *THEIRS]
    with lab(write_file(folder, nodes=nodes)) as running:
        yield running


def test_all_reach_all_and_nothing_is_wrong(running: Lab):
    assert running.weft("pingall").returncode == 0
    assert running.weft("check", "--quick").returncode == 0
    for node in running.ps()["nodes"]:
        assert json.loads(running.run(node["name"], "weft", "doctor", "-o", "json"))["findings"] == []


def test_what_serves_a_node_is_told(running: Lab):
    programs = {node["name"]: Path(node["program"]).name for node in running.ps()["nodes"]}
    assert (programs["ours"], programs["other"]) == ("", "other-weftd")
    assert [Path(node["daemon"]).name for node in THEIRS] == [programs[node["name"]] for node in THEIRS]
    daemons = {node["name"]: node["daemon"] for node in running.ps()["nodes"]}
    assert daemons == {"ours": "ready", "other": "ready"} | {node["name"]: "ready" for node in THEIRS}


@pytest.mark.skipif(not THEIRS, reason=f"{flanneld.HINT} builds upstream's daemon, on an x86-64 machine")
def test_upstreams_daemon_ends_and_starts_as_ours_does(running: Lab):
    assert running.weft("status").stdout.split("theirs")[1].splitlines()[0].split()[-1] == "flanneld"
    running.weft("kill", "theirs/weftd")
    eventually(lambda: running.node("theirs")["daemon"].startswith("exited"))
    assert "INST-003" in running.run("theirs", "weft", "doctor", check=False)
    assert running.weft("start", "theirs/weftd").stdout == "theirs/weftd: ready\n"
    assert running.weft("pingall").returncode == 0
    assert "it arrives" in running.weft("trace", "pod1-1", "pod3-1").stdout


@pytest.mark.skipif(not THEIRS, reason=f"{flanneld.HINT} builds upstream's daemon, on an x86-64 machine")
def test_upstreams_daemon_that_is_frozen_is_silent(running: Lab):
    pid = str(running.node("theirs")["pid"])
    running.run("theirs", "kill", "-STOP", pid)
    try:
        assert running.node("theirs")["daemon"] == "silent"
        assert "does not answer" in running.weft("run", "late", "--node", "theirs", check=False).stderr
    finally:
        running.run("theirs", "kill", "-CONT", pid)
    eventually(lambda: running.node("theirs")["daemon"] == "ready")


def test_another_weft_is_ready_when_its_start_says_so(running: Lab):
    running.weft("kill", "other/weftd")
    assert running.weft("start", "other/weftd").stdout == "other/weftd: ready\n"
    assert "ready" in running.run("other", "weft", "status")


def test_a_second_weftd_on_a_node_does_not_hide_the_first(running: Lab):
    store = running.ps()["store"]
    flags = f"--etcd-endpoints={store} --etcd-prefix=/second --subnet-file=/run/second.env --state-dir=/run/second"
    pid = running.run("ours", "sh", "-c", f"setsid weftd {flags} >/run/second.log 2>&1 & echo $!").strip()
    try:
        eventually(lambda: "2 daemons run here" in running.weft("exec", "ours", "weft", "status", check=False).stderr)
        assert running.node("ours")["daemon"] == "ready"
        assert running.json("status")["ours"]["pid"] == running.node("ours")["pid"]
        running.weft("run", "late", "--node", "ours")
    finally:
        running.run("ours", "kill", pid)


def test_a_program_that_is_none_is_named_before_anything_starts(tmp_path: Path):
    file = write_file(tmp_path, nodes=[{"name": "a", "daemon": "./none"}])
    with pytest.raises(AssertionError, match=r"LAB-001 a: daemon: .*/none is no program that can be run"), lab(file):
        pass
