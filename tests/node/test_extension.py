"""Back end extension: a user's commands carry the network (flannel.md §6.9)."""

import json
import re
import sys
from pathlib import Path

import pytest

from tests.node.test_plan_cleanup import plan
from tests.support.checkout import CHECKOUT
from tests.support.traffic import reaches
from tests.support.weftd import VXLAN, Cluster, Daemon, eventually

PAGE = CHECKOUT / "docs/backends/extension.md"
# The configurations that the page shows: host-gw by commands, and a tunnel.
EXAMPLES = [json.loads(text) for text in re.findall(r"```json\n(.*?)```", PAGE.read_text(), re.DOTALL)]


def conf(**commands: object) -> dict[str, object]:
    return {"Network": "10.5.0.0/16", "Backend": {"Type": "extension", **commands}}


def told(folder: Path, name: str) -> list[str]:
    """A command that writes its variables and its input behind each other into a file."""
    text = f'echo "$NETWORK|$SUBNET|$IPV6SUBNET|$PUBLIC_IP|$PUBLIC_IPV6|$(cat)" >>{folder}/{name}'
    return ["sh", "-c", text]


def lines(folder: Path, name: str) -> list[str]:
    path = folder / name
    return path.read_text().splitlines() if path.exists() else []


def peer(cluster: Cluster, number: int, data: str | None = None) -> None:
    cluster.peer(number, BackendType="extension", data=data)


def published(cluster: Cluster, node: Daemon) -> dict[str, object]:
    found: dict[str, object] = json.loads(cluster.lease_of(node).value)
    return found


@pytest.mark.parametrize("example", EXAMPLES, ids=["routes", "tunnel"])
def test_the_pages_examples_connect_pods_and_go_with_a_peer(cluster: Cluster, example: dict[str, object]):
    cluster.configure({**VXLAN, "Backend": example["Backend"]})
    one, two = cluster.nodes(1, 2)
    here, there = one.pod(), two.pod()
    eventually(lambda: reaches(here, there.ips[0]))
    peer(cluster, 50, "02:00:00:00:00:50")
    eventually(lambda: "10.5.50.0/24" in one.ip("route"))
    cluster.etcd.delete(cluster.key("10.5.50.0-24"))
    eventually(lambda: "10.5.50.0/24" not in one.ip("route"))
    assert not one.lines("ERROR")


@pytest.mark.spec("flannel.md §6.9/PreStartupCommand", "flannel.md §6.9/published")
def test_commands_are_told_by_variables_and_by_their_input(cluster: Cluster, tmp_path: Path):
    cluster.configure(
        conf(
            PreStartupCommand=["sh", "-c", "echo; echo ' it is me '"],
            PostStartupCommand=told(tmp_path, "begun"),
            SubnetAddCommand=told(tmp_path, "added"),
            SubnetRemoveCommand=told(tmp_path, "removed"),
        )
    )
    peer(cluster, 50, "fifty")
    node = cluster.node(1).start()
    lease = published(cluster, node)
    assert lease == {
        "PublicIP": str(node.public_v4),
        "PublicIPv6": None,
        "BackendType": "extension",
        "BackendData": "it is me",
    }
    subnet = node.env["FLANNEL_SUBNET"].replace(".1/", ".0/")
    assert lines(tmp_path, "begun") == [f"10.5.0.0/16|{subnet}|::/0|{node.public_v4}|<nil>|"]
    assert eventually(lambda: lines(tmp_path, "added")) == ["|10.5.50.0/24||172.31.0.50||fifty"]
    peer(cluster, 50, "other")
    assert eventually(lambda: lines(tmp_path, "added")[1:]) == ["|10.5.50.0/24||172.31.0.50||other"]
    assert lines(tmp_path, "removed") == ["|10.5.50.0/24||172.31.0.50||fifty"]
    cluster.etcd.delete(cluster.key("10.5.50.0-24"))
    assert eventually(lambda: lines(tmp_path, "removed")[1:]) == ["|10.5.50.0/24||172.31.0.50||other"]
    assert "FLANNEL_MTU=1500\n" in node.subnet_file.read_text()


