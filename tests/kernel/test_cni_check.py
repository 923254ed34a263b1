"""CHECK, GC and STATUS of bridge and loopback: what is wrong is named, what is gone goes, what is alive stays."""

import json

import pytest

from tests.kernel.test_cni_bridge import V4, add, addresses, config, delete, links, reaches, veths
from tests.kernel.test_cni_bridgekeys import OTHER_MAC, spoof_rules

CHECKED = ["0.4.0", "1.0.0", "1.1.0"]
ROUTED = {**V4, "routes": [{"dst": "10.9.0.0/16", "gw": "10.1.2.1"}]}
SETS = {"ranges": [[{"subnet": "10.1.2.0/24"}], [{"subnet": "fd00::/64"}]]}


def check(site, conf, pod, result, **more):
    return site.call("bridge", "CHECK", conf | {"prevResult": result}, container=pod, **more)


def collect(site, conf, *valid):
    listed = [{"containerID": id_, "ifname": ifname} for id_, ifname in valid]
    return site.call("bridge", "GC", conf | {"cni.dev/valid-attachments": listed}, id_="", ifname="")


def records(site):
    directory = site.directory / "state" / "attachments"
    return {json.loads(path.read_text())["container"] for path in directory.glob("*.json")}


# --- CHECK


# What somebody does in the container or on the host, the error's text, and what is there instead.
IN_CONTAINER = {
    "ip addr del 10.1.2.2/24 dev eth0; ip addr add 10.1.2.77/24 dev eth0": (
        "Failed to match addr 10.1.2.2/24 on interface eth0",
        "eth0 has 10.1.2.77/24",
    ),
    "ip route del 10.9.0.0/16": (
        "Expected Route {Dst:10.9.0.0/16 GW:10.1.2.1} not found in routing table",
        "there is none to 10.9.0.0/16",
    ),
    "ip route del default": (
        "Expected Route {Dst:0.0.0.0/0 GW:10.1.2.1} not found in routing table",
        "there is none to 0.0.0.0/0",
    ),
    "ip link del eth0": ("Interface name eth0 not found", "the container has no eth0"),
    f"ip link set eth0 address {OTHER_MAC}": (f"doesn't match container Mac: {OTHER_MAC}", f"and has {OTHER_MAC}"),
    "ip link set eth0 down; ip link set eth0 name eth7; ip link add eth0 type bridge": (
        "Error: Container interface eth0 not of type veth",
        "eth0 is of kind bridge",
    ),
}
ON_HOST = {
    "ip link del cni0": ("Interface name cni0 not found", "the host has no cni0"),
    "ip link set cni0 promisc on": (
        "Bridge interface cni0 configured Promisc Mode false doesn't match current state: true",
        "switched on by somebody",
    ),
}


@pytest.mark.spec("cni.md B29")
@pytest.mark.parametrize("version", CHECKED)
@pytest.mark.parametrize("command", [*IN_CONTAINER, *ON_HOST])
def test_what_is_wrong_is_named(site, pod, version, command):
    conf = config(site, ROUTED, version=version, isDefaultGateway=True)
    result = add(site, conf, pod).result
    assert check(site, conf, pod, result).exit == 0
    theirs = site.via("debian")("bridge", "CHECK", conf | {"prevResult": result}, container=pod)
    assert theirs.msg == ("plugin version does not allow CHECK" if version == "1.1.0" else "")
    (pod if command in IN_CONTAINER else site.host).run(command)
    msg, found = (IN_CONTAINER | ON_HOST)[command]
    answer = check(site, conf, pod, result)
    assert answer.code == 999
    assert msg in answer.msg
    assert answer.json["details"].startswith("CHECK-001: ")
    assert found in answer.json["details"]


@pytest.mark.parametrize(
    "command, msg",
    [
        ("ip link set {veth} nomaster", "CNI veth created for bridge cni0 was not found"),
        ("ip link set {veth} down", "Interface {veth} is down"),
        ("bridge link set dev {veth} hairpin off", "Port {veth} of bridge cni0: hairpin mode is off"),
        ("ip addr del 10.1.2.1/24 dev cni0", "Gateway address 10.1.2.1/24 not found on cni0"),
        ("ip addr del fd00::1/64 dev cni0", "Gateway address fd00::1/64 not found on cni0"),
        ("sysctl -w net.ipv4.ip_forward=0", "IPv4 forwarding is off"),
        ("sysctl -w net.ipv6.conf.all.forwarding=0", "IPv6 forwarding is off"),
        ("ip6tables -t nat -F POSTROUTING", "IP masquerade rule for fd00::2 not found"),
        ("nft delete table bridge nat", "spoof-check rules not found"),
        ("nft flush chain bridge nat PREROUTING", "spoof-check rules not found"),
    ],
)
def test_what_upstream_does_not_look_at(site, pod, command, msg):
    conf = config(site, SETS, isDefaultGateway=True, ipMasq=True, hairpinMode=True, macspoofchk=True)
    result = add(site, conf, pod).result
    [veth] = veths(site.host)
    assert check(site, conf, pod, result).exit == 0
    site.host.run(command.format(veth=veth))
    assert check(site, conf, pod, result).msg == msg.format(veth=veth)


