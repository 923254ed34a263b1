"""bandwidth on a real veth: what shapes it, what other interfaces have, and what upstream's makes of the same."""

import socket
import threading
import time

import pytest

from tests.support.cni.site import Site
from tests.support.netns import Netns
from weft.cni.plugins import bandwidth
from weft.kernel.rtnetlink import tc
from weft.kernel.rtnetlink.netlink import NetlinkError
from weft.model.attachment import Attachment

NETWORK = "cni-plugin-bandwidth-test"
IFB = "bwpa8eda89404b7"  # upstream's name for container "dummy" in that network
SMALL = {"ingressRate": 8, "ingressBurst": 8, "egressRate": 16, "egressBurst": 8}
GOLDEN = {"ingressRate": 8_000_000, "ingressBurst": 8_000_000, "egressRate": 16_000_000, "egressBurst": 1_600_000}
# 8589934592 ticks of 64 ns do not fit the kernel's 32 bits.
WIDE = {"ingressRate": 8_000, "ingressBurst": 8 * 549_756, "egressRate": 8 * 10**10, "egressBurst": 8 * 10**8}


def join(site, pod, ifname="eth0", *, veth="veth0", mtu=1400):
    """Put an interface into a container; return what a plugin before this one would say of it."""
    made = pod.rtnl.add_veth(ifname, peer=veth, peer_netns_fd=site.host.fd, mtu=mtu, up=True)
    site.host.rtnl.set_link(made.link, up=True)
    return {
        "cniVersion": "1.0.0",
        "interfaces": [{"name": veth}, {"name": ifname, "sandbox": pod.path}],
        "ips": [{"address": "10.0.0.2/24", "interface": 1}],
    }


def config(previous, version="1.0.0", **more):
    conf = {"cniVersion": version, "name": NETWORK, "type": "bandwidth", "prevResult": previous, **more}
    if previous is None:
        del conf["prevResult"]
    return conf


def call(site, command, conf, pod, *, by="weft", **more):
    plugin = site.via(by)
    return plugin("bandwidth", command, conf, container=pod, id_="dummy", **more)


def roots(netns):
    """Return the token buckets by device: rate and limit in bytes, the buffer in ticks of 64 ns."""
    found = {link.name: tc.parse_bucket(netns.rtnl.ask(tc.get_root(link.index))) for link in netns.rtnl.links()}
    return {name: (one.rate, one.limit, one.buffer) for name, one in found.items() if one is not None}


def ifbs(netns):
    return [link["ifname"] for link in netns.json("ip -j link show type ifb")]


def filters(netns, device):
    return netns.run(f"tc filter show dev {device} ingress")


def shape_of(netns):
    """All that shapes, without what differs from one run to the next."""
    lines = [line for line in netns.run("tc -d qdisc show").splitlines() if "noqueue" not in line]
    device = netns.run("ip -d link show type ifb").split("link/ether")[0].partition(": ")[2]
    # Upstream's older versions redirect twice; the second action is never reached.
    return sorted(lines), filters(netns, "veth0").partition("\taction order 2")[0].rstrip(), device


@pytest.mark.spec("cni.md W1")
def test_both_directions(site, pod):
    conf = config(join(site, pod), **SMALL)
    result = call(site, "ADD", conf, pod).result
    [device] = site.host.json(f"ip -j -d link show {IFB}")
    assert (device["mtu"], device["linkinfo"]["info_kind"], "UP" in device["flags"]) == (1400, "ifb", True)
    assert result["interfaces"][2:] == [{"name": IFB, "mac": device["address"]}]
    assert roots(site.host) == {"veth0": (1, 1, 15_625_000), IFB: (2, 1, 7_812_500)}
    shown = filters(site.host, "veth0")
    assert shown.count("Redirect to device") == 1
    assert f"mirred (Egress Redirect to device {IFB}) stolen" in shown
    assert call(site, "CHECK", {**conf, "prevResult": result}, pod).exit == 0
    assert call(site, "DEL", conf, pod).exit == 0
    assert ifbs(site.host) == []


