"""Port rules that the reference's portmap has left, or still needs: no new pod's port leads to another's address."""

import shutil
from ipaddress import ip_address as ip

import pytest

from tests.support.cni.site import Site
from tests.support.netns import Losable
from tests.support.weftd import eventually
from weft.cni.attachment import podaddresses
from weft.cni.plugins.portmap import strangers
from weft.cni.plugins.portmap.conf import Mapping
from weft.diag.sight import look

NETWORK = "net"
SUBNETS = {"v4": "10.4.0.0/24", "v6": "fd00:4::/64"}
FORMS = ("iptables", "nftables")


@pytest.fixture
def site(netns, tmp_path):
    return Site(netns, tmp_path)


@pytest.fixture
def make_pod():
    pods = []

    def make():
        pods.append(Losable())
        return pods[-1]

    yield make
    for pod in pods:
        pod.close()


def bridge(site, family):
    ipam = {"type": "host-local", "dataDir": str(site.store), "ranges": [[{"subnet": SUBNETS[family]}]]}
    return {"cniVersion": "1.0.0", "name": NETWORK, "type": "bridge", "bridge": "br0", "isGateway": True, "ipam": ipam}


def portmap(result, *, host_ip="", port=5003, **more):
    mapping = {"hostPort": port, "containerPort": 80, "protocol": "tcp", **({"hostIP": host_ip} if host_ip else {})}
    conf = {"cniVersion": "1.0.0", "name": NETWORK, "type": "portmap", "runtimeConfig": {"portMappings": [mapping]}}
    return {**conf, "prevResult": result, **more}


def attach(site, pod, id_, *, family="v4", **more):
    result = site.call("bridge", "ADD", bridge(site, family), container=pod, id_=id_).result
    return result, site.call("portmap", "ADD", portmap(result, **more), container=pod, id_=id_)


def upstreams(site, pod, form, *, family="v4", **more):
    """A pod whose rules the reference's plugin has made, and of which weft knows nothing."""
    result = site.call("bridge", "ADD", bridge(site, family), container=pod, id_="old").result
    # Debian's is older than nft's form, whose rules are the same as ours.
    call = site.via("debian") if form == "iptables" else site.call
    assert call("portmap", "ADD", portmap(result, backend=form, **more), container=pod, id_="old").exit == 0
    shutil.rmtree(site.directory / "state" / "portmap", ignore_errors=True)
    return result["ips"][0]["address"].partition("/")[0]


def lose(site, pod):
    before = len(site.host.rtnl.links())
    pod.close()
    eventually(lambda: len(site.host.rtnl.links()) < before)


def rules(site):
    """Not the masquerade set's elements: those are of addresses."""
    return site.host.run("nft list ruleset")


@pytest.mark.parametrize("family", SUBNETS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("own", ["", *FORMS], ids=lambda form: f"by {form or 'maps'}")
def test_a_dead_pods_rules_make_room(site, make_pod, form, family, own):
    dead, pod = make_pod(), make_pod()
    address = upstreams(site, dead, form, family=family)
    lose(site, dead)
    more = {"backend": own} if own else {}
    result, answer = attach(site, pod, "new", family=family, **more)
    assert answer.exit == 0, answer
    assert "leads to nobody" in answer.stderr
    assert f"to {address}:" not in rules(site)
    assert f"to [{address}]:" not in rules(site)
    assert site.call("portmap", "CHECK", portmap(result, **more), container=pod, id_="new").exit == 0


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("own", ["", *FORMS], ids=lambda form: f"by {form or 'maps'}")
def test_a_living_pods_port_is_its_own(site, make_pod, form, own):
    living_pod, pod = make_pod(), make_pod()
    address = upstreams(site, living_pod, form)
    before = rules(site).count(address)
    _, answer = attach(site, pod, "new", **({"backend": own} if own else {}))
    assert answer.exit == 1
    assert answer.json["details"].startswith("HOSTPORT-001")
    assert ("chain CNI-DN-" if form == "iptables" else "container old") in answer.msg
    assert address in answer.msg
    assert rules(site).count(address) == before
    assert list(site.reservations(NETWORK)) == [address], "a chain that fails leaves nothing"


@pytest.mark.parametrize("form", FORMS)
def test_what_cannot_be_seen_is_not_taken_for_dead(site, make_pod, form):
    """Behind a port of a bridge that is no pair, as a virtual machine's, somebody may have the address."""
    dead = make_pod()
    upstreams(site, dead, form)
    lose(site, dead)
    site.host.run("ip link add vx0 type vxlan id 7 dstport 4790 local 127.0.0.1 && ip link set vx0 master br0")
    _, answer = attach(site, make_pod(), "new")
    assert answer.json["details"].startswith("HOSTPORT-001")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "hosts, taken",
    [(("", ""), True), (("", "10.4.0.1"), True), (("10.4.0.1", "10.4.0.1"), True), (("10.4.0.1", ""), False)],
)
def test_which_addresses_of_the_host_are_the_same_port(site, make_pod, form, hosts, taken):
    upstreams(site, make_pod(), form, host_ip=hosts[0])
    _, answer = attach(site, make_pod(), "new", host_ip=hosts[1])
    assert (answer.exit == 1) == taken, answer


