"""portmap with an explicit backend: upstream's rules with the real tools, and exchanged with the reference."""

import re
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.kernel.hostports import NETWORK, Ports, mapping
from tests.support.cni.portmaps import LONG_ID, listed
from tests.support.netns import Netns
from weft.cni.host import programs
from weft.cni.plugins.portmap import iptables

HTTP, DNS = mapping(8080, 80), mapping(5353, 53, "udp")
BACKENDS = ["iptables", "nftables"]
CHAIN = iptables.chain_of(NETWORK, "c1")


@pytest.fixture
def ports(netns: Netns, make_netns: Callable[[], Netns], tmp_path: Path) -> Ports:
    """c1 is 10.1.2.2 and fd00::2, c2 the next."""
    made = Ports(netns, tmp_path / "site")
    for id_ in ("c1", "c2"):
        made.attach(make_netns(), id_)
    return made


@pytest.fixture
def ipv4(netns: Netns, make_netns: Callable[[], Netns], tmp_path: Path) -> Ports:
    made = Ports(netns, tmp_path / "site4", ipv6=False)
    made.attach(make_netns())
    return made


def saved(host, family=4):
    """The rules of table nat that are CNI's or lead there, as iptables-save prints them."""
    lines = host.run(f"{'iptables' if family == 4 else 'ip6tables'}-save -t nat").splitlines()
    return [line.removesuffix(" [0:0]") for line in lines if "CNI" in line]


def of_the_container(host, family=4):
    return [line for line in saved(host, family) if "CNI-DN-" in line or "CNI-SN-" in line]


def nft(host, family=4):
    """Upstream's table by chain, without hooks."""
    prefix = "ip" if family == 4 else "ip6"
    if f"table {prefix} cni_hostport" not in host.run("nft list tables"):
        return {}
    found, chain = {}, ""
    for line in map(str.strip, host.run(f"nft list table {prefix} cni_hostport").splitlines()):
        if line.startswith("chain "):
            chain = line.split()[1]
            found[chain] = []
        elif chain and line not in ("", "}") and not line.startswith("type "):
            found[chain].append(line)
    return found


def dnat_rules(host):
    return [line for line in host.run("nft list ruleset").splitlines() if "dnat to" in line]


@pytest.mark.spec("cni.md M8")
def test_rules_of_the_golden_state(netns, ports):
    assert ports.portmap("ADD", HTTP, backend="iptables").result == ports.results["c1 eth0"]
    note = r'-m comment --comment "dnat name: \"dbnet\" id: \"c1\""'
    assert sorted(line for line in saved(netns) if line.startswith("-A")) == sorted(
        [
            "-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT",
            "-A OUTPUT -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT",
            '-A POSTROUTING -m comment --comment "CNI portfwd requiring masquerade" -j CNI-HOSTPORT-MASQ',
            f"-A {CHAIN} -s 10.1.2.0/24 -p tcp -m tcp --dport 8080 -j CNI-HOSTPORT-SETMARK",
            f"-A {CHAIN} -s 127.0.0.1/32 -p tcp -m tcp --dport 8080 -j CNI-HOSTPORT-SETMARK",
            f"-A {CHAIN} -p tcp -m tcp --dport 8080 -j DNAT --to-destination 10.1.2.2:80",
            f"-A CNI-HOSTPORT-DNAT -p tcp {note} -m multiport --dports 8080 -j {CHAIN}",
            "-A CNI-HOSTPORT-MASQ -m mark --mark 0x2000/0x2000 -j MASQUERADE",
            (
                '-A CNI-HOSTPORT-SETMARK -m comment --comment "CNI portfwd masquerade mark" -j MARK'
                " --set-xmark 0x2000/0x2000"
            ),
        ]
    )
    six = of_the_container(netns, 6)
    assert f"-A {CHAIN} -s fd00::/64 -p tcp -m tcp --dport 8080 -j CNI-HOSTPORT-SETMARK" in six
    assert f"-A {CHAIN} -p tcp -m tcp --dport 8080 -j DNAT --to-destination [fd00::2]:80" in six
    assert not any("127.0.0.1" in line for line in six)


def test_the_masquerading_comes_first(netns, ports):
    netns.run("iptables -t nat -A POSTROUTING -j ACCEPT")
    ports.portmap("ADD", HTTP, backend="iptables")
    rules = [line for line in netns.run("iptables-save -t nat").splitlines() if line.startswith("-A POSTROUTING")]
    assert "CNI-HOSTPORT-MASQ" in rules[0]


