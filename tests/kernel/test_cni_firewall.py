"""firewall in real namespaces: upstream's rules, our own table, and firewalld on a bus of the test's own."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.cnihost import Site
from tests.support.firewalld import system_bus
from tests.support.netns import Netns
from tests.support.otherroot import give_root
from weft.cni import masq, programs, sweep
from weft.cni.sweeper import node_host

BOTH = ("10.0.0.2/24", "2001:db8:1:2::1/64")
MATCH = "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"


@pytest.fixture
def root() -> Iterator[Path]:
    # The name of a unix socket is at most 107 bytes long, which pytest's own directories may exceed.
    with tempfile.TemporaryDirectory(prefix="weft-") as path:
        yield Path(path)


@pytest.fixture
def site(netns: Netns, tmp_path: Path, root: Path) -> Site:
    """A host without a system bus."""
    site = Site(netns, tmp_path)
    give_root(site, root)
    return site


def config(ips=BOTH, *, bridge="cni0", version="1.0.0", **more):
    interfaces = [{"name": bridge}, {"name": "eth0", "sandbox": "/x"}]
    addresses = [{"address": ip, "interface": 1} for ip in ips]
    previous = {"cniVersion": version, "interfaces": interfaces, "ips": addresses}
    conf = {"cniVersion": version, "name": "net", "type": "firewall", "prevResult": previous, **more}
    return {key: value for key, value in conf.items() if value is not None}


def call(site, command, conf, *, by="weft", **more):
    plugin = site.call if by == "weft" else site.debian
    return plugin("firewall", command, conf, **{"netns": "/x", **more})


def rules(netns, family=4):
    """Return chains and rules of the filter table, but for the kernel's own."""
    program = {4: "iptables-save", 6: "ip6tables-save"}[family]
    lines = netns.run(f"{program} -t filter").splitlines()
    own = (":INPUT", ":FORWARD", ":OUTPUT")
    return [line.removesuffix(" [0:0]") for line in lines if line[:1] in ":-" and not line.startswith(own)]


def for_ip(ip):
    return [f"-A CNI-FORWARD -d {ip} {MATCH}", f"-A CNI-FORWARD -s {ip} -j ACCEPT"]


FRAME = [
    ":CNI-ADMIN -",
    ":CNI-FORWARD -",
    '-A FORWARD -m comment --comment "CNI firewall plugin rules" -j CNI-FORWARD',
    '-A CNI-FORWARD -m comment --comment "CNI firewall plugin admin overrides" -j CNI-ADMIN',
]


def elements(netns, name):
    """Return the elements of a set of our table, empty if there is none."""
    listed = netns.json(f"nft -j list set inet weft-firewall {name} 2>/dev/null || true")
    items = [item["set"].get("elem", []) for item in listed["nftables"] if "set" in item] if listed else []
    return [item.get("elem", item) if isinstance(item, dict) else item for item in (items[0] if items else [])]


@pytest.mark.spec("cni.md I1")
def test_rules_of_both_families(site):
    conf = config(backend="iptables")
    assert call(site, "ADD", conf).result == conf["prevResult"]
    expected = {4: FRAME + for_ip("10.0.0.2/32"), 6: FRAME + for_ip("2001:db8:1:2::1/128")}
    assert {family: rules(site.host, family) for family in (4, 6)} == expected
    assert call(site, "ADD", conf).exit == 0
    assert {family: rules(site.host, family) for family in (4, 6)} == expected
    assert call(site, "CHECK", conf).exit == 0
    for _ in range(2):
        assert call(site, "DEL", conf).exit == 0
    assert {family: rules(site.host, family) for family in (4, 6)} == {4: FRAME, 6: FRAME}


@pytest.mark.spec("cni.md I2")
def test_the_chain_of_the_administrator(site):
    site.host.run("iptables -N CNI-foobar; iptables -A CNI-foobar -s 1.2.3.4 -j DROP")
    assert call(site, "ADD", config(iptablesAdminChainName="CNI-foobar")).exit == 0
    for family in (4, 6):
        shown = rules(site.host, family)
        assert ":CNI-foobar -" in shown
        assert '-A CNI-FORWARD -m comment --comment "CNI firewall plugin admin overrides" -j CNI-foobar' in shown
    assert "-A CNI-foobar -s 1.2.3.4/32 -j DROP" in rules(site.host)


