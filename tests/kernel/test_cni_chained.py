"""loopback, and portmap without mappings."""

from collections.abc import Callable

import pytest

from tests.support.netns import Netns
from weft.wire.cni import VERSIONS

PREVIOUS = {
    "interfaces": [{"name": "eth0", "sandbox": "/x"}],
    "ips": [{"address": "10.0.0.2/24", "interface": 0}],
    "routes": [{"dst": "0.0.0.0/0"}],
}


@pytest.fixture
def pod(make_netns: Callable[[], Netns]) -> Netns:
    pod = make_netns()
    pod.run("ip link set lo down")
    return pod


def lo_is_up(pod):
    [lo] = pod.json("ip -j link show lo")
    return "UP" in lo["flags"]


@pytest.mark.spec("cni.md O1")
@pytest.mark.parametrize("version", VERSIONS)
def test_loopback_up_and_down_in_every_dialect(site, pod, version):
    conf = {"cniVersion": version, "name": "net", "type": "loopback"}
    result = site.call("loopback", "ADD", conf, container=pod, ifname="whatever").result
    assert lo_is_up(pod)
    assert result["cniVersion"] == version
    if version in VERSIONS[:2]:
        assert (result["ip4"]["ip"], result["ip6"]["ip"]) == ("127.0.0.1/8", "::1/128")
    else:
        lo = {"name": "lo", "mac": "00:00:00:00:00:00", "sandbox": pod.path}
        assert result["interfaces"] == [lo]
        assert [(ip["address"], ip["interface"]) for ip in result["ips"]] == [("127.0.0.1/8", 0), ("::1/128", 0)]
        assert [ip.get("version") for ip in result["ips"]] == (
            [None, None] if version in ("1.0.0", "1.1.0") else ["4", "6"]
        )
    assert site.call("loopback", "DEL", conf, container=pod).exit == 0
    assert not lo_is_up(pod)


def test_loopback_echoes_what_came_before(site, pod):
    conf = {"cniVersion": "1.0.0", "name": "net", "type": "loopback", "prevResult": PREVIOUS}
    assert site.call("loopback", "ADD", conf, container=pod).result == {"cniVersion": "1.0.0", **PREVIOUS}


def test_loopback_with_another_address(site, pod):
    pod.run("ip addr add 10.0.0.1/8 dev lo")
    answer = site.call("loopback", "ADD", {"cniVersion": "1.0.0", "name": "net"}, container=pod)
    assert answer.msg == 'loopback interface found with non-loopback address "10.0.0.1/8"'


def test_loopback_of_a_namespace_that_is_gone(site):
    conf = {"cniVersion": "1.0.0", "name": "net", "type": "loopback"}
    assert site.call("loopback", "DEL", conf, netns="").exit == 0
    assert site.call("loopback", "DEL", conf, netns="/run/netns/gone").exit == 0
    assert 'failed to Statfs "/run/netns/gone"' in site.call("loopback", "ADD", conf, netns="/run/netns/gone").msg


@pytest.mark.spec("cni.md M15")
def test_portmap_without_mappings_passes_the_result_on(site):
    conf = {"cniVersion": "0.4.0", "name": "net", "type": "portmap", "prevResult": PREVIOUS}
    result = site.call("portmap", "ADD", conf, netns="/x").result
    assert result == {
        "cniVersion": "0.4.0",
        **PREVIOUS,
        "ips": [{"version": "4", "interface": 0, "address": "10.0.0.2/24"}],
        "dns": {},
    }
    assert site.call("portmap", "DEL", conf, netns="/x").exit == 0
    assert site.host.run("nft list ruleset") == ""


@pytest.mark.spec("cni.md M14")
def test_portmap_that_comes_first(site):
    conf = {"cniVersion": "1.0.0", "name": "net", "type": "portmap"}
    answer = site.call("portmap", "ADD", conf, netns="/x")
    assert (answer.code, answer.msg) == (999, "must be called as chained plugin")
    assert site.call("portmap", "DEL", conf, netns="").exit == 0


def test_portmap_with_nonsense(site):
    conf = {"cniVersion": "1.0.0", "name": "net", "prevResult": PREVIOUS, "runtimeConfig": {"portMappings": 5}}
    answer = site.call("portmap", "ADD", conf, netns="/x")
    assert answer.msg == "failed to parse config: cannot use an integer as portMappings (expected a list)"