@pytest.mark.spec("cni.md M2")
@pytest.mark.spec("cni.md M3")
@pytest.mark.spec("cni.md M4")
@pytest.mark.spec("cni.md M1")
def test_all_mappings_of_the_vectors(netns, ports):
    ports.results[f"{LONG_ID} eth0"] = ports.results["c1 eth0"]
    conf = {"backend": "iptables", "conditionsV4": ["-s", "192.0.2.0/24"]}
    assert ports.portmap("ADD", *listed(), id_=LONG_ID, **conf).exit == 0
    chain = iptables.chain_of(NETWORK, LONG_ID)
    found = {family: of_the_container(netns, family) for family in (4, 6)}
    assert len([line for line in found[4] if line.startswith(f"-A {chain} ")]) == 18
    assert len([line for line in found[6] if line.startswith(f"-A {chain} ")]) == 12
    entries = [line for line in found[4] if line.startswith("-A CNI-HOSTPORT-DNAT")]
    assert [line.split("--dports ")[1].split()[0] for line in entries] == [
        "8080,8081,8083,8084,8085,8086",
        "8080,8082",
    ]
    assert all(" -s 192.0.2.0/24 " in line for line in entries)
    assert ports.portmap("CHECK", *listed(), id_=LONG_ID, **conf).exit == 0
    before = saved(netns)
    assert ports.portmap("ADD", *listed(), id_=LONG_ID, **conf).exit == 0
    assert saved(netns) == before
    assert ports.portmap("DEL", id_=LONG_ID, **conf).exit == 0
    assert of_the_container(netns, 4) == of_the_container(netns, 6) == []


@pytest.mark.spec("cni.md M5")
def test_without_snat(netns, ports):
    ports.portmap("ADD", HTTP, backend="iptables", snat=False)
    text = "\n".join(saved(netns))
    assert "MASQ" not in text
    assert "SETMARK" not in text


@pytest.mark.spec("cni.md M6")
def test_marks_by_somebody_elses_chain_mean_iptables(netns, ports):
    netns.run("iptables -t nat -N PLZ-SET-MARK; ip6tables -t nat -N PLZ-SET-MARK")
    assert ports.portmap("ADD", HTTP, externalSetMarkChain="PLZ-SET-MARK").exit == 0
    text = "\n".join(saved(netns))
    assert "-j PLZ-SET-MARK" in text
    assert "CNI-HOSTPORT-SETMARK" not in text


@pytest.mark.spec("cni.md M7")
def test_another_mark_means_iptables(netns, ports):
    assert ports.portmap("ADD", HTTP, markMasqBit=5).exit == 0
    text = "\n".join(saved(netns))
    assert "-A CNI-HOSTPORT-MASQ -m mark --mark 0x20/0x20 -j MASQUERADE" in text
    assert "--set-xmark 0x20/0x20" in text


@pytest.mark.spec("cni.md M12")
def test_conditions_of_iptables_mean_iptables(netns, ports):
    assert ports.portmap("ADD", HTTP, conditionsV6=["!", "-s", "12::34"]).exit == 0
    assert any("! -s 12::34/128" in line for line in saved(netns, 6))


@pytest.mark.spec("cni.md M16")
def test_again_and_again(netns, ports):
    for _ in range(2):
        assert ports.portmap("ADD", HTTP, DNS, backend="iptables").exit == 0
    netns.run("iptables -t nat -N FOREIGN; iptables -t nat -A CNI-HOSTPORT-DNAT -p tcp -j FOREIGN")
    entries = [line for line in saved(netns) if line.startswith("-A CNI-HOSTPORT-DNAT")]
    assert len(entries) == 3
    assert len([line for line in saved(netns) if "--dst-type LOCAL" in line]) == 2
    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(lambda _: ports.portmap("DEL", HTTP, DNS, backend="iptables"), range(10)))
    assert [answer.msg for answer in answers] == [""] * 10
    assert ports.portmap("DEL", HTTP, DNS, backend="iptables").exit == 0
    assert [line for line in saved(netns) if line.startswith("-A CNI-HOSTPORT-DNAT")] == [
        "-A CNI-HOSTPORT-DNAT -p tcp -j FOREIGN"
    ]
    assert of_the_container(netns) == []


