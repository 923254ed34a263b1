"""bridge in real namespaces: what it makes, what it leaves, and what it undoes."""

import ipaddress

import pytest

from tests.support.cni.site import Site
from tests.support.weftd import eventually
from weft.cni.host.host import RETIRED
from weft.wire.cni import VERSIONS

V4 = {"ranges": [[{"subnet": "10.1.2.0/24"}]]}
V6 = {"ranges": [[{"subnet": "2001:db8::/64"}]]}
BOTH = {"ranges": [[{"subnet": "192.168.0.0/24"}], [{"subnet": "fd00::/64"}]]}
OLD = VERSIONS[:2]


def config(site, ipam=V4, *, version="1.0.0", **more):
    conf = {"cniVersion": version, "name": "net", "type": "bridge", "bridge": "cni0", **more}
    if ipam is not None:
        conf["ipam"] = {"type": "host-local", "dataDir": str(site.store), **ipam}
    return conf


def add(site, conf, pod, **more):
    return site.call("bridge", "ADD", conf, container=pod, **more)


def delete(site, conf, pod=None, **more):
    return site.call("bridge", "DEL", conf, container=pod, **more)


def links(netns):
    return {link["ifname"]: link for link in netns.json("ip -j -d link")}


def addresses(netns, name):
    [link] = netns.json(f"ip -j addr show dev {name}")
    return [f"{one['local']}/{one['prefixlen']}" for one in link["addr_info"] if one["scope"] == "global"]


def veths(netns):
    return [name for name in links(netns) if name.startswith("veth")]


def sysctl(netns, name):
    return netns.run(["cat", f"/proc/sys/{name}"]).strip()


def reaches(site, pod, gateway):
    """Ping the bridge, with the neighbours written down.

    The kernel's table of those that it has to ask for is one for all namespaces (gc_thresh3): another test may fill it.
    """
    [source] = [one for one in addresses(pod, "eth0") if (":" in one) == (":" in gateway)]
    pod.run(f"ip neigh replace {gateway} lladdr {links(site.host)['cni0']['address']} dev eth0 nud permanent")
    pod_mac = links(pod)["eth0"]["address"]
    site.host.run(f"ip neigh replace {source.partition('/')[0]} lladdr {pod_mac} dev cni0 nud permanent")
    # The kernel takes packets to a new IPv6 address later, when it is busy.
    pod.run(f"for _ in 1 2 3; do ping -c1 -W5 {gateway} && exit; done; exit 1")


def ips_of(result):
    if "ips" in result:
        return [ip["address"] for ip in result["ips"]]
    return [result[key]["ip"] for key in ("ip4", "ip6") if key in result]


@pytest.mark.spec("cni.md B1", cases="v4-*")
@pytest.mark.spec("cni.md B2", cases="v6-*")
@pytest.mark.spec("cni.md B3", cases="both-*")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "ipam, expected",
    [
        (V4, (["10.1.2.1/24"], ["10.1.2.2/24"])),
        (V6, (["2001:db8::1/64"], ["2001:db8::2/64"])),
        (BOTH, (["192.168.0.1/24", "fd00::1/64"], ["192.168.0.2/24", "fd00::2/64"])),
    ],
    ids=["v4", "v6", "both"],
)
def test_add_and_del(site, pod, version, ipam, expected):
    gateways, own = expected
    conf = config(site, ipam, version=version, isDefaultGateway=True)
    result = add(site, conf, pod).result
    assert ips_of(result) == own
    assert addresses(site.host, "cni0") == gateways
    assert addresses(pod, "eth0") == own
    host = links(site.host)
    [veth] = veths(site.host)
    assert set(host) == {"lo", "cni0", veth}
    assert len(veth) == len("veth") + 8
    assert host[veth]["master"] == "cni0"
    assert host[veth]["ifalias"].startswith("weft:pod:")
    assert host["cni0"]["ifalias"] == "weft:bridge"
    if version not in OLD:
        assert [interface["name"] for interface in result["interfaces"]] == ["cni0", veth, "eth0"]
        assert result["interfaces"][0]["mac"] == host["cni0"]["address"]
        assert result["interfaces"][1]["mac"] == host[veth]["address"]
        assert result["interfaces"][2] == {"name": "eth0", "mac": links(pod)["eth0"]["address"], "sandbox": pod.path}
        assert all(ip["interface"] == 2 for ip in result["ips"])
    for gateway in gateways:
        address = gateway.partition("/")[0]
        family = ipaddress.ip_address(address).version
        [default] = pod.json(f"ip -j -{family} route show default")
        assert default["gateway"] == address
        reaches(site, pod, address)
        forwarding = {4: "net/ipv4/ip_forward", 6: "net/ipv6/conf/all/forwarding"}[family]
        assert sysctl(site.host, forwarding) == "1"
    assert sysctl(pod, "net/ipv4/conf/eth0/arp_notify") == "1"
    # Without an IPv6 address it stays as the kernel has it.
    assert sysctl(pod, "net/ipv6/conf/eth0/accept_dad") == ("0" if any(":" in one for one in own) else "1")
    assert sysctl(site.host, "net/ipv6/conf/cni0/accept_ra") == "0"
    assert delete(site, conf, pod).exit == 0
    assert set(links(pod)) == {"lo"}
    assert set(links(site.host)) == {"lo", "cni0"}
    assert addresses(site.host, "cni0") == gateways
    assert site.reservations("net") == {}
    assert list((site.directory / "state" / "attachments").iterdir()) == []


