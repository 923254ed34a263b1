"""However a lab ends, nothing of it stays; and the machine's own network never changes."""

import asyncio
import json
import os
import re
import signal
import subprocess
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.lab import SECONDS, WEFT, lab, new_name, weft, write_file
from tests.support.weftd import eventually
from weft.lab.inside import node
from weft.lab.places import Place
from weft.model.errors import Unavailable

PLACES = Path("/run/weft-lab")
# What the kernel counts by itself, in the machine's own namespace as in any other.
COUNTERS = ("nf_conntrack_count", "nf_conntrack_max", "nf_conntrack_buckets", "fs", "random")
# Where daemon and plugins write, in their nodes.
FILES = ("etc/cni", "etc/cni/*", "opt/cni", "opt/cni/*", "var/lib/cni", "var/lib/weft", "var/lib/weft/*", "run/flannel")


def machine():
    """What the machine's own namespace looks like: links, addresses, routes, rules, firewall, settings; and files."""
    commands = (
        ("ip", "-j", "link"),
        ("ip", "-j", "-4", "address"),
        ("ip", "-j", "route", "show", "table", "all"),
        ("ip", "-j", "-6", "route", "show", "table", "all"),
        ("ip", "-j", "rule"),
        ("nft", "list", "ruleset"),
        ("ip", "netns", "list"),
    )
    looks = {command: subprocess.run(command, capture_output=True, check=True).stdout for command in commands}
    settings = {}
    for path in Path("/proc/sys/net").rglob("*"):
        if path.is_file() and path.stat().st_mode & 0o600 == 0o600 and path.name not in COUNTERS:
            with suppress(OSError):  # stable_secret that was never set cannot be read
                settings[str(path)] = path.read_bytes()
    return looks, settings, {path: sorted(Path("/").glob(path)) for path in FILES}


def descendants(pid):
    """`pid` and all processes that it or they have started."""
    children = {}
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit():
                parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
                children.setdefault(int(parent), []).append(int(entry.name))
    found = [pid]
    for each in found:
        found += children.get(each, [])
    return found


def gone(pid):
    eventually(lambda: not Path(f"/proc/{pid}").exists(), seconds=10)


def supervisor(name):
    return int((PLACES / name / "pid").read_text().split()[0])


def netns_names(name):
    return list(Path("/run").glob(f"netns/lab-{name}-*"))


def test_the_machines_own_network_stays_as_it_was(tmp_path):
    before = machine()
    name = new_name()
    file = write_file(tmp_path, nodes=2, network={"Network": "10.244.0.0/16", "Backend": {"Type": "vxlan"}})
    with lab(file, name=name) as running:
        running.weft("pingall")
        during = machine()
        mine = f"lab-{name}-".encode()
        names = ("ip", "netns", "list")
        assert [line for line in during[0].pop(names).splitlines() if mine in line]
        old_names = before[0].pop(names)
        assert during == before
    looks, settings, files = machine()
    assert mine not in looks.pop(names)
    assert mine not in old_names
    assert (looks, settings, files) == before
    assert not (PLACES / name).exists()


def test_down_ends_every_process():
    with lab("--nodes", "2") as running:
        pid = supervisor(running.name)
        processes = descendants(pid)
        assert len(processes) >= 1 + 1 + 2 * 2 + 2 + 4  # supervisor, store, nodes' first ones, daemons, pause processes
        weft("lab", "down", running.name)
        for each in processes:
            gone(each)
        assert not (PLACES / running.name).exists()
        assert netns_names(running.name) == []


def test_clean_removes_every_trace_after_kill_9_of_the_supervisor():
    with lab("--nodes", "2") as running:
        pid = supervisor(running.name)
        processes = descendants(pid)
        assert len(netns_names(running.name)) == 2
        os.kill(pid, signal.SIGKILL)
        for each in processes:
            gone(each)
        listed = weft("lab", "list").stdout
        assert [line.split()[1] for line in listed.splitlines() if line.startswith(running.name)] == ["dead"]
        ran = running.weft("ps", check=False)
        assert ran.returncode == 2
        assert f"'weft lab clean {running.name}'" in ran.stderr
        assert f"removed: {running.name}" in weft("lab", "clean", running.name).stdout
        assert netns_names(running.name) == []
        assert not (PLACES / running.name).exists()


def test_names_that_others_make_later_hide_none_and_stay():
    """`ip netns add` mounts the directory on itself, unless it is shared: what was named before would lie below."""
    other = f"of-{new_name()}"
    # The last lab to go leaves the directory as it was, if others have no names there.
    with lab("--nodes", "1", "--pods", "0"), lab("--nodes", "2", "--pods", "0") as running:
        subprocess.run(["ip", "netns", "add", other], check=True)
        try:
            weft("lab", "down", running.name)
            assert netns_names(running.name) == []
            assert f"/run/netns/lab-{running.name}-" not in Path("/proc/self/mountinfo").read_text()
            assert other in subprocess.run(["ip", "netns", "list"], check=True, capture_output=True, text=True).stdout
        finally:
            subprocess.run(["ip", "netns", "delete", other], check=True)


