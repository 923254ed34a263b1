"""What iptables-save says of a rule, in nft's words; what is not known is never taken for something else."""

import pytest

from weft.diag.rules.xtables import known

MARK = {"meta": {"key": "mark"}}


@pytest.mark.parametrize(
    "line, address, port",
    [
        ("-A X -j SNAT --to-source 10.1.0.1", "10.1.0.1", None),
        ("-A X -j DNAT --to-destination 10.1.0.1:80 --random", "10.1.0.1", 80),
        ("-A X -j SNAT --to-source 2001:db8::5:10", "2001:db8::5:10", None),
        ("-A X -j SNAT --to-source fd00::1", "fd00::1", None),
        ("-A X -j DNAT --to-destination [fd00::1]:53", "fd00::1", 53),
    ],
)
def test_where_a_translation_leads(line: str, address: str, port: int | None):
    name = line.split()[3]
    wanted = {"addr": address} | ({} if port is None else {"port": port})
    assert known("target", name, line) == (name.lower(), wanted)


@pytest.mark.parametrize("told", ["10.1.0.1-10.1.0.3", "10.1.0.1:80-90", "[fd00::1]"])
def test_a_range_is_not_known(told: str):
    assert known("target", "DNAT", f"-A X -j DNAT --to-destination {told}") is None


@pytest.mark.parametrize(
    "name, line",
    [
        ("conntrack", "-A X -m conntrack --ctstate DNAT -j ACCEPT"),
        ("conntrack", "-A X -m conntrack --ctstate NEW,SNAT -j ACCEPT"),
        ("addrtype", "-A X -m addrtype ! --dst-type LOCAL --limit-iface-in -j DROP"),
        ("addrtype", "-A X -m addrtype --dst-type LOCAL,BROADCAST -j DROP"),
    ],
)
def test_a_match_that_is_more_than_its_words_is_not_known(name: str, line: str):
    assert known("match", name, line) is None


def test_a_kind_of_address_alone_is_known():
    assert known("match", "addrtype", "-A X -m addrtype --dst-type LOCAL -j X2") is not None


def test_a_mark_of_a_connection_is_not_that_of_a_packet():
    line = "-A X -m connmark --mark 0x1 -m mark --mark 0x2/0x3 -j RETURN"
    assert known("match", "mark", line) == ("match", {"op": "==", "left": {"&": [MARK, 3]}, "right": 2})
    assert known("match", "connmark", line) is None