def test_only_what_is_needed_is_touched(site, monkeypatch):
    started = []
    run = programs.run

    def watched(program, *arguments, **more):
        started.append(program)
        return run(program, *arguments, **more)

    monkeypatch.setattr(programs, "run", watched)
    conf = config(("10.0.0.2/24",), backend="iptables")
    assert call(site, "ADD", conf).exit == 0
    assert call(site, "DEL", conf).exit == 0
    assert started == ["iptables-save", "iptables-restore"] * 2
    assert rules(site.host, 6) == []


@pytest.mark.parametrize("first, second", [("weft", "debian"), ("debian", "weft")])
def test_either_checks_and_removes_what_the_other_has_made(site, first, second):
    conf = config(ingressPolicy="same-bridge")
    assert call(site, "ADD", conf, by=first).exit == 0
    made = [rules(site.host, family) for family in (4, 6)]
    assert call(site, "ADD", conf, by=second).exit == 0
    # Upstream's older version has another comment for the shared rules of the policy, and adds its own.
    if second == "weft":
        assert [rules(site.host, family) for family in (4, 6)] == made
    assert call(site, "CHECK", conf, by=second).exit == 0
    assert call(site, "DEL", conf, by=second).exit == 0
    assert not [line for family in (4, 6) for line in rules(site.host, family) if "ESTABLISHED" in line]


def test_the_golden_state(site):
    assert call(site, "ADD", config(("10.0.0.2/24",), ingressPolicy="same-bridge")).exit == 0
    every, own = (
        f'-m comment --comment "CNI firewall plugin rules (ingressPolicy: {policy})"'
        for policy in ("same-bridge|isolated", "same-bridge")
    )
    stage = "CNI-ISOLATION-STAGE"
    assert rules(site.host) == [
        ":CNI-ADMIN -",
        ":CNI-FORWARD -",
        f":{stage}-1 -",
        f":{stage}-2 -",
        f"-A FORWARD {every} -j {stage}-1",
        *FRAME[2:],
        *for_ip("10.0.0.2/32"),
        f"-A {stage}-1 -i cni0 ! -o cni0 {own} -j {stage}-2",
        f"-A {stage}-1 {every} -j RETURN",
        f"-A {stage}-2 -o cni0 {every} -j DROP",
        f"-A {stage}-2 {every} -j RETURN",
    ]


class Nets:
    """A host with two bridges, each with two pods; `enforced` where bridged packets are filtered too."""

    def __init__(self, site: Site, make_netns: Callable[[], Netns]) -> None:
        self.site = site
        self.pods: dict[str, Netns] = {}
        site.host.run("sysctl -qw net.ipv4.ip_forward=1 net.bridge.bridge-nf-call-iptables=1")
        for net in (0, 1):
            bridge = site.host.bridge(f"cni{net}", f"10.{net}.0.1/24")
            for number in (2, 3):
                pod = make_netns()
                name = f"10.{net}.0.{number}"
                made = site.host.rtnl.add_veth(f"v{net}{number}", peer="eth0", peer_netns_fd=pod.fd, up=True)
                site.host.rtnl.set_link(made.index, master=bridge)
                pod.run(f"ip addr add {name}/24 dev eth0; ip link set eth0 up; ip route add default via 10.{net}.0.1")
                self.pods[name] = pod

    def add(self, **more):
        for name in self.pods:
            conf = config((f"{name}/24",), bridge=f"cni{name[3]}", **more)
            assert call(self.site, "ADD", conf, id_=name).exit == 0

    def expect(self, one: str, other: str, *, reached: bool) -> None:
        answer = self.pods[one].run(f"ping -c1 -W{5 if reached else 1} {other}", check=False)
        assert ("1 received" in answer) is reached


@pytest.mark.spec("cni.md I3")
@pytest.mark.parametrize("backend", ["iptables", "nft"])
@pytest.mark.parametrize("policy, inside", [("open", None), ("same-bridge", True), ("isolated", False)])
def test_who_reaches_whom(site, make_netns, backend, policy, inside):
    nets = Nets(site, make_netns)
    nets.expect("10.0.0.2", "10.1.0.3", reached=True)
    nets.add(backend=backend, ingressPolicy=policy)
    nets.expect("10.0.0.2", "10.0.0.3", reached=inside is not False)
    nets.expect("10.0.0.2", "10.1.0.3", reached=inside is None)
    nets.expect("10.1.0.2", "10.0.0.3", reached=inside is None)


