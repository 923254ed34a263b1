"""flannel with bridge and host-local behind it: state files, errors, and the reference's programs beside ours."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.cni.site import Site
from tests.support.netns import Netns
from weft.wire.cni import VERSIONS

V4 = "FLANNEL_NETWORK=10.1.0.0/16\nFLANNEL_SUBNET=10.1.17.1/24\n"
V6 = "FLANNEL_IPV6_NETWORK=fc00::/48\nFLANNEL_IPV6_SUBNET=fc00::1/64\n"
REST = "FLANNEL_MTU=1472\nFLANNEL_IPMASQ=true\n"


@pytest.fixture
def site(netns: Netns, tmp_path: Path) -> Site:
    site = Site(netns, tmp_path)
    (tmp_path / "subnet.env").write_text("\n" + V4 + REST)
    return site


def config(site, *, version="0.3.1", name="cbr0", delegate=None, ipam=None, **more):
    return {
        "cniVersion": version,
        "name": name,
        "type": "flannel",
        "subnetFile": str(site.directory / "subnet.env"),
        "dataDir": str(states(site)),
        "delegate": {"hairpinMode": True, "isDefaultGateway": True, **(delegate or {})},
        "ipam": {"dataDir": str(site.store), **(ipam or {})},
        **more,
    }


def states(site):
    return site.directory / "flannel"


def state_names(site):
    return {path.name for path in states(site).glob("*")}


def add(site, conf, pod, **more):
    return site.call("flannel", "ADD", conf, container=pod, **more)


def delete(site, conf, pod=None, **more):
    return site.call("flannel", "DEL", conf, container=pod, **more)


@pytest.mark.spec("flannel.md 11.12/all")
@pytest.mark.spec("flannel.md §10.1/versions", cases="both-*")
@pytest.mark.spec(
    "flannel.md §10.1/meta-plugin",
    "flannel.md §10.2/name",
    "flannel.md §10.2/type",
    "flannel.md §10.3/subnets",
    "flannel.md §10.4/run-delegate",
    "flannel.md §10.5/state-file",
    "flannel.md §10.6/del",
    cases="*-1.0.0",
)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("env, count", [(V4, 1), (V6, 1), (V4 + V6, 2)], ids=["v4", "v6", "both"])
def test_add_and_del(site, pod, version, env, count):
    (site.directory / "subnet.env").write_text("\n" + env + REST)
    conf = config(site, version=version)
    answer = add(site, conf, pod)
    result = answer.result
    assert result["cniVersion"] == version
    ips = result["ips"] if version >= "0.3.0" else [key for key in ("ip4", "ip6") if key in result]
    assert len(ips) == count
    state = states(site) / "c1"
    assert state.stat().st_mode & 0o777 == 0o600
    assert states(site).stat().st_mode & 0o777 == 0o700
    assert answer.stderr == ""
    told = json.loads(state.read_text())
    assert (told["name"], told["type"], told["mtu"], told["ipMasq"]) == ("cbr0", "bridge", 1472, False)
    assert (told["cniVersion"], told["isGateway"]) == (version, True)
    [eth0] = [link for link in pod.json("ip -j link") if link["ifname"] == "eth0"]
    assert eth0["mtu"] == 1472
    (site.directory / "subnet.env").unlink()  # DEL does without
    for _ in range(2):
        assert delete(site, conf, pod).exit == 0
    assert state_names(site) == set()
    assert site.reservations("cbr0") == {}
    assert [link["ifname"] for link in pod.json("ip -j link")] == ["lo"]
    assert list((site.directory / "state").rglob("*.json")) == []


@pytest.mark.parametrize("wrong", [{"delegate": {"name": "x"}}, {"delegate": {"type": 5}}, {"ipam": 5}])
def test_what_add_has_refused_del_takes(site, pod, wrong):
    assert add(site, config(site) | wrong, pod).exit
    assert delete(site, config(site) | wrong, pod).exit == 0


@pytest.mark.parametrize("size", [238, 239, 255, 1000])
def test_a_long_container_id_is_taken_by_add_and_del_or_by_neither(site, pod, size):
    answers = add(site, config(site), pod, id_="x" * size), delete(site, config(site), pod, id_="x" * size)
    assert {answer.code for answer in answers} == ({0} if size == 238 else {4})
    assert state_names(site) == set()


@pytest.mark.spec("flannel.md 11.12/foo-bar", "flannel.md §10.3/completeness")
def test_an_env_that_says_nothing(site, pod):
    (site.directory / "subnet.env").write_text("foo=bar\n")
    answer = add(site, config(site), pod)
    assert answer.code == 999
    assert (
        "missing FLANNEL_NETWORK, FLANNEL_IPV6_NETWORK, FLANNEL_SUBNET, FLANNEL_IPV6_SUBNET, "
        "FLANNEL_MTU, FLANNEL_IPMASQ"
    ) in answer.msg
    assert str(site.directory / "subnet.env") in answer.msg
    assert state_names(site) == set()


@pytest.mark.spec("flannel.md §10.3/absent", "flannel.md §10.1/errors")
def test_no_env_is_an_error_to_try_again_with_the_daemons_reason(site, pod):
    (site.directory / "subnet.env").unlink()
    site.lease_problem = "STORE-001: etcd at 127.0.0.1:2379 does not answer"
    answer = add(site, config(site), pod)
    assert answer.code == 11
    assert "LEASE-001" in answer.msg
    assert "subnet.env file could not be loaded" in answer.msg
    assert "no such file or directory" in answer.msg
    assert "flannel pod" in answer.msg
    assert answer.json["details"] == site.lease_problem


def test_an_add_waits_for_the_lease_of_a_daemon_that_starts(site, pod):
    env = site.directory / "subnet.env"
    waiting = env.rename(env.with_name("waiting"))
    site.lease = lambda: bool(waiting.rename(env))
    assert add(site, config(site), pod).code == 0


@pytest.mark.spec("flannel.md §10.3/split")
def test_a_key_without_a_value_is_an_error_and_no_crash(site, pod):
    (site.directory / "subnet.env").write_text(V4 + "FLANNEL_MTU\nFLANNEL_IPMASQ=true\n")
    answer = add(site, config(site), pod)
    assert answer.code == 999
    assert "FLANNEL_MTU" in answer.msg


@pytest.mark.spec("flannel.md §10.1/errors")
def test_a_delegates_error_passes_unchanged(site, pod):
    add(site, config(site), pod)
    answer = add(site, config(site), pod, id_="c2")
    assert answer.code == 999
    assert answer.msg.startswith('container veth name ("eth0") peer provided')
    assert state_names(site) == {"c1"}  # ours leaves nothing when it fails
    assert "flannel: called the delegate with " + (states(site) / "c1").read_text() in answer.stderr
    answer = add(site, config(site, delegate={"type": "nope"}), pod, id_="c3")
    assert (answer.code, answer.msg) == (999, 'failed to find plugin "nope" in path [/usr/lib/cni]')


@pytest.mark.spec("flannel.md §10.5/state-file")
def test_two_networks_and_two_interfaces_of_one_container(site, pod):
    first, second = config(site), config(site, name="other", delegate={"bridge": "br1", "forceAddress": True})
    add(site, first, pod)
    add(site, second, pod, ifname="eth1")
    add(site, first, pod, ifname="eth2")
    assert len(state_names(site)) == 3
    assert "c1" in state_names(site)
    assert delete(site, second, pod, ifname="eth1").exit == 0
    assert site.reservations("other") == {}
    assert len(site.reservations("cbr0")) == 2
    assert delete(site, first, pod, ifname="eth2").exit == 0
    assert state_names(site) == {"c1"}
    assert delete(site, first, pod, ifname="eth2").exit == 0  # c1 is another interface's
    assert len(site.reservations("cbr0")) == 1
    assert delete(site, first, pod).exit == 0
    assert (state_names(site), site.reservations("cbr0")) == (set(), {})


@pytest.mark.parametrize("ifname", ["eth0", "eth1"])
def test_an_add_that_is_repeated_costs_the_first_one_nothing(site, pod, ifname):
    add(site, config(site, name="other", delegate={"bridge": "br1"}), pod, ifname="eth9")
    add(site, config(site), pod, ifname=ifname)
    before = {path.name: path.read_bytes() for path in states(site).iterdir()}
    assert add(site, config(site), pod, ifname=ifname).exit == 1
    assert {path.name: path.read_bytes() for path in states(site).iterdir()} == before
    assert delete(site, config(site), pod, ifname=ifname).exit == 0
    assert site.reservations("cbr0") == {}


@pytest.mark.spec("flannel.md §10.6/del")
def test_state_that_the_reference_wrote_is_used(site, pod):
    add(site, config(site), pod)
    for path in (site.directory / "state" / "flannel").iterdir():
        path.unlink()
    assert delete(site, config(site, name="another"), pod).exit == 0
    assert state_names(site) == {"c1"}  # of another network
    assert delete(site, config(site), pod).exit == 0
    assert (state_names(site), site.reservations("cbr0")) == (set(), {})


@contextmanager
def blocked(directory: Path) -> Iterator[None]:
    """A file in a directory's place: what needs it fails, and finds it whole afterwards."""
    aside = directory.with_name("aside")
    directory.rename(aside)
    directory.touch()
    yield
    directory.unlink()
    aside.rename(directory)