@pytest.mark.parametrize("backend", BACKENDS)
def test_many_at_once(netns, ports, backend):
    for number in range(3, 9):
        ports.results[f"c{number} eth0"] = ports.results["c1 eth0"]
    ids = [f"c{number}" for number in range(1, 9)]

    def add(id_: str):
        return ports.portmap("ADD", mapping(8000 + int(id_[1:]), 80), id_=id_, backend=backend)

    with ThreadPoolExecutor(4) as pool:
        assert [answer.msg for answer in pool.map(add, ids)] == [""] * 8
    assert len(dnat_rules(netns)) == (16 if backend == "nftables" else 8)
    shared = [line for line in saved(netns) if "--dst-type LOCAL" in line]
    assert len(shared) == (2 if backend == "iptables" else 0)
    with ThreadPoolExecutor(4) as pool:
        deleted = pool.map(lambda id_: ports.portmap("DEL", id_=id_, backend=backend), [*ids, *ids])
        assert [answer.msg for answer in deleted] == [""] * 16
    assert dnat_rules(netns) == []


@pytest.mark.spec("cni.md M17")
def test_nft_of_the_vectors(netns, ports):
    id_ = "icee6giejonei6so"
    ports.results[f"{id_} eth0"] = ports.results["c1 eth0"]
    conf = {"backend": "nftables", "conditionsV4": ["ip", "saddr", "192.0.2.0/24"]}
    assert ports.portmap("ADD", *listed(), id_=id_, **conf).exit == 0
    found = nft(netns)
    assert len(found["hostports"]) == 6
    assert f'ip daddr 192.168.0.2 tcp dport 8083 dnat to 10.1.2.2:83 comment "{id_}"' in found["hostports"]
    assert found["masquerading"] == [
        f'ip saddr 10.1.2.2 ip daddr 10.1.2.2 masquerade comment "{id_}"',
        f'ip saddr 127.0.0.1 ip daddr 10.1.2.2 masquerade comment "{id_}"',
    ]
    base = ["ip saddr 192.0.2.0/24 fib daddr type local jump hostports_all"]
    assert found["prerouting"] == found["output"] == base
    assert found["hostports_all"] == ["jump hostip_hostports", "jump hostports"]
    assert found["hostip_hostports"] == []
    text = netns.run("nft list table ip cni_hostport")
    assert 'comment "CNI portmap plugin"' in text
    assert "type nat hook prerouting priority dstnat; policy accept;" in text
    assert re.search("type nat hook output priority (-100|dstnat); policy accept;", text)
    assert "type nat hook postrouting priority srcnat; policy accept;" in text


@pytest.mark.spec("cni.md M18")
def test_nft_of_ipv6_without_snat(netns, ports):
    assert ports.portmap("ADD", *listed(), backend="nftables", snat=False).exit == 0
    found = nft(netns, 6)
    assert len(found["hostports"]) == 6
    assert "masquerading" not in found


@pytest.mark.spec("cni.md M19")
def test_nft_masquerades_all(netns, ports):
    for _ in range(2):
        assert ports.portmap("ADD", HTTP, backend="nftables", masqAll=True).exit == 0
    assert nft(netns)["masquerading"] == ['ip saddr 0.0.0.0/0 ip daddr 10.1.2.2 masquerade comment "c1"']
    assert nft(netns, 6)["masquerading"] == ['ip6 saddr ::/0 ip6 daddr fd00::2 masquerade comment "c1"']


@pytest.mark.spec("cni.md M20")
def test_nft_of_ipv6_masquerades_the_container(netns, ports):
    assert ports.portmap("ADD", HTTP, backend="nftables").exit == 0
    assert nft(netns, 6)["masquerading"] == ['ip6 saddr fd00::2 ip6 daddr fd00::2 masquerade comment "c1"']


@pytest.mark.spec("cni.md M21")
def test_nft_again_and_gone(netns, ports):
    for _ in range(2):
        assert ports.portmap("ADD", HTTP, DNS, backend="nftables").exit == 0
        assert ports.portmap("ADD", mapping(81, 81), id_="c2", backend="nftables").exit == 0
    handles = netns.run("nft -a list chain ip cni_hostport prerouting")
    assert len(nft(netns)["hostports"]) == 3
    assert ports.portmap("DEL", HTTP, DNS, backend="nftables").exit == 0
    found = nft(netns)
    assert found["hostports"] == ['tcp dport 81 dnat to 10.1.2.3:81 comment "c2"']
    assert [line for line in found["masquerading"] if "c1" in line] == []
    assert found["prerouting"] == found["output"] == ["fib daddr type local jump hostports_all"]
    assert netns.run("nft -a list chain ip cni_hostport prerouting") == handles  # not filled anew


