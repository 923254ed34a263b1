"""What flags do in a daemon that runs: read they are in tests/pure/config, obeyed here."""

import json
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from tests.support.oldkernel import LEGACY
from tests.support.weftd import DUAL, STORE, VXLAN, Cluster, eventually
from weft.daemon.process import rights
from weft.wire.etcd import lease_id


@pytest.mark.spec("flannel.md §1.2/iface-can-reach")
def test_the_uplink_is_the_one_that_reaches_an_address(cluster: Cluster):
    cluster.configure()
    node = cluster.node(1)
    node.netns.bridge("other0", "192.0.2.1/24")
    node.spawn("--iface-can-reach=192.0.2.9")
    node.says("uplink other0 .* with 192.0.2.1, by --iface-can-reach=192.0.2.9")
    node.says("lease .*, public IP 192.0.2.1$")


@pytest.mark.spec("flannel.md §6.1/inputs", "flannel.md §6.1/attributes-once")
def test_the_chosen_interface_carries_and_the_public_addresses_are_told(cluster: Cluster):
    """Behind NAT: the device sends from the interface's own addresses (Q-29), the lease has those that peers reach."""
    cluster.configure(VXLAN, DUAL)
    node = cluster.node(1)
    node.netns.bridge("other0", "192.0.2.1/24", "2001:db8::1/64")
    node.netns.run("ip link set other0 mtu 1400")
    node.start("--iface=other0", "--public-ip=198.51.100.7", "--public-ipv6=2001:db8:7::7")
    assert node.env["FLANNEL_MTU"] == "1330"
    for device, local, subnet, mtu in (
        ("flannel.1", "192.0.2.1", node.v4, 1350),
        ("flannel-v6.1", "2001:db8::1", node.v6, 1330),
    ):
        [link] = node.netns.json(f"ip -j -d address show {device}")
        info = link["linkinfo"]["info_data"]
        assert (info["link"], info.get("local") or info["local6"], link["mtu"]) == ("other0", local, mtu)
        assert str(subnet[0]) in [each["local"] for each in link["addr_info"]]
    [(name, kv)] = cluster.leases().items()
    assert name == lease_id(node.v4, node.v6)
    told = json.loads(kv.value)
    assert (told["PublicIP"], told["PublicIPv6"]) == ("198.51.100.7", "2001:db8:7::7")
    assert told["BackendData"]["VtepMAC"] in node.ip("link show flannel.1")
    assert kv.mod_revision == kv.create_revision, "told once, with all that peers need"


@pytest.mark.spec("flannel.md §1.2/ip-masq-fully-random-disable")
@pytest.mark.spec("flannel.md §1.2/ip-masq", cases=("iptables", "nft"))
@pytest.mark.parametrize("kind", [{}, {"EnableNFTables": True}], ids=["iptables", "nft"])
def test_masqueraded_ports_are_chosen_at_random_unless_that_is_switched_off(cluster: Cluster, kind):
    cluster.configure(VXLAN, kind)
    node = cluster.node(1).start("--ip-masq")
    look = "nft list ruleset" if kind else "iptables-save -t nat"
    random = "fully-random" if kind else "--random-fully"
    assert random in node.netns.run(look)
    node.stop()
    node.start("--ip-masq", "--ip-masq-fully-random-disable")
    rules = node.netns.run(look)
    assert random not in rules
    assert "masquerade" in rules.lower()
    node.stop()
    node.start()
    assert "masquerade" not in node.netns.run(look).lower()


def test_ports_are_not_chosen_at_random_where_the_program_does_not_know_how(cluster: Cluster, tmp_path: Path):
    old = tmp_path / "nft"
    old.write_text('#!/bin/sh\ncase "$1" in --check) exit 1;; esac\nexec /usr/sbin/nft "$@"\n')
    old.chmod(0o755)
    cluster.configure(VXLAN, {"EnableNFTables": True})
    before = 'mount --bind "$1" /usr/local/sbin; shift; exec "$@"'
    node = cluster.node(1)
    node.spawn("--ip-masq", wrap=["unshare", "--mount", "sh", "-c", before, "sh", str(tmp_path)]).wait_ready()
    rules = node.netns.run("nft list ruleset")
    assert "masquerade" in rules
    assert "fully-random" not in rules


@pytest.mark.spec("flannel.md §1.2/v")
def test_details_are_logged_when_they_are_asked_for(own_cluster: Cluster):
    own_cluster.configure()
    loud, still = own_cluster.node(1).start("--v=1"), own_cluster.node(2).start()
    own_cluster.etcd.stop()
    loud.says("DEBUG link: the library says: ConnectionRefusedError", seconds=30)
    still.says("STORE-001", seconds=30)
    assert not still.lines("DEBUG")
    own_cluster.etcd.start()


