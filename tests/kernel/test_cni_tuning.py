"""tuning in real namespaces: what it sets, what it puts back, and that nothing of the host's is ever reached."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kernel.otherroot import give_root
from tests.support.netns import Netns

MAC = "c2:11:22:33:44:66"
ALL = {"mac": MAC, "promisc": True, "mtu": 1454, "allmulti": True, "txQLen": 20000}
ONES = [{key: value} for key, value in ALL.items()]


@pytest.fixture
def pod(make_netns: Callable[[], Netns], netns: Netns) -> Netns:
    pod = make_netns()
    pod.rtnl.add_veth("eth0", peer="veth0", peer_netns_fd=netns.fd, up=True)
    return pod


@pytest.fixture
def root(site, tmp_path):
    """Another `/` for the plugins: the machine's own /etc stays as it is."""
    path = tmp_path / "root"
    (path / "etc/cni/tuning").mkdir(parents=True)
    give_root(site, path)
    return path


def config(site, pod, **more):
    previous = {"interfaces": [{"name": "veth0"}, {"name": "eth0", "mac": "x", "sandbox": pod.path}]}
    conf = {"cniVersion": "1.0.0", "name": "net", "type": "tuning", "dataDir": str(site.directory / "data")}
    return {**conf, "prevResult": {"cniVersion": "1.0.0", **previous}, **more}


def call(site, command, conf, pod, *, by="weft", **more):
    plugin = site.via(by)
    return plugin("tuning", command, conf, container=pod, **more)


def state(pod, name="eth0"):
    [link] = pod.json(f"ip -j -d link show {name}")
    return {
        "mac": link["address"],
        "promisc": "PROMISC" in link["flags"],
        "mtu": link["mtu"],
        "allmulti": "ALLMULTI" in link["flags"],
        "txQLen": link["txqlen"],
    }


def backups(site):
    directory = site.directory / "data"
    return sorted(path.name for path in directory.iterdir()) if directory.exists() else []


def sysctl(netns, name):
    return netns.run(["cat", f"/proc/sys/{name}"]).strip()


@pytest.mark.spec("cni.md T1")
def test_a_setting_reaches_the_container_alone(site, pod):
    conf = config(site, pod, sysctl={"net.ipv4.conf.all.log_martians": "1"})
    before = sysctl(site.host, "net/ipv4/conf/all/log_martians")
    assert before == "0"
    assert call(site, "ADD", conf, pod).result == conf["prevResult"]
    assert sysctl(pod, "net/ipv4/conf/all/log_martians") == "1"
    assert sysctl(site.host, "net/ipv4/conf/all/log_martians") == before
    assert backups(site) == []
    assert call(site, "CHECK", conf, pod).exit == 0
    assert call(site, "DEL", conf, pod).exit == 0


@pytest.mark.parametrize(
    "name, path",
    [
        ("net.ipv4.conf.IFNAME.arp_notify", "net/ipv4/conf/eth0/arp_notify"),
        ("net/ipv6/conf/IFNAME/accept_ra", "net/ipv6/conf/eth0/accept_ra"),
        ("net.core.somaxconn", "net/core/somaxconn"),
        ("net.netfilter.nf_conntrack_tcp_be_liberal", "net/netfilter/nf_conntrack_tcp_be_liberal"),
        ("net.unix.max_dgram_qlen", "net/unix/max_dgram_qlen"),
    ],
)
def test_settings_of_every_directory(site, pod, name, path):
    host = sysctl(site.host, "net/core/somaxconn")
    conf = config(site, pod, sysctl={name: "1"})
    assert call(site, "ADD", conf, pod).exit == 0
    assert sysctl(pod, path) == "1"
    assert call(site, "CHECK", conf, pod).exit == 0
    assert sysctl(site.host, "net/core/somaxconn") == host


def test_an_interface_whose_name_has_a_dot(site, pod):
    pod.rtnl.add_veth("eth0.7", peer="x")
    conf = config(site, pod, sysctl={"net.ipv4.conf.IFNAME.arp_notify": "1", "net.ipv4.conf.eth0/7.proxy_arp": "1"})
    assert call(site, "ADD", conf, pod, ifname="eth0.7").exit == 0
    assert sysctl(pod, "net/ipv4/conf/eth0.7/arp_notify") == "1"
    assert sysctl(pod, "net/ipv4/conf/eth0.7/proxy_arp") == "1"


@pytest.mark.spec("cni.md T2")
@pytest.mark.parametrize("where", ["config", "args"])
@pytest.mark.parametrize("wanted", [*ONES, ALL], ids=[*ALL, "all"])
def test_each_setting_of_the_link(site, pod, wanted, where):
    conf = config(site, pod, **(wanted if where == "config" else {"args": {"cni": wanted}}))
    before = state(pod)
    result = call(site, "ADD", conf, pod).result
    assert state(pod) == {**before, **wanted}
    assert [one.get("mac") for one in result["interfaces"]] == [None, wanted.get("mac", "x")]
    saved = json.loads((site.directory / "data" / "c1_eth0.json").read_text())
    assert saved == {key: before[key] for key in wanted}
    assert call(site, "CHECK", {**conf, "prevResult": result}, pod).exit == 0
    assert call(site, "DEL", conf, pod).exit == 0
    assert state(pod) == before
    assert backups(site) == []