@pytest.mark.spec("cni.md I4")
def test_firewalld(site, root):
    conf = config()
    with system_bus(root) as start:
        firewalld = start()
        assert call(site, "ADD", conf).result == conf["prevResult"]
        assert firewalld.told == [
            ("addSource", "trusted", "10.0.0.2/32"),
            ("addSource", "trusted", "2001:db8:1:2::1/128"),
        ]
        assert rules(site.host) == []
        assert call(site, "ADD", conf).exit == 0
        assert call(site, "CHECK", conf).exit == 0
        firewalld.told.clear()
        assert call(site, "DEL", {**conf, "prevResult": {}}).exit == 0
        assert firewalld.told == [
            ("removeSource", "trusted", "10.0.0.2/32"),
            ("removeSource", "trusted", "2001:db8:1:2::1/128"),
        ]
        assert firewalld.zones == {"trusted": set(), "public": set()}


def test_firewalld_that_says_no_or_has_forgotten(site, root):
    conf = config(("10.0.0.2/24",), backend="firewalld", firewalldZone="nowhere")
    with system_bus(root) as start:
        assert call(site, "ADD", conf).msg == "firewalld is not running"
        firewalld = start()
        answer = call(site, "ADD", conf)
        assert answer.msg.startswith("failed to add the address 10.0.0.2 to nowhere zone: ")
        assert answer.msg.endswith("INVALID_ZONE: nowhere")
        conf = config(("10.0.0.2/24",), firewalldZone="public")
        assert call(site, "ADD", conf).exit == 0
        assert firewalld.zones["public"] == {"10.0.0.2/32"}
        firewalld.zones["public"].clear()
        assert call(site, "CHECK", conf).msg == "expected source 10.0.0.2 not found in zone public"
        deleted = call(site, "DEL", conf)
        assert (deleted.exit, "UNKNOWN_SOURCE" in deleted.stderr) == (0, True)
    assert call(site, "ADD", config(backend="firewalld")).msg == "firewalld is not running"
    assert call(site, "DEL", config(backend="firewalld")).exit == 0


def test_an_address_that_is_lost_keeps_no_other_in_the_zone(site, root):
    with system_bus(root) as start:
        firewalld = start()
        assert call(site, "ADD", config()).exit == 0
        firewalld.zones["trusted"].discard("10.0.0.2/32")
        assert call(site, "DEL", config()).exit == 0
        assert firewalld.zones["trusted"] == set()


def test_a_bus_without_firewalld(site, root):
    with system_bus(root):
        assert call(site, "ADD", config(("10.0.0.2/24",))).exit == 0
    assert for_ip("10.0.0.2/32")[0] in rules(site.host)


def test_firewalld_with_an_ingress_policy(site, root):
    with system_bus(root) as start:
        start()
        assert call(site, "ADD", config(("10.0.0.2/24",), ingressPolicy="isolated")).exit == 0
        assert call(site, "CHECK", config(("10.0.0.2/24",), ingressPolicy="isolated")).exit == 0
    assert any("-i cni0 -o cni0" in line for line in rules(site.host))


def test_elements_of_our_own_table(site):
    conf = config(backend="nft")
    assert call(site, "ADD", conf).exit == 0
    assert call(site, "ADD", conf).exit == 0
    comment, _ = masq.nft_comment_of("net", "eth0", "c1")
    assert elements(site.host, "pods4") == [{"val": "10.0.0.2", "comment": comment}]
    assert elements(site.host, "pods6") == [{"val": "2001:db8:1:2::1", "comment": comment}]
    assert (rules(site.host), rules(site.host, 6)) == ([], [])
    assert call(site, "CHECK", conf).exit == 0
    site.host.run("nft add rule inet weft-firewall admin ip saddr 10.0.0.2 counter")
    assert call(site, "DEL", conf).exit == 0
    assert (elements(site.host, "pods4"), elements(site.host, "pods6")) == ([], [])
    assert "ip saddr 10.0.0.2 counter" in site.host.run("nft list chain inet weft-firewall admin")


def test_once_the_table_is_there_no_program_is_started(site, monkeypatch):
    assert call(site, "ADD", config(backend="nft", ingressPolicy="isolated")).exit == 0
    monkeypatch.setattr(programs, "run", None)
    conf = config(("10.0.0.3/24",), backend="nft", ingressPolicy="isolated")
    for command in ("ADD", "CHECK", "DEL"):
        assert call(site, command, conf, id_="c2").exit == 0


def test_a_bridge_that_is_isolated_stays_so(site):
    assert call(site, "ADD", config(backend="nft", ingressPolicy="same-bridge")).exit == 0
    assert len(elements(site.host, "within")) == 1
    assert call(site, "ADD", config(("10.0.0.3/24",), backend="nft", ingressPolicy="isolated"), id_="c2").exit == 0
    assert elements(site.host, "within") == []
    assert call(site, "ADD", config(("10.0.0.4/24",), backend="nft", ingressPolicy="same-bridge"), id_="c3").exit == 0
    assert elements(site.host, "within") == []


