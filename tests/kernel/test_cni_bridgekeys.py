"""bridge's rarer keys: VLANs as far as this kernel goes, source MACs, duplicate addresses, ports set apart."""

import time

import pytest

from tests.kernel.test_cni_bridge import V6, add, addresses, config, delete, links, sysctl, veths
from tests.support.waiting import in_time

OTHER_MAC = "c2:11:22:33:44:66"


# --- VLANs: this machine's kernel has none; where one has, tests/vm runs what follows.


@pytest.mark.parametrize("keys", [{"vlan": 100}, {"vlanTrunk": [{"id": 7}]}, {"vlanTrunk": []}])
def test_a_kernel_without_vlan_filtering_says_so(site, pod, keys):
    answer = add(site, config(site, **keys), pod)
    assert answer.msg == 'failed to create bridge "cni0": could not add "cni0": operation not supported'
    if "vlan" in keys:  # Debian's does not know vlanTrunk yet
        assert site.via("debian")("bridge", "ADD", config(site, **keys), container=pod).msg == answer.msg
    assert answer.json["details"].startswith("BRIDGE-004")
    assert (set(links(site.host)), site.reservations("net")) == ({"lo"}, {})


def test_vlans_on_a_bridge_that_was_made_without_them(site, pod):
    site.host.bridge("cni0")
    answer = add(site, config(site, vlan=100, isGateway=True), pod)
    assert answer.msg.startswith('failed to setup vlan on interface "veth')
    assert answer.json["details"].startswith("BRIDGE-004")
    assert "cni0 was made without VLAN filtering" in answer.stderr
    assert (veths(site.host), site.reservations("net")) == ([], {})


# --- macspoofchk


def spoof_rules(site):
    """The rules of each chain by the chain's name; empty without our table."""
    found: dict[str, list[str]] = {}
    name = ""
    for line in map(str.strip, site.host.run("nft list ruleset bridge").splitlines()):
        if line.startswith("chain "):
            name = line.split()[1]
            found[name] = []
        elif line not in ("", "}") and not line.startswith(("table ", "type ")):
            found[name].append(line)
    return found


@pytest.mark.spec("cni.md B20")
def test_rules_against_spoofed_macs(site, pod):
    conf = config(site, macspoofchk=True)
    assert add(site, conf, pod).exit == 0
    [veth] = veths(site.host)
    mac = links(pod)["eth0"]["address"]
    comment = 'comment "macspoofchk-c1-eth0"'
    assert spoof_rules(site) == {
        "PREROUTING": [f'iifname "{veth}" jump cni-br-iface-c1-eth0 {comment}'],
        "cni-br-iface-c1-eth0": [f"jump cni-br-iface-c1-eth0-mac {comment}"],
        "cni-br-iface-c1-eth0-mac": [f"ether saddr {mac} return {comment}", f"drop {comment}"],
    }
    base = site.host.run("nft -n list chain bridge nat PREROUTING")
    assert "type filter hook prerouting priority -300; policy accept;" in base
    assert delete(site, conf, pod).exit == 0
    assert spoof_rules(site) == {"PREROUTING": []}
    assert delete(site, conf, pod).exit == 0


def test_a_pod_that_pretends_to_be_another_is_not_heard(site, pod, make_netns):
    conf = config(site, macspoofchk=True, isGateway=True)
    other = make_netns()
    assert add(site, conf, pod).exit == 0
    assert add(site, conf, other, id_="c2").exit == 0
    assert pod.run("ping -c1 -W5 10.1.2.1")
    own = links(pod)["eth0"]["address"]
    pod.run(f"ip link set eth0 address {OTHER_MAC}")
    assert "0 received" in pod.run("ping -c2 -i0.2 -W1 10.1.2.1", check=False)
    assert other.run("ping -c1 -W5 10.1.2.1")  # its own rules let it through
    pod.run(f"ip link set eth0 address {own}")
    assert pod.run("ping -c1 -W5 10.1.2.1")


@pytest.mark.parametrize("path", ["", "/run/netns/gone"])
@pytest.mark.parametrize("forgotten", [False, True])
def test_rules_go_although_the_namespace_has_gone(site, pod, make_netns, path, forgotten):
    conf = config(site, macspoofchk=True)
    add(site, conf, pod)
    add(site, conf, make_netns(), id_="c2")
    if forgotten:
        for record in (site.directory / "state").rglob("*.json"):
            record.unlink()
    assert delete(site, conf, netns=path).exit == 0
    left = spoof_rules(site)
    assert set(left) == {"PREROUTING", "cni-br-iface-c2-eth0", "cni-br-iface-c2-eth0-mac"}
    assert len(left["PREROUTING"]) == 1


def test_rules_go_although_the_configuration_no_longer_asks_for_them(site, pod):
    add(site, config(site, macspoofchk=True), pod)
    assert delete(site, config(site), pod).exit == 0
    assert spoof_rules(site) == {"PREROUTING": []}


