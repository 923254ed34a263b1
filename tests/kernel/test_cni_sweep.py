"""Leaked attachments are freed on proof, whole, and nothing else is: by exhaustion, by the daemon, by hand."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.kernel.test_cni_flannel import REST, V4, add, config, delete, state_names, states
from tests.support.checkout import CHECKOUT
from tests.support.cni.site import Site
from tests.support.netns import Netns
from tests.support.spoiling import WAYS, spoil
from tests.support.waiting import eventually
from weft import cli
from weft.cni.host import locks
from weft.cni.host.host import Host
from weft.cni.host.openat import open_root
from weft.cni.leaks import sweep, sweeper
from weft.cni.leaks.sweeper import Sweeper, node_host
from weft.model.attachment import Attachment
from weft.model.value import replace
from weft.wire.cni import CniError
from weft.wire.cnijson import JsonError

TINY = "FLANNEL_NETWORK=10.1.0.0/16\nFLANNEL_SUBNET=10.1.17.1/29\n" + REST
WEFT = Path(sys.executable).with_name("weft")


@pytest.fixture
def site(netns: Netns, tmp_path: Path) -> Site:
    site = Site(netns, tmp_path)
    (tmp_path / "subnet.env").write_text(V4 + REST)
    return site


def of(container_id: str, network: str = "cbr0", ifname: str = "eth0") -> Attachment:
    return Attachment(network=network, container_id=container_id, ifname=ifname)


def wait_for_turn(host: Host, container: str) -> None:
    """A server ends a container's turn a moment after its client has the answer; a turn that a test holds stays."""
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        with host.claim(container) as claimed:
            if claimed:
                return
        time.sleep(0.005)


def sweep_all(site: Site) -> dict[str, str]:
    """What one sweep of the daemon frees, and why."""

    def inside() -> dict[str, str]:
        with node_host(site.node) as host:
            known = list(sweep.attachments(host))
            for one in known:
                wait_for_turn(host, one.container_id)
            proofs = {one.container_id: sweep.free(host, one) for one in known}
        return {id_: proof for id_, proof in proofs.items() if proof}

    return site.host.call(inside)


def addresses(site: Site, network: str = "cbr0") -> dict[str, str]:
    return {ip: owner.decode().partition("\r")[0] for ip, owner in site.reservations(network).items()}


def records(site: Site) -> set[str]:
    """The containers that anything is known of."""
    return {json.loads(path.read_text())["container"] for path in (site.directory / "state").rglob("*.json")}


def records_of(site: Site) -> set[str]:
    """As above, past what cannot be read."""
    return {json.loads(path.read_text())["container"] for path in (site.directory / "state" / "ipam").glob("*.json")}


def lose(pod: Netns) -> None:
    """What the end of a namespace does to the pair."""
    pod.run("ip link del eth0")


def test_what_lost_its_host_end_is_freed_whole_and_nothing_else(site, make_netns):
    pods = {name: make_netns() for name in ("c1", "c2", "c3")}
    for name, pod in pods.items():
        assert add(site, config(site), pod, id_=name).exit == 0
    assert sweep_all(site) == {}
    lose(pods["c2"])
    [(id_, proof)] = sweep_all(site).items()
    assert id_ == "c2"
    assert proof.startswith("host end veth")
    assert addresses(site) == {"10.1.17.2": "c1", "10.1.17.4": "c3"}
    assert state_names(site) == records(site) == {"c1", "c3"}
    assert sweep_all(site) == {}
    # The runtime's DEL may come at last.
    assert delete(site, config(site), id_="c2").exit == 0


def test_everything_of_an_earlier_boot_is_leaked_and_nothing_of_this_one(site, make_netns):
    for name in ("c1", "c2"):
        add(site, config(site), make_netns(), id_=name)
    site.reboot()
    add(site, config(site), make_netns(), id_="c3")
    assert sweep_all(site) == {"c1": "made in an earlier boot", "c2": "made in an earlier boot"}
    assert addresses(site) == {"10.1.17.4": "c3"}
    assert state_names(site) == records(site) == {"c3"}