def test_the_public_address_counts(cluster: Cluster):
    cluster.configure(conf())
    node = cluster.node(1).start("--public-ip=203.0.113.7")
    assert [json.loads(kv.value)["PublicIP"] for kv in cluster.leases().values()] == ["203.0.113.7"]
    assert not node.lines("ERROR")


@pytest.mark.spec("flannel.md §6.9/no-shell")
def test_no_shell_sees_a_command_and_peers_words_are_input_only(cluster: Cluster, tmp_path: Path):
    cluster.configure(conf(SubnetAddCommand=f"cp /dev/stdin {tmp_path}/$SUBNET;touch && $(id) {tmp_path}"))
    hostile = f"; touch {tmp_path}/hostile $(touch {tmp_path}/hostile) $PATH"
    peer(cluster, 50, hostile)
    node = cluster.node(1).start()
    node.says(r"ERROR .*cannot put commands for 10\.5\.50\.0/24: SubnetAddCommand \(cp …\) ended with status 1; it ")
    assert not (tmp_path / "hostile").exists()
    assert hostile not in node.log


def test_a_command_that_fails_is_tried_again_and_costs_its_peer_alone(cluster: Cluster, tmp_path: Path):
    command = f"test $SUBNET != 10.5.50.0/24 || test -e {tmp_path}/may && echo $SUBNET >>{tmp_path}/added"
    cluster.configure(conf(SubnetAddCommand=["sh", "-c", command]))
    peer(cluster, 50)
    peer(cluster, 51)
    node = cluster.node(1).start()
    assert eventually(lambda: lines(tmp_path, "added")) == ["10.5.51.0/24"]
    node.says("1 failing")
    (tmp_path / "may").touch()
    assert eventually(lambda: lines(tmp_path, "added")[1:]) == ["10.5.50.0/24"]


def test_nothing_runs_for_a_peer_before_the_command_of_the_start_has_succeeded(cluster: Cluster, tmp_path: Path):
    cluster.configure(
        conf(
            PostStartupCommand=["sh", "-c", f"echo not yet; test -e {tmp_path}/may"],
            SubnetAddCommand=told(tmp_path, "added"),
        )
    )
    peer(cluster, 50)
    node = cluster.node(1).spawn()
    node.says(r"CMD-001 PostStartupCommand \(sh …\): .*ended with status 1; it printed", seconds=10)
    assert lines(tmp_path, "added") == []
    assert not node.subnet_file.exists()
    (tmp_path / "may").touch()
    assert eventually(lambda: lines(tmp_path, "added"), seconds=10) == ["|10.5.50.0/24||172.31.0.50||"]
    eventually(node.subnet_file.exists)


def test_a_first_command_that_fails_is_waited_for(cluster: Cluster, tmp_path: Path):
    cluster.configure(conf(PreStartupCommand=f"cat {tmp_path}/words"))
    node = cluster.node(1).spawn()
    node.says(r"waiting for what extension needs first: CMD-001 PreStartupCommand \(cat …\): ended with status 1")
    assert cluster.leases() == {}
    (tmp_path / "words").write_text("x" * 3000)
    node.says("CMD-001 .*it has printed 3000 bytes; expected 2048 at most")
    (tmp_path / "words").write_text("now\n")
    eventually(node.subnet_file.exists)
    assert published(cluster, node)["BackendData"] == "now"


def test_neither_arguments_nor_output_of_a_command_are_told(cluster: Cluster):
    """They may hold credentials: neither in the log, nor by status, events and a bundle."""
    secret = "hunter2hunter2"
    command = ["sh", "-c", f"echo {secret}; exit 3", f"--user=admin:{secret}"]
    cluster.configure(conf(PostStartupCommand=command, SubnetAddCommand=command, SubnetRemoveCommand=command))
    peer(cluster, 50)
    node = cluster.node(1).spawn()
    node.says(r"CMD-001 PostStartupCommand \(sh …\): .*ended with status 3", seconds=20)
    for words in ("status", "status -o json", "events", "events -o json", "doctor", "plan"):
        said = node.netns.run(f"{Path(sys.executable).with_name('weft')} {words} 2>&1", check=False)
        assert secret not in said, words
    assert secret not in node.log


