"""ptp beside the reference's: the same results and the same state; and what ours does better."""

import pytest

from tests.kernel.test_cni_bridge import addresses, links, sysctl, veths
from tests.support.cni.site import Site
from weft.wire.cni import VERSIONS

V4 = {
    "ranges": [[{"subnet": "10.7.0.0/24"}]],
    "routes": [{"dst": "0.0.0.0/0"}, {"dst": "10.9.0.0/16", "gw": "10.7.0.9"}],
}
V6 = {"ranges": [[{"subnet": "fd07::/64"}]], "routes": [{"dst": "::/0"}]}
BOTH = {"ranges": [*V4["ranges"], *V6["ranges"]], "routes": [*V4["routes"], *V6["routes"]]}


def config(site, ipam=BOTH, *, version="1.0.0", **more):
    ipam = {"type": "host-local", "dataDir": str(site.store), **ipam}
    return {"cniVersion": version, "name": "pnet", "type": "ptp", "ipam": ipam, **more}


def call(site, command, conf, pod=None, **more):
    return site.call("ptp", command, conf, container=pod, **more)


def check(site, conf, pod, result):
    return call(site, "CHECK", conf | {"prevResult": result}, pod)


def plain(result):
    """The result without what is there by chance."""
    blank = {"name": "", "mac": "", "sandbox": ""}
    return result | {"dns": result.get("dns", {}), "interfaces": [one | blank for one in result.get("interfaces", [])]}


def routes(netns, name):
    """All routes of a link as `ip` says them, but for those of its link-local address."""
    found = [
        {key: value for key, value in route.items() if key not in ("dev", "flags", "pref")}
        for family in (4, 6)
        for route in netns.json(f"ip -j -{family} -d route show table all dev {name}")
    ]
    local = ("fe80", "multicast", "ff00")
    kept = [route for route in found if not str(route["dst"]).startswith(local) and route.get("type") != "multicast"]
    # The reference's host end still looks for duplicates when it answers: its local routes come later.
    return sorted((route for route in kept if route.get("table") != "local"), key=str)


def state(host, pod):
    [veth] = veths(host)
    [end] = pod.json("ip -j -d link show dev eth0")
    return {
        "addresses": (addresses(host, veth), addresses(pod, "eth0")),
        "broadcast": [one.get("broadcast") for one in pod.json("ip -j -4 addr show dev eth0")[0]["addr_info"]],
        "host routes": routes(host, veth),
        "container routes": routes(pod, "eth0"),
        "mtu": (links(host)[veth]["mtu"], end["mtu"]),
        "forwarding": [sysctl(host, name) for name in ("net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding")],
        "settings": [
            sysctl(host, f"net/ipv6/conf/{veth}/accept_ra"),
            sysctl(pod, "net/ipv6/conf/eth0/accept_ra"),
            sysctl(pod, "net/ipv6/conf/eth0/accept_dad"),
        ],
        "masquerade": [
            line
            for line in host.run("iptables-save -t nat; ip6tables-save -t nat").splitlines()
            if line.startswith("-A") and "CNI-" in line
        ],
    }


@pytest.mark.parametrize("version", VERSIONS[:-1])
@pytest.mark.parametrize("ipam", [V4, BOTH], ids=["v4", "both"])
def test_the_same_result_and_state_as_the_reference(site, pod, make_netns, version, ipam):
    more = {"mtu": 1400, "ipMasq": True, "dns": {"nameservers": ["192.0.2.53"]}}
    conf = config(site, ipam, version=version, **more)
    ours = plain(call(site, "ADD", conf, pod).result), state(site.host, pod)
    other, container = Site(make_netns(), site.directory / "other"), make_netns()
    theirs = plain(
        other.via("debian")("ptp", "ADD", config(other, ipam, version=version, **more), container=container).result
    )
    assert ours[0] == theirs
    for key, value in state(other.host, container).items():
        assert ours[1][key] == value, key
    assert sysctl(pod, "net/ipv4/conf/eth0/arp_notify") == "1"  # the kernel announces, as newer ones have it


def test_packets_reach_the_host_and_another_pod(site, pod, make_netns):
    conf, other = config(site), make_netns()
    call(site, "ADD", conf, pod)
    result = call(site, "ADD", conf, other, id_="c2").result
    for ip in result["ips"]:
        neighbour = ip["address"].partition("/")[0]
        assert " 0% packet loss" in pod.run(f"ping -c2 -i0.2 -W5 {ip['gateway']}")
        assert " 0% packet loss" in pod.run(f"ping -c2 -i0.2 -W5 {neighbour}")


@pytest.mark.parametrize("path", [None, "", "/run/netns/gone"])
def test_del_leaves_nothing(site, pod, path):
    conf = config(site, ipMasq=True)
    assert call(site, "ADD", conf, pod).exit == 0
    for _ in range(2):
        assert call(site, "DEL", conf, None if path is not None else pod, netns=path).exit == 0
        assert (veths(site.host), site.reservations("pnet")) == ([], {})
        assert "CNI-" not in site.host.run("iptables-save -t nat; ip6tables-save -t nat")
    assert list((site.directory / "state" / "attachments").iterdir()) == []


def test_either_deletes_what_the_other_has_made(site, pod):
    conf = config(site, ipMasq=True)
    for adds, deletes in ((site.call, site.via("debian")), (site.via("debian"), site.call)):
        assert adds("ptp", "ADD", conf, container=pod).exit == 0
        assert deletes("ptp", "DEL", conf, container=pod).exit == 0
        assert (veths(site.host), site.reservations("pnet")) == ([], {})
        assert "CNI-" not in site.host.run("iptables-save -t nat; ip6tables-save -t nat")