def test_a_container_that_comes_again_after_a_boot_keeps_its_new_address(site, make_netns):
    add(site, config(site), make_netns())
    site.reboot()
    (site.directory / "subnet.env").write_text(V4.replace(".17.", ".18.") + REST)  # and the node another subnet
    add(site, config(site), make_netns())
    # The one of the earlier boot was freed by that.
    assert len(addresses(site)) == 1
    assert sweep_all(site) == {}
    assert len(addresses(site)) == 1
    assert delete(site, config(site)).exit == 0
    assert addresses(site) == {}


def test_what_has_no_record_of_ours_is_nobodys_to_free(site, make_netns):
    pod = make_netns()
    bridge = {
        "cniVersion": "1.0.0",
        "name": "cbr0",
        "type": "bridge",
        "bridge": "cni0",
        "ipam": {"type": "host-local", "dataDir": str(site.store), "subnet": "10.1.17.0/24"},
    }
    assert site.via("debian")("bridge", "ADD", bridge, container=pod).exit == 0
    lose(pod)
    assert sweep_all(site) == {}
    site.reboot()
    assert sweep_all(site) == {}
    assert addresses(site) == {"10.1.17.2": "c1"}


def test_an_address_for_another_programs_bridge_is_freed_after_a_boot_alone(site):
    """Debian's bridge with our host-local: nobody has recorded the links."""
    conf = {
        "cniVersion": "1.0.0",
        "name": "net",
        "type": "bridge",
        "ipam": {"type": "host-local", "dataDir": str(site.store), "subnet": "10.9.0.0/24"},
    }
    assert site.call("host-local", "ADD", conf, netns="/some/where").exit == 0
    assert sweep_all(site) == {}
    site.reboot()
    assert sweep_all(site) == {"c1": "made in an earlier boot"}
    assert addresses(site, "net") == {}


def test_an_attachment_that_the_reference_took_over_is_left_to_it(site, make_netns):
    pod = make_netns()
    add(site, config(site, version="1.0.0"), pod)
    told = json.loads((states(site) / "c1").read_text())
    assert site.via("debian")("bridge", "DEL", told, container=pod).exit == 0
    assert site.via("debian")("bridge", "ADD", told, container=pod).exit == 0
    assert addresses(site) == {"10.1.17.3": "c1"}
    assert sweep_all(site) == {}
    assert addresses(site) == {"10.1.17.3": "c1"}
    assert state_names(site) == {"c1"}
    assert records(site) == set()


def test_an_attachment_that_got_its_old_address_from_the_reference_is_left_to_it(site, make_netns):
    (site.directory / "subnet.env").write_text("FLANNEL_NETWORK=10.1.0.0/16\nFLANNEL_SUBNET=10.1.17.1/30\n" + REST)
    pod = make_netns()
    add(site, config(site, version="1.0.0"), pod)
    [kept] = (site.directory / "state" / "ipam").iterdir()
    earlier = kept.stat().st_mtime - 120
    os.utime(kept, (earlier, earlier))
    told = json.loads((states(site) / "c1").read_text())
    assert site.via("debian")("bridge", "DEL", told, container=pod).exit == 0
    assert site.via("debian")("bridge", "ADD", told, container=pod).exit == 0
    assert sweep_all(site) == {}
    assert addresses(site) == {"10.1.17.2": "c1"}
    assert records(site) == set()


def test_a_host_end_that_somebody_renamed_is_no_proof(site, make_netns):
    pod = make_netns()
    add(site, config(site), pod)
    [veth] = [link.name for link in site.host.rtnl.links() if link.kind == "veth"]
    site.host.run(f"ip link set {veth} down; ip link set {veth} name renamed; ip link set renamed up")
    assert sweep_all(site) == {}
    site.host.run("ip link set renamed alias none")
    [proof] = sweep_all(site).values()
    assert proof.startswith(f"host end {veth}")


def test_nothing_is_proved_by_looking_into_another_namespace(site, make_netns, tmp_path):
    add(site, config(site), make_netns())
    elsewhere = Site(make_netns(), tmp_path / "elsewhere")
    elsewhere.node = replace(elsewhere.node, state=site.node.state)
    assert sweep_all(elsewhere) == {}
    assert addresses(site) == {"10.1.17.2": "c1"}


