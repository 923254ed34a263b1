"""A lab needs no root: root of a user namespace and an ordinary user get the whole of it."""

import subprocess
from pathlib import Path

import pytest

from tests.support.lab import lab, new_name, ordinary, weft

NOBODY = ordinary(65534)
USERS = {"root of a user namespace": ("unshare", "-Ur"), "an ordinary user": NOBODY}


@pytest.fixture(params=USERS.values(), ids=USERS.keys())
def running(request):
    with lab("--nodes", "3", user=request.param) as running:
        yield running


def test_pingall_over_vxlan_and_every_kind_of_command(running, tmp_path):
    assert running.ps()["backend"] == "vxlan"
    report = running.json("pingall")
    assert report["tried"] == report["reached"] == 48
    assert running.run("node1", "id", "-u") == "0\n"
    assert "flannel.1" in running.run("node1", "ip", "link")
    assert "FLANNEL-POSTRTG" in running.run("node1", "iptables-save", "-t", "nat")
    running.weft("run", "web", "--node", "node3")
    assert running.json("ping", "web", "pod1-1")["reached"] == 3
    running.weft("rm", "web")
    assert running.weft("capture", "node1", "--out", "/dev/null", "--seconds", "0.2").stdout.endswith("/dev/null\n")
    assert "weftd" in running.weft("logs", "node2").stdout


def test_a_deleted_route_comes_back(running):
    subnet = running.node("node2")["subnets"][0]
    running.run(
        "node1", "sh", "-c", f"ip route del {subnet} && until ip route get fibmatch {subnet} | grep 165; do :; done"
    )
    assert running.json("pingall")["reached"] == 48


def test_an_ordinary_users_lab_leaves_nothing_behind():
    with lab("--nodes", "1", user=NOBODY) as running:
        home = Path("/tmp/weft-lab-65534")
        assert (home / running.name / "socket").exists()
        assert home.stat().st_mode & 0o077 == 0
        # root's labs are others; an ordinary user has no names for `ip netns`
        assert running.name not in weft("lab", "list").stdout
        listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
        assert running.name not in listed
    assert not (home / running.name).exists()


def test_a_directory_that_somebody_else_made_is_not_used():
    home = Path("/tmp/weft-lab-65533")
    home.mkdir(mode=0o777)
    try:
        ran = weft("lab", "list", user=ordinary(65533), check=False)
        assert ran.returncode == 2
        assert f"HOST-002 {home}: owner 0, mode drwx" in ran.stderr
    finally:
        home.rmdir()


def test_where_no_namespace_can_be_made_nothing_is_started():
    # The limit counts in the user namespace that it is written in.
    limited = ("unshare", "-Ur", "sh", "-c", 'echo 0 > /proc/sys/user/max_mnt_namespaces && exec "$@"', "sh")
    name = new_name()
    ran = weft("lab", "up", "--name", name, user=limited, check=False)
    assert ran.returncode == 2
    assert "HOST-002 namespaces: [Errno 28]" in ran.stderr
    assert name not in weft("lab", "list").stdout