def test_the_reference_and_we_remove_each_others_rules(site, pod):
    conf = config(site, None, macspoofchk=True)
    assert add(site, conf, pod).exit == 0
    assert site.via("debian")("bridge", "DEL", conf, container=pod).exit == 0
    assert spoof_rules(site) == {"PREROUTING": []}
    assert site.via("debian")("bridge", "ADD", conf, container=pod).exit == 0
    assert delete(site, conf, pod).exit == 0
    assert spoof_rules(site) == {"PREROUTING": []}


def test_names_that_nft_would_take_for_something_else(site, pod):
    conf = config(site, None, macspoofchk=True)
    for id_, ifname in (("c" * 128, "eth0"), ("c2", 'a";drop'), ("c3", "a}b")):
        assert add(site, conf, pod, id_=id_, ifname=ifname).exit == 0
        assert delete(site, conf, pod, id_=id_, ifname=ifname).exit == 0
    assert spoof_rules(site) == {"PREROUTING": []}


def test_nothing_stays_when_nft_refuses(site, pod):
    site.host.run("nft add table bridge nat '{ chain PREROUTING { type filter hook output priority 0; }; }'")
    answer = add(site, config(site, macspoofchk=True), pod)
    assert answer.msg.startswith("failed to setup spoof-check: ")
    assert (veths(site.host), site.reservations("net")) == ([], {})


# --- duplicate addresses


@pytest.mark.spec("cni.md B36")
def test_duplicates_are_looked_for_without_the_famous_delay(site, pod):
    started = time.monotonic()
    result = add(site, config(site, V6, isDefaultGateway=True, enabledad=True), pod).result
    assert in_time(started, 1)
    assert [ip["address"] for ip in result["ips"]] == ["2001:db8::2/64"]
    [link] = pod.json("ip -j addr show dev eth0")
    assert not any("tentative" in one or "nodad" in one for one in link["addr_info"])
    assert sysctl(pod, "net/ipv6/conf/eth0/accept_dad") == "1"
    assert sysctl(pod, "net/ipv6/conf/eth0/enhanced_dad") == "1"
    # The waits that were shortened are as they were.
    assert sysctl(pod, "net/ipv6/neigh/eth0/retrans_time_ms") == "1000"
    assert sysctl(pod, "net/ipv6/conf/eth0/router_solicitation_delay") == "1"
    [default] = pod.json("ip -j -6 route show default")
    assert default["gateway"] == "2001:db8::1"


def test_an_address_that_another_host_has(site, pod):
    site.host.bridge("cni0", "2001:db8::2/64")
    answer = add(site, config(site, V6, enabledad=True), pod)
    assert answer.msg == "link eth0 has address 2001:db8::2 in DADFAILED state"
    assert answer.json["details"].startswith("BRIDGE-005")
    assert (veths(site.host), site.reservations("net"), set(links(pod))) == ([], {}, {"lo"})


def test_ipv4_has_nothing_to_detect(site, pod):
    assert add(site, config(site, enabledad=True), pod).exit == 0
    assert addresses(pod, "eth0") == ["10.1.2.2/24"]


# --- ports that are set apart


@pytest.mark.spec("cni.md B21")
def test_no_addresses_for_an_interface_that_stays_down(site, pod):
    answer = add(site, config(site, disableContainerInterface=True), pod)
    assert (answer.code, answer.msg) == (999, "cannot use IPAM when DisableContainerInterface flag is set")
    assert set(links(site.host)) == {"lo"}


@pytest.mark.spec("cni.md B22")
def test_an_interface_that_stays_down(site, pod):
    conf = config(site, None, disableContainerInterface=True)
    result = add(site, conf, pod).result
    end = links(pod)["eth0"]
    assert end["operstate"] == "DOWN"
    assert result["interfaces"][2]["mac"] == end["address"]
    [link] = pod.json("ip -j addr show dev eth0")
    assert link["addr_info"] == []
    assert delete(site, conf, pod).exit == 0
    assert veths(site.host) == []


@pytest.mark.spec("cni.md B23")
@pytest.mark.parametrize("isolated", [True, False])
def test_isolated_ports(site, pod, isolated):
    add(site, config(site, portIsolation=isolated), pod)
    [veth] = veths(site.host)
    port = links(site.host)[veth]["linkinfo"]["info_slave_data"]
    assert (port["isolated"], port["hairpin"]) == (isolated, False)


# --- forwarding


def test_a_host_that_learns_its_default_route_keeps_it(site, pod):
    """Forwarding makes the kernel drop what it has learnt from advertisements, and listen no more: but for 2."""
    site.host.bridge("up0", "fe80::1/64")
    site.host.bridge("up1", "fe80::2/64")
    site.host.run("ip -6 route add default via fe80::9 dev up0 proto ra expires 1000")
    assert add(site, config(site, V6, isGateway=True), pod).exit == 0
    assert sysctl(site.host, "net/ipv6/conf/all/forwarding") == "1"
    assert sysctl(site.host, "net/ipv6/conf/up0/accept_ra") == "2"
    assert sysctl(site.host, "net/ipv6/conf/up1/accept_ra") == "1"
    assert site.host.json("ip -j -6 route show default")[0]["dev"] == "up0"
