"""`ip netns del` of a node: what serves its devices ends once it alone keeps the namespace, and so does that."""

import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.node import ipsecnode, wgnode
from tests.node.test_udp import UDP, relay
from tests.support.weftd import VXLAN, Cluster, Daemon, Underlay, clusters, eventually

WG = {**VXLAN, "Backend": {"Type": "wireguard"}}


@pytest.fixture
def cluster(underlay: Underlay) -> Iterator[Cluster]:
    """In a directory with a short name: a path to a socket has 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="weft-") as folder:
        for made in clusters(underlay, Path(folder)):
            yield made
            wgnode.end_servers(made)
            ipsecnode.end_charons(made)


@pytest.fixture
def names(cluster: Cluster) -> Iterator[list[str]]:
    """Three names of the namespace of the cluster's first node, and then one of another's."""
    base = f"weft-test-{os.getpid()}"
    node = cluster.node(1)
    subprocess.run(["ip", "netns", "add", f"{base}-other"], check=True)
    made = [f"{base}-{number}" for number in range(3)]
    try:
        for name in made:
            Path("/run/netns", name).touch()
            subprocess.run(["mount", "--bind", node.netns.path, f"/run/netns/{name}"], check=True)
        yield [*made, f"{base}-other"]
    finally:
        for place in Path("/run/netns").glob(f"{base}-*"):
            subprocess.run(["ip", "netns", "del", place.name], check=True)


def beside(pid: int) -> list[int]:
    """The guards of the namespace that a process is in."""
    own = Path(f"/proc/{pid}/ns/net").readlink()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if b"weft.kernel.ending" in (process / "cmdline").read_bytes() and (process / "ns/net").readlink() == own:
                found.append(int(process.name))
    return found


def waits_for(guard: int) -> int:
    """The process besides the guarded one for whose end a guard waits; 0 if it waits for names."""
    for path in Path(f"/proc/{guard}/fdinfo").iterdir():
        with suppress(FileNotFoundError):  # it has just been closed
            found = re.search(r"^Pid:\t(\d+)$", path.read_text(), re.MULTILINE)
            if found and path.name != "3":
                return int(found[1])
    return 0


def gone(pid: int) -> bool:
    """Whether a process has ended, or waits for nothing but its parent's look."""
    path = Path(f"/proc/{pid}/cmdline")
    try:
        return not path.read_bytes()
    except OSError:
        return True


SERVED: dict[str, tuple[dict[str, Any], Callable[[Daemon], int]]] = {
    "relay": (UDP, relay),
    "wireguard-go": (WG, wgnode.server),
    "charon": (ipsecnode.IPSEC, ipsecnode.charon),
}


@pytest.mark.parametrize("conf, process", SERVED.values(), ids=SERVED.keys())
def test_what_outlives_its_daemon_ends_with_the_last_name_of_its_namespace(
    cluster: Cluster, names: list[str], conf: dict[str, Any], process: Callable[[Daemon], int]
):
    cluster.configure(conf)
    [node] = cluster.daemons
    wgnode.start(node)
    pid = eventually(lambda: process(node), seconds=20)
    [guard] = beside(pid)
    node.stop()
    *first, last, other = names
    for name in (other, *first):
        subprocess.run(["ip", "netns", "del", name], check=True)
        assert process(node) == pid
        assert beside(pid) == [guard]
    subprocess.run(["ip", "netns", "del", last], check=True)
    eventually(lambda: gone(pid) and gone(guard), seconds=20)


@pytest.mark.parametrize("conf, process", SERVED.values(), ids=SERVED.keys())
def test_it_goes_on_while_another_process_lives_in_the_namespace(
    cluster: Cluster, names: list[str], conf: dict[str, Any], process: Callable[[Daemon], int]
):
    cluster.configure(conf)
    [node] = cluster.daemons
    wgnode.start(node)
    pid = eventually(lambda: process(node), seconds=20)
    [guard] = beside(pid)
    for name in names:
        subprocess.run(["ip", "netns", "del", name], check=True)
    eventually(lambda: waits_for(guard) == node.pid)
    lives = node.netns.popen(["sleep", "infinity"])
    node.stop()
    eventually(lambda: waits_for(guard) == lives.pid)
    assert process(node) == pid
    lives.kill()
    lives.wait()
    eventually(lambda: gone(pid) and gone(guard), seconds=20)


@pytest.mark.parametrize("conf, process", SERVED.values(), ids=SERVED.keys())
def test_a_guard_ends_with_what_it_guards_and_a_namespace_without_a_name_needs_none(
    cluster: Cluster, names: list[str], conf: dict[str, Any], process: Callable[[Daemon], int]
):
    cluster.configure(conf)
    [node] = cluster.daemons
    nameless = cluster.node(2)
    for each in (node, nameless):
        wgnode.start(each)
    pid = eventually(lambda: process(node), seconds=20)
    [guard] = beside(pid)
    assert not beside(eventually(lambda: process(nameless), seconds=20))
    os.kill(pid, 9)
    eventually(lambda: gone(guard), seconds=20)
    again = eventually(lambda: process(node), seconds=20)
    assert again != pid
    eventually(lambda: len(beside(again)) == 1)  # what is started in its place has its own