@pytest.mark.spec("cni.md M22")
def test_nft_check(netns, ports):
    conf = {"backend": "nftables"}

    def failure():
        answer = ports.portmap("CHECK", HTTP, **conf)
        return answer.code, answer.msg

    assert failure() == (999, 'missing hostport rules in "hostports" chain')
    assert ports.portmap("ADD", HTTP, **conf, snat=False).exit == 0
    assert failure() == (999, 'missing hostport rules in "masquerading" chain')
    assert ports.portmap("CHECK", HTTP, **conf, snat=False).exit == 0
    assert ports.portmap("ADD", HTTP, **conf).exit == 0
    assert ports.portmap("CHECK", HTTP, **conf).exit == 0
    assert ports.portmap("DEL", HTTP, **conf).exit == 0
    assert failure() == (999, 'missing hostport rules in "hostports" chain')


def test_iptables_check(netns, ports):
    conf = {"backend": "iptables"}
    missing = f"could not check ipv4 dnat: chain {CHAIN} not found in iptables table nat"
    assert ports.portmap("CHECK", HTTP, **conf).msg == missing
    assert ports.portmap("ADD", HTTP, **conf).exit == 0
    netns.run(f"ip6tables -t nat -F {CHAIN}")
    assert ports.portmap("CHECK", HTTP, **conf).msg == (
        "could not check ipv6 dnat: rule -s fd00::/64 -p tcp -m tcp --dport 8080 -j CNI-HOSTPORT-SETMARK not found in"
        f" chain {CHAIN} of iptables table nat"
    )


@pytest.mark.spec("cni.md M23")
@pytest.mark.parametrize("form", ["", *BACKENDS])
def test_seventeen_ports_of_sctp(netns, ports, form):
    many = [mapping(9000 + port, 80, "sctp") for port in range(17)]
    conf = {"backend": form} if form else {}
    assert ports.portmap("ADD", *many, **conf).exit == 0
    assert ports.portmap("CHECK", *many, **conf).exit == 0
    if form == "iptables":
        entries = [line for line in saved(netns) if line.startswith("-A CNI-HOSTPORT-DNAT -p sctp")]
        assert [line.split("--dports ")[1].split()[0].count(",") + 1 for line in entries] == [15, 2]
    assert ports.portmap("DEL", *many, **conf).exit == 0


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_second_interface_keeps_its_ports(netns, ports, make_netns, backend):
    """Upstream's DEL of one interface takes the other's along (cni.md §9 item 12)."""
    ports.results["c1 eth1"] = {**ports.results["c2 eth0"], "interfaces": []}
    ports.results["c1 eth1"]["ips"] = [{"address": "10.1.2.3/24"}, {"address": "fd00::3/64"}]
    assert ports.portmap("ADD", HTTP, backend=backend).exit == 0
    assert ports.portmap("ADD", DNS, ifname="eth1", backend=backend).exit == 0
    assert ports.portmap("DEL", HTTP, backend=backend).exit == 0
    assert ports.portmap("CHECK", DNS, ifname="eth1", backend=backend).exit == 0
    assert not any("10.1.2.2:" in line for line in dnat_rules(netns))
    assert ports.portmap("DEL", DNS, ifname="eth1", backend=backend).exit == 0
    assert dnat_rules(netns) == []


def test_the_reference_makes_the_same_and_each_ends_the_others(netns, ipv4):
    conf = {"conditionsV4": ["-s", "192.0.2.0/24"]}
    assert ipv4.portmap("ADD", HTTP, DNS, backend="iptables", **conf).exit == 0
    ours = saved(netns)
    assert ipv4.portmap("DEL", HTTP, DNS, debian=True, **conf).exit == 0
    assert of_the_container(netns) == []
    assert ipv4.portmap("ADD", HTTP, DNS, debian=True, **conf).exit == 0
    assert sorted(saved(netns)) == sorted(ours)
    assert ipv4.portmap("CHECK", HTTP, DNS, **conf).exit == 0
    assert ipv4.portmap("DEL", HTTP, DNS, **conf).exit == 0
    assert of_the_container(netns) == []


def test_what_the_reference_makes_between_look_and_commit_stays(netns, ipv4, make_netns, monkeypatch):
    ipv4.attach(make_netns(), "c2")
    run, meanwhile = programs.run, []

    def overtaken(program, *arguments, **more):
        text = run(program, *arguments, **more)
        if program == "iptables-save" and not meanwhile:
            meanwhile.append(ipv4.portmap("ADD", DNS, id_="c2", debian=True))
        return text

    monkeypatch.setattr(programs, "run", overtaken)
    assert ipv4.portmap("ADD", HTTP, backend="iptables").exit == meanwhile[0].exit == 0
    for id_, port in (("c1", HTTP), ("c2", DNS)):
        assert ipv4.portmap("CHECK", port, id_=id_, backend="iptables").exit == 0


