"""What lies on disk is a hint: spoilt, open to others, or on a disk that takes nothing, the network is served."""

import os
import stat
from pathlib import Path
from typing import Final

import pytest

from tests.node.test_ready import says
from tests.support.hungdisk import hung
from tests.support.spoiling import WAYS, spoil
from tests.support.traffic import reaches
from tests.support.weftd import Cluster, Daemon, eventually

# The state directory on a file system of its own, which no one but the daemon sees: `size` in bytes, then commands.
_APART: Final = 'mkdir -p "$1"; mount -t tmpfs -o "$2" weft "$1"; cd "$1"; eval "$3"; shift 3; exec "$@"'
_FULL: Final = "head -c 65536 /dev/zero >fill 2>/dev/null; true"


def apart(node: Daemon, options: str, commands: str) -> list[str]:
    return ["unshare", "--mount", "sh", "-c", _APART, "sh", str(node.state_dir), options, commands]


def inside(node: Daemon) -> Path:
    """The state directory as the daemon sees it."""
    return Path(f"/proc/{node.pid}/root{node.state_dir}")


def instance_files(node: Daemon) -> list[Path]:
    [directory] = [path for path in node.state_dir.iterdir() if path.name != "cni" and ".spoilt-" not in path.name]
    return [directory / name for name in ("identity.json", "cluster.jsonl", "lock", ".identity.json.new")]


@pytest.mark.parametrize("way", WAYS)
def test_state_that_is_not_what_we_wrote_costs_no_start(cluster: Cluster, way):
    cluster.configure()
    node, other = cluster.nodes(1, 2)
    pod, far = node.pod(), other.pod()
    before = node.v4, node.macs["mac_v4"]
    node.kill()
    victims = instance_files(node)
    for path in [*victims, node.state_dir / "cni" / "locks", *([] if way == "directory" else [node.subnet_file])]:
        spoil(path, way)
    node.start()
    assert (node.v4, node.macs["mac_v4"]) == before, "store and device still know"
    assert reaches(far, pod.ips[0])
    for name in ("identity.json", "cluster.jsonl"):
        assert "It is kept as" in node.says(rf"STATE-001 .*{name}.*: cannot be read")
    node.stop()
    node.start()
    assert node.lines("STATE-00") == [], "what was set aside is not met again"
    assert (node.v4, node.macs["mac_v4"]) == before


@pytest.mark.parametrize("name", ["locks", "turns", "attachments", "ipam", "portmap.lock"])
def test_a_directory_of_cni_state_whose_parts_are_of_the_wrong_kind_is_usable_again(cluster: Cluster, name):
    cluster.configure()
    node = cluster.node(1).start()
    path = node.state_dir / "cni" / name
    eventually((node.state_dir / "cni" / "turns").exists)
    node.kill()
    spoil(path, "directory" if "lock" in name else "fifo")
    node.start()
    node.says(rf"STATE-001 .*/cni/{name}: cannot be read")
    eventually((node.folder / "cni" / "cni.sock").exists)
    assert not path.exists() or path.is_dir() != ("lock" in name)


def test_a_full_disk_at_the_first_start_costs_what_would_be_remembered_and_nothing_else(cluster: Cluster):
    cluster.configure()
    node = cluster.node(1).spawn(wrap=apart(cluster.daemons[0], "size=65536", _FULL))
    says(node, 503, f"[-]records failed: STATE-002 {node.state_dir}/cni: cannot be written: No space left on device")
    node.says(r"STATE-002 .*identity\.json: cannot be written: No space left on device")
    node.says(r"STATE-002 .*cluster\.jsonl: cannot be written")
    assert node.lines("Traceback") == []
    eventually(node.subnet_file.exists)
    subnet = node.v4
    (inside(node) / "fill").unlink()
    for name in ("identity.json", "cluster.jsonl"):
        node.says(rf"STATE-002 .*{name} is written again", seconds=20)
    says(node, 200, "[+]records ok")
    assert len(list(inside(node).glob("*/identity.json"))) == 1
    assert node.v4 == subnet
    assert node.stop() == 0


def test_a_disk_that_has_no_room_for_a_lock_is_refused_in_words(cluster: Cluster):
    cluster.configure()
    node = cluster.node(1)
    fill = "i=0; while touch f$i 2>/dev/null; do i=$((i+1)); done"
    assert node.spawn(wrap=apart(node, "size=1m,nr_inodes=10", fill)).wait() == 1
    node.says(r"FLAG-001 --state-dir: .*No space left on device.*two daemons")
    assert node.lines("Traceback") == []