@pytest.mark.spec("cni.md B5")
@pytest.mark.parametrize("version", VERSIONS)
def test_layer_2(site, pod, version):
    conf = config(site, None, version=version)
    answer = add(site, conf, pod)
    if version in OLD:
        assert (answer.code, answer.msg) == (999, "cannot convert: no valid IP addresses")
        assert set(links(pod)) == {"lo"}  # and nothing stays of it
        assert veths(site.host) == []
        return
    assert len(answer.result["interfaces"]) == 3
    assert "ips" not in answer.result
    # Of the host's end ADD has waited for it; the kernel works off the other one on its own time.
    eventually(lambda: links(pod)["eth0"]["operstate"] == "UP")
    assert addresses(pod, "eth0") == []
    assert len(veths(site.host)) == 1
    assert delete(site, conf, pod).exit == 0
    assert veths(site.host) == []


@pytest.mark.parametrize("gateway", [False, True])
def test_a_gateway_snoops_no_multicast(site, pod, gateway):
    """Where nobody asks who listens, the kernel floods all the same."""
    assert add(site, config(site, isGateway=gateway), pod).exit == 0
    [bridge] = site.host.json("ip -d -j link show cni0")
    assert bridge["linkinfo"]["info_data"]["mcast_snooping"] == int(not gateway)


@pytest.mark.spec("cni.md B11")
def test_a_bridge_that_is_there_is_used(site, pod):
    index = site.host.bridge("cni0")
    result = add(site, config(site, isGateway=True), pod).result
    assert links(site.host)["cni0"]["ifindex"] == index
    assert result["interfaces"][0]["mac"] == links(site.host)["cni0"]["address"]


@pytest.mark.spec("cni.md B12", cases="v4")
@pytest.mark.spec("cni.md B13", cases="v6")
@pytest.mark.parametrize(
    "present, subnet, wanted",
    [
        ("10.0.0.1/8", "10.1.0.0/16", "10.1.0.1/16"),
        ("2001:db8:1::1/48", "2001:db8:1:2::/64", "2001:db8:1:2::1/64"),
    ],
    ids=["v4", "v6"],
)
def test_another_address_is_in_the_way(site, pod, present, subnet, wanted):
    site.host.bridge("cni0", present)
    ipam = {"ranges": [[{"subnet": subnet}]]}
    answer = add(site, config(site, ipam, isGateway=True), pod)
    assert answer.code == 999
    assert answer.msg == f'failed to set bridge addr: "cni0" already has an IP address different from {wanted}'
    assert answer.json["details"].startswith("BRIDGE-001")
    assert addresses(site.host, "cni0") == [present]
    assert (site.reservations("net"), veths(site.host)) == ({}, [])
    assert add(site, config(site, ipam, isGateway=True, forceAddress=True), pod).exit == 0
    assert addresses(site.host, "cni0") == [wanted]


