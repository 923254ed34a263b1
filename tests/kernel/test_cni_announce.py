"""A pod's addresses are announced when its port forwards: who remembers an earlier pod's MAC hears of the new one."""

import json
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
