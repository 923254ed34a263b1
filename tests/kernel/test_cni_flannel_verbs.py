"""flannel's CHECK, GC and STATUS: what is wrong is named, what is gone is removed, and nothing else."""

import json
from pathlib import Path

import pytest

from tests.kernel.test_cni_flannel import REST, V4, V6, add, blocked, config, delete, state_names, states
from tests.support.cni.site import Site
from tests.support.netns import Netns

NOBODY: dict[str, list[dict[str, str]]] = {"cni.dev/valid-attachments": []}


@pytest.fixture
def site(netns: Netns, tmp_path: Path) -> Site:
    site = Site(netns, tmp_path)
    (tmp_path / "subnet.env").write_text("\n" + V4 + REST)
    return site


def check(site, conf, pod, result, **more):
    return site.call("flannel", "CHECK", {**conf, "prevResult": result}, container=pod, **more)


def gc(site, conf, *valid):
    attachments = [{"containerID": id_, "ifname": ifname} for id_, ifname in valid]
    return collect(site, conf | {"cni.dev/valid-attachments": attachments})


def collect(site, conf):
    return site.call("flannel", "GC", conf, id_="", ifname="", netns="")


def status(site, conf):
    return site.call("flannel", "STATUS", conf, id_="", ifname="", netns="")


def records(site):
    return sorted(
        (known["container"], known["ifname"], Path(known["path"]).name)
        for known in (json.loads(path.read_text()) for path in (site.directory / "state" / "flannel").glob("*.json"))
    )


# --- CHECK


@pytest.mark.spec("flannel.md §10.6/check")
@pytest.mark.parametrize("version", ["0.4.0", "1.0.0", "1.1.0"])
def test_check_asks_the_delegate_with_what_add_was_told(site, pod, version):
    conf = config(site, version=version)
    result = add(site, conf, pod).result
    (site.directory / "subnet.env").unlink()  # as DEL it needs none
    assert check(site, conf, pod, result).exit == 0
    pod.run("ip addr flush dev eth0 scope global")
    wrong = check(site, conf, pod, result)
    assert wrong.exit == 1
    assert "10.1.17.2" in wrong.msg
    site.call("flannel", "DEL", conf, container=pod)
    assert check(site, conf, pod, result).exit == 1


def test_check_asks_a_delegate_that_is_not_ours(site, pod):
    conf = config(site, version="0.4.0", delegate={"type": "theirs"})
    del conf["delegate"]["isDefaultGateway"], conf["delegate"]["hairpinMode"]
    foreign = site.foreign("ptp")
    result = add(site, conf, pod, extra=foreign).result
    # What it says without a fault: it looks for a route without the gateway that it has given to it.
    lost = "Expected Route {Dst:{IP:10.1.0.0 Mask:ffff0000} GW:<nil>}"
    assert check(site, conf, pod, result, extra=foreign).msg.startswith(lost)
    pod.run("ip addr flush dev eth0 scope global")
    assert check(site, conf, pod, result, extra=foreign).msg.startswith("Failed to match addr 10.1.17.2/24")


def test_del_without_state_forgets_the_attachment(site, pod):
    add(site, config(site), pod)
    (site.directory / "flannel" / "c1").unlink()
    assert site.call("flannel", "DEL", config(site), container=pod).exit == 0
    assert records(site) == []


def test_check_after_the_conflists_version_was_raised(site, pod):
    result = add(site, config(site, version="0.4.0"), pod).result
    for ip in result["ips"]:
        del ip["version"]
    raised = config(site, version="1.0.0")
    assert check(site, raised, pod, {**result, "cniVersion": "1.0.0"}).exit == 0


def test_check_without_state_names_what_is_missing(site, pod):
    conf = config(site, version="1.0.0")
    result = add(site, conf, pod).result
    other = check(site, conf, pod, result, ifname="eth1")
    assert other.msg == "flannel: no state of container c1, interface eth1"
    assert other.json["details"].startswith(f"CNI-002: neither {states(site)}/c1 nor")
    (states(site) / "c1").write_text("{")
    torn = check(site, conf, pod, result)
    assert torn.msg == f"flannel: {states(site)}/c1 is no configuration"
    assert torn.json["details"].startswith("CNI-002: ")
    (states(site) / "c1").unlink()
    assert check(site, conf, pod, result).msg == "flannel: no state of container c1, interface eth0"