@pytest.mark.parametrize("vlans", [{"vlan": 7}, {"vlanTrunk": [{"id": 7}]}])
def test_vlans_of_a_bridge_that_does_not_filter_them(site, pod, vlans):
    conf = config(site, SETS)
    result = add(site, conf, pod).result
    assert check(site, conf | vlans, pod, result).msg == "Bridge interface cni0 has VLAN filtering off"


@pytest.mark.parametrize("kind", ["iptables", "nftables"])
@pytest.mark.parametrize("forgotten", [False, True])
def test_masquerade_is_looked_for_in_the_kind_that_it_has(site, pod, kind, forgotten):
    conf = config(site, SETS, ipMasq=True, ipMasqBackend=kind)
    result = add(site, conf, pod).result
    if forgotten:
        del conf["ipMasqBackend"]
        for record in (site.directory / "state").rglob("*.json"):
            record.unlink()
    assert check(site, conf, pod, result).exit == 0
    site.host.run("nft flush ruleset")
    assert check(site, conf, pod, result).msg == "IP masquerade rule for 10.1.2.2 not found"


def test_an_attachment_that_the_reference_made(site, pod):
    conf = config(site, SETS, isDefaultGateway=True, ipMasq=True)
    result = site.via("debian")("bridge", "ADD", conf, container=pod).result
    assert check(site, conf, pod, result).exit == 0


@pytest.mark.spec("cni.md B15")
def test_promiscuous_mode(site, pod):
    conf = config(site, promiscMode=True)
    result = add(site, conf, pod).result
    assert links(site.host)["cni0"]["promiscuity"] == 1
    assert check(site, conf, pod, result).exit == 0
    answer = check(site, config(site), pod, result)
    assert answer.msg == "Bridge interface cni0 configured Promisc Mode false doesn't match current state: true"


@pytest.mark.spec("cni.md B30")
def test_check_needs_the_result_of_add(site, pod):
    conf = config(site)
    answer = site.call("bridge", "CHECK", conf, container=pod)
    assert "prevResult" not in answer.msg  # IPAM is asked first, and knows of no such container
    add(site, conf, pod)
    answer = site.call("bridge", "CHECK", conf, container=pod)
    assert (answer.code, answer.msg) == (999, "Required prevResult missing")


def test_layer_2(site, pod):
    conf = config(site, None)
    result = add(site, conf, pod).result
    assert check(site, conf, pod, result).exit == 0
    down = config(site, None, disableContainerInterface=True)
    pod.run("ip link set eth0 down")
    assert check(site, down, pod, result).exit == 0
    assert check(site, conf, pod, result).msg == "Interface eth0 is down"


def test_a_namespace_that_is_another_one(site, pod, make_netns):
    conf = config(site)
    result = add(site, conf, pod).result
    other = make_netns()
    answer = check(site, conf, other, result)
    assert answer.msg == f"Sandbox in prevResult {pod.path} doesn't match configured netns: {other.path}"
    assert "failed to open netns" in check(site, conf, None, result, netns="/run/netns/gone").msg


def test_what_later_plugins_change_is_no_fault(site, pod):
    conf = config(site, ROUTED, isDefaultGateway=True)
    result = add(site, conf, pod).result
    pod.run("ip link set eth0 mtu 1300 promisc on")
    pod.run("ip route del 10.9.0.0/16; ip route add 10.9.0.0/16 via 10.1.2.1 table 100")  # sbr moves them
    assert check(site, conf, pod, result).exit == 0


# --- GC


