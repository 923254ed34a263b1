"""Leaked attachments are freed on proof, whole, and nothing else is: by exhaustion, by the daemon, by hand."""

import json
import os
from pathlib import Path

import pytest

from tests.kernel.leaks import addresses, lose, records, sweep_all
from tests.kernel.test_cni_flannel import REST, V4, add, config, delete, state_names, states
from tests.support.cni.site import Site
from tests.support.netns import Netns
from weft.cni.host import locks
from weft.model.attachment import Attachment
from weft.model.value import replace
from weft.wire.cnijson import JsonError

TINY = "FLANNEL_NETWORK=10.1.0.0/16\nFLANNEL_SUBNET=10.1.17.1/29\n" + REST


@pytest.fixture
def site(netns: Netns, tmp_path: Path) -> Site:
    site = Site(netns, tmp_path)
    (tmp_path / "subnet.env").write_text(V4 + REST)
    return site


def of(container_id: str, network: str = "cbr0", ifname: str = "eth0") -> Attachment:
    return Attachment(network=network, container_id=container_id, ifname=ifname)


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
