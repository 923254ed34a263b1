"""portmap's own maps: which elements an attachment has, what becomes of a key that is taken, and the frame."""

from ipaddress import ip_address, ip_interface

import pytest

from tests.support.cni.portmaps import MAPPINGS, wanted
from weft.cni.plugins.portmap import elements as portmap
from weft.cni.plugins.portmap.conf import Mapping
from weft.cni.plugins.portmap.elements import Taken
from weft.model.attachment import Interface, IpConfig, Result
from weft.model.kernel.nftset import Add, Delete, Element

COMMENT = "0123456789abcdef-0123456789abcdef, net: n, if: eth0, id: c1"
OWNER = "0123456789abcdef-0123456789abcdef"
PORT_80 = b"\0\x50\0\0"
HTTP = (Mapping(host_port=8080, container_port=80, protocol="tcp"),)


def described(*addresses, **conf):
    return [portmap.describe(element) for element in portmap.elements(wanted(*addresses, **conf), COMMENT)]


def test_an_element_as_bytes():
    [http, subnet, local] = portmap.elements(wanted("10.1.2.3/24", mappings=HTTP), COMMENT)
    assert http == Element(
        set="any4", key=b"\x06\0\0\0\x1f\x90\0\0", data=b"\x0a\x01\x02\x03\0\x50\0\0", comment=COMMENT
    )
    assert subnet == Element(set="masq4-24", key=b"\x0a\x01\x02\0\x0a\x01\x02\x03", comment=COMMENT)
    assert local == Element(set="masq4-32", key=b"\x7f\0\0\x01\x0a\x01\x02\x03", comment=COMMENT)


def test_an_element_of_one_address_as_bytes():
    bound = (Mapping(host_port=53, container_port=80, protocol="udp", host_ip=ip_address("fd00::1")),)
    [dns, subnet] = portmap.elements(wanted("10.1.2.3/24", "fd01::3/64", mappings=bound, snat=True), COMMENT)[-2:]
    assert dns.set == "bound6"
    assert dns.key == ip_address("fd00::1").packed + b"\x11\0\0\0\0\x35\0\0"
    assert dns.data == ip_address("fd01::3").packed + PORT_80
    assert subnet.set == "masq6-64"
    assert subnet.key == ip_address("fd01::").packed + ip_address("fd01::3").packed


def test_ipv4_of_the_vectors():
    assert described("10.0.0.2/24") == [
        "host port 8080/tcp to 10.0.0.2:80",
        "host port 8081/tcp to 10.0.0.2:80",
        "host port 8080/udp to 10.0.0.2:81",
        "host port 8082/udp to 10.0.0.2:82",
        "host port 8083/tcp of 192.168.0.2 to 10.0.0.2:83",
        "host port 8084/tcp to 10.0.0.2:84",
        "masquerading from 10.0.0.0/24 to 10.0.0.2",
        "masquerading from 127.0.0.1/32 to 10.0.0.2",
    ]


def test_ipv6_of_the_vectors():
    assert described("2001:db8::2/64") == [
        "host port 8080/tcp to [2001:db8::2]:80",
        "host port 8081/tcp to [2001:db8::2]:80",
        "host port 8080/udp to [2001:db8::2]:81",
        "host port 8082/udp to [2001:db8::2]:82",
        "host port 8085/tcp of 2001:db8:a::1 to [2001:db8::2]:85",
        "host port 8086/tcp to [2001:db8::2]:86",
        "masquerading from 2001:db8::/64 to 2001:db8::2",
    ]


def test_without_snat_nothing_is_masqueraded():
    assert len(described("10.0.0.2/24", "2001:db8::2/64", snat=False)) == 12


def test_masq_all_has_any_source():
    assert described("10.0.0.2/24", "2001:db8::2/64", mappings=HTTP, masq_all=True) == [
        "host port 8080/tcp to 10.0.0.2:80",
        "masquerading from 0.0.0.0/0 to 10.0.0.2",
        "host port 8080/tcp to [2001:db8::2]:80",
        "masquerading from ::/0 to 2001:db8::2",
    ]


def test_a_family_without_mappings_has_nothing():
    assert described("10.0.0.2/24", "2001:db8::2/64", mappings=MAPPINGS[4:5]) == [
        "host port 8083/tcp of 192.168.0.2 to 10.0.0.2:83",
        "masquerading from 10.0.0.0/24 to 10.0.0.2",
        "masquerading from 127.0.0.1/32 to 10.0.0.2",
    ]


def test_of_two_mappings_of_a_port_the_first_counts():
    both = (*HTTP, Mapping(host_port=8080, container_port=81, protocol="tcp", host_ip=ip_address("0.0.0.0")))  # noqa: S104
    assert described("10.0.0.2/24", mappings=both, snat=False) == ["host port 8080/tcp to 10.0.0.2:80"]