@pytest.mark.parametrize("kind", ["iptables", "nftables"])
def test_what_is_gone_goes_and_what_is_alive_stays(site, pod, make_netns, kind):
    more = {"isDefaultGateway": True, "ipMasq": True, "ipMasqBackend": kind, "macspoofchk": True}
    conf = config(site, SETS, version="1.1.0", **more)
    other = conf | {"name": "other", "bridge": "br1"}
    pods = {"c1": pod, "c2": make_netns(), "c3": make_netns()}
    for id_, one in pods.items():
        assert add(site, conf, one, id_=id_).exit == 0
    other["ipam"] = {"type": "host-local", "dataDir": str(site.store), "ranges": [[{"subnet": "10.77.0.0/24"}]]}
    assert add(site, other, make_netns(), id_="c9").exit == 0
    rules = {"iptables": "iptables-save -t nat; ip6tables-save -t nat", "nftables": "nft list ruleset"}[kind]
    assert collect(site, conf, *((id_, "eth0") for id_ in pods)).exit == 0
    assert len(veths(site.host)) == 4
    assert "10.1.2.3" in site.host.run(rules)

    assert collect(site, conf, ("c1", "eth0"), ("c3", "eth1")).exit == 0

    assert sorted(site.reservations("net")) == ["10.1.2.2", "fd00::2"]
    assert len(veths(site.host)) == 2
    assert records(site) == {"c1", "c9"}
    left = site.host.run(rules)
    assert all(address in left for address in ("10.1.2.2", "fd00::2", "10.77.0.2"))
    assert not any(address in left for address in ("10.1.2.3", "10.1.2.4", "fd00::3"))
    assert {name for name in spoof_rules(site) if not name.endswith("-mac")} == {
        "PREROUTING",
        "cni-br-iface-c1-eth0",
        "cni-br-iface-c9-eth0",
    }
    reaches(site, pod, "10.1.2.1")


def test_nothing_is_valid(site, pod):
    conf = config(site, version="1.1.0")
    add(site, conf, pod)
    assert collect(site, conf).exit == 0
    assert (site.reservations("net"), veths(site.host), records(site)) == ({}, [], set())
    answer = site.call("bridge", "GC", conf, id_="", ifname="")
    assert answer.code == 7  # no list at all is not an empty one


@pytest.mark.spec("cni.md N3")
def test_gc_of_nft_rules_by_their_comments(site, make_netns):
    """Also of attachments that we know nothing of: the reference may have made them."""
    conf = config(site, V4, version="1.1.0", name="unit-test", ipMasq=True, ipMasqBackend="nftables")
    for id_ in ("one", "two", "three", "four"):
        assert add(site, conf, make_netns(), id_=id_).exit == 0
    other = conf | {"name": "alternate", "ipam": conf["ipam"] | {"ranges": [[{"subnet": "10.77.0.0/24"}]]}}
    assert add(site, other, make_netns(), id_="four").exit == 0
    for record in (site.directory / "state").rglob("*.json"):
        record.unlink()
    assert collect(site, conf, ("two", "eth0"), ("three", "eth0"), ("one", "eth0")).exit == 0
    left = site.host.run("nft list chain inet cni_plugins_masquerade masq_checks")
    assert [f"net: unit-test, if: eth0, id: {id_}" in left for id_ in ("one", "two", "three", "four")] == [
        True,
        True,
        True,
        False,
    ]
    assert "net: alternate, if: eth0, id: four" in left


@pytest.mark.spec("cni.md N4")
def test_gc_of_all_nft_rules_leaves_the_chains(site, make_netns):
    conf = config(site, V4, version="1.1.0", ipMasq=True, ipMasqBackend="nftables")
    for id_ in ("one", "two"):
        assert add(site, conf, make_netns(), id_=id_).exit == 0
    assert collect(site, conf).exit == 0
    left = site.host.run("nft list table inet cni_plugins_masquerade")
    assert "chain masq_checks" in left
    assert "chain postrouting" in left
    assert " masquerade " not in left


def test_gc_of_one_interface_of_a_container(site, pod):
    conf = config(site, V4, version="1.1.0", isGateway=True, ipMasq=True, ipMasqBackend="iptables")
    add(site, conf, pod)
    add(site, conf, pod, ifname="eth1")
    assert collect(site, conf, ("c1", "eth1")).exit == 0
    saved = site.host.run("iptables-save -t nat")
    assert "-s 10.1.2.2/32" not in saved
    assert "-s 10.1.2.3/32" in saved
    assert "MASQUERADE" in saved
    assert addresses(pod, "eth1") == ["10.1.2.3/24"]


def test_gc_goes_on_after_a_failure_and_says_so(site, pod, monkeypatch):
    conf = config(site, V4, version="1.1.0", macspoofchk=True, ipMasq=True)
    add(site, conf, pod)
    answer = collect(site, conf | {"ipam": {"type": "nope"}})
    assert answer.msg == 'failed to find plugin "nope" in path [/usr/lib/cni]'
    assert (veths(site.host), spoof_rules(site)) == ([], {"PREROUTING": []})
    with monkeypatch.context() as patch:
        patch.setattr("weft.cni.host.programs.find", lambda *_: None)
        answer = collect(site, conf | {"ipam": {"type": "nope"}})
    assert answer.msg.startswith("iptables-save: program not found; ")
    assert answer.msg.endswith('; failed to find plugin "nope" in path [/usr/lib/cni]')
    assert records(site) == {"c1"}  # what proves the leak is kept until the address is free
    assert collect(site, conf).exit == 0
    assert (records(site), site.reservations("net")) == (set(), {})