@pytest.mark.parametrize(
    "holder, advice",
    [("net", "see `forceAddress`"), ("first", 'pods of network first: give network "net" a bridge'), ("", "no pod")],
    ids=["its own pods", "another network's", "nobody's"],
)
def test_what_to_do_about_another_address_follows_from_whose_pods_are_there(site, make_netns, holder, advice):
    if holder:
        conf = config(site, {"ranges": [[{"subnet": "10.9.0.0/24"}]]}, name=holder, isGateway=True)
        assert add(site, conf, make_netns(), id_="first").exit == 0
    else:
        site.host.bridge("cni0", "10.9.0.1/24")
    for answer in (
        add(site, config(site, isGateway=True), make_netns(), id_="second"),
        site.call("bridge", "STATUS", config(site, isGateway=True, version="1.1.0"), id_="", ifname="", netns=""),
    ):
        assert advice in answer.json["details"]
        assert "10.9.0.1/24" in answer.json["details"]
        assert ("forceAddress" in answer.json["details"]) == (holder == "net")


@pytest.mark.spec("cni.md B14")
def test_ipv6_networks_that_do_not_meet_live_together(site, pod):
    site.host.bridge("cni0", "2001:db8:1:2::1/64")
    assert add(site, config(site, {"ranges": [[{"subnet": "fd00:1234::/64"}]]}, isGateway=True), pod).exit == 0
    assert set(addresses(site.host, "cni0")) == {"2001:db8:1:2::1/64", "fd00:1234::1/64"}


@pytest.mark.spec("cni.md B16")
@pytest.mark.parametrize("present", [False, True])
def test_the_bridges_mac_stays(site, pod, make_netns, present):
    if present:
        site.host.bridge("cni0")
    conf = config(site, isGateway=True)
    second = make_netns()
    add(site, conf, pod)
    mac = links(site.host)["cni0"]["address"]
    assert mac != "00:00:00:00:00:00"
    add(site, conf, second, id_="c2", args="IgnoreUnknown=1")
    assert links(site.host)["cni0"]["address"] == mac
    for container, id_ in ((pod, "c1"), (second, "c2")):
        assert veths(site.host) != []
        assert delete(site, conf, container, id_=id_).exit == 0
        assert links(site.host)["cni0"]["address"] == mac
    assert veths(site.host) == []


def test_the_mac_is_pinned_although_the_first_attachment_had_no_address(site, pod, make_netns):
    site.host.bridge("cni0")
    layer2 = config(site, None)
    add(site, layer2, pod)
    delete(site, layer2, pod)
    conf = config(site, isGateway=True)
    assert add(site, conf, pod).exit == 0
    mac = links(site.host)["cni0"]["address"]
    delete(site, conf, pod)
    assert links(site.host)["cni0"]["address"] == mac


@pytest.mark.spec("cni.md B17")
def test_whose_mac_counts(site, pod):
    macs = ["c2:11:22:33:44:55", "c2:11:22:33:44:66", "c2:11:22:33:44:77"]
    everywhere = {"args": {"cni": {"mac": macs[1]}}, "runtimeConfig": {"mac": macs[2]}}
    result = add(site, config(site, **everywhere), pod, args=f"MAC={macs[0]}").result
    assert links(pod)["eth0"]["address"] == macs[2] == result["interfaces"][2]["mac"]
    [veth] = veths(site.host)
    assert links(site.host)[veth]["address"] not in macs
    delete(site, config(site), pod)
    add(site, config(site, args=everywhere["args"]), pod, args=f"MAC={macs[0]}")
    assert links(pod)["eth0"]["address"] == macs[1]
    delete(site, config(site), pod)
    add(site, config(site), pod, args=f"IgnoreUnknown=1;MAC={macs[0]}")
    assert links(pod)["eth0"]["address"] == macs[0]


def test_a_mac_that_is_none(site, pod):
    answer = add(site, config(site, runtimeConfig={"mac": "zz"}), pod)
    assert answer.msg == "failed to make veth pair: address zz: invalid MAC address"
    assert set(links(site.host)) == {"lo"}


@pytest.mark.spec("cni.md B25", "cni.md F40")
def test_del_of_anything(site, pod):
    conf = config(site, isGateway=True)
    assert delete(site, conf, pod).exit == 0
    add(site, conf, pod)
    for _ in range(3):
        assert delete(site, conf, pod).exit == 0
    assert site.reservations("net") == {}
    for path in ("", "/run/netns/gone"):
        add(site, conf, pod)
        assert delete(site, conf, netns=path).exit == 0
        assert site.reservations("net") == {}
        assert veths(site.host) == []  # our record led to it


