"""portmap's iptables rules: upstream's, added where missing, removed by chain, never another's."""

from ipaddress import ip_address

import pytest

from tests.support.cni.iptablesfake import restore
from tests.support.cni.portmaps import LONG_ID, MAPPINGS, wanted
from weft.cni.plugins.portmap import iptables as rules
from weft.cni.plugins.portmap.conf import Mapping
from weft.wire.iptables import parse

CHAIN = "CNI-DN-1383eeb27000e215038bb"
COMMENT = 'dnat name: "dbnet" id: "c1"'
HTTP = (Mapping(host_port=8080, container_port=80, protocol="tcp"),)
NOTE = r'-m comment --comment "dnat name: \"dbnet\" id: \"c1\""'
V4, V6 = "10.0.0.2/24", "2001:db8::2/64"

# cni.md C.1, as far as it is portmap's.
SAVED = f"""*nat
:PREROUTING ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:{CHAIN} - [0:0]
:CNI-HOSTPORT-DNAT - [0:0]
:CNI-HOSTPORT-MASQ - [0:0]
:CNI-HOSTPORT-SETMARK - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
-A OUTPUT -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
-A POSTROUTING -m comment --comment "CNI portfwd requiring masquerade" -j CNI-HOSTPORT-MASQ
-A {CHAIN} -s 10.88.0.0/16 -p tcp -m tcp --dport 8080 -j CNI-HOSTPORT-SETMARK
-A {CHAIN} -s 127.0.0.1/32 -p tcp -m tcp --dport 8080 -j CNI-HOSTPORT-SETMARK
-A {CHAIN} -p tcp -m tcp --dport 8080 -j DNAT --to-destination 10.88.0.2:80
-A CNI-HOSTPORT-DNAT -p tcp {NOTE} -m multiport --dports 8080 -j {CHAIN}
-A CNI-HOSTPORT-MASQ -m mark --mark 0x2000/0x2000 -j MASQUERADE
-A CNI-HOSTPORT-SETMARK -m comment --comment "CNI portfwd masquerade mark" -j MARK --set-xmark 0x2000/0x2000
COMMIT
"""
GOLDEN = parse(SAVED)
EMPTY = {"PREROUTING": [], "OUTPUT": [], "POSTROUTING": []}
MINE = wanted("10.88.0.2/16", mappings=HTTP)


@pytest.mark.spec("cni.md G15")
def test_the_chains_name_of_a_short_id():
    assert rules.chain_of("dbnet", "c1") == "CNI-DN-1383eeb27000e215038bb"


def additions(have, of, family=4, *, chain=CHAIN, comment=COMMENT):
    return rules.additions(have, of, family, chain=chain, comment=comment)


@pytest.mark.spec("cni.md M1")
@pytest.mark.parametrize(
    "network,chain", [("testNetName", "CNI-DN-bfd599665540dd91d5d28"), ("test", "CNI-DN-67e92b96e692a494b6b85")]
)
def test_the_chains_name(network, chain):
    assert rules.chain_of(network, LONG_ID) == chain
    assert rules.old_chain_of(chain) == chain.replace("DN", "SN")


def test_a_long_comment_is_cut():
    assert rules.comment_of("n", "x" * 232) == f'dnat name: "n" id: "{"x" * 232}"'
    long = rules.comment_of("n", "x" * 240)
    assert long == f'dnat name: "n" id: "{"x" * 233}...'
    assert len(long) == 256


@pytest.mark.spec("cni.md M2")
def test_entry_rules_with_conditions():
    of = wanted(V4, V6, conditions_v4=("-a", "b"), conditions_v6=("-c", "d e", ""))
    assert rules.entry_rules(of, 4, chain="P", comment="C") == [
        '-p tcp -m comment --comment "C" -m multiport --dports 8080,8081,8083,8084,8085,8086 -a b -j P',
        '-p udp -m comment --comment "C" -m multiport --dports 8080,8082 -a b -j P',
    ]
    assert rules.entry_rules(of, 6, chain="P", comment="C")[1].endswith('8080,8082 -c "d e" "" -j P')


@pytest.mark.spec("cni.md M3")
def test_the_chain_of_ipv4():
    expected = []
    for host, port, protocol, bound in (
        (8080, 80, "tcp", ""),
        (8081, 80, "tcp", ""),
        (8080, 81, "udp", ""),
        (8082, 82, "udp", ""),
        (8083, 83, "tcp", "-d 192.168.0.2/32 "),
        (8084, 84, "tcp", ""),
    ):
        base = f"{bound}-p {protocol} -m {protocol} --dport {host}"
        expected += [
            f"-s 10.0.0.0/24 {base} -j CNI-HOSTPORT-SETMARK",
            f"-s 127.0.0.1/32 {base} -j CNI-HOSTPORT-SETMARK",
            f"{base} -j DNAT --to-destination 10.0.0.2:{port}",
        ]
    assert len(expected) == 18
    assert rules.chain_rules(wanted(V4), 4) == expected
    assert rules.chain_rules(wanted(V4), 6) == []


@pytest.mark.spec("cni.md M4")
def test_the_chain_of_ipv6():
    expected = []
    for host, port, protocol, bound in (
        (8080, 80, "tcp", ""),
        (8081, 80, "tcp", ""),
        (8080, 81, "udp", ""),
        (8082, 82, "udp", ""),
        (8085, 85, "tcp", "-d 2001:db8:a::1/128 "),
        (8086, 86, "tcp", ""),
    ):
        base = f"{bound}-p {protocol} -m {protocol} --dport {host}"
        expected += [
            f"-s 2001:db8::/64 {base} -j CNI-HOSTPORT-SETMARK",
            f"{base} -j DNAT --to-destination [2001:db8::2]:{port}",
        ]
    assert len(expected) == 12
    assert rules.chain_rules(wanted(V6), 6) == expected
    assert rules.chain_rules(wanted(V6), 4) == []


@pytest.mark.spec("cni.md M5")
def test_without_snat():
    found = rules.chain_rules(wanted(V4, snat=False), 4)
    assert len(found) == 6
    assert all(" -j DNAT --to-destination 10.0.0.2:" in rule for rule in found)
    assert not any("MASQ" in line or "SETMARK" in line for line in additions(EMPTY, wanted(V4, snat=False)))


@pytest.mark.spec("cni.md M6")
def test_somebody_elses_mark_chain():
    of = wanted(V4, mark_chain="PLZ-SET-MARK")
    found = rules.chain_rules(of, 4)
    assert [rule.rpartition(" ")[2] for rule in found[:2]] == ["PLZ-SET-MARK", "PLZ-SET-MARK"]
    assert not any("CNI-HOSTPORT-SETMARK" in line or "CNI-HOSTPORT-MASQ" in line for line in additions(EMPTY, of))


@pytest.mark.spec("cni.md M7")
def test_another_mark():
    lines = additions(EMPTY, wanted(V4, mark_bit=5))
    assert "-A CNI-HOSTPORT-MASQ -m mark --mark 0x20/0x20 -j MASQUERADE" in lines
    assert (
        '-A CNI-HOSTPORT-SETMARK -m comment --comment "CNI portfwd masquerade mark" -j MARK --set-xmark 0x20/0x20'
        in lines
    )


def test_masq_all_marks_whatever_comes():
    assert rules.chain_rules(wanted(V4, mappings=HTTP, masq_all=True), 4) == [
        "-p tcp -m tcp --dport 8080 -j CNI-HOSTPORT-SETMARK",
        "-p tcp -m tcp --dport 8080 -j DNAT --to-destination 10.0.0.2:80",
    ]


@pytest.mark.spec("cni.md M8")
def test_all_of_it_in_upstreams_order():
    body = [line for line in SAVED.splitlines() if line.startswith("-A")]
    shared = [body[8], body[7], body[2].replace("-A POSTROUTING", "-I POSTROUTING 1"), body[0], body[1]]
    lines = additions(EMPTY, MINE)
    assert restore(EMPTY, lines) == GOLDEN
    assert lines == [
        "-N CNI-HOSTPORT-SETMARK",
        "-N CNI-HOSTPORT-MASQ",
        "-N CNI-HOSTPORT-DNAT",
        f"-N {CHAIN}",
        *shared,
        *body[3:6],
        body[6],
    ]


def test_what_is_there_is_not_added():
    assert additions(GOLDEN, MINE) == []
    assert rules.first_missing(GOLDEN, MINE, 4, chain=CHAIN, comment=COMMENT) == ""


@pytest.mark.parametrize(
    "lost,words",
    [
        (
            "-A OUTPUT",
            "rule -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT not found in chain OUTPUT of iptables table nat",
        ),
        ((f":{CHAIN}", f"-A {CHAIN}"), f"chain {CHAIN} not found in iptables table nat"),
        (
            f"-A {CHAIN} -s 127",
            (
                f"rule -s 127.0.0.1/32 -p tcp -m tcp --dport 8080 -j CNI-HOSTPORT-SETMARK not found in chain {CHAIN} of"
                " iptables table nat"
            ),
        ),
        (
            "-A CNI-HOSTPORT-DNAT",
            (
                f"rule -p tcp {NOTE} -m multiport --dports 8080 -j {CHAIN} not found in chain CNI-HOSTPORT-DNAT of"
                " iptables table nat"
            ),
        ),
    ],
)
def test_what_is_lost_is_named_and_added(lost, words):
    have = parse("\n".join(line for line in SAVED.splitlines() if not line.startswith(lost)))
    assert rules.first_missing(have, MINE, 4, chain=CHAIN, comment=COMMENT) == words
    assert additions(have, MINE)


def test_conditions_may_be_listed_otherwise_than_they_were_given():
    of = wanted("10.88.0.2/16", mappings=HTTP, conditions_v4=("--source", "10.0.0.0/8"))
    have = parse(SAVED.replace("-A CNI-HOSTPORT-DNAT -p tcp", "-A CNI-HOSTPORT-DNAT -s 10.0.0.0/8 -p tcp"))
    assert additions(have, of) == []
    assert rules.first_missing(have, of, 4, chain=CHAIN, comment=COMMENT) == ""


def test_an_odd_rule_that_leads_there_is_none_of_ours():
    have = parse(SAVED.replace(f"-p tcp {NOTE} -m multiport --dports 8080 -j", "-m comment --comment -p -j"))
    assert additions(have, MINE)[-1].startswith("-A CNI-HOSTPORT-DNAT -p tcp")


@pytest.mark.spec("cni.md M23")
def test_seventeen_ports_of_sctp():
    many = tuple(Mapping(host_port=port, container_port=port, protocol="sctp") for port in range(1, 18))
    first, second = rules.entry_rules(wanted(V4, mappings=many), 4, chain="P", comment="C")
    assert first.count(",") == 14
    assert second == '-p sctp -m comment --comment "C" -m multiport --dports 16,17 -j P'


def test_removing():
    assert rules.removals(GOLDEN, CHAIN) == [
        f"-D CNI-HOSTPORT-DNAT -p tcp {NOTE} -m multiport --dports 8080 -j {CHAIN}",
        f"-F {CHAIN}",
        f"-X {CHAIN}",
    ]
    assert rules.removals(GOLDEN, CHAIN, ours=[ip_address("10.88.0.2")]) == rules.removals(GOLDEN, CHAIN)
    assert rules.removals(EMPTY, CHAIN) == []


def test_removing_upstreams_historic_chain():
    old = CHAIN.replace("DN", "SN")
    have = EMPTY | {old: [], "CNI-HOSTPORT-SNAT": [f"-s 127.0.0.1/32 -j {old}"]}
    assert rules.removals(have, CHAIN) == [
        f"-D CNI-HOSTPORT-SNAT -s 127.0.0.1/32 -j {old}",
        f"-F {old}",
        f"-X {old}",
    ]


@pytest.mark.parametrize("brackets", [False, True])
def test_another_interface_of_the_container_keeps_its_ports(brackets):
    ours, others = ("[fd00::2]:80", "[fd00::3]:80") if brackets else ("10.88.0.2:80", "10.88.0.3:80")
    dnat = f"-A {CHAIN} -p tcp -m tcp --dport 8080 -j DNAT --to-destination "
    have = parse(SAVED.replace(f"{dnat}10.88.0.2:80", f"{dnat}{ours}\n{dnat}{others}"))
    address = ip_address("fd00::2" if brackets else "10.88.0.2")
    assert rules.removals(have, CHAIN, ours=[address]) == [f"{dnat}{ours}".replace("-A", "-D", 1)]
    assert len(rules.removals(have, CHAIN)) == 3


def test_chains_of_containers_that_are_gone():
    assert rules.gone(GOLDEN, "dbnet", ["c1"]) == []
    assert rules.gone(GOLDEN, "dbnet", ["c2", "c11"]) == [CHAIN]
    assert rules.gone(GOLDEN, "db", []) == []
    assert rules.gone(parse(SAVED.replace(f"-j {CHAIN}", "-j ACCEPT")), "dbnet", []) == []
    [entry] = GOLDEN["CNI-HOSTPORT-DNAT"]
    assert rules.gone(GOLDEN | {"CNI-HOSTPORT-DNAT": [entry, entry]}, "dbnet", []) == [CHAIN]


def test_a_long_id_is_recognised_by_its_cut_comment():
    container = "x" * 250
    of = wanted("10.88.0.2/16", mappings=MAPPINGS)
    have = restore(EMPTY, additions(EMPTY, of, comment=rules.comment_of("dbnet", container)))
    assert rules.gone(have, "dbnet", [container]) == []
    assert rules.gone(have, "dbnet", ["c1"]) == [CHAIN]