def test_a_disk_that_became_read_only_costs_no_start(cluster: Cluster):
    cluster.configure()
    node, other = cluster.nodes(1, 2)
    before = node.v4, node.macs["mac_v4"]
    node.kill()
    read_only = ["unshare", "--mount", "sh", "-c", 'mount --bind -o ro "$1" "$1"; shift; exec "$@"', "sh"]
    node.spawn(wrap=[*read_only, str(node.state_dir)])
    says(node, 503, f"[-]records failed: STATE-002 {node.state_dir}/cni: cannot be", "[+]rules ok")
    assert (node.v4, node.macs["mac_v4"]) == before
    node.says("STATE-002 .*: cannot be written: Read-only file system")
    assert node.lines("Traceback") == []
    second = cluster.beside(node, "second")
    flags = (f"--state-dir={node.state_dir}", f"--subnet-file={node.subnet_file}")
    assert second.spawn(*flags).wait() == 1, "it is locked all the same"
    second.says("INST-001 state directory")
    assert reaches(other.pod(), node.pod().ips[0])


def modes(directory: Path) -> dict[str, int]:
    found = {".": directory, **{str(path.relative_to(directory)): path for path in directory.rglob("*")}}
    return {name: stat.S_IMODE(path.lstat().st_mode) for name, path in found.items()}


@pytest.mark.parametrize("what", ["cluster.jsonl", "subnet.env"])
def test_a_disk_that_hangs_holds_up_neither_the_network_nor_a_stop(cluster: Cluster, what):
    cluster.configure()
    node = cluster.node(1).start()
    with hung(node.subnet_file.parent if what == "subnet.env" else instance_files(node)[0].parent) as hangs:
        if what == "subnet.env":
            node.subnet_file.unlink()
        cluster.peer(50)
        assert hangs(20), "the file is written"
        cluster.peer(51)
        node.sees("ip route", "10.5.51.0/24")
        node.ip("route del 10.5.50.0/24")
        node.sees("ip route", "10.5.50.0/24")
        assert node.stop() == 0
    assert ("STATE-002" in node.log) is (what == "cluster.jsonl"), "what was seen last is lost"


def test_a_start_on_a_disk_that_hangs_can_be_stopped(cluster: Cluster):
    cluster.configure()
    node = cluster.node(1).start()
    node.stop()
    with hung(instance_files(node)[0].parent) as hangs:
        node.spawn()
        assert hangs(20), "its directory is locked"
        assert node.stop() == 0


def test_nothing_that_a_daemon_without_umask_makes_is_open_to_others(cluster: Cluster):
    cluster.configure()
    node = cluster.node(1)
    node.state_dir = node.folder / "var" / "lib" / "weft"
    node.spawn(wrap=["sh", "-c", 'umask 0; exec "$@"', "sh"]).wait_ready()
    eventually((node.folder / "cni" / "cni.sock").exists)
    for directory in (node.folder / "var", node.folder / "run"):
        assert {name: oct(mode) for name, mode in modes(directory).items() if mode & 0o022} == {}
    assert Path(f"/proc/{node.pid}/status").read_text().partition("Umask:")[2].split()[0] == "0022"


def test_a_state_directory_that_was_open_to_all_is_closed_and_what_they_put_there_not_believed(
    cluster: Cluster, tmp_path: Path
):
    cluster.configure()
    node = cluster.node(1).start()
    before = node.v4, node.macs["mac_v4"]
    node.stop()
    victim = tmp_path / "victim"
    victim.write_text("keep")
    identity, _, lock, _ = instance_files(node)
    node.state_dir.chmod(0o777)
    lock.parent.chmod(0o777)
    lock.unlink()
    lock.symlink_to(victim)
    os.chown(identity, 65534, 65534)
    identity.write_text(identity.read_text().replace(before[1], "02:00:00:00:00:01"))
    (node.state_dir / "cni").rename(node.state_dir / "away")
    (node.state_dir / "cni").mkdir()
    os.chown(node.state_dir / "cni", 65534, 65534)
    node.start()
    assert victim.read_text() == "keep"
    assert (node.v4, node.macs["mac_v4"]) == before
    node.says(rf"STATE-003 {node.state_dir}: mode 0777: other users could write there")
    node.says(rf"STATE-003 {lock.parent}: mode 0777")
    node.says(r"STATE-001 .*/cni: cannot be read \(a directory of user 65534\)")
    node.says(r"STATE-001 .*identity\.json: cannot be read \(belongs to user 65534\)")
    assert (node.state_dir / "cni").stat().st_uid == 0
    assert not (node.state_dir.stat().st_mode | lock.parent.stat().st_mode) & 0o022


def test_a_state_directory_of_another_user_is_refused(cluster: Cluster):
    cluster.configure()
    node = cluster.node(1)
    node.state_dir.mkdir()
    os.chown(node.state_dir, 65534, 65534)
    assert node.spawn().wait() == 1
    node.says(rf"STATE-003 {node.state_dir}: a directory of user 65534; expected root's")
    assert list(node.state_dir.iterdir()) == []
