"""A pod's addresses are announced when its port forwards: who remembers an earlier pod's MAC hears of the new one."""

import json
import time
from pathlib import Path

import pytest

from tests.support.weftd import eventually

OLD_MAC = "02:00:00:00:00:99"
ADDRESSES = {4: ("10.1.2.9/24", "10.1.2.1"), 6: ("2001:db8::9/64", "2001:db8::1")}


@pytest.fixture
def slow_ipam(tmp_path: Path):
    """Make IPAM programs that take a second and a half: by then the kernel has closed a port without a carrier."""

    def make(family: int) -> dict[str, str]:
        address, gateway = ADDRESSES[family]
        answer = json.dumps({"cniVersion": "1.0.0", "ips": [{"address": address, "gateway": gateway}]})
        program = tmp_path / "programs" / "slow"
        program.parent.mkdir()
        program.write_text(f"#!/bin/sh\n[ $CNI_COMMAND != ADD ] || {{ sleep 1.5; echo '{answer}'; }}\n")
        program.chmod(0o755)
        return {"CNI_PATH": str(program.parent)}

    return make


def macs(netns, device, address):
    return [one.get("lladdr") for one in netns.json(f"ip -j neigh show {address} dev {device}")]


@pytest.mark.parametrize("dad", [False, True], ids=["at-once", "dad"])
@pytest.mark.parametrize("family", [4, 6], ids=["IPv4", "IPv6"])
def test_host_and_pods_learn_at_once_that_an_address_has_a_new_owner(site, make_netns, slow_ipam, family, dad):
    """Upstream leaves them with the old MAC: always with IPv6, and with IPv4 when it is slow."""
    pod, neighbour = make_netns(), make_netns()
    address, gateway = ADDRESSES[family]
    ip, _, length = address.partition("/")
    # With a MAC of its own: one that changed with the ports would make the host forget by itself.
    site.host.run(f"""ip link add cni0 address 02:00:00:00:00:01 type bridge
        ip addr add {gateway}/{length} dev cni0 nodad; ip link set cni0 up
        ip link add there type veth peer name eth0 netns {neighbour.path}; ip link set there up master cni0""")
    neighbour.run(f"ip addr add {gateway[:-1]}8/{length} dev eth0 nodad; ip link set eth0 up")
    eventually(lambda: site.host.json("ip -j link show there")[0]["operstate"] == "UP")
    remembering = ((site.host, "cni0"), (neighbour, "eth0"))
    for netns, device in remembering:
        netns.run(f"ip neigh replace {ip} lladdr {OLD_MAC} dev {device} nud stale")
    conf = {"cniVersion": "1.0.0", "name": "net", "type": "bridge", "bridge": "cni0", "ipam": {"type": "slow"}}
    answer = site.call("bridge", "ADD", {**conf, "enabledad": dad}, container=pod, extra=slow_ipam(family))
    assert answer.exit == 0, answer
    mac = answer.result["interfaces"][2]["mac"]
    for netns, device in remembering:
        eventually(lambda netns=netns, device=device: macs(netns, device, ip) == [mac])


BRIDGE = {"cniVersion": "1.0.0", "name": "net", "type": "bridge", "bridge": "cni0", "isDefaultGateway": True}
V4 = {"subnet": "10.1.2.0/24"}
V6 = {"subnet": "fd00:1::/64"}


def network(site, *ranges, **changes):
    ipam = {"type": "host-local", "dataDir": str(site.store), "ranges": [[one] for one in ranges]}
    return {**BRIDGE, "ipam": ipam, **changes}


def attached(site, pod, container, *ranges, **changes):
    """Attach; returns the container's MAC as the result names it, which is what the kernel has."""
    conf = network(site, *ranges or (V4,), **changes)
    answer = site.call("bridge", "ADD", conf, container=pod, id_=container)
    assert answer.exit == 0, answer
    mac = answer.result["interfaces"][2]["mac"]
    assert mac == pod.json("ip -j link show eth0")[0]["address"]
    return mac