def test_a_removal_that_fails_is_said_and_not_repeated(cluster: Cluster):
    cluster.configure(conf(SubnetRemoveCommand="false"))
    peer(cluster, 50)
    node = cluster.node(1).start()
    eventually(lambda: node.lines("1 peer"))
    cluster.etcd.delete(cluster.key("10.5.50.0-24"))
    node.says(r"ERROR .*CMD-001 SubnetRemoveCommand \(false\) ended with status 1")


def test_a_peer_that_goes_while_no_daemon_runs_is_removed_at_the_next_start(cluster: Cluster, tmp_path: Path):
    commands = {"SubnetAddCommand": told(tmp_path, "added"), "SubnetRemoveCommand": told(tmp_path, "removed")}
    cluster.configure(conf(**commands))
    peer(cluster, 50, "fifty")
    peer(cluster, 51)
    node = cluster.node(1).start()
    eventually(lambda: len(lines(tmp_path, "added")) == 2)
    node.kill()
    cluster.etcd.delete(cluster.key("10.5.50.0-24"))
    node.start()
    assert eventually(lambda: lines(tmp_path, "removed")) == ["|10.5.50.0/24||172.31.0.50||fifty"]
    assert eventually(lambda: lines(tmp_path, "added")[2:]) == ["|10.5.51.0/24||172.31.0.51||"]
    node.stop()
    node.start()
    eventually(lambda: len(lines(tmp_path, "added")) == 4)
    assert len(lines(tmp_path, "removed")) == 1


def test_a_peer_whose_command_failed_or_was_cut_off_is_removed_too(cluster: Cluster, tmp_path: Path):
    add = f'echo "$SUBNET" >>{tmp_path}/tried; test "$SUBNET" = 10.5.50.0/24 && exit 1; sleep 30'
    cluster.configure(conf(SubnetAddCommand=["sh", "-c", add], SubnetRemoveCommand=told(tmp_path, "removed")))
    peer(cluster, 50, "fifty")
    node = cluster.node(1).spawn()
    eventually(lambda: lines(tmp_path, "tried"))
    cluster.etcd.delete(cluster.key("10.5.50.0-24"))
    assert eventually(lambda: lines(tmp_path, "removed")) == ["|10.5.50.0/24||172.31.0.50||fifty"]
    peer(cluster, 51)
    eventually(lambda: "10.5.51.0/24" in lines(tmp_path, "tried"))
    node.kill()
    cluster.etcd.delete(cluster.key("10.5.51.0-24"))
    node.start()
    assert eventually(lambda: lines(tmp_path, "removed")[1:]) == ["|10.5.51.0/24||172.31.0.51||"]


def test_another_back_end_removes_what_the_commands_have_made(cluster: Cluster):
    cluster.configure({**VXLAN, "Backend": EXAMPLES[0]["Backend"]})
    peer(cluster, 50)
    node = cluster.node(1).start()
    eventually(lambda: "10.5.50.0/24" in node.ip("route"))
    node.stop()
    cluster.configure(VXLAN)
    node.start()
    assert "10.5.50.0/24" not in node.ip("route")
    assert not list(node.state_dir.rglob("ran.json"))
    assert not node.lines("ERROR")


def test_a_plan_runs_no_command(cluster: Cluster, tmp_path: Path):
    cluster.configure(conf(PreStartupCommand=f"touch {tmp_path}/ran", SubnetAddCommand=f"touch {tmp_path}/ran"))
    peer(cluster, 50)
    node = cluster.node(1)
    assert "commands for 10.5.50.0/24" in plan(node).stdout
    assert not (tmp_path / "ran").exists()