@pytest.mark.spec("flannel.md §10.6/del")
def test_state_stays_while_the_delegate_fails(site, pod):
    conf = config(site)
    add(site, conf, pod)
    with blocked(site.store / "cbr0"):
        assert delete(site, conf, pod).exit == 1
        assert state_names(site) == {"c1"}
    assert delete(site, conf, pod).exit == 0
    assert (state_names(site), site.reservations("cbr0")) == (set(), {})


@pytest.mark.spec("flannel.md §10.6/del")
@pytest.mark.parametrize("content", ["", "{", "torn"])
def test_state_that_is_torn_is_told_and_left(site, pod, content):
    states(site).mkdir()
    (states(site) / "c1").write_text(content)
    answer = delete(site, config(site), pod)
    assert answer.exit == 0
    assert "is no configuration" in answer.stderr
    assert state_names(site) == {"c1"}


def test_a_delegate_that_is_not_ours(site, pod):
    conf = config(site, version="0.4.0", delegate={"type": "theirs", "mtu": 1400})
    del conf["delegate"]["isDefaultGateway"], conf["delegate"]["hairpinMode"]
    foreign = site.foreign("ptp")
    answer = add(site, conf, pod, extra=foreign)
    assert answer.result["ips"][0]["address"] == "10.1.17.2/24"
    assert site.reservations("cbr0") == {"10.1.17.2": b"c1\r\neth0"}
    assert delete(site, conf, pod, extra=foreign).exit == 0
    assert (state_names(site), site.reservations("cbr0")) == (set(), {})


def test_what_we_told_the_delegate_the_references_bridge_can_undo(site, pod):
    add(site, config(site), pod)
    told = json.loads((states(site) / "c1").read_text())
    assert site.via("debian")("bridge", "DEL", told, container=pod).exit == 0
    assert site.reservations("cbr0") == {}


def test_a_chain_with_portmap_and_no_mappings(site, pod):
    result = add(site, config(site), pod).result
    chained = {"cniVersion": "0.3.1", "name": "cbr0", "type": "portmap", "prevResult": result}
    assert site.call("portmap", "ADD", chained, container=pod).result == result
    assert site.call("portmap", "DEL", chained, container=pod).exit == 0