@pytest.mark.parametrize("backend", ["iptables", "nft"])
def test_del_needs_nothing_but_our_memory(site, backend):
    conf = config(backend=backend)
    assert call(site, "ADD", conf).exit == 0
    assert call(site, "DEL", {"cniVersion": "1.0.0", "name": "net", "type": "firewall"}, netns="").exit == 0
    assert not [line for family in (4, 6) for line in rules(site.host, family) if "ESTABLISHED" in line]
    assert elements(site.host, "pods4") == []
    assert list((site.directory / "state" / "firewall").iterdir()) == []
    assert list((site.directory / "state" / "firewall-owners").iterdir()) == []


def test_without_a_previous_result(site):
    conf = config(prevResult=None)
    for command in ("ADD", "CHECK"):
        ours, theirs = (call(site, command, conf, by=by) for by in ("weft", "debian"))
        assert ours.msg == theirs.msg == "missing prevResult from earlier plugin"
    assert call(site, "DEL", conf).exit == 0


@pytest.mark.parametrize(
    "more, message",
    [
        ({"ingressPolicy": "x"}, 'unknown ingress policy: "x"'),
        ({"backend": "x"}, 'unknown backend: "x"'),
        ({"bridge": "br+", "ingressPolicy": "isolated"}, 'the name of bridge "br+" cannot stand in a rule'),
        ({"bridge": 'a"\nX', "ingressPolicy": "isolated"}, "whitespace characters"),
        ({"iptablesAdminChainName": "X\n-F FORWARD"}, "invalid iptablesAdminChainName"),
    ],
)
def test_what_is_refused_changes_nothing(site, more, message):
    assert message in call(site, "ADD", config(**more)).msg
    assert rules(site.host) == []


@pytest.mark.parametrize(
    "damage",
    [
        "iptables -D CNI-FORWARD -s 10.0.0.2/32 -j ACCEPT",
        "iptables -D CNI-FORWARD -m comment --comment 'CNI firewall plugin admin overrides' -j CNI-ADMIN",
        "iptables -D FORWARD -m comment --comment 'CNI firewall plugin rules' -j CNI-FORWARD",
    ],
)
def test_check_says_what_upstreams_says(site, damage):
    conf = config(("10.0.0.2/24",))
    assert call(site, "ADD", conf).exit == 0
    site.host.run(damage)
    ours, theirs = (call(site, "CHECK", conf, by=by) for by in ("weft", "debian"))
    assert ours.msg == theirs.msg
    assert ours.json["details"].startswith("CHECK-001: ")


@pytest.mark.parametrize(
    "backend, damage, message",
    [
        (
            "iptables",
            "iptables -F CNI-ISOLATION-STAGE-2",
            "expected rule [-I CNI-ISOLATION-STAGE-2 1 -o cni0 ",
        ),
        ("nft", "nft flush set inet weft-firewall pods4", "expected element 10.0.0.2 of set pods4"),
        ("nft", "nft flush set inet weft-firewall bridges", "expected element cni0 of set bridges"),
        ("nft", "nft flush chain inet weft-firewall forward", 'expected rule "between guarded bridges" not found'),
        ("nft", "nft delete table inet weft-firewall", "expected element 10.0.0.2 of set pods4"),
    ],
)
def test_check_sees_more(site, backend, damage, message):
    conf = config(("10.0.0.2/24",), backend=backend, ingressPolicy="same-bridge")
    assert call(site, "ADD", conf).exit == 0
    assert call(site, "CHECK", conf).exit == 0
    site.host.run(damage)
    assert call(site, "CHECK", conf).msg.startswith(message)


def collect(site, *valid, name="net"):
    attachments = [{"containerID": container, "ifname": "eth0"} for container in valid]
    conf = {"cniVersion": "1.1.0", "name": name, "type": "firewall", "cni.dev/valid-attachments": attachments}
    assert site.call("firewall", "GC", conf).exit == 0


@pytest.mark.parametrize("backend", ["iptables", "nft"])
def test_gc_removes_what_is_gone_and_nothing_else(site, backend):
    ips = {"c1": "10.0.0.2", "c2": "10.0.0.3"}
    for container, ip in ips.items():
        assert call(site, "ADD", config((f"{ip}/24",), backend=backend), id_=container).exit == 0
    assert call(site, "ADD", config(("10.9.0.2/24",), backend=backend, name="other"), id_="c3").exit == 0

    def left():
        text = "\n".join(rules(site.host)) + str(elements(site.host, "pods4"))
        return [ip for ip in (*ips.values(), "10.9.0.2") if ip in text]

    collect(site, "c1", "c2")
    assert left() == ["10.0.0.2", "10.0.0.3", "10.9.0.2"]
    collect(site, "c1")
    assert left() == ["10.0.0.2", "10.9.0.2"]
    for path in (site.directory / "state" / "firewall").iterdir():
        path.unlink()  # the memory is lost
    collect(site)
    assert left() == (["10.9.0.2"] if backend == "nft" else ["10.0.0.2", "10.9.0.2"])