def test_an_unknown_protocol_is_described_by_number():
    element = Element(set="any4", key=b"\x21\0\0\0\0\x50\0\0", data=b"\x0a\0\0\x01" + PORT_80)
    assert portmap.describe(element) == "host port 80/33 to 10.0.0.1:80"


FIRST, OTHER, FURTHER = (
    portmap.elements(wanted(f"10.1.2.{last}/24", mappings=HTTP, snat=False), comment)[0]
    for last, comment in ((3, COMMENT), (9, "of another"), (9, COMMENT))
)


def test_a_free_key_is_added_and_a_held_one_left():
    assert portmap.settle(FIRST, None, OWNER, ()) == (Add(FIRST),)
    assert portmap.settle(FIRST, FIRST, OWNER, ()) == ()


def test_an_own_element_that_leads_elsewhere_is_replaced():
    assert portmap.settle(FIRST, FURTHER, OWNER, ()) == (Delete(FURTHER), Add(FIRST))


def test_an_element_that_leads_to_our_address_is_a_dead_ones():
    assert portmap.settle(FURTHER, OTHER, OWNER, ()) == (Delete(OTHER), Add(FURTHER))


def test_a_port_that_is_shared_is_left_to_who_has_it():
    assert portmap.settle(FIRST, OTHER, OWNER, ("somebody", "of another")) == ()


def test_a_port_of_another_pod_is_taken():
    with pytest.raises(Taken) as refused:
        portmap.settle(FIRST, OTHER, OWNER, ())
    assert refused.value.wanted == FIRST
    assert refused.value.holder == OTHER
    assert str(refused.value) == "host port 8080/tcp to 10.1.2.3:80: taken by of another"


def test_the_frame_is_made_whole_then_by_sets():
    lines = portmap.frame((), ("any4", "masq4-24"))
    assert lines[0] == 'create table inet weft-hostport { comment "weft: host ports of pods"; }'
    assert (
        "create map inet weft-hostport bound6"
        " { type ipv6_addr . inet_proto . inet_service : ipv6_addr . inet_service; }" in lines
    )
    more = portmap.frame(("any4", "bound4", "any6", "bound6", "masq4-24"), ("any4", "masq4-24", "masq6-64"))
    assert more == [
        "create set inet weft-hostport masq6-64 { type ipv6_addr . ipv6_addr; }",
        (
            "add rule inet weft-hostport postrouting meta mark & 0x00001000 == 0x00001000"
            " ip6 saddr & ffff:ffff:ffff:ffff:: . ip6 daddr @masq6-64 masquerade"
            ' comment "from IPv6 subnets of /64"'
        ),
    ]
    assert portmap.frame(("any4", "masq4-24"), ("any4", "masq4-24")) == []


def test_the_rules_of_the_frame_are_those_that_are_looked_for():
    made = [line for line in portmap.frame((), ("masq4-32",)) if line.startswith("add rule")]
    rules = portmap.frame_rules(("any4", "masq4-32"))
    assert len(made) == len(rules)
    for line, rule in zip(made, rules, strict=True):
        assert line == f'add rule inet weft-hostport {rule.chain} {rule.text} comment "{rule.comment}"'
    assert rules[-1].text.endswith(" ip saddr . ip daddr @masq4-32 masquerade")
    assert len({(rule.chain, rule.comment) for rule in rules}) == len(rules)


def result(*ips, sandbox="/run/netns/x"):
    interfaces = (Interface(name="cni0"), Interface(name="eth0", sandbox=sandbox), Interface(name="eth1", sandbox="/y"))
    return Result(
        interfaces=interfaces,
        ips=tuple(IpConfig(address=ip_interface(address), interface=index) for address, index in ips),
    )


@pytest.mark.spec("cni.md M9")
@pytest.mark.parametrize(
    "ips,found",
    [
        ((("10.0.0.1/24", 0), ("10.0.0.2/24", 1), ("fd00::2/64", 1)), ["10.0.0.2/24", "fd00::2/64"]),
        ((("fd00::2/64", None), ("10.0.0.2/24", None)), ["10.0.0.2/24", "fd00::2/64"]),
        ((("10.0.0.1/24", 2), ("10.0.0.2/24", 7), ("10.0.0.3/24", 1)), ["10.0.0.2/24"]),
        ((("10.0.0.2/24", -1),), ["10.0.0.2/24"]),
        ((), []),
    ],
)
def test_the_containers_addresses(ips, found):
    assert [str(address) for address in portmap.container_addresses(result(*ips), "eth0")] == found


@pytest.mark.spec("cni.md M9")
def test_an_interface_of_the_host_is_not_the_containers():
    assert portmap.container_addresses(result(("10.0.0.2/24", 1), sandbox=""), "eth0") == ()
