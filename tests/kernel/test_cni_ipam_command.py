"""`weft ipam`: who has which address, and freeing leaked ones by hand."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kernel.leaks import addresses, lose
from tests.kernel.test_cni_flannel import REST, V4, add, config
from tests.support.checkout import CHECKOUT
from tests.support.cni.site import Site
from tests.support.netns import Netns
from weft import cli
from weft.cni.host import locks

WEFT = Path(sys.executable).with_name("weft")


@pytest.fixture
def site(netns: Netns, tmp_path: Path) -> Site:
    site = Site(netns, tmp_path)
    (tmp_path / "subnet.env").write_text(V4 + REST)
    return site


def weft(site: Site, *arguments: str, code: int = 0) -> str:
    verb, *rest = arguments
    where = ["--state-dir", str(site.directory / "by-hand"), "--data-dir", str(site.store)]
    command = [str(WEFT), "ipam", verb, *where, *rest]
    (site.directory / "by-hand").mkdir(exist_ok=True)
    link = site.directory / "by-hand" / "cni"
    if not link.exists():
        (site.directory / "state").rename(link)
        (site.directory / "state").symlink_to(link)
    ran = site.host.call(
        lambda: subprocess.run(command, capture_output=True, text=True, check=False, cwd=CHECKOUT, env=os.environ)
    )
    assert ran.returncode == code, ran.stderr
    return ran.stdout + ran.stderr


@pytest.fixture
def real_boot(site):
    site.boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    site.node = site.new_node()
    return site


def test_by_hand_without_a_daemon(real_boot, make_netns):
    site = real_boot
    site.store.mkdir(exist_ok=True)
    assert weft(site, "list") == "no address is reserved\n"
    pods = {name: make_netns() for name in ("c1", "c2")}
    for name, pod in pods.items():
        add(site, config(site), pod, id_=name)
    (site.store / "cbr0" / "10.1.17.9").write_bytes(b"stranger\r\neth0")
    (site.store / "cbr0" / "10.1.17.10").write_bytes(b"old")
    (site.store / "stray").write_text("")
    assert weft(site, "list", "--leaked") == "no leaked address\n"
    lose(pods["c2"])
    listed = [line.split(maxsplit=3) for line in weft(site, "list").splitlines()]
    assert listed[0] == ["NETWORK", "ADDRESS", "CONTAINER", "INTERFACE  STATE"]
    assert [line[:3] for line in listed[1:]] == [
        ["cbr0", "10.1.17.2", "c1"],
        ["cbr0", "10.1.17.3", "c2"],
        ["cbr0", "10.1.17.9", "stranger"],
        ["cbr0", "10.1.17.10", "old"],
    ]
    assert listed[1][3].split() == ["eth0", "attached"]
    assert "leaked: host end veth" in listed[2][3]
    [leaked] = json.loads(weft(site, "list", "--leaked", "-o", "json"))["reservations"]
    assert (leaked["address"], leaked["state"]) == ("10.1.17.3", "leaked")
    dry = weft(site, "gc", "--dry-run")
    assert dry.startswith("would free cbr0 c2 eth0: 10.1.17.3 (host end veth")
    assert set(addresses(site).values()) == {"c1", "c2", "stranger", "old"}
    answer = json.loads(weft(site, "gc", "-o", "json"))
    assert (answer["dry_run"], answer["failed"], answer["unknown"]) == (False, [], 2)
    [freed] = answer["freed"]
    assert (freed["container"], freed["addresses"]) == ("c2", ["10.1.17.3"])
    assert set(addresses(site).values()) == {"c1", "stranger", "old"}
    assert weft(site, "gc").startswith("0 leaked, 2 addresses unknown")


def test_by_hand_a_request_that_runs_is_respected_and_told(real_boot, make_netns):
    site = real_boot
    pod = make_netns()
    add(site, config(site), pod)
    lose(pod)
    with locks.claim(site.node.state, "c1"):
        said = weft(site, "gc", code=1)
    assert "a request of this container is running; try again" in said
    assert addresses(site) == {"10.1.17.2": "c1"}
    assert weft(site, "gc").startswith("freed cbr0 c1 eth0: 10.1.17.2 (host end veth")


def test_by_hand_a_data_directory_that_is_named_is_the_one_that_is_looked_at(real_boot, make_netns, tmp_path):
    site = real_boot
    add(site, config(site), make_netns())
    assert "c1" in weft(site, "list")
    (tmp_path / "other").mkdir()
    assert weft(site, "list", "--data-dir", str(tmp_path / "other")) == "no address is reserved\n"
    assert weft(site, "gc", "--data-dir", str(tmp_path / "other")) == "0 leaked\n"
    weft(site, "list", "--data-dir", "/nope", code=2)


@pytest.mark.parametrize("command", ["list", "gc"])
def test_by_hand_needs_root(monkeypatch, capsys, command):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert cli.run(["ipam", command]) == 2
    assert f"HOST-002 weft ipam {command}: run by user 1000" in capsys.readouterr().err