@pytest.mark.spec("cni.md W2")
@pytest.mark.parametrize("where", ["own", "runtime"])
def test_one_direction(site, pod, where):
    previous = join(site, pod)

    def limited(limits):
        return config(previous, **(limits if where == "own" else {"runtimeConfig": {"bandwidth": limits}}))

    egress = call(site, "ADD", limited({"egressRate": 16_000, "egressBurst": 80}), pod).result
    assert list(roots(site.host)) == [IFB]
    assert len(egress["interfaces"]) == 3
    assert call(site, "DEL", limited({}), pod).exit == 0
    ingress = call(site, "ADD", limited({"ingressRate": 8_000, "ingressBurst": 80}), pod).result
    assert roots(site.host) == {"veth0": (1000, 35, 156_250)}
    assert ifbs(site.host) == []
    assert ingress["interfaces"] == previous["interfaces"]


@pytest.mark.spec("cni.md W3")
def test_an_own_key_counts_more_than_the_runtime(site, pod):
    runtime = {"bandwidth": {"ingressRate": 8, "ingressBurst": 8}}
    conf = config(join(site, pod), ingressBurst=123, runtimeConfig=runtime)
    assert call(site, "ADD", conf, pod).msg == "if burst is set, rate must also be set"


@pytest.mark.spec("cni.md W5")
def test_where_there_is_no_veth_to_be_found(site, pod):
    previous = join(site, pod)
    pod.bridge("br0")

    def message(previous, **more):
        answer = call(site, "ADD", config(previous, **SMALL), pod, **more)
        assert answer.code == 999
        return answer.msg

    assert message({**previous, "interfaces": []}) == "no interfaces provided"
    assert message(previous, ifname="br0").startswith("container interface br0 has no veth peer: ")
    assert message(previous, ifname="eth9").startswith("container interface eth9 has no veth peer: ")
    inside = {**previous, "interfaces": [{"name": "veth0", "sandbox": "/x"}, {"name": "other"}]}
    assert message(inside) == "no veth peer of container interface found in host ns"
    pod.rtnl.add_veth("eth1", peer="peer1")
    assert " is not in host ns" in message(previous, ifname="eth1")
    assert (roots(site.host), ifbs(site.host)) == ({}, [])


@pytest.mark.parametrize(
    "chance",
    [
        pytest.param("ip link add chance index 42 type bridge", id="no veth"),
        pytest.param(
            "ip link add chance index 42 type veth peer name mate index 41; ip link set mate up",
            id="a pair of the host's own",
        ),
        pytest.param("ip link add chance index 42 type veth peer name mate index 77", id="the peer of another link"),
    ],
)
def test_a_link_that_has_the_peers_number_by_chance_is_not_shaped(site, pod, make_netns, chance):
    """The peer lives in a third namespace; the host has a link with its number, which the runtime's result names."""
    elsewhere, third = make_netns(), make_netns()
    pod.run("ip link add eth0 index 41 type veth peer name away index 42")
    pod.run(f"ip link set away netns {elsewhere.path}")
    site.host.run(chance)
    site.host.run("ip link set chance up")
    if "77" in chance:
        site.host.run(f"ip link set mate netns {third.path}")
    previous = {
        "cniVersion": "1.0.0",
        "interfaces": [{"name": "chance"}, {"name": "eth0", "sandbox": pod.path}],
        "ips": [{"address": "10.0.0.2/24", "interface": 1}],
    }
    assert " is not in host ns" in call(site, "ADD", config(previous, **SMALL), pod).msg
    assert (roots(site.host), ifbs(site.host)) == ({}, [])


@pytest.mark.spec("cni.md W6")
def test_another_spelling_of_the_runtimes_key(site, pod):
    limits = {"ingressRate": 8_000, "ingressBurst": 80}
    assert call(site, "ADD", config(join(site, pod), runtimeConfig={"bandWidth": limits}), pod).exit == 0
    assert list(roots(site.host)) == ["veth0"]