@pytest.mark.parametrize("mappings", [[], [HTTP]], ids=["forgotten", "repeated"])
def test_what_the_reference_made_goes_without_mappings_too(netns, ports, mappings):
    for path in (ports.site.directory / "state").glob("portmap/*"):
        path.unlink()
    assert ports.portmap("ADD", HTTP, debian=True).exit == 0
    assert ports.portmap("CHECK", HTTP).exit == 0
    assert ports.portmap("DEL", *mappings, id_="c2").exit == 0
    assert of_the_container(netns)
    assert ports.portmap("DEL", *mappings).exit == 0
    assert of_the_container(netns) == of_the_container(netns, 6) == []


def test_what_upstreams_nft_form_left_goes_by_the_containers_id(netns, ports):
    assert ports.portmap("ADD", HTTP, backend="nftables").exit == 0
    for path in (ports.site.directory / "state").glob("portmap/*"):
        path.unlink()
    assert ports.portmap("CHECK", HTTP).exit == 0
    assert ports.portmap("DEL").exit == 0
    assert dnat_rules(netns) == []


def test_the_historic_chain_goes_too(netns, ports):
    old = iptables.old_chain_of(CHAIN)
    netns.run(
        f"iptables -t nat -N CNI-HOSTPORT-SNAT; iptables -t nat -N {old};"
        f"iptables -t nat -A CNI-HOSTPORT-SNAT -s 127.0.0.1 -j {old}; iptables -t nat -A {old} -j MASQUERADE"
    )
    assert ports.portmap("DEL").exit == 0
    assert of_the_container(netns) == []
    assert "CNI-HOSTPORT-SNAT" in "\n".join(saved(netns))


def collect(ports, *valid, network=NETWORK):
    attachments = [{"containerID": id_, "ifname": "eth0"} for id_ in valid]
    conf = {"cniVersion": "1.1.0", "name": network, "type": "portmap", "cni.dev/valid-attachments": attachments}
    return ports.site.call("portmap", "GC", conf)


@pytest.mark.parametrize("conf", [{"backend": "iptables"}, {"backend": "nftables"}, {"debian": True}], ids=str)
def test_gc(netns, ports, conf):
    for id_, port in (("c1", HTTP), ("c2", DNS)):
        assert ports.portmap("ADD", port, id_=id_, **conf).exit == 0
    before = len(dnat_rules(netns))
    assert collect(ports, network="other").exit == 0
    assert collect(ports, "c1", "c2").exit == 0
    assert len(dnat_rules(netns)) == before
    assert collect(ports, "c2").exit == 0
    left = "\n".join(dnat_rules(netns))
    assert "8080" not in left
    assert "5353" in left
    assert collect(ports).exit == 0
    assert dnat_rules(netns) == []


def test_a_family_whose_tool_is_missing_has_no_rules(netns, ipv4, monkeypatch):
    assert ipv4.portmap("ADD", HTTP, debian=True).exit == 0
    netns.run("ip6tables -t nat -F; ip6tables -t nat -X")
    real = programs.find
    monkeypatch.setattr(programs, "find", lambda name, path: None if name.startswith("ip6") else real(name, path))
    assert ipv4.portmap("DEL", HTTP).exit == 0
    assert of_the_container(netns) == []


def test_a_rule_that_the_tool_refuses_leaves_nothing(netns, ports):
    answer = ports.portmap("ADD", HTTP, backend="iptables", conditionsV6=["-s", "nonsense"])
    assert "ip6tables-restore" in answer.msg
    assert of_the_container(netns) == of_the_container(netns, 6) == []
    answer = ports.portmap("ADD", HTTP, backend="nftables", conditionsV6=["nonsense"])
    assert "nft" in answer.msg
    assert dnat_rules(netns) == []


def test_udp_needs_no_conntrack_in_the_kernel(netns, ports):
    """Where nothing is tracked there is nothing to end; the call goes on."""
    assert ports.portmap("ADD", DNS, backend="iptables").exit == 0
    with netns.call(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as sock:
        sock.sendto(b"?", ("127.0.0.1", 5353))
    answer = ports.portmap("DEL", DNS, backend="iptables")
    assert answer.exit == 0
    assert answer.stderr == ""