@pytest.mark.spec("cni.md T3")
def test_the_mac_of_the_environment(site, pod):
    conf = config(site, pod, mac="c2:11:22:33:44:01")
    result = call(site, "ADD", conf, pod, args=f"IgnoreUnknown=true;MAC={MAC}").result
    assert state(pod)["mac"] == MAC
    assert result["interfaces"][1]["mac"] == MAC


@pytest.mark.spec("cni.md T4")
def test_the_backup_is_where_it_should_be(site, pod):
    conf = config(site, pod, mtu=1454, dataDir=str(site.directory / "deep" / "data"))
    assert call(site, "ADD", conf, pod).exit == 0
    backup = site.directory / "deep" / "data" / "c1_eth0.json"
    assert backup.stat().st_mode & 0o777 == 0o600
    assert call(site, "DEL", conf, None, netns="").exit == 0
    assert not backup.exists()


@pytest.mark.spec("cni.md T5")
def test_the_list_of_what_is_allowed(site, pod, root):
    allow_list = root / "etc/cni/tuning/allowlist.conf"
    conf = config(site, pod, sysctl={"net.ipv4.conf.all.log_martians": "1"})
    assert call(site, "ADD", conf, pod).exit == 0
    allow_list.write_text("^net\\.core\\.\n")
    message = (
        "Sysctl net.ipv4.conf.all.log_martians is not allowed. Only the following sysctls are allowed: [^net\\.core\\.]"
    )
    conf = config(site, pod, sysctl={"net.ipv4.conf.all.log_martians": "0"})
    answer = call(site, "ADD", conf, pod)
    assert (answer.code, answer.msg) == (999, message)
    assert sysctl(pod, "net/ipv4/conf/all/log_martians") == "1"
    allow_list.write_text("^net\\.core\\.\nlog_martians$\n")
    assert call(site, "ADD", conf, pod).exit == 0
    assert sysctl(pod, "net/ipv4/conf/all/log_martians") == "0"


@pytest.mark.spec("cni.md T6")
def test_what_is_refused(site, pod):
    text = json.dumps(config(site, pod, sysctl={"net.ipv4.ip_forward": "1"}))
    doubled = text.replace('"sysctl": {', '"sysctl": {"net.ipv4.ip_forward": "0", ').encode()
    answer = call(site, "ADD", doubled, pod)
    assert (answer.code, answer.msg) == (999, "duplicated sysctl keys are not allowed")
    answer = call(site, "ADD", config(site, pod, sysctl={"net.ipv4.ip_forward": "1"}), pod, ifname="a/b")
    assert (answer.code, answer.msg) == (4, "interface name contains / or : or whitespace characters")
    wrong = config(site, pod, sysctl={"net.ipv4.ip_forward": "1", "kernel.shmmax": "1"})
    answer = call(site, "ADD", wrong, pod)
    assert (answer.code, answer.msg) == (999, 'invalid net sysctl key: "kernel/shmmax"')
    assert sysctl(pod, "net/ipv4/ip_forward") == "0"


@pytest.mark.parametrize(
    "name",
    [
        "net/ipv4/../../kernel/hostname",
        "net.ipv4.//.//.kernel.hostname",
        "/proc/sys/kernel/hostname",
        "../proc/sys/kernel/hostname",
        "net/../net/ipv4/ip_forward",
    ],
)
def test_no_name_leads_out(site, pod, name):
    hostname = Path("/proc/sys/kernel/hostname").read_text()
    answer = call(site, "ADD", config(site, pod, sysctl={name: "1"}), pod)
    assert answer.msg.startswith("invalid net sysctl key: ")
    assert Path("/proc/sys/kernel/hostname").read_text() == hostname
    assert sysctl(site.host, "net/ipv4/ip_forward") == "0"


def test_settings_of_args_alone_are_no_crash(site, pod):
    conf = config(site, pod, args={"cni": {"sysctl": {"net.ipv4.ip_forward": "1"}}})
    assert call(site, "ADD", conf, pod).exit == 0
    assert sysctl(pod, "net/ipv4/ip_forward") == "1"


def test_without_a_previous_result(site, pod):
    conf = {key: value for key, value in config(site, pod, mtu=1454).items() if key != "prevResult"}
    for command in ("ADD", "CHECK"):
        assert call(site, command, conf, pod).msg == "Required prevResult missing"
    assert call(site, "DEL", conf, pod).exit == 0
    assert state(pod)["mtu"] == 1500