def test_an_address_has_the_same_mac_whoever_gets_it(site, make_netns):
    first, neighbour, second = make_netns(), make_netns(), make_netns()
    assert attached(site, first, "c1") == "0a:58:0a:01:02:02"
    assert attached(site, neighbour, "c2") == "0a:58:0a:01:02:03"
    assert neighbour.run("ping -c 1 -W 5 10.1.2.2")
    assert site.call("bridge", "DEL", network(site, V4), container=first, id_="c1").exit == 0
    neighbour.run("ip neigh replace 10.1.2.2 lladdr 0a:58:0a:01:02:02 dev eth0 nud permanent")
    assert attached(site, second, "c3", {**V4, "rangeEnd": "10.1.2.2"}) == "0a:58:0a:01:02:02"
    assert neighbour.run("ping -c 1 -W 5 10.1.2.2")


def test_a_pod_with_ipv4_alone_is_not_heard_when_it_comes(site, make_netns):
    """A thousand pods would each have to hear it, half a dozen times."""
    pod = make_netns()
    mac = attached(site, pod, "c1")
    time.sleep(1.5)
    [port] = site.host.json("ip -j -s link show master cni0")
    assert port["stats64"]["rx"]["packets"] == 0
    assert f"{mac} dev {port['ifname']} master cni0" in site.host.run("bridge fdb show br cni0"), "known all the same"
    assert pod.run("ip -6 address show dev eth0") == ""


def test_ipv6_is_not_off_in_a_pod_that_was_given_none(site, make_netns):
    one, two = make_netns(), make_netns()
    for number, pod in enumerate((one, two), 1):
        attached(site, pod, f"c{number}")
        pod.run(f"ip address add fd00:9::{number}/64 dev eth0 nodad")
    assert "1 received" in one.run("ping -c 1 -W 5 fd00:9::2")


def test_who_remembers_another_mac_is_told(site, make_netns):
    neighbour, pod = make_netns(), make_netns()
    attached(site, neighbour, "c1")
    for netns, device in ((site.host, "cni0"), (neighbour, "eth0")):
        netns.run(f"ip neigh replace 10.1.2.3 lladdr {OLD_MAC} dev {device} nud stale")
    mac = attached(site, pod, "c2")
    for netns, device in ((site.host, "cni0"), (neighbour, "eth0")):
        eventually(lambda netns=netns, device=device: macs(netns, device, "10.1.2.3") == [mac])


def test_no_two_pods_have_one_mac(site, make_netns):
    """Somebody may pin the MAC that he saw, but not the address that it came with."""
    pinned, other = make_netns(), make_netns()
    attached(site, pinned, "c1", runtimeConfig={"mac": "0a:58:0a:01:02:03"})
    pinned.run("ping -c 1 -W 5 10.1.2.1")
    assert attached(site, other, "c2") != "0a:58:0a:01:02:03"
    assert other.run("ip -4 -o address show dev eth0").split()[3] == "10.1.2.3/24"
    other.run("ping -c 1 -W 5 10.1.2.2")


def test_a_link_that_is_too_narrow_for_ipv6_is_no_failure(site, make_netns):
    """There is nothing to be quiet about, and the kernel says so (EAFNOSUPPORT)."""
    pod = make_netns()
    assert attached(site, pod, "c1", mtu=1000)
    assert "mtu 1000" in pod.run("ip link show dev eth0")


def test_a_pod_with_ipv6_has_a_link_local_address_and_its_port_has_none(site, make_netns):
    pod = make_netns()
    attached(site, pod, "c1", V4, V6)
    eventually(lambda: "fe80::" in pod.run("ip -6 address show dev eth0"))
    [port] = [link["ifname"] for link in site.host.json("ip -j link show master cni0")]
    assert site.host.run(f"ip -6 address show dev {port}") == ""


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"runtimeConfig": {"mac": "02:00:00:00:00:07"}}, id="asked-for"),
        pytest.param({"isDefaultGateway": False}, id="not-the-gateway"),
        pytest.param({"macspoofchk": True}, id="rules-name-it"),
        pytest.param({"ipam": {"type": "static", "addresses": [{"address": "10.1.2.9/24"}]}}, id="other-ipam"),
    ],
)
def test_a_mac_that_is_not_ours_to_give_stays(site, make_netns, changes):
    assert not attached(site, make_netns(), "c1", **changes).startswith("0a:58:")