@pytest.mark.parametrize(
    "command, inside, msg",
    [
        ("ip addr del 10.7.0.2/24 dev eth0", True, "Failed to match addr 10.7.0.2/24 on interface eth0"),
        ("ip route del 10.7.0.0/24", True, "Failed to find Gateway 10.7.0.1 for interface eth0"),
        ("ip route del 10.9.0.0/16", True, "Expected Route {Dst:10.9.0.0/16 GW:10.7.0.9} not found in routing table"),
        ("ip link set eth0 down", True, "Interface eth0 is down"),
        ("ip link set {veth} down", False, "Interface {veth} is down"),
        ("ip addr del fd07::1/128 dev {veth}", False, "Gateway address fd07::1 not found on {veth}"),
        ("ip route del 10.7.0.2", False, "Route to 10.7.0.2 not found on the host"),
        ("ip -6 route del fd07::2", False, "Route to fd07::2 not found on the host"),
        ("sysctl -w net.ipv4.ip_forward=0", False, "IPv4 forwarding is off"),
        ("iptables -t nat -F", False, "IP masquerade rule for 10.7.0.2 not found"),
    ],
)
def test_check_names_what_is_wrong(site, pod, command, inside, msg):
    conf = config(site, ipMasq=True)
    result = call(site, "ADD", conf, pod).result
    assert check(site, conf, pod, result).exit == 0
    assert site.via("debian")("ptp", "CHECK", conf | {"prevResult": result}, container=pod).exit == 0
    [veth] = veths(site.host)
    (pod if inside else site.host).run(command.replace("{veth}", veth))
    answer = check(site, conf, pod, result)
    assert answer.msg == msg.replace("{veth}", veth)
    assert answer.json["details"].startswith("CHECK-001: ")


def test_check_of_what_the_reference_has_made(site, pod):
    conf = config(site, ipMasq=True)
    result = site.via("debian")("ptp", "ADD", conf, container=pod).result
    assert check(site, conf, pod, result).exit == 0
    assert call(site, "CHECK", conf, pod).msg == "ptp: Required prevResult missing"


def test_gc_and_status(site, pod, make_netns):
    conf = config(site, version="1.1.0", ipMasq=True)
    assert call(site, "STATUS", conf, id_="", ifname="").exit == 0
    call(site, "ADD", conf, pod)
    call(site, "ADD", conf, make_netns(), id_="c2")
    valid = {"cni.dev/valid-attachments": [{"containerID": "c1", "ifname": "eth0"}]}
    assert call(site, "GC", conf | valid, id_="", ifname="").exit == 0
    assert sorted(site.reservations("pnet")) == ["10.7.0.2", "fd07::2"]
    assert len(veths(site.host)) == 1
    saved = site.host.run("iptables-save -t nat")
    assert "10.7.0.2/32" in saved
    assert "10.7.0.3/32" not in saved


@pytest.mark.parametrize(
    "addresses_of_pod",
    [
        [{"address": "10.5.0.2/32", "gateway": "169.254.1.1"}],
        [{"address": "10.5.0.2/24", "gateway": "10.5.0.1"}, {"address": "10.5.0.3/24", "gateway": "10.5.0.1"}],
    ],
    ids=["a gateway outside", "two of one subnet"],
)
def test_addresses_that_the_reference_cannot_serve(site, pod, addresses_of_pod):
    ipam = {"type": "static", "addresses": addresses_of_pod, "routes": [{"dst": "0.0.0.0/0"}]}
    conf = config(site, ipam)
    result = call(site, "ADD", conf, pod).result
    assert check(site, conf, pod, result).exit == 0
    for one in addresses_of_pod:
        source = one["address"].partition("/")[0]
        assert " 0% packet loss" in pod.run(f"ping -c2 -i0.2 -W5 -I {source} {one['gateway']}")


@pytest.mark.parametrize(
    "ipam, more, msg",
    [
        ({"type": ""}, {}, "no plugin name provided"),
        ({"type": "static"}, {}, "IPAM plugin returned missing IP config"),
        (
            {"type": "static", "addresses": [{"address": "10.5.0.2/24"}]},
            {},
            "IPAM has named no gateway for 10.5.0.2/24",
        ),
        (V4, {"mtu": "x"}, "failed to load netconf: cannot use a string as mtu (expected an integer)"),
        (V4, {"ipMasq": True, "ipMasqBackend": "x"}, 'unknown ipmasq backend "x"'),
        ({**V4, "routes": [{"dst": "10.99.0.0/16", "gw": "192.0.2.1"}]}, {}, "network is unreachable"),
    ],
)
def test_an_add_that_fails_leaves_nothing(site, pod, ipam, more, msg):
    answer = call(site, "ADD", config(site, ipam, **more), pod)
    assert msg.lower() in answer.msg.lower()
    assert (veths(site.host), site.reservations("pnet"), set(links(pod))) == ([], {}, {"lo"})


def test_add_twice(site, pod):
    conf = config(site)
    call(site, "ADD", conf, pod)
    before = site.reservations("pnet"), set(links(site.host))
    assert call(site, "ADD", conf, pod).msg.endswith("already exists")
    assert (site.reservations("pnet"), set(links(site.host))) == before
