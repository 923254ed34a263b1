"""bridge's VLANs, in the virtual machine, whose kernel filters them (cni.md §3.2 step 6, §3.5): rows B6 and B7."""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.support.cni.site import Site
from tests.support.netns import Netns
from weft.kernel.rtnetlink.bridgeport import list_vlans, parse_vlans

V4 = {"type": "host-local", "ranges": [[{"subnet": "10.1.2.0/24"}]]}


class Node:
    """A site, and as many pods as are asked for."""

    def __init__(self, stack: ExitStack, directory: Path) -> None:
        self._stack = stack
        self.site = Site(stack.enter_context(Netns()), directory)

    def pod(self) -> Netns:
        return self._stack.enter_context(Netns())

    def config(self, *, layer3: bool, **more: Any) -> dict[str, Any]:
        conf = {"cniVersion": "1.0.0", "name": "net", "type": "bridge", "bridge": "br0", **more}
        return conf | ({"ipam": V4 | {"dataDir": str(self.site.store)}} if layer3 else {})

    def add(self, conf: dict[str, Any], pod: Netns, id_: str = "c1") -> Any:
        return self.site.call("bridge", "ADD", conf, container=pod, id_=id_).result

    def veth(self) -> str:
        """The only host's end of a pod."""
        [name] = [link.name for link in self.site.host.rtnl.links() if link.alias.startswith("weft:pod:")]
        return name

    def vlans(self, port: str) -> dict[int, set[str]]:
        """The VLANs of a port with their flags, as `bridge` says them; ours must say the same."""
        [listed] = self.site.host.json(f"bridge -j vlan show dev {port}")
        found = {one["vlan"]: set(one.get("flags", ())) for one in expanded(listed["vlans"])}
        link = self.site.host.rtnl.link(port)
        assert link is not None
        all_ports = map(parse_vlans, self.site.host.rtnl.dump(*list_vlans()))
        [seen] = [one for one in all_ports if one.index == link.index]
        assert {seen.own} - {0} == {vlan for vlan, flags in found.items() if "PVID" in flags}
        assert seen.untagged == {vlan for vlan, flags in found.items() if "Egress Untagged" in flags}
        assert seen.tagged == {vlan for vlan, flags in found.items() if "Egress Untagged" not in flags}
        return found


def expanded(listed: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for one in listed:
        for vlan in range(one["vlan"], one.get("vlanEnd", one["vlan"]) + 1):
            yield one | {"vlan": vlan}


@contextmanager
def node() -> Iterator[Node]:
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        yield Node(stack, Path(name))


OWN = {"PVID", "Egress Untagged"}


def check_b6_the_gateway_of_a_vlan() -> None:
    with node() as here:
        pod, conf = here.pod(), here.config(layer3=True, vlan=100, isDefaultGateway=True)
        result = here.add(conf, pod)
        host = {link["ifname"]: link for link in here.site.host.json("ip -j -d addr")}
        assert [one["name"] for one in result["interfaces"]] == ["br0", here.veth(), "eth0", "br0.100"]
        assert result["interfaces"][3] == {"name": "br0.100", "mac": host["br0.100"]["address"]}
        assert host["br0"]["linkinfo"]["info_data"]["vlan_filtering"] == 1
        assert [one["local"] for one in host["br0.100"]["addr_info"] if one["family"] == "inet"] == ["10.1.2.1"]
        assert not [one for one in host["br0"]["addr_info"] if one["family"] == "inet"]
        assert here.vlans(here.veth()) == {100: OWN}
        assert here.vlans(host["br0.100"]["link"]) == {100: OWN}
        pod.run("ping -c1 -W5 10.1.2.1")
        checked = here.site.call("bridge", "CHECK", conf | {"prevResult": result}, container=pod)
        assert checked.exit == 0, checked.json
        here.site.host.run(f"bridge vlan del dev {here.veth()} vid 100")
        wrong = here.site.call("bridge", "CHECK", conf | {"prevResult": result}, container=pod)
        assert wrong.msg == f"Port {here.veth()} is not in VLAN 100"
        assert here.site.call("bridge", "DEL", conf, container=pod).exit == 0
        assert here.site.host.rtnl.link("br0.100") is not None  # the node's, like the bridge


def check_b6_the_default_vlan_is_kept_if_asked_for() -> None:
    with node() as here:
        here.add(here.config(layer3=True, vlan=100, isGateway=True, preserveDefaultVlan=True), here.pod())
        assert here.vlans(here.veth()) == {1: {"Egress Untagged"}, 100: OWN}


def check_b7_a_trunk() -> None:
    trunk = [{"id": 101}, {"minID": 200, "maxID": 210}]
    tagged = {vlan: set() for vlan in (101, *range(200, 211))}
    for more, own in (({}, 1), ({"vlan": 100}, 100)):
        with node() as here:
            pod, conf = here.pod(), here.config(layer3=False, vlanTrunk=trunk, **more)
            result = here.add(conf, pod)
            assert here.vlans(here.veth()) == {own: OWN, **tagged}
            assert here.site.call("bridge", "CHECK", conf | {"prevResult": result}, container=pod).exit == 0
            here.site.host.run(f"bridge vlan del dev {here.veth()} vid 205")
            wrong = here.site.call("bridge", "CHECK", conf | {"prevResult": result}, container=pod)
            assert wrong.msg == f"Port {here.veth()} does not carry VLAN 205"


def check_a_bridge_that_filters_without_a_vlan() -> None:
    with node() as here:
        here.add(here.config(layer3=False, vlanTrunk=[]), here.pod())
        assert here.vlans(here.veth()) == {1: OWN}


def check_vlans_keep_pods_apart() -> None:
    with node() as here:
        pods = {}
        for id_, vlan in (("c1", 100), ("c2", 100), ("c3", 200)):
            pods[id_] = here.pod()
            here.add(here.config(layer3=True, vlan=vlan), pods[id_], id_)
        assert " 0% packet loss" in pods["c1"].run("ping -c1 -W5 10.1.2.3")
        assert "100% packet loss" in pods["c1"].run("ping -c1 -W2 10.1.2.4", check=False)


def check_what_a_killed_add_left_of_a_gateway_is_completed() -> None:
    with node() as here:
        here.site.host.rtnl.add_bridge("br0", vlan_filtering=True, up=True)
        here.site.host.run("ip link add br0.100 type veth peer name veth01234567")
        pod = here.pod()
        here.add(here.config(layer3=True, vlan=100, isGateway=True), pod)
        assert here.vlans("veth01234567") == {100: OWN}
        pod.run("ping -c1 -W5 10.1.2.1")


def check_a_bridge_made_without_filtering_is_told() -> None:
    with node() as here:
        here.site.host.bridge("br0")
        pod, conf = here.pod(), here.config(layer3=False, vlan=100)
        answer = here.site.call("bridge", "ADD", conf, container=pod)
        assert "br0 was made without VLAN filtering" in answer.stderr
        wrong = here.site.call("bridge", "CHECK", conf | {"prevResult": answer.result}, container=pod)
        assert wrong.msg == "Bridge interface br0 has VLAN filtering off"