def test_what_is_dead_is_cleaned_and_what_is_up_stays():
    """Also without a name: labs are ended by `down` alone."""
    with lab("--nodes", "1", "--pods", "0") as other, lab("--nodes", "1", "--pods", "0") as running:
        os.kill(supervisor(running.name), signal.SIGKILL)
        gone(supervisor(running.name))
        [hint] = re.findall(r"weft lab clean(.*)", weft("lab", "list").stderr)
        assert running.name in hint.split()
        assert other.name not in hint.split()
        ran = weft("lab", "clean", running.name, other.name, check=False)
        assert ran.returncode == 2
        assert (
            f"LAB-002 {other.name}: it is up; expected a lab that is dead. 'weft lab down {other.name}'" in ran.stderr
        )
        assert (PLACES / running.name).exists()
        assert running.name in json.loads(weft("lab", "clean", "-o", "json").stdout)["removed"]
        assert not (PLACES / running.name).exists()
        assert other.ps()["nodes"][0]["daemon"] == "ready"


@contextmanager
def foreign(path):
    """A namespace that somebody else named `path`; its inode number. By hand: `ip netns add` would mount /run/netns."""
    path.parent.mkdir(exist_ok=True)
    path.touch()
    command = 'mount --bind /proc/self/ns/net "$1"'
    made = ["unshare", "--net", "sh", "-c", command, "sh", str(path)]
    subprocess.run(made, check=True)
    try:
        yield path.stat().st_ino
    finally:
        subprocess.run(["umount", str(path)], check=True)
        path.unlink()
        with suppress(OSError):
            path.parent.rmdir()


def test_a_namespace_of_the_same_name_stays_what_it_was():
    name = new_name()
    path = Path(f"/run/netns/lab-{name}-node1")
    with foreign(path) as before:
        ran = weft("lab", "up", "--name", name, "--nodes", "2", "--pods", "0")
        try:
            assert f"{path} is there already, and not of this lab: it stays as it is" in ran.stderr
            assert path.stat().st_ino == before
            assert sorted(netns_names(name)) == [path, path.with_name(f"lab-{name}-node2")]
        finally:
            weft("lab", "down", name)
        assert netns_names(name) == [path]
        assert path.stat().st_ino == before


def test_a_namespace_that_took_the_place_of_the_labs_own_stays():
    with lab("--nodes", "1", "--pods", "0"), lab("--nodes", "1", "--pods", "0") as running:
        [path] = netns_names(running.name)
        subprocess.run(["umount", str(path)], check=True)
        with foreign(path) as before:
            weft("lab", "down", running.name)
            assert path.stat().st_ino == before


def test_a_lab_of_an_older_version_ends_when_it_is_asked():
    """Of its supervisor they wrote down the number alone."""
    with lab("--nodes", "1", "--pods", "0") as running:
        pid = supervisor(running.name)
        (PLACES / running.name / "pid").write_text(f"{pid}\n")
        assert [running.name, "up", str(pid)] in [line.split() for line in weft("lab", "list").stdout.splitlines()]
        weft("lab", "down", running.name)
        assert not (PLACES / running.name).exists()
        gone(pid)


def test_a_node_whose_proc_is_not_mounted_is_not_waited_for_without_end(monkeypatch):
    monkeypatch.setattr(node, "_SETTLE_SECONDS", 0.2)
    for command, says in (("exec sleep 1000", "was not mounted within 0.2 s"), ("exit 1", "could not be mounted")):
        with subprocess.Popen(["sh", "-c", command], stdout=subprocess.PIPE) as init:
            try:
                with pytest.raises(Unavailable, match=f"HOST-002 node1: its own /proc {says}"):
                    asyncio.run(node.settled(SimpleNamespace(init=init, spec=SimpleNamespace(name="node1"))))
            finally:
                init.kill()


@pytest.mark.parametrize("changed", [False, True])
def test_a_number_of_a_stale_file_is_no_process_to_end(changed):
    """A lab that is about to start, and beside its lock the number that a process of another kind has by now."""
    name = new_name()
    place = Place(PLACES / name)
    PLACES.mkdir(mode=0o700, exist_ok=True)
    lock = place.claim()
    assert lock is not None
    with subprocess.Popen(["sleep", "1000"]) as stranger:
        try:
            started = "" if changed else " 1"
            (PLACES / name / "pid").write_text(f"{stranger.pid}{started}\n")
            ran = weft("lab", "down", name, check=False)
            assert ran.returncode == 1
            assert f"LAB-002 {name}: it does not end when it is asked" in ran.stderr
            assert f"does not prove that process {stranger.pid} is its supervisor" in ran.stderr
            assert stranger.poll() is None
        finally:
            stranger.kill()
            os.close(lock)
            weft("lab", "clean", name)
    assert not (PLACES / name).exists()