def test_without_limits_the_result_is_passed_on(site, pod):
    previous = {"cniVersion": "1.0.0", "interfaces": [{"name": "x"}]}
    assert call(site, "ADD", config(previous), pod).result == previous
    assert call(site, "CHECK", config(previous), pod).exit == 0


@pytest.mark.parametrize("limits", [{}, SMALL], ids=["unlimited", "limited"])
def test_a_call_without_a_previous_result_is_an_error_and_no_crash(site, pod, limits):
    assert call(site, "ADD", config(None, **limits), pod).msg == "must be called as chained plugin"
    assert call(site, "CHECK", config(None, **limits), pod).msg == "must be called as a chained plugin"
    assert call(site, "DEL", config(None, **limits), None).exit == 0


def test_the_golden_state(site, pod):
    assert call(site, "ADD", config(join(site, pod), **GOLDEN), pod).exit == 0
    shown = site.host.run("tc qdisc show").replace("1Mb ", "1000000b ").replace("200Kb ", "200000b ")
    assert "qdisc tbf 1: dev veth0 root refcnt 3 rate 8Mbit burst 1000000b lat 25ms" in shown
    assert f"qdisc tbf 1: dev {IFB} root refcnt 2 rate 16Mbit burst 200000b lat 25ms" in shown
    assert "qdisc ingress ffff: dev veth0 parent ffff:fff1" in shown
    assert "protocol all pref 1 u32" in filters(site.host, "veth0")
    assert "match 00000000/00000000 at 0" in filters(site.host, "veth0")


@pytest.mark.parametrize("limits", [SMALL, GOLDEN], ids=["small", "golden"])
@pytest.mark.parametrize("first, second", [("weft", "debian"), ("debian", "weft")])
def test_upstreams_and_ours_make_the_same_and_undo_each_others(site, make_netns, limits, first, second):
    seen, results = [], []
    for by, other in ((first, second), (second, first)):
        with Netns() as host, Netns() as container:
            here = Site(host, site.directory / by)
            conf = config(join(here, container), **limits)
            result = call(here, "ADD", conf, container, by=by).result
            seen.append(shape_of(host))
            results.append([{**one, "mac": "", "sandbox": ""} for one in result["interfaces"]])
            assert call(here, "CHECK", {**conf, "prevResult": result}, container, by=other).exit == 0
            assert call(here, "DEL", {**conf, "prevResult": result}, container, by=other).exit == 0
            assert ifbs(host) == []
    assert seen[0] == seen[1]
    assert results[0] == results[1]


def test_what_does_not_fit_the_kernels_numbers_stops_at_its_end(site, pod):
    conf = config(join(site, pod), **WIDE)
    result = call(site, "ADD", conf, pod).result
    assert roots(site.host) == {"veth0": (1000, 549_781, 0xFFFFFFFF), IFB: (10**10, 350_000_000, 156_250)}
    assert call(site, "CHECK", {**conf, "prevResult": result}, pod).exit == 0


def test_a_second_interface_has_a_device_of_its_own(site, pod):
    first, second = config(join(site, pod), **SMALL), config(join(site, pod, "eth1", veth="veth1"), **SMALL)
    own = bandwidth.ifb_names(Attachment(network=NETWORK, container_id="dummy", ifname="eth1"))[1]
    assert call(site, "ADD", first, pod).result["interfaces"][2]["name"] == IFB
    result = call(site, "ADD", second, pod, ifname="eth1").result
    assert result["interfaces"][2]["name"] == own
    assert call(site, "CHECK", {**second, "prevResult": result}, pod, ifname="eth1").exit == 0
    assert call(site, "DEL", second, pod, ifname="eth1").exit == 0
    assert ifbs(site.host) == [IFB]
    assert IFB in filters(site.host, "veth0")
    assert call(site, "DEL", first, pod).exit == 0
    assert ifbs(site.host) == []


def test_deleting_an_interface_that_has_none_spares_the_others_device(site, pod):
    assert call(site, "ADD", config(join(site, pod), **SMALL), pod).exit == 0
    assert call(site, "DEL", config(None), None, ifname="eth1").exit == 0
    assert ifbs(site.host) == [IFB]