def test_nothing_is_freed_while_a_request_of_the_container_runs(site, make_netns):
    pods = {name: make_netns() for name in ("c1", "c2")}
    for name, pod in pods.items():
        add(site, config(site), pod, id_=name)
        lose(pod)
    with locks.claim(site.node.state, "c1") as claimed:
        assert claimed
        assert set(sweep_all(site)) == {"c2"}
    assert set(sweep_all(site)) == {"c1"}


def test_what_cannot_be_freed_whole_stays_for_the_next_sweep(site, make_netns):
    pod = make_netns()
    add(site, config(site), pod)
    lose(pod)
    site.store.rename(site.directory / "away")
    with pytest.raises(FileNotFoundError):
        sweep_all(site)
    assert records(site) == {"c1"}
    (site.directory / "away").rename(site.store)
    assert set(sweep_all(site)) == {"c1"}


@pytest.mark.parametrize("content", ["", "{", "null", '{"network":"cbr0","container":"c1","ifname":"eth0","boot":7}'])
@pytest.mark.parametrize("subject", ["attachments", "ipam", "flannel"])
def test_a_torn_record_proves_nothing_alone(site, make_netns, subject, content):
    add(site, config(site), make_netns())
    [path] = (site.directory / "state" / subject).iterdir()
    path.write_text(content)
    assert sweep_all(site) == {}
    assert addresses(site) == {"10.1.17.2": "c1"}


@pytest.mark.parametrize("kind", ["iptables", "nftables"])
def test_rules_of_a_leak_go_too(site, make_netns, kind):
    conf = config(site, delegate={"ipMasq": True, "ipMasqBackend": kind, "macspoofchk": True})
    pods = {name: make_netns() for name in ("c1", "c2")}
    for name, pod in pods.items():
        assert add(site, conf, pod, id_=name).exit == 0
    rules = site.host.run("nft list ruleset")
    assert [rules.count(ip) for ip in ("10.1.17.2", "10.1.17.3")] == [1, 1]
    chains = rules.count("ether saddr")
    lose(pods["c2"])
    assert set(sweep_all(site)) == {"c2"}
    rules = site.host.run("nft list ruleset")
    assert [rules.count(ip) for ip in ("10.1.17.2", "10.1.17.3")] == [1, 0]
    assert rules.count("ether saddr") == chains / 2