@pytest.mark.parametrize("backend", ["iptables", "nft"])
@pytest.mark.parametrize("how", ["GC", "DEL"])
def test_an_address_that_has_a_new_owner_keeps_its_rules(site, backend, how):
    conf = config(("10.0.0.2/24",), backend=backend)
    assert call(site, "ADD", conf, id_="dead").exit == 0
    assert call(site, "ADD", conf, id_="living").exit == 0
    if how == "GC":
        collect(site, "living")
    else:
        assert call(site, "DEL", conf, id_="dead").exit == 0
        assert call(site, "DEL", conf, id_="dead").exit == 0
    assert call(site, "CHECK", conf, id_="living").exit == 0


def test_what_another_boot_has_left_is_only_forgotten(site):
    conf = config(("10.0.0.2/24",), backend="iptables")
    site.boot_id = "boot-0"
    site.restart()
    assert call(site, "ADD", conf, id_="dead").exit == 0
    site.boot_id = "boot-1"
    site.restart()
    # Upstream's plugin has made the same for a pod of this boot.
    collect(site)
    assert for_ip("10.0.0.2/32")[0] in rules(site.host)
    assert list((site.directory / "state" / "firewall").iterdir()) == []


@pytest.mark.parametrize("backend", ["iptables", "nft"])
def test_the_sweep_frees_what_a_leak_has_let_through(site, make_netns, backend):
    site.wrap = lambda host: host  # the sweep has the machine's own root
    pod = make_netns()
    ipam = {"type": "host-local", "dataDir": str(site.store), "ranges": [[{"subnet": "10.0.0.0/24"}]]}
    bridge = {"cniVersion": "1.0.0", "name": "net", "type": "bridge", "ipam": ipam}
    result = site.call("bridge", "ADD", bridge, container=pod).result
    assert call(site, "ADD", config(backend=backend, prevResult=result)).exit == 0
    text = "\n".join(rules(site.host)) + str(elements(site.host, "pods4"))
    assert "10.0.0.2" in text

    def swept():
        with node_host(site.node) as host:
            return [sweep.free(host, one) for one in list(sweep.attachments(host))]

    assert site.host.call(swept) == [""]
    pod.run("ip link del eth0")
    assert all(site.host.call(swept))
    text = "\n".join(rules(site.host)) + str(elements(site.host, "pods4"))
    assert "10.0.0.2" not in text
    assert list((site.directory / "state").rglob("10.0.0.2")) == []


@pytest.mark.parametrize("backend", ["iptables", "nft"])
def test_gc_takes_back_the_policy_of_bridges_that_are_gone(site, backend):
    for bridge in ("cni0", "cni1"):
        site.host.bridge(bridge)
        conf = config(("10.0.0.2/24",), bridge=bridge, backend=backend, ingressPolicy="same-bridge")
        assert call(site, "ADD", conf, id_=bridge).exit == 0
    site.host.run("ip link del cni1")
    collect(site, "cni0", "cni1")
    text = "\n".join(rules(site.host)) + str([elements(site.host, name) for name in ("bridges", "within")])
    assert ("cni0" in text, "cni1" in text) == (True, False)


def test_an_add_that_fails_leaves_nothing(site, monkeypatch):
    run = programs.run

    def refusing(program, *arguments, **more):
        if program == "ip6tables-restore":
            raise masq.programs.failure("refused")
        return run(program, *arguments, **more)

    monkeypatch.setattr(programs, "run", refusing)
    assert call(site, "ADD", config(backend="iptables")).msg == "refused"
    monkeypatch.setattr(programs, "run", run)
    assert (rules(site.host), rules(site.host, 6)) == (FRAME, [])
    assert list((site.directory / "state" / "firewall").iterdir()) == []


def test_an_add_with_other_addresses_takes_the_earlier_ones_back(site):
    assert call(site, "ADD", config(("10.0.0.2/24",), backend="iptables")).exit == 0
    assert call(site, "ADD", config(("10.0.0.3/24",), backend="nft")).exit == 0
    assert rules(site.host) == FRAME