@pytest.mark.spec("flannel.md §1.2/subnet-lease-renew-margin")
def test_the_margin_of_renewal_is_counted_in_minutes(cluster: Cluster):
    cluster.configure()
    node = cluster.node(1).start("--subnet-lease-renew-margin=60")
    kv = cluster.lease_of(node)
    # An operator gives it a lease that has to be renewed in five seconds, were they minutes; in an hour, were they not.
    lease = cluster.etcd.put_leased(kv.key, kv.value, ttl=3605)
    eventually(lambda: cluster.etcd.ttl(lease)[0] <= 3602, seconds=20)
    eventually(lambda: cluster.etcd.ttl(lease)[0] >= 3604, seconds=20)


def test_only_the_rights_that_are_used_are_kept(cluster: Cluster):
    cluster.configure()
    node = cluster.node(1).start("--ip-masq")
    mask = rights.kept()
    for status in Path(f"/proc/{node.pid}/task").glob("*/status"):
        held = dict(line.split(":", 1) for line in status.read_text().splitlines() if line.startswith("Cap"))
        of = {name: int(value, 16) for name, value in held.items()}
        assert of["CapPrm"] == of["CapEff"] == mask & of["CapPrm"] != 0
        assert of["CapBnd"] == mask & of["CapBnd"]
        assert of["CapInh"] == of["CapAmb"] == 0


@pytest.mark.spec("flannel.md §1.2/etcd-endpoints", "flannel.md §1.2/etcd-prefix")
def test_the_store_is_the_endpoint_that_answers_and_its_keys_are_below_the_prefix(cluster: Cluster):
    cluster.configure(Network="10.6.0.0/16", SubnetMin="10.6.0.0", SubnetMax="10.6.255.0")  # not the one that is meant
    prefix = f"{cluster.prefix}/else/where"
    cluster.etcd.put(f"{prefix}/config", json.dumps(VXLAN))
    node = cluster.node(1).start(f"--etcd-endpoints=http://{STORE}:1,{cluster.etcd.url}", f"--etcd-prefix={prefix}")
    [lease] = cluster.etcd.below(f"{prefix}/subnets/")
    assert lease.key == f"{prefix}/subnets/{node.v4[0]}-24"
    assert node.v4.subnet_of(IPv4Network("10.5.0.0/16"))
    assert not cluster.leases()


@pytest.mark.spec("flannel.md §1.2/iface", "flannel.md §1.2/iface-regex")
def test_the_uplink_is_the_first_interface_that_a_name_an_address_or_a_pattern_finds(cluster: Cluster):
    cluster.configure()
    node = cluster.node(1)
    node.netns.bridge("other0", "192.0.2.1/24")
    node.netns.bridge("other1", "192.0.3.1/24")
    for flags, found in (
        (["--iface=none0", "--iface=other1", "--iface=other0"], "192.0.3.1"),
        (["--iface=none0", "--iface=192.0.2.1", "--iface=other1"], "192.0.2.1"),
        (["--iface-regex=^wlan", "--iface-regex=^192[.]0[.]3", "--iface-regex=^other0$"], "192.0.3.1"),
        (["--iface-regex=^192[.]0[.]3", "--iface=other0"], "192.0.2.1"),
        (["--iface=none0", "--iface-regex=^oth.*0$"], "192.0.2.1"),
    ):
        node.start(*flags)
        [lease] = cluster.leases().values()
        assert json.loads(lease.value)["PublicIP"] == found, flags
        assert f"local {found}" in node.ip("-d link show flannel.1"), flags
        assert node.stop() == 0


@pytest.mark.spec("flannel.md §1.2/public-ip", "flannel.md §1.2/public-ipv6")
def test_other_nodes_are_told_the_public_addresses_and_send_there(cluster: Cluster):
    cluster.configure(VXLAN, DUAL)
    away = {"--public-ip": "192.0.2.9", "--public-ipv6": "2001:db8::9"}
    node, other = cluster.node(1), cluster.node(2).start()
    node.start(*(f"{flag}={ip}" for flag, ip in away.items()))
    [lease] = [kv for kv in cluster.leases().values() if "192.0.2.9" in kv.value]
    value = json.loads(lease.value)
    assert (value["PublicIP"], value["PublicIPv6"]) == tuple(away.values())
    for device, ip in (("flannel.1", "192.0.2.9"), ("flannel-v6.1", "2001:db8::9")):
        other.sees(f"bridge fdb show dev {device}", f"dst {ip} self permanent")
    assert "local 172.31.0.1" in node.ip("-d link show flannel.1")