@pytest.mark.spec("flannel.md §10.6/check", "flannel.md §10.6/gc-status")
def test_versions_that_do_not_have_the_verb(site, pod):
    assert check(site, config(site), pod, {}).code == 1
    assert gc(site, config(site, version="1.0.0")).code == 1
    assert status(site, config(site, version="1.0.0")).code == 1


# --- GC


def attach(site, make_netns, *, names=("c1", "c2", "c3"), **more):
    conf = config(site, version="1.1.0", **more)
    pods = {name: make_netns() for name in names}
    for name, pod in pods.items():
        add(site, conf, pod, id_=name)
    return conf, pods


@pytest.mark.spec("flannel.md §10.6/gc-status")
@pytest.mark.parametrize("with_env", [True, False])
def test_gc_frees_what_is_gone_and_its_state(site, make_netns, with_env):
    conf, pods = attach(site, make_netns)
    if not with_env:
        (site.directory / "subnet.env").unlink()
    pods["c1"].run("ip link del eth0")
    pods["c3"].run("ip link del eth0")
    assert gc(site, conf, ("c2", "eth0")).exit == 0
    assert state_names(site) == {"c2"}
    assert site.reservations("cbr0") == {"10.1.17.3": b"c2\r\neth0"}
    assert records(site) == [("c2", "eth0", "c2")]
    assert delete(site, conf, pods["c2"], id_="c2").exit == 0
    assert (state_names(site), site.reservations("cbr0")) == (set(), {})


def test_gc_is_of_one_network_and_of_interfaces(site, make_netns):
    conf, pods = attach(site, make_netns, names=("c1", "c2"))
    other = config(site, version="1.1.0", name="other", delegate={"bridge": "br1", "forceAddress": True})
    add(site, other, pods["c1"], ifname="eth1")
    add(site, conf, pods["c1"], ifname="eth2")
    add(site, other, make_netns(), id_="c4")
    assert len(state_names(site)) == 5
    assert gc(site, conf, ("c1", "eth2")).exit == 0
    assert [(id_, ifname) for id_, ifname, _ in records(site)] == [("c1", "eth1"), ("c1", "eth2"), ("c4", "eth0")]
    assert {name.partition(".")[0] for name in state_names(site)} == {"c1", "c4"}
    assert list(site.reservations("cbr0").values()) == [b"c1\r\neth2"]
    assert len(site.reservations("other")) == 2
    assert gc(site, conf).exit == 0
    assert (len(state_names(site)), site.reservations("cbr0")) == (2, {})
    assert gc(site, other).exit == 0
    assert (state_names(site), records(site), site.reservations("other")) == (set(), [], {})


def test_gc_without_our_records_goes_by_names_and_keeps_what_may_be_meant(site, make_netns):
    conf, pods = attach(site, make_netns, names=("c1", "c2"))
    add(site, conf, pods["c1"], ifname="eth1")
    add(site, conf, pods["c2"], ifname="eth1")
    for path in (site.directory / "state" / "flannel").iterdir():
        path.unlink()  # as the reference's plugin leaves it
    (states(site) / "torn").write_text("{")  # nobody knows of which network
    (states(site) / "stranger").write_text('{"name":"another"}')
    assert gc(site, conf, ("c1", "eth1")).exit == 0
    # `c1` does not tell its interface: it stays with the container.
    assert {name.partition(".")[0] for name in state_names(site)} == {"c1", "torn", "stranger"}
    assert len(state_names(site)) == 4


def test_gc_accepts_the_older_key_and_refuses_none(site, make_netns):
    conf, _ = attach(site, make_netns, names=("c1",))
    assert collect(site, conf).code == 7
    assert state_names(site) == {"c1"}
    assert collect(site, conf | {"cni.dev/attachments": [{"containerID": "c1", "ifname": "eth0"}]}).exit == 0
    assert (state_names(site), len(site.reservations("cbr0"))) == ({"c1"}, 1)
    assert collect(site, conf | {"cni.dev/attachments": []}).exit == 0
    assert (state_names(site), site.reservations("cbr0")) == (set(), {})