def test_upstreams_device_goes_with_the_interface_whose_result_names_it(site, pod):
    eth0 = config(join(site, pod), **SMALL)
    eth0["prevResult"] = call(site, "ADD", eth0, pod, by="debian").result
    eth1 = config(join(site, pod, "eth1", veth="veth1"))
    assert call(site, "DEL", eth1, pod, ifname="eth1").exit == 0
    assert ifbs(site.host) == [IFB]
    assert call(site, "DEL", eth0, pod).exit == 0
    assert ifbs(site.host) == []


def test_without_a_result_upstreams_device_goes_as_with_upstreams_plugin(site, pod):
    assert call(site, "ADD", config(join(site, pod), **SMALL), pod, by="debian").exit == 0
    assert call(site, "DEL", config(None), pod).exit == 0
    assert ifbs(site.host) == []


def test_the_name_is_free_at_once_though_the_device_goes_later(site, pod):
    site.deletes = False
    conf = config(join(site, pod), **SMALL)
    for _ in range(2):
        assert call(site, "ADD", conf, pod).result["interfaces"][2]["name"] == IFB
        assert call(site, "DEL", conf, None, netns="").exit == 0
    assert len(ifbs(site.host)) == 2
    assert IFB not in ifbs(site.host)
    site.deletes = True
    site.restart()
    assert ifbs(site.host) == []


def test_an_add_that_is_repeated_leaves_one_of_everything(site, pod):
    conf = config(join(site, pod), **SMALL)
    for _ in range(2):
        assert call(site, "ADD", conf, pod).exit == 0
    assert ifbs(site.host) == [IFB]
    assert filters(site.host, "veth0").count("Redirect to device") == 1


def test_an_add_that_fails_leaves_nothing_and_what_is_there(site, pod):
    conf = config(join(site, pod), **SMALL)
    site.host.run("tc qdisc add dev veth0 clsact")  # has the place of the ingress qdisc
    before = site.host.run("tc qdisc show")
    assert call(site, "ADD", conf, pod).msg.startswith(f"failed to redirect veth0 to {IFB}: File exists")
    assert ifbs(site.host) == []
    assert site.host.run("tc qdisc show") == before
    assert list((site.directory / "state" / "bandwidth").iterdir()) == []


@pytest.mark.parametrize(
    "damage, message, detail",
    [
        ("tc qdisc del dev veth0 root", "Failed to find qdisc", "veth0"),
        ("tc qdisc change dev veth0 root tbf rate 9mbit burst 1mb limit 2mb", "Rate doesn't match", "1000000 expected"),
        (
            "tc qdisc change dev veth0 root tbf rate 8mbit burst 1000000 limit 2000000",
            "Limit doesn't match",
            "1025000 expected, 2000000 there",
        ),
        (
            "tc qdisc change dev veth0 root tbf rate 8mbit burst 500000 limit 1025000",
            "Buffer doesn't match",
            "15625000 expected, 7812500 there",
        ),
        (f"tc qdisc del dev {IFB} root", "Failed to find qdisc", IFB),
        (f"ip link del {IFB}", f"get ifb device: Link {IFB} not found", "no IFB device"),
        ("tc qdisc del dev veth0 ingress", "Failed to find redirection of veth0", IFB),
    ],
)
def test_check_names_what_is_wrong(site, pod, damage, message, detail):
    conf = config(join(site, pod), **GOLDEN)
    conf["prevResult"] = call(site, "ADD", conf, pod).result
    assert call(site, "CHECK", conf, pod).exit == 0
    site.host.run(damage)
    answer = call(site, "CHECK", conf, pod)
    assert answer.msg == message
    assert detail in answer.json["details"]