def test_up_takes_the_place_of_a_dead_lab():
    with lab("--nodes", "1", "--pods", "0") as running:
        os.kill(supervisor(running.name), signal.SIGKILL)
        gone(supervisor(running.name))
        with lab("--nodes", "1", name=running.name) as again:
            assert len(again.ps()["pods"]) == 2
            assert len(netns_names(running.name)) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("after", ["nodes made", "of 4 daemons"])
def test_an_interrupted_up_leaves_nothing(number, after):
    name = new_name()
    with subprocess.Popen(
        [WEFT, "lab", "up", "--name", name, "--nodes", "4"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stderr is not None
        while after not in (line := child.stderr.readline()):
            assert line, "up ended early"
        pid = supervisor(name)
        child.send_signal(number)
        child.wait(100)
    gone(pid)
    if number != signal.SIGKILL:
        assert child.returncode == 128 + number
        assert not (PLACES / name).exists()
    else:  # nobody was there to remove the directory
        weft("lab", "clean", name)
    assert not (PLACES / name).exists()
    assert netns_names(name) == []


def test_a_lab_comes_up_when_nobody_reads_of_its_progress():
    name = new_name()
    script = f"'{WEFT}' lab up --name {name} --nodes 2 --pods 1 2>&1 | head -1"
    try:
        ran = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True, timeout=SECONDS)
        assert "nodes made" in ran.stdout
        assert weft("lab", "pingall", "--lab", name).returncode == 0
    finally:
        weft("lab", "down", name)


def test_without_etcd_nothing_is_started(monkeypatch, tmp_path):
    from weft.lab.inside import etcd
    from weft.model.errors import ConfigError

    monkeypatch.setattr(etcd, "find_spec", lambda _: None)
    with pytest.raises(ConfigError) as caught:
        etcd.program({"PATH": str(tmp_path)})
    assert str(caught.value).startswith("HOST-002 etcd: it is not on PATH")


CHROOT = """
for entry in /*; do
    if [ -L "$entry" ]; then cp -P "$entry" "$1"; else mkdir "$1$entry" && mount --rbind "$entry" "$1$entry"; fi
done
exec chroot "$1" "$2" lab up --name "$3" --nodes 1
"""


def test_a_supervisor_that_cannot_live_here_says_why(tmp_path):
    """In a chroot the root directory is no mount, so that no mount below it can be kept from the machine."""
    name = new_name()
    ran = subprocess.run(
        ["unshare", "--mount", "sh", "-c", CHROOT, "sh", str(tmp_path), WEFT, name],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert ran.returncode == 1
    assert f"LAB-002 {name}: its supervisor ended: OSError: [Errno 22] Invalid argument: '/'" in ran.stderr
    assert not (PLACES / name).exists()


def test_a_store_without_space_is_named_and_keeps_nobody_from_the_network(tmp_path, monkeypatch):
    """A real alarm of etcd's: its quota is used up. Then space is made as etcd's manual says."""
    from weft.lab.inside import etcd

    small = tmp_path / "etcd"
    small.write_text(f'#!/bin/sh\nexec {etcd.program(os.environ)} --quota-backend-bytes=4000000 "$@"\n')
    small.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    value = tmp_path / "value"
    value.write_text("x" * 900_000)
    with lab("--nodes", "2", "--pods", "1") as running:

        def etcdctl(words, *, check=True):
            return running.weft("exec", "node1", "--", "sh", "-c", f"etcdctl {words}", check=check)

        for number in range(9):
            put = etcdctl(f"put /full/{number} <{value}", check=False)
            if put.returncode:
                break
        assert "database space exceeded" in put.stderr
        assert running.ps()["store_state"] == "not ready"
        wanted = tmp_path / "wanted"
        wanted.write_text(json.dumps(running.json("config") | {"Backend": {"Type": "host-gw"}}))
        refused = running.weft("config", "set", str(wanted), check=False)
        assert refused.returncode == 1
        assert "etcd says: etcdserver: mvcc: database space exceeded" in refused.stderr
        assert [node["daemon"] for node in running.ps()["nodes"]] == ["ready"] * 2
        assert running.weft("pingall").returncode == 0
        etcdctl("del --prefix /full/")
        etcdctl("compact $(etcdctl get / --limit=1 -w fields | sed -n 's/\"Revision\" : //p')")
        etcdctl("defrag")
        assert "NOSPACE" in etcdctl("alarm disarm").stdout
        eventually(lambda: running.ps()["store_state"] == "ready")