def test_del_of_an_attachment_that_the_reference_made(site, pod):
    conf = config(site, isDefaultGateway=True)
    assert site.via("debian")("bridge", "ADD", conf, container=pod).exit == 0
    assert delete(site, conf, pod).exit == 0
    assert set(links(pod)) == {"lo"}
    assert site.reservations("net") == {}


def test_the_reference_deletes_what_we_made(site, pod):
    conf = config(site, isDefaultGateway=True)
    assert add(site, conf, pod).exit == 0
    assert site.via("debian")("bridge", "DEL", conf, container=pod).exit == 0
    assert set(links(pod)) == {"lo"}
    assert site.reservations("net") == {}
    assert add(site, conf, pod).exit == 0


@pytest.mark.parametrize("version", VERSIONS[:-1])
@pytest.mark.parametrize("ipam", [V4, BOTH], ids=["v4", "both"])
def test_the_same_result_and_state_as_the_reference(site, pod, make_netns, version, ipam):
    ipam = {**ipam, "routes": [{"dst": "10.0.0.0/8"}]}
    conf = config(site, ipam, version=version, isDefaultGateway=True, mtu=1400, hairpinMode=True)

    def seen(result):
        blank = {"mac": "", "name": "", "sandbox": ""}
        return result | {"dns": {}, "interfaces": [{**i, **blank} for i in result.get("interfaces", [])]}

    def state(host, container):
        [veth] = veths(host)
        link = links(host)[veth]
        slave = link["linkinfo"]["info_slave_data"]
        return {
            "addresses": (addresses(host, "cni0"), addresses(container, "eth0")),
            "routes": container.json("ip -j route") + container.json("ip -j -6 route show default"),
            "mtu": (link["mtu"], links(container)["eth0"]["mtu"], links(host)["cni0"]["mtu"]),
            "port": (slave["hairpin"], slave["isolated"], slave["state"]),
            "announced": sysctl(container, "net/ipv4/conf/eth0/arp_notify"),
        }

    ours = seen(add(site, conf, pod).result), state(site.host, pod)
    other = Site(make_netns(), site.directory / "other")
    conf["ipam"]["dataDir"] = str(other.store)
    container = make_netns()
    theirs = seen(other.via("debian")("bridge", "ADD", conf, container=container).result), state(other.host, container)
    assert ours[0] == theirs[0]
    for key, value in ours[1].items():
        assert value == theirs[1][key]


@pytest.mark.spec("cni.md B26")
def test_add_twice(site, pod):
    conf = config(site, isGateway=True)
    add(site, conf, pod)
    before = site.reservations("net"), set(links(site.host)), addresses(pod, "eth0")
    answer = add(site, conf, pod)
    assert answer.code == 999
    assert answer.msg.startswith('container veth name ("eth0") peer provided ("veth')
    assert answer.msg.endswith('") already exists')
    assert (site.reservations("net"), set(links(site.host)), addresses(pod, "eth0")) == before


@pytest.mark.spec("cni.md B27")
def test_a_bridge_that_is_none(site, pod):
    site.host.run("ip link add x type veth peer name y")
    answer = add(site, config(site, bridge="x"), pod)
    assert answer.code == 999
    assert answer.msg == 'failed to create bridge "x": "x" already exists but is not a bridge'


class Overtaken:
    """A host on which another ADD makes bridge and gateway between our look and our making them."""

    def __init__(self, host):
        self._host = host
        self._unseen = {"cni0", "addresses"}
        self.rtnl = self

    def __getattr__(self, name):
        return getattr(self._host if hasattr(self._host, name) else self._host.rtnl, name)

    def link(self, which):
        return None if self._overtaken(which) else self._host.rtnl.link(which)

    def addresses(self, index, *, family=0):
        return [] if self._overtaken("addresses") else self._host.rtnl.addresses(index, family=family)

    def _overtaken(self, what):
        first = what in self._unseen
        self._unseen.discard(what)
        return first


def test_of_two_first_adds_the_second_takes_what_the_first_has_made(site, pod, make_netns):
    conf = config(site, isGateway=True)
    assert add(site, conf, pod).exit == 0
    site.wrap = Overtaken
    assert add(site, conf, make_netns(), id_="c2").exit == 0
    assert addresses(site.host, "cni0") == ["10.1.2.1/24"]
    assert len(veths(site.host)) == 2


def test_a_link_is_off_its_bridge_and_down_when_del_answers(site, pod):
    """The link itself may go later: no packet may reach it, because its address is free."""
    conf = config(site, isGateway=True)
    add(site, conf, pod)
    [name] = veths(site.host)
    site.deletes = False
    assert delete(site, conf, pod).exit == 0
    left = links(site.host)[name]
    assert "master" not in left
    assert "UP" not in left["flags"]
    assert left["ifalias"] == RETIRED
    assert site.reservations("net") == {}


def test_our_record_outlives_an_address_that_is_not_free_yet(site, pod):
    ipam = {"type": "theirs", "addresses": [{"address": "10.9.9.9/24", "gateway": "10.9.9.1"}]}
    foreign = site.foreign("static")
    conf = config(site, ipam, version="0.4.0")
    assert add(site, conf, pod, extra=foreign).exit == 0
    records = site.directory / "state" / "attachments"
    assert len(list(records.iterdir())) == 1
    assert "failed to find plugin" in delete(site, conf, pod).msg
    assert len(list(records.iterdir())) == 1
    assert delete(site, conf, pod, extra=foreign).exit == 0
    assert list(records.iterdir()) == []


@pytest.mark.spec("cni.md B28")
def test_an_ipam_that_is_nowhere(site, pod):
    answer = add(site, config(site, {"type": "nope"}), pod)
    assert answer.msg == 'failed to find plugin "nope" in path [/usr/lib/cni]'
    assert set(links(pod)) == {"lo"}
    assert veths(site.host) == []


def test_addresses_of_a_program_of_the_host(site, pod):
    ipam = {"type": "theirs", "addresses": [{"address": "10.9.9.9/24", "gateway": "10.9.9.1"}]}
    foreign = site.foreign("static")
    conf = config(site, ipam, version="0.4.0", isDefaultGateway=True)
    assert ips_of(add(site, conf, pod, extra=foreign).result) == ["10.9.9.9/24"]
    assert addresses(pod, "eth0") == ["10.9.9.9/24"]
    assert delete(site, conf, pod, extra=foreign).exit == 0
    answer = add(site, config(site, {"type": "theirs", "addresses": [{"address": "nonsense"}]}), pod, extra=foreign)
    assert "nonsense" in answer.msg
    assert veths(site.host) == []


@pytest.mark.spec("cni.md B31")
def test_whose_dns_counts(site, pod, tmp_path):
    resolv = tmp_path / "resolv.conf"
    resolv.write_text("nameserver 192.0.2.53\nsearch a b\n")
    conf = config(site, {**V4, "resolvConf": str(resolv)})
    assert add(site, conf, pod).result["dns"] == {"nameservers": ["192.0.2.53"], "search": ["a", "b"]}
    delete(site, conf, pod)
    conf["dns"] = {"nameservers": ["8.8.8.8"]}
    assert add(site, conf, pod).result["dns"] == {"nameservers": ["8.8.8.8"]}


@pytest.mark.spec("cni.md B32")
def test_mtu(site, pod):
    add(site, config(site, mtu=1400), pod)
    [veth] = veths(site.host)
    assert links(site.host)["cni0"]["mtu"] == links(site.host)[veth]["mtu"] == links(pod)["eth0"]["mtu"] == 1400


@pytest.mark.spec("cni.md B24")
def test_hairpin_and_promiscuous_mode_exclude_each_other(site, pod):
    answer = add(site, config(site, hairpinMode=True, promiscMode=True), pod)
    assert (answer.code, answer.msg) == (999, "cannot set hairpin mode and promiscuous mode at the same time")
    assert set(links(site.host)) == {"lo"}


@pytest.mark.spec("cni.md B4")
@pytest.mark.parametrize("version", VERSIONS)
def test_three_sets_of_ranges(site, pod, version):
    sets = [[{"subnet": "192.168.0.0/24"}], [{"subnet": "fd00::/64"}], [{"subnet": "2001:db8::/64"}]]
    conf = config(site, {"ranges": sets}, version=version, isDefaultGateway=True)
    if version in OLD:
        refusal = f"CNI version {version} does not support more than 1 address per family"
        answer = add(site, conf, pod)
        assert (answer.code, answer.msg) == (999, refusal)
        assert (site.reservations("net"), veths(site.host)) == ({}, [])
        assert delete(site, conf, pod).exit == 0  # upstream's refuses here too, and is asked again for ever
        return
    assert ips_of(add(site, conf, pod).result) == ["192.168.0.2/24", "fd00::2/64", "2001:db8::2/64"]
    assert set(addresses(site.host, "cni0")) == {"192.168.0.1/24", "fd00::1/64", "2001:db8::1/64"}
    assert delete(site, conf, pod).exit == 0