@pytest.mark.spec("flannel.md §1.2/subnet-file")
def test_the_subnet_file_is_read_and_written_where_it_is_told(cluster: Cluster, tmp_path: Path):
    cluster.configure()
    node = cluster.node(1)
    node.subnet_file = tmp_path / "else" / "where.env"
    node.subnet_file.parent.mkdir()
    node.subnet_file.write_text("FLANNEL_NETWORK=10.5.0.0/16\nFLANNEL_SUBNET=10.5.123.1/24\n")
    node.start()
    assert list(cluster.leases()) == ["10.5.123.0-24"]
    assert node.env["FLANNEL_SUBNET"] == "10.5.123.1/24"
    assert node.env["FLANNEL_MTU"] == "1450"


@pytest.mark.spec("flannel.md §1.2/iptables-forward-rules", "flannel.md §1.2/ip-blackhole-route")
def test_rules_of_forwarding_and_the_blackhole_are_there_as_they_are_asked_for(cluster: Cluster):
    cluster.configure()
    node = cluster.node(1).start()
    assert "-A FLANNEL-FWD" in node.netns.run("iptables-save -t filter")
    assert "blackhole" not in node.ip("route")
    node.stop()
    node.start("--iptables-forward-rules=false", "--ip-blackhole-route")
    eventually(lambda: "FLANNEL-FWD" not in node.netns.run("iptables-save -t filter"))
    assert f"blackhole {node.v4}" in node.ip("route")


@pytest.mark.spec("flannel.md §1.2/iptables-resync")
def test_rules_of_which_the_kernel_gives_no_notice_are_looked_at_as_often_as_is_asked(cluster: Cluster):
    cluster.configure()
    often, rarely = cluster.node(1), cluster.node(2)
    often.spawn("--ip-masq", "--iptables-resync=1", wrap=LEGACY).wait_ready()
    rarely.spawn("--ip-masq", "--iptables-resync=3600", wrap=LEGACY).wait_ready()
    flush = "iptables-legacy -t nat -F FLANNEL-POSTRTG"
    rarely.netns.run(flush)
    for _ in range(2):
        often.netns.run(flush)
        often.sees("iptables-legacy-save -t nat", "-A FLANNEL-POSTRTG", seconds=20)
    assert "-A FLANNEL-POSTRTG" not in rarely.netns.run("iptables-legacy-save -t nat")


@pytest.mark.spec("flannel.md §1.2/logging-stderr")
@pytest.mark.spec("flannel.md §1.2/etcd-username-password", cases=("flag", "variable"))
@pytest.mark.parametrize("by", ["flag", "variable"])
def test_a_password_opens_the_store_and_is_not_logged_and_the_log_is_on_standard_error(
    own_cluster: Cluster, tmp_path: Path, by: str
):
    own_cluster.configure()
    own_cluster.etcd.add_user("weft", "right-password", prefix=own_cluster.prefix)
    own_cluster.etcd.enable_auth()
    out = tmp_path / "out"
    given = {"FLANNELD_ETCD_PASSWORD": "right-password"} if by == "variable" else {}
    flags = [] if given else ["--etcd-password=right-password"]
    node = own_cluster.node(1)
    aside = ("sh", "-c", 'out=$1; shift; exec "$@" >"$out"', "sh", str(out))
    node.spawn("--etcd-username=weft", "--v=1", *flags, env=given, wrap=aside).wait_ready()
    node.says("INFO running: ready: ")
    assert node.stop() == 0
    assert out.read_text() == ""
    node.says("INFO main: weftd .* starts: .*etcd-username=weft .*v=1")
    assert "right-password" not in node.log


@pytest.mark.parametrize(
    "flag",
    [
        pytest.param(flag, marks=pytest.mark.spec(f"flannel.md §1.2/{flag.partition('=')[0]}"))
        for flag in (
            "vmodule=a=1",
            "log_backtrace_at=a:1",
        )
    ],
)
def test_what_this_build_lacks_ends_the_start_with_2_and_leaves_nothing(cluster: Cluster, flag: str):
    node = cluster.node(1)
    assert node.spawn(f"--{flag}").wait() == 2
    name, _, value = flag.partition("=")
    node.says(rf"FLAG-001 --{name}: not in this build")
    variable = {"FLANNELD_" + name.upper().replace("-", "_"): value or "true"}
    assert node.spawn(env=variable).wait() == 2
    node.says(rf"FLAG-001 {next(iter(variable))}: not in this build")
    assert not node.state_dir.exists()
