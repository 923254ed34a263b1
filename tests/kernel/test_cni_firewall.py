"""firewall in real namespaces: upstream's rules, our own table, and who reaches whom with them."""

from collections.abc import Callable

import pytest

from tests.kernel.podfirewall import FRAME, call, config, elements, for_ip, root, rules, site
from tests.support.cni.site import Site
from tests.support.netns import Netns
from weft.cni.attachment import owners
from weft.cni.host import programs
from weft.model.attachment import Attachment

__all__ = ["root", "site"]


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


def test_elements_of_our_own_table(site):
    conf = config(backend="nft")
    assert call(site, "ADD", conf).exit == 0
    assert call(site, "ADD", conf).exit == 0
    comment = owners.comment_of(Attachment(network="net", container_id="c1", ifname="eth0"))
    assert elements(site.host, "pods4") == [{"val": "10.0.0.2", "comment": comment}]
    assert elements(site.host, "pods6") == [{"val": "2001:db8:1:2::1", "comment": comment}]
    assert (rules(site.host), rules(site.host, 6)) == ([], [])
    assert call(site, "CHECK", conf).exit == 0
    site.host.run("nft add rule inet weft-firewall admin ip saddr 10.0.0.2 counter")
    assert call(site, "DEL", conf).exit == 0
    assert (elements(site.host, "pods4"), elements(site.host, "pods6")) == ([], [])
    assert "ip saddr 10.0.0.2 counter" in site.host.run("nft list chain inet weft-firewall admin")


@pytest.mark.parametrize("backend", ["iptables", "nft"])
def test_a_pod_without_addresses_lacks_nothing(site, backend):
    for command in ("ADD", "CHECK", "DEL"):
        assert call(site, command, config((), backend=backend)).exit == 0


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


def test_an_add_that_fails_leaves_nothing(site, monkeypatch):
    run = programs.run

    def refusing(program, *arguments, **more):
        if program == "ip6tables-restore":
            raise programs.failure("refused")
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
