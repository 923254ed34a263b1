"""The daemon's sweep: what it puts back, looks for, tells, and does with records that are spoilt."""

import json
import os
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.kernel.leaks import addresses, lose, records, sweep_all
from tests.kernel.test_cni_flannel import REST, V4, add, config, delete, state_names, states
from tests.support.cni.site import Site
from tests.support.netns import Netns
from tests.support.spoiling import WAYS, spoil
from tests.support.waiting import eventually
from weft.cni.host.openat import open_root
from weft.cni.leaks import sweep, sweeper
from weft.cni.leaks.sweeper import Sweeper, node_host
from weft.wire.cni import CniError
from weft.wire.cnijson import JsonError


@pytest.fixture
def site(netns: Netns, tmp_path: Path) -> Site:
    site = Site(netns, tmp_path)
    (tmp_path / "subnet.env").write_text(V4 + REST)
    return site


def records_of(site: Site) -> set[str]:
    """As above, past what cannot be read."""
    return {json.loads(path.read_text())["container"] for path in (site.directory / "state" / "ipam").glob("*.json")}


def test_the_daemon_sweeps_at_its_start_and_again(site, make_netns, monkeypatch):
    monkeypatch.setattr(sweeper, "_PAUSE_SECONDS", 0.001)
    pods = {name: make_netns() for name in ("c1", "c2")}
    for name, pod in pods.items():
        add(site, config(site), pod, id_=name)
    lose(pods["c1"])
    with closing(site.host.call(lambda: Sweeper(site.node, every=0.05))):
        eventually(lambda: set(addresses(site).values()) == {"c2"})
        lose(pods["c2"])
        eventually(lambda: addresses(site) == {})
    assert not [thread for thread in threading.enumerate() if thread.name == "cni-sweep"]


def masquerade_of_two(site, make_netns, kind) -> Callable[[], list[int]]:
    """Attach two pods with ipMasq, and delete its rules; returns what counts the rules of each."""

    def rules() -> list[int]:
        lines = [line for line in site.host.run("nft list ruleset").splitlines() if "saddr" in line]
        return [sum(f"{ip} " in line for line in lines) for ip in ("10.1.17.2", "10.1.17.3")]

    conf = config(site, delegate={"ipMasq": True, "ipMasqBackend": kind})
    for name in ("c1", "c2"):
        assert add(site, conf, make_netns(), id_=name).exit == 0
    assert rules() == [1, 1]
    site.host.run("nft flush ruleset")
    assert rules() == [0, 0]
    return rules


@pytest.mark.parametrize("kind", ["iptables", "nftables"])
def test_masquerade_that_somebody_has_deleted_is_put_back_by_a_sweep_without_a_notice(site, make_netns, caplog, kind):
    rules = masquerade_of_two(site, make_netns, kind)
    with closing(site.host.call(lambda: Sweeper(site.node))):
        eventually(lambda: rules() == [1, 1])
    assert "masquerade put back that somebody had deleted: network=cbr0 container=c1 interface=eth0" in caplog.text


@pytest.mark.parametrize("fault", [CniError(999, "it breaks"), OSError(28, "no space"), JsonError("no record")])
def test_an_attachment_whose_rules_cannot_be_put_back_costs_no_other_its(site, make_netns, caplog, monkeypatch, fault):
    rules = masquerade_of_two(site, make_netns, "nftables")
    real, tries = sweep.put_back_masquerade, list[str]()

    def put_back(host, attachment):
        tries.append(attachment.container_id)
        if attachment.container_id == tries[0] and len(tries) < 6:  # the one that is looked at first
            raise fault
        return real(host, attachment)

    monkeypatch.setattr(sweep, "put_back_masquerade", put_back)
    monkeypatch.setattr(sweeper, "_REST_SECONDS", 0.01)
    with closing(site.host.call(lambda: Sweeper(site.node, every=60.0))) as sweeping:

        def again() -> bool:
            sweeping.again()
            return rules() == [1, 1]

        eventually(lambda: sum(rules()) == 1)
        eventually(again)
    words = f"masquerade not put back: network=cbr0 container={tries[0]} interface=eth0 error={fault}"
    assert [line for line in caplog.messages if "not put back" in line or "ended early" in line] == [words]


def test_files_are_looked_for_where_clients_have_them(site, make_netns, tmp_path):
    """A daemon in a pod of its own sees another `/`."""
    site.by = "here"
    pod = make_netns()
    add(site, config(site), pod)
    lose(pod)
    for directory in (site.store, states(site)):
        moved = Path(f"{tmp_path}/rootfs{directory}")
        moved.parent.mkdir(parents=True, exist_ok=True)
        directory.rename(moved)
    root = open_root(f"{tmp_path}/rootfs")
    site.node.keep_root(root)
    os.close(root)
    assert set(sweep_all(site)) == {"c1"}
    assert list(Path(f"{tmp_path}/rootfs{site.store}/cbr0").glob("10.*")) == []
    assert list(Path(f"{tmp_path}/rootfs{states(site)}").iterdir()) == []