@pytest.mark.parametrize("backend", [None, "iptables", "nftables"])
def test_ports_of_a_leak_are_free_again(site, make_netns, backend):
    ports = {"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]}
    chained = {"cniVersion": "1.0.0", "name": "cbr0", "runtimeConfig": ports, "snat": False}
    chained |= {"backend": backend} if backend else {}
    pod = make_netns()
    result = add(site, config(site, version="1.0.0"), pod).result
    assert site.call("portmap", "ADD", {**chained, "prevResult": result}, container=pod).exit == 0
    assert "10.1.17.2" in site.host.run("nft list ruleset")
    lose(pod)
    assert set(sweep_all(site)) == {"c1"}
    assert "10.1.17.2" not in site.host.run("nft list ruleset")
    assert records(site) == set()


def test_the_shaping_device_of_a_leak_goes_too(site, make_netns):
    pod = make_netns()
    result = add(site, config(site, version="1.0.0"), pod).result
    limits = {"egressRate": 8_000_000, "egressBurst": 80_000}
    chained = {"cniVersion": "1.0.0", "name": "cbr0", "prevResult": result, **limits}
    assert site.call("bandwidth", "ADD", chained, container=pod).exit == 0
    assert "ifb" in {link.kind for link in site.host.rtnl.links()}
    lose(pod)
    assert set(sweep_all(site)) == {"c1"}
    site.finish_deletions()
    assert "ifb" not in {link.kind for link in site.host.rtnl.links()}
    assert records(site) == set()


def test_the_backup_of_a_tuned_interface_goes_with_it_and_upstreams_stays(site, make_netns):
    backups = site.directory / "tuning"
    pods = {name: make_netns() for name in ("c1", "c2", "c3")}
    for name, pod in pods.items():
        result = add(site, config(site, version="1.0.0"), pod, id_=name).result
        chained = {"cniVersion": "1.0.0", "name": "cbr0", "prevResult": result, "mtu": 1400, "dataDir": str(backups)}
        plugin = site.via("debian") if name == "c3" else site.call
        assert plugin("tuning", "ADD", chained, container=pod, id_=name).exit == 0
    assert len(list(backups.iterdir())) == 3
    lose(pods["c2"])
    lose(pods["c3"])
    assert set(sweep_all(site)) == {"c2", "c3"}
    assert {path.name for path in backups.iterdir()} == {"c1_eth0.json", "c3_eth0.json"}
    assert site.call("tuning", "DEL", chained, container=pods["c1"], id_="c1").exit == 0
    assert delete(site, config(site), pods["c1"], id_="c1").exit == 0
    assert records(site) == set()


def test_a_plugin_of_the_hosts_that_gives_addresses_keeps_the_state_that_its_del_needs(site, make_netns):
    add(site, config(site), make_netns())
    told = json.loads((states(site) / "c1").read_text())
    told["ipam"]["type"] = "my-ipam"
    (states(site) / "c1").write_text(json.dumps(told))
    site.reboot()
    assert set(sweep_all(site)) == {"c1"}
    assert state_names(site) == {"c1"}


@pytest.mark.parametrize("content", ["", '{"name":"cbr0","ipam'], ids=["empty", "cut"])
def test_torn_state_goes_once_nobody_can_be_writing_it(site, make_netns, content):
    """Forgotten with its record it would be nobody's: GC could not tell whose it is."""
    pod = make_netns()
    add(site, config(site), pod)
    lose(pod)
    torn = states(site) / "c1"
    torn.write_text(content)
    with pytest.raises(JsonError, match="may still be written"):
        sweep_all(site)
    assert records(site) == {"c1"}
    os.utime(torn, (0, 0))
    assert set(sweep_all(site)) == {"c1"}
    assert state_names(site) == records(site) == set()
    assert addresses(site) == {}


def test_torn_state_of_an_earlier_boot_goes_at_once(site, make_netns):
    add(site, config(site), make_netns())
    (states(site) / "c1").write_text("")
    site.reboot()
    assert set(sweep_all(site)) == {"c1"}
    assert state_names(site) == records(site) == set()


# --- on exhaustion


def test_a_full_range_is_swept_before_it_is_said_to_be_full(site, make_netns):
    (site.directory / "subnet.env").write_text(TINY)
    pods = {f"c{number}": make_netns() for number in range(5)}
    for name, pod in pods.items():
        assert add(site, config(site), pod, id_=name).exit == 0
    assert "no IP addresses available" in add(site, config(site), make_netns(), id_="c9").msg
    lose(pods["c3"])
    result = add(site, config(site), make_netns(), id_="c9").result
    assert result["ips"][0]["address"] == "10.1.17.5/29"
    assert state_names(site) == records(site) == {"c0", "c1", "c2", "c4", "c9"}


def test_status_counts_a_leak_as_free(site, make_netns):
    (site.directory / "subnet.env").write_text(TINY)
    conf = config(site, version="1.1.0")
    pods = {f"c{number}": make_netns() for number in range(5)}
    for name, pod in pods.items():
        add(site, conf, pod, id_=name)
    told = json.loads((states(site) / "c0").read_text())
    assert site.call("host-local", "STATUS", told, id_="", ifname="").code == 50
    lose(pods["c3"])
    assert site.call("host-local", "STATUS", told, id_="", ifname="").exit == 0


def test_exhaustion_frees_nothing_of_a_container_that_is_being_served(site, make_netns):
    """The container of the very request is one of them."""
    (site.directory / "subnet.env").write_text(TINY)
    pods = {f"c{number}": make_netns() for number in range(5)}
    for name, pod in pods.items():
        add(site, config(site), pod, id_=name)
    lose(pods["c3"])
    with locks.claim(site.node.state, "c3"):
        assert "no IP addresses available" in add(site, config(site), make_netns(), id_="c9").msg


# --- by the daemon


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


# --- by hand


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