@pytest.mark.parametrize("form", FORMS)
def test_check_sees_a_rule_that_has_come_before(site, make_pod, form):
    pod = make_pod()
    result, answer = attach(site, pod, "new")
    assert answer.exit == 0
    upstreams(site, make_pod(), form)
    wrong = site.call("portmap", "CHECK", portmap(result), container=pod, id_="new")
    assert wrong.json["details"].startswith("HOSTPORT-001")
    assert "taken by" in wrong.msg


@pytest.mark.parametrize("form", FORMS)
def test_gc_clears_what_leads_to_nobody_and_nothing_else(site, make_pod, form):
    dead, pod = make_pod(), make_pod()
    address = upstreams(site, dead, form)
    result, answer = attach(site, pod, "new", port=5004, backend=form)
    assert answer.exit == 0
    lose(site, dead)
    valid = {"cniVersion": "1.1.0", "cni.dev/valid-attachments": [{"containerID": "new", "ifname": "eth0"}]}
    conf = portmap(result) | valid
    for name in (NETWORK, "another"):
        more = {"cni.dev/valid-attachments": []} if name == "another" else {}
        assert site.call("portmap", "GC", conf | {"name": name} | more, id_="", ifname="", netns="").exit == 0
    assert address not in rules(site)
    check = portmap(result, port=5004, backend=form)
    assert site.call("portmap", "CHECK", check, container=pod, id_="new").exit == 0


@pytest.mark.parametrize("form", FORMS)
def test_the_doctor_sees_a_port_that_leads_to_nobody(site, make_pod, form):
    dead = make_pod()
    address = upstreams(site, dead, form)
    assert attach(site, make_pod(), "new", port=5004)[1].exit == 0
    assert site.host.call(lambda: look.look(look.Places())).dead_ports == ()
    lose(site, dead)
    [found] = site.host.call(lambda: look.look(look.Places())).dead_ports
    assert (found.port, str(found.address)) == ("5003/tcp", address)


def test_the_host_itself_and_others_are_somebody(site, make_pod):
    site.host.bridge("br0", "10.4.0.1/24")
    site.host.bridge("br1", "10.5.0.1/24")
    site.host.run("ip link add vx0 type vxlan id 7 dstport 4790 local 127.0.0.1 && ip link set vx0 master br1")
    pod = make_pod()
    conf = bridge(site, "v4")
    has = site.call("bridge", "ADD", conf, container=pod).result["ips"][0]["address"].partition("/")[0]
    nobodys = {
        address: podaddresses.is_nobodys(site.host.rtnl, ip(address))
        for address in ("10.4.0.1", has, "10.4.0.99", "10.5.0.99", "192.0.2.1")
    }
    assert nobodys == {"10.4.0.1": False, has: False, "10.4.0.99": True, "10.5.0.99": False, "192.0.2.1": True}


@pytest.mark.parametrize(
    "rule, port, pod, host",
    [
        ("-p tcp -m tcp --dport 80 -j DNAT --to-destination 10.1.2.3:8080", 80, "10.1.2.3", None),
        ("-d 10.0.0.1/32 -p udp -m udp --dport 53 -j DNAT --to-destination [fd00::3]:53", 53, "fd00::3", "10.0.0.1"),
    ],
)
def test_reading_iptables(rule, port, pod, host):
    have = {
        "CNI-HOSTPORT-DNAT": ["-p tcp -j CNI-DN-1"],
        "CNI-DN-1": ["-p tcp --dport 80 -j MARK", rule],
    }
    [found] = strangers.of_iptables(have, 4)
    assert (found.port, str(found.pod), str(found.host) if found.host else None) == (port, pod, host)
    assert found.chain == "CNI-DN-1"


def test_a_mapping_of_all_addresses_by_name():
    stray = strangers.Stray(family=4, protocol="tcp", port=80, host=None, pod=ip("10.1.2.3"), chain="x")
    for host_ip in (None, ip("0.0.0.0"), ip("10.0.0.1")):  # noqa: S104 - a mapping's address
        assert stray.takes(Mapping(host_port=80, container_port=1, protocol="tcp", host_ip=host_ip))
    assert not stray.takes(Mapping(host_port=80, container_port=1, protocol="udp"))