def test_a_link_that_is_not_provably_ours_is_left_alone(site, pod):
    conf = config(site, None, version="1.1.0")
    add(site, conf, pod)
    [veth] = veths(site.host)
    site.host.run(f"ip link set {veth} alias somebodys")
    assert collect(site, conf).exit == 0
    assert veths(site.host) == [veth]


def test_records_of_another_boot_are_forgotten(site, pod):
    conf = config(site, version="1.1.0")
    add(site, conf, pod)
    [path] = (site.directory / "state" / "attachments").iterdir()
    path.write_text(json.dumps(json.loads(path.read_text()) | {"boot": "boot-0"}))
    assert collect(site, conf).exit == 0
    assert len(veths(site.host)) == 1  # its index meant something else then
    assert (records(site), site.reservations("net")) == (set(), {})


# --- STATUS


def status(site, conf):
    return site.call("bridge", "STATUS", conf, id_="", ifname="")


def test_status_is_that_of_an_add(site, pod):
    conf = config(site, version="1.1.0", isGateway=True, ipMasq=True, macspoofchk=True)
    assert status(site, conf).exit == 0
    assert status(site, config(site, None, version="1.1.0")).exit == 0
    assert status(site, conf | {"vlan": 5000}).code == 999
    assert status(site, conf | {"ipam": {"type": "nope"}}).msg.startswith('failed to find plugin "nope"')
    add(site, conf, pod)
    assert status(site, conf).exit == 0


def test_status_of_a_bridge_that_is_none(site):
    site.host.run("ip link add cni0 type veth peer name y")
    answer = status(site, config(site, version="1.1.0"))
    assert (answer.code, answer.msg) == (
        50,
        'failed to create bridge "cni0": "cni0" already exists but is not a bridge',
    )


def test_status_of_a_bridge_of_another_subnet(site):
    site.host.bridge("cni0", "10.0.0.1/8")
    conf = config(site, version="1.1.0", isGateway=True)
    answer = status(site, conf)
    assert (answer.code, answer.msg) == (50, '"cni0" already has an IP address different from 10.1.2.1/24')
    assert answer.json["details"].startswith("BRIDGE-001")
    assert status(site, conf | {"forceAddress": True}).exit == 0
    assert status(site, config(site, version="1.1.0")).exit == 0  # not a gateway
    runtime = config(site, {"ranges": []}, version="1.1.0", isGateway=True) | {"capabilities": {"ipRanges": True}}
    assert status(site, runtime).exit == 0  # they come with the ADD
    several = {"ranges": [[{"subnet": "10.1.2.0/24"}, {"subnet": "10.1.3.0/24"}]]}
    assert status(site, config(site, several, version="1.1.0", isGateway=True)).exit == 0


@pytest.mark.parametrize(
    "keys, msg",
    [
        ({"ipMasq": True}, "ipMasq needs iptables or nftables, which does not work here"),
        ({"ipMasq": True, "ipMasqBackend": "nftables"}, "ipMasq needs nftables, which does not work here"),
        ({"macspoofchk": True}, "macspoofchk needs nft, which does not work here"),
    ],
)
def test_status_without_the_tools(site, monkeypatch, keys, msg):
    monkeypatch.setattr("weft.cni.host.programs.find", lambda *_: None)
    answer = status(site, config(site, version="1.1.0", **keys))
    assert (answer.code, answer.msg) == (50, msg)


# --- loopback


@pytest.mark.spec("cni.md O1")
def test_loopback(site, pod):
    conf = {"cniVersion": "1.0.0", "name": "net", "type": "loopback"}
    result = site.call("loopback", "ADD", conf, container=pod).result
    assert [ip["address"] for ip in result["ips"]] == ["127.0.0.1/8", "::1/128"]
    again = conf | {"prevResult": result}
    assert site.call("loopback", "CHECK", again, container=pod).exit == 0
    assert site.call("loopback", "DEL", again, container=pod).exit == 0
    answer = site.call("loopback", "CHECK", again, container=pod)
    assert answer.msg == "loopback interface is down"
    assert answer.json["details"].startswith("CHECK-001")
    assert "failed to open netns" in site.call("loopback", "CHECK", again, netns="/run/netns/gone").msg


def test_del_of_what_was_collected(site, pod):
    conf = config(site, version="1.1.0", macspoofchk=True, ipMasq=True)
    add(site, conf, pod)
    assert collect(site, conf).exit == 0
    assert delete(site, conf, pod).exit == 0