def test_a_sweep_that_fails_is_told_once_and_tried_again(site, make_netns, caplog):
    pod = make_netns()
    add(site, config(site), pod)
    lose(pod)
    site.store.rename(site.directory / "away")
    with closing(site.host.call(lambda: Sweeper(site.node, every=0.01))):
        eventually(lambda: caplog.records)
        (site.directory / "away").rename(site.store)
        eventually(lambda: addresses(site) == {})
    [line] = [record.getMessage() for record in caplog.records]
    assert line.startswith("leaked attachment not freed: network=cbr0 container=c1 interface=eth0 error=")


@pytest.mark.parametrize("way", WAYS)
def test_a_record_that_cannot_be_read_ends_no_sweep_and_is_set_aside(site, make_netns, caplog, way):
    pods = {name: make_netns() for name in ("c1", "c2")}
    for name, pod in pods.items():
        assert add(site, config(site), pod, id_=name).exit == 0
    spoilt = [site.directory / "state" / subject / f"{'0' * 32}.json" for subject in ("attachments", "ipam", "flannel")]
    for path in spoilt:
        spoil(path, way)
    lose(pods["c1"])
    with closing(site.host.call(lambda: Sweeper(site.node))):
        eventually(lambda: set(addresses(site).values()) == {"c2"})
        eventually(lambda: len([line for line in caplog.messages if "STATE-001" in line]) == len(spoilt))
    assert not any(os.path.lexists(path) for path in spoilt)
    assert all(list(path.parent.glob("*.spoilt-1")) for path in spoilt)
    assert "1 cannot be read" in caplog.text
    assert sweep_all(site) == {}
    assert delete(site, config(site), pods["c2"], id_="c2").exit == 0


@pytest.mark.parametrize("way", ["directory", "fifo", "deep"])
def test_a_pod_whose_records_are_spoilt_is_detached_and_its_successor_attached(site, make_netns, way):
    pod = make_netns()
    assert add(site, config(site), pod).exit == 0
    for path in list((site.directory / "state").rglob("*.json")):
        spoil(path, way)
    assert delete(site, config(site), pod).exit == 0
    assert addresses(site) == {}
    # No sweep has been there yet: what is in the way makes room.
    assert add(site, config(site), pod).exit == 0
    assert records_of(site) == {"c1"}


def test_many_spoilt_records_are_said_in_a_line_and_kept_within_bounds(site, make_netns, caplog):
    add(site, config(site), make_netns())
    directory = site.directory / "state" / "ipam"
    for number in range(40):
        spoil(directory / f"{number:032x}.json", "random" if number % 2 else "directory")
    with closing(site.host.call(lambda: Sweeper(site.node))):
        eventually(lambda: "STATE-001" in caplog.text)
    assert len([line for line in caplog.messages if "STATE-001" in line]) == 1
    assert "40 cannot be read" in caplog.text
    assert len(list(directory.glob("*.spoilt-*"))) <= 8
    assert len(list(directory.iterdir())) <= 9


def test_gc_says_what_it_has_set_aside(site, make_netns):
    conf = config(site, cniVersion="1.1.0")
    pod = make_netns()
    assert add(site, conf, pod).exit == 0
    path = site.directory / "state" / "ipam" / f"{'0' * 32}.json"
    spoil(path, "fifo")
    answer = site.call(
        "flannel", "GC", {**conf, "cni.dev/valid-attachments": [{"containerID": "c1", "ifname": "eth0"}]}
    )
    assert answer.exit == 0
    assert "STATE-001 records of ipam: 1 cannot be read" in answer.stderr
    assert not path.exists()


def test_what_a_death_while_writing_left_goes_at_the_second_look(site, make_netns):
    add(site, config(site), make_netns())
    state = site.directory / "state"
    left = [state / "ipam" / ".weft-1", state / "flannel" / ".weft-2", states(site) / ".weft-3"]
    for path in left:
        path.write_text("")

    def tidy(seen):
        with node_host(site.node) as host:
            return sweep.tidy(host, seen)

    seen = site.host.call(lambda: tidy(frozenset()))
    assert len(seen) == 3
    assert all(path.exists() for path in left)
    left[0].unlink()  # its writer lived
    assert site.host.call(lambda: tidy(seen)) == set()
    assert not any(path.exists() for path in left)
    assert records(site) == state_names(site) == {"c1"}