def test_of_some_qdiscs_the_kernel_says_nothing(site, pod):
    """It acknowledges the question; who waits for more than that waits for ever."""
    conf = config(join(site, pod), **SMALL)
    index = site.host.rtnl.link("veth0").index
    for command in ("tc qdisc add dev veth0 ingress", "tc qdisc del dev veth0 ingress"):
        site.host.run(command)
    with pytest.raises(NetlinkError, match="not answered"):
        site.host.rtnl.ask(tc.get_ingress(index))
    conf["prevResult"] = call(site, "ADD", conf, pod).result
    assert call(site, "CHECK", conf, pod).exit == 0
    for command in ("ip link set veth0 down", "tc qdisc del dev veth0 root"):
        site.host.run(command)
    with pytest.raises(NetlinkError, match="not answered"):
        site.host.rtnl.ask(tc.get_root(index))
    assert call(site, "CHECK", conf, pod).msg == "Failed to find qdisc"


def test_gc_removes_what_is_gone_and_nothing_else(site, pod, make_netns):
    gone = make_netns()
    assert call(site, "ADD", config(join(site, pod), **SMALL), pod).exit == 0
    assert (
        site.call("bandwidth", "ADD", config(join(site, gone, veth="v2"), **SMALL), container=gone, id_="x").exit == 0
    )
    other = {**config(join(site, gone, "eth1", veth="v3"), **SMALL), "name": "other"}
    assert site.call("bandwidth", "ADD", other, container=gone, id_="x", ifname="eth1").exit == 0
    kept = bandwidth.ifb_names(Attachment(network="other", container_id="x", ifname="eth1"))[0]
    conf = {
        "cniVersion": "1.1.0",
        "name": NETWORK,
        "type": "bandwidth",
        "cni.dev/valid-attachments": [{"containerID": "dummy", "ifname": "eth0"}],
    }
    assert site.call("bandwidth", "GC", conf).exit == 0
    assert sorted(ifbs(site.host)) == sorted([IFB, kept])
    assert site.call("bandwidth", "GC", {**conf, "cni.dev/valid-attachments": []}).exit == 0
    assert ifbs(site.host) == [kept]


def test_status_tells_what_the_kernel_lacks(site, monkeypatch):
    conf = {"cniVersion": "1.1.0", "name": NETWORK, "type": "bandwidth"}
    assert site.call("bandwidth", "STATUS", conf | SMALL).exit == 0
    monkeypatch.setattr("weft.kernel.rtnetlink.rtnl.Rtnl.knows", lambda *_: False)
    assert site.call("bandwidth", "STATUS", conf).exit == 0
    answer = site.call("bandwidth", "STATUS", conf | SMALL)
    assert (answer.code, answer.msg) == (50, "egressRate needs IFB devices, which this kernel cannot make")


def test_traffic_takes_the_time_that_it_should(site, pod):
    limits = {"ingressRate": 8_000_000, "ingressBurst": 80_000, "egressRate": 8_000_000, "egressBurst": 80_000}
    assert call(site, "ADD", config(join(site, pod), **limits), pod).exit == 0
    site.host.run("ip addr add 10.0.0.1/24 dev veth0; ip -6 addr add fd00::1/64 dev veth0 nodad")
    pod.run("ip addr add 10.0.0.2/24 dev eth0; ip -6 addr add fd00::2/64 dev eth0 nodad")
    for sender, receiver, address in ((pod, site.host, "10.0.0.1"), (site.host, pod, "fd00::2")):
        # 300 kB, of which 10 kB at once, at 1 MB/s
        assert seconds_to_send(300_000, sender, receiver, address) > 0.2


def seconds_to_send(size, sender, receiver, address):
    server = receiver.call(lambda: socket.create_server((address, 9), family=family_of(address)))
    client = sender.call(lambda: socket.create_connection((address, 9), timeout=200))
    with server, client:
        accepted, _ = server.accept()
        accepted.settimeout(20)
        started = time.monotonic()
        writer = threading.Thread(target=client.sendall, args=(bytes(size),))
        writer.start()
        with accepted:
            while size:
                size -= len(accepted.recv(65536))
        writer.join()
        return time.monotonic() - started


def family_of(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET
