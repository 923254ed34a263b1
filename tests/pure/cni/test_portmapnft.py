"""portmap's nft rules: upstream's, added where missing, deleted by handle."""

from ipaddress import ip_address

import pytest

from tests.support.cni.portmaps import wanted
from weft.cni.plugins.portmap import nft as rules
from weft.cni.plugins.portmap.conf import Mapping
from weft.wire.nft import parse

ID = "icee6giejonei6so"
V4, V6 = "10.0.0.2/24", "2001:db8::2/64"
HTTP = (Mapping(host_port=8080, container_port=80, protocol="tcp"),)

LISTED = """table ip cni_hostport { # handle 1
	comment "CNI portmap plugin"
	chain hostports { # handle 1
		tcp dport 8080 dnat to 10.88.0.2:80 comment "c1" # handle 8
		tcp dport 8081 dnat to 10.88.0.3:80 comment "c1" # handle 9
		tcp dport 8082 dnat to 10.88.0.4:80 comment "c2" # handle 10
	}

	chain hostip_hostports { # handle 2
	}

	chain hostports_all { # handle 3
		jump hostip_hostports # handle 11
		jump hostports # handle 12
	}

	chain prerouting { # handle 4
		type nat hook prerouting priority dstnat; policy accept;
		fib daddr type local jump hostports_all # handle 13
	}

	chain output { # handle 5
		type nat hook output priority -100; policy accept;
		fib daddr type local jump hostports_all # handle 14
	}

	chain masquerading { # handle 6
		type nat hook postrouting priority srcnat; policy accept;
		ip saddr 10.88.0.2 ip daddr 10.88.0.2 masquerade comment "c1" # handle 15
		ip saddr 127.0.0.1 ip daddr 10.88.0.2 masquerade comment "c1" # handle 16
	}
}
"""
MINE = wanted("10.88.0.2/16", mappings=HTTP)


@pytest.mark.spec("cni.md M17")
def test_ipv4_with_conditions():
    of = wanted(V4, conditions_v4=("a", "b"))
    found = rules.rules_of(of, 4, ID)
    assert found == {
        "hostports": [
            f'tcp dport 8080 dnat to 10.0.0.2:80 comment "{ID}"',
            f'tcp dport 8081 dnat to 10.0.0.2:80 comment "{ID}"',
            f'udp dport 8080 dnat to 10.0.0.2:81 comment "{ID}"',
            f'udp dport 8082 dnat to 10.0.0.2:82 comment "{ID}"',
            f'ip daddr 192.168.0.2 tcp dport 8083 dnat to 10.0.0.2:83 comment "{ID}"',
            f'tcp dport 8084 dnat to 10.0.0.2:84 comment "{ID}"',
        ],
        "masquerading": [
            f'ip saddr 10.0.0.2 ip daddr 10.0.0.2 masquerade comment "{ID}"',
            f'ip saddr 127.0.0.1 ip daddr 10.0.0.2 masquerade comment "{ID}"',
        ],
    }
    assert rules.base_rules(of.conf, 4) == {
        "hostip_hostports": [],
        "hostports_all": ["jump hostip_hostports", "jump hostports"],
        "prerouting": ["a b fib daddr type local jump hostports_all"],
        "output": ["a b fib daddr type local jump hostports_all"],
    }


@pytest.mark.spec("cni.md M18")
def test_ipv6_without_snat():
    of = wanted(V6, snat=False)
    found = rules.rules_of(of, 6, ID)
    assert list(found) == ["hostports"]
    assert len(found["hostports"]) == 6
    assert f'ip6 daddr 2001:db8:a::1 tcp dport 8085 dnat to [2001:db8::2]:85 comment "{ID}"' in found["hostports"]
    assert not any("masquerading" in line for line in rules.additions({}, of, 6, ID))
    assert rules.rules_of(of, 4, ID) == {}


@pytest.mark.spec("cni.md M19")
@pytest.mark.parametrize(
    "address,rule",
    [
        (V4, f'ip saddr 0.0.0.0/0 ip daddr 10.0.0.2 masquerade comment "{ID}"'),
        (V6, f'ip6 saddr ::/0 ip6 daddr 2001:db8::2 masquerade comment "{ID}"'),
    ],
)
def test_masq_all(address, rule):
    assert rules.rules_of(wanted(address, masq_all=True), 4 if address == V4 else 6, ID)["masquerading"] == [rule]


@pytest.mark.spec("cni.md M20")
def test_ipv6_masquerades_the_containers_own_address():
    found = rules.rules_of(wanted(V6), 6, ID)["masquerading"]
    assert found == [f'ip6 saddr 2001:db8::2 ip6 daddr 2001:db8::2 masquerade comment "{ID}"']


def test_all_of_it():
    assert rules.additions({}, MINE, 4, "c1") == [
        'add table ip cni_hostport { comment "CNI portmap plugin"; }',
        "add chain ip cni_hostport hostports",
        "add chain ip cni_hostport masquerading { type nat hook postrouting priority 100; }",
        "add chain ip cni_hostport hostip_hostports",
        "add chain ip cni_hostport hostports_all",
        "add chain ip cni_hostport prerouting { type nat hook prerouting priority -100; }",
        "add chain ip cni_hostport output { type nat hook output priority -100; }",
        "flush chain ip cni_hostport hostports_all",
        "add rule ip cni_hostport hostports_all jump hostip_hostports",
        "add rule ip cni_hostport hostports_all jump hostports",
        "flush chain ip cni_hostport prerouting",
        "add rule ip cni_hostport prerouting fib daddr type local jump hostports_all",
        "flush chain ip cni_hostport output",
        "add rule ip cni_hostport output fib daddr type local jump hostports_all",
        'add rule ip cni_hostport hostports tcp dport 8080 dnat to 10.88.0.2:80 comment "c1"',
        'add rule ip cni_hostport masquerading ip saddr 10.88.0.2 ip daddr 10.88.0.2 masquerade comment "c1"',
        'add rule ip cni_hostport masquerading ip saddr 127.0.0.1 ip daddr 10.88.0.2 masquerade comment "c1"',
    ]


def test_what_is_there_is_neither_added_nor_emptied():
    listed = parse(LISTED)
    assert not any(line.startswith(("flush", "add rule")) for line in rules.additions(listed, MINE, 4, "c1"))
    assert rules.first_missing(listed, MINE, 4, "c1") == ""


@pytest.mark.parametrize("container,chain", [("c2", "hostports"), ("c1", "masquerading"), ("c3", "hostports")], ids=str)
def test_a_chain_that_lacks_rules_is_named(container, chain):
    listed = parse(LISTED.replace("127.0.0.1 ip", "127.0.0.9 ip"))
    assert rules.first_missing(listed, MINE, 4, container) == chain
    assert rules.first_missing({}, MINE, 4, container) == "hostports"


@pytest.mark.parametrize(
    "lost,chain",
    [("jump hostip_hostports #", "hostports_all"), ("fib daddr type local jump hostports_all # handle 14", "output")],
)
def test_shared_rules_are_needed_too(lost, chain):
    assert rules.first_missing(parse(LISTED.replace(lost, "counter #")), MINE, 4, "c1") == chain


def test_shared_rules_may_have_another_ones_conditions():
    listed = parse(LISTED.replace("fib daddr", "ip saddr 10.0.0.0/8 fib daddr"))
    assert rules.first_missing(listed, MINE, 4, "c1") == ""


@pytest.mark.parametrize(
    "ours,handles",
    [([], ["8", "9", "15", "16"]), (["10.88.0.2"], ["8", "15", "16"]), (["10.88.0.3"], ["9"])],
)
def test_deleting_by_comment_and_address(ours, handles):
    lines = rules.removals(parse(LISTED), 4, "c1", ours=[ip_address(ip) for ip in ours])
    assert [line.split(" handle ")[1] for line in lines] == handles
    assert all(line.startswith("delete rule ip cni_hostport ") for line in lines)
    assert rules.removals({}, 6, "c1") == []