def test_gc_leaves_all_state_when_a_delegate_fails(site, make_netns):
    conf, _ = attach(site, make_netns, names=("c1",))
    with blocked(site.store / "cbr0"):
        assert gc(site, conf).exit == 1
        assert (state_names(site), records(site)) == ({"c1"}, [("c1", "eth0", "c1")])
    assert gc(site, conf).exit == 0
    assert (state_names(site), records(site)) == (set(), [])


def test_gc_passes_a_delegates_error_unchanged(site, tmp_path):
    error = {"code": 42, "msg": "not now", "details": "why"}
    theirs = tmp_path / "theirs"
    theirs.write_text(f"#!/bin/sh\necho '{json.dumps(error)}'\nexit 1\n")
    theirs.chmod(0o755)
    conf = config(site, version="1.1.0", delegate={"type": "theirs"}) | {"cni.dev/valid-attachments": []}
    answer = site.call("flannel", "GC", conf, id_="", ifname="", extra={"CNI_PATH": str(tmp_path)})
    assert {key: answer.json[key] for key in error} == error


def test_gc_reaches_the_store_that_an_earlier_configuration_named(site, make_netns, tmp_path):
    conf, _ = attach(site, make_netns, names=("c1",), ipam={"dataDir": str(tmp_path / "before")})
    assert len(list((tmp_path / "before" / "cbr0").glob("10.*"))) == 1
    assert gc(site, config(site, version="1.1.0")).exit == 0
    assert list((tmp_path / "before" / "cbr0").glob("10.*")) == []
    assert conf["ipam"] != config(site)["ipam"]


# --- STATUS


@pytest.mark.spec("flannel.md §10.6/gc-status")
def test_status_is_good_when_an_add_would_be(site):
    assert status(site, config(site, version="1.1.0")).exit == 0


def test_status_tells_the_daemons_reason_and_whether_pods_are_attached(site, pod):
    conf = config(site, version="1.1.0")
    (site.directory / "subnet.env").rename(site.directory / "kept")
    site.lease_problem = "STORE-001 etcd at http://10.0.0.9:2379: it does not answer"
    answer = status(site, conf)
    assert answer.code == 50
    assert "LEASE-001" in answer.msg
    assert answer.json["details"] == site.lease_problem
    (site.directory / "kept").rename(site.directory / "subnet.env")
    assert add(site, conf, pod).exit == 0
    (site.directory / "subnet.env").unlink()
    assert status(site, conf).code == 51
    assert status(site, config(site, version="1.1.0", name="other")).code == 50


def test_status_of_a_daemon_that_cannot_serve_although_there_is_a_lease(site, pod):
    conf = config(site, version="1.1.0")
    site.unready = "STORE-001 etcd at http://10.0.0.9:2379: the lease has expired"
    answer = status(site, conf)
    assert (answer.code, answer.msg) == (50, f"weftd: this node is not ready: {site.unready}")
    assert add(site, conf, pod).exit == 0
    assert status(site, conf).code == 51
    site.unready = ""
    assert status(site, conf).exit == 0


def test_pods_of_an_earlier_boot_are_not_there_any_more(site, pod):
    conf = config(site, version="1.1.0")
    assert add(site, conf, pod).exit == 0
    site.reboot()
    site.unready = "starting"
    assert status(site, conf).code == 50


@pytest.mark.parametrize("env", ["foo=bar\n", V4 + V6])
def test_status_of_an_env_that_cannot_be_used(site, env):
    (site.directory / "subnet.env").write_text(env)
    answer = status(site, config(site, version="1.1.0"))
    assert answer.code == 50
    assert "missing" in answer.msg


def test_status_asks_the_delegate_and_it_its_ipam(site, make_netns):
    (site.directory / "subnet.env").write_text("FLANNEL_NETWORK=10.1.0.0/16\nFLANNEL_SUBNET=10.1.17.1/30\n" + REST)
    conf, _ = attach(site, make_netns, names=("c1",))
    answer = status(site, conf)
    assert (answer.code, answer.msg) == (50, "no IP addresses available in range set: 10.1.17.1-10.1.17.2")
    assert status(site, config(site, version="1.1.0", delegate={"type": "nope"})).msg.startswith("failed to find")