def test_promiscuous(site, pod):
    add(site, config(site, promiscMode=True), pod)
    assert links(site.host)["cni0"]["promiscuity"] == 1
    add(site, config(site, promiscMode=True), pod, id_="c2", ifname="eth1")
    assert links(site.host)["cni0"]["promiscuity"] == 1


def test_hairpin(site, pod):
    add(site, config(site, hairpinMode=True), pod)
    [veth] = veths(site.host)
    assert links(site.host)[veth]["linkinfo"]["info_slave_data"]["hairpin"] is True


@pytest.mark.spec("cni.md B33")
def test_routes_with_everything(site, pod):
    routes = [
        {"dst": "10.200.0.0/16", "table": 5000},
        {"dst": "10.201.0.0/16", "scope": 200, "gw": "10.1.2.1"},
        {"dst": "10.202.0.0/16", "gw": "10.1.2.8"},
        {"dst": "10.202.0.0/16", "gw": "10.1.2.9"},
        {"dst": "10.203.0.0/16", "mtu": 1300, "advmss": 1200, "priority": 77},
    ]
    result = add(site, config(site, {**V4, "routes": routes}, isGateway=True), pod).result
    assert result["routes"] == routes
    assert [route["dst"] for route in pod.json("ip -j route show table 5000")] == ["10.200.0.0/16"]
    main = {}
    for route in pod.json("ip -j -d route show"):
        main.setdefault(route["dst"], []).append(route)
    assert main["10.201.0.0/16"][0]["scope"] == "site"  # iproute2's name for 200
    assert [hop["gateway"] for hop in main["10.202.0.0/16"]] == ["10.1.2.8", "10.1.2.9"]
    [last] = main["10.203.0.0/16"]
    assert (last["gateway"], last["metric"]) == ("10.1.2.1", 77)
    assert last["metrics"] == [{"mtu": 1300, "advmss": 1200}]


def test_an_explicit_default_route_without_a_gateway_is_the_default_route(site, pod):
    conf = config(site, {**V4, "routes": [{"dst": "0.0.0.0/0"}]}, isDefaultGateway=True)
    assert add(site, conf, pod).exit == 0
    [default] = pod.json("ip -j route show default")
    assert default["gateway"] == "10.1.2.1"


@pytest.mark.spec("cni.md B34")
def test_an_ipv6_address_outlives_a_link_that_goes_down(site, pod):
    add(site, config(site, V6, isDefaultGateway=True), pod)
    pod.run("ip link set eth0 down")
    assert addresses(pod, "eth0") == ["2001:db8::2/64"]


def test_ipv6_is_turned_on_where_it_was_off(site, pod):
    pod.run(["sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6"])
    pod.run(["sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6"])
    assert add(site, config(site, V6, isDefaultGateway=True), pod).exit == 0
    assert addresses(pod, "eth0") == ["2001:db8::2/64"]
    assert sysctl(pod, "net/ipv6/conf/lo/disable_ipv6") == "0"


def test_the_host_keeps_ipv6_off_and_is_told_so(site, pod):
    site.host.run(["sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6"])
    answer = add(site, config(site, V6, isGateway=True), pod)
    assert "2001:db8::1/64" in answer.msg
    assert answer.json["details"].startswith("BRIDGE-002")
    assert veths(site.host) == []


def test_the_hosts_settings_are_not_the_containers(site, pod):
    before = sysctl(site.host, "net/ipv4/conf/all/arp_notify"), sysctl(site.host, "net/ipv6/conf/default/accept_dad")
    add(site, config(site, BOTH), pod)
    after = sysctl(site.host, "net/ipv4/conf/all/arp_notify"), sysctl(site.host, "net/ipv6/conf/default/accept_dad")
    assert before == after
    assert sysctl(site.host, "net/ipv4/ip_forward") == "0"  # not a gateway