@pytest.mark.parametrize("first, second", [("weft", "debian"), ("debian", "weft")])
def test_either_puts_back_what_the_other_has_changed(site, pod, first, second):
    # Debian's older plugin knows no txQLen.
    wanted = {key: value for key, value in ALL.items() if key != "txQLen"}
    before = state(pod)
    conf = config(site, pod, **wanted, sysctl={"net.ipv4.conf.eth0.arp_notify": "1"})
    result = call(site, "ADD", conf, pod, by=first).result
    assert state(pod) == {**before, **wanted}
    assert call(site, "CHECK", {**conf, "prevResult": result}, pod, by=second).exit == 0
    assert call(site, "DEL", conf, pod, by=second).exit == 0
    assert state(pod) == before
    assert backups(site) == []


def test_both_keep_the_same_file(site, pod):
    wanted = {key: value for key, value in ALL.items() if key != "txQLen"}
    files = []
    for by in ("weft", "debian"):
        conf = config(site, pod, **wanted)
        assert call(site, "ADD", conf, pod, by=by).exit == 0
        files.append((site.directory / "data" / "c1_eth0.json").read_bytes())
        assert call(site, "DEL", conf, pod, by=by).exit == 0
    assert files[0] == files[1]


def test_two_in_one_chain_put_back_what_was_before_both(site, pod):
    before = state(pod)
    first, second = config(site, pod, mtu=1454, mac=MAC), config(site, pod, mtu=1400, promisc=True)
    assert call(site, "ADD", first, pod).exit == 0
    assert call(site, "ADD", second, pod).exit == 0
    assert state(pod) == {**before, "mtu": 1400, "mac": MAC, "promisc": True}
    assert call(site, "DEL", second, pod).exit == 0
    assert call(site, "DEL", first, pod).exit == 0
    assert state(pod) == before


def test_an_add_that_fails_puts_back_what_it_changed(site, pod):
    before = state(pod)
    conf = config(site, pod, mac=MAC, promisc=True, mtu=70000)
    answer = call(site, "ADD", conf, pod)
    assert answer.msg.startswith("failed to set the MTU 70000 of eth0: ")
    assert state(pod) == before
    missing = config(site, pod, mtu=1400)
    assert call(site, "ADD", missing, pod, ifname="eth9").msg == 'failed to get "eth9": Link not found'


def test_a_setting_that_is_not_there_or_refused(site, pod):
    def message(name, value="1"):
        return call(site, "ADD", config(site, pod, sysctl={name: value}), pod).msg

    assert message("net.ipv4.nonsense") == "open /proc/sys/net/ipv4/nonsense: No such file or directory"
    assert message("net.nonsense") == "open /proc/sys/net/nonsense: No such file or directory"
    assert message("net.ipv4.ip_forward", "x") == "write /proc/sys/net/ipv4/ip_forward: Invalid argument"


def test_del_succeeds_whatever_there_is(site, pod):
    conf = config(site, pod, mtu=1454)
    assert call(site, "DEL", conf, pod).exit == 0
    assert call(site, "DEL", config(site, pod, dataDir=5), pod).exit == 0
    assert call(site, "ADD", conf, pod).exit == 0
    (site.directory / "data" / "c1_eth0.json").write_text("torn")
    answer = call(site, "DEL", conf, pod)
    assert (answer.exit, "tuning: " in answer.stderr) == (0, True)
    pod.run("ip link del eth0")
    assert call(site, "DEL", conf, pod).exit == 0


@pytest.mark.parametrize("wanted", [{}, *ONES, {"sysctl": {"net.ipv4.ip_forward": "1"}}], ids=str)
def test_check_says_what_upstreams_says(site, pod, wanted):
    """The interface is promiscuous, and nothing else is as configured."""
    pod.run("ip link set eth0 promisc on")
    conf = config(site, pod, **{"promisc": True, **wanted} if wanted else {})
    if "promisc" in wanted:
        pod.run("ip link set eth0 promisc off")
    ours, theirs = call(site, "CHECK", conf, pod), call(site, "CHECK", conf, pod, by="debian")
    assert ours.exit == 1
    assert ours.msg.startswith("Error: Tuning ")
    if "txQLen" in wanted:
        assert ours.msg == "Error: Tuning configured Transmit Queue Length of eth0 is 20000, current value is 1000"
    elif "allmulti" in wanted:  # theirs prints an address of its memory
        assert ours.msg == "Error: Tuning configured all-multicast mode of eth0 is true, current value is false"
    else:
        assert ours.msg == theirs.msg


def test_check_of_a_link_that_is_gone(site, pod):
    assert call(site, "CHECK", config(site, pod), pod, ifname="eth9").msg == "Cannot find container link eth9"


def test_check_reads_numbers_as_numbers(site, pod):
    conf = config(site, pod, sysctl={"net.ipv4.ip_local_port_range": "20000 30000"})
    assert call(site, "ADD", conf, pod).exit == 0
    assert call(site, "CHECK", conf, pod).exit == 0
