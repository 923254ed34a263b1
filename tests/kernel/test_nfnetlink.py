"""nf_tables by our own messages, against what `nft` writes and reads."""

import errno
from contextlib import closing

import pytest

from tests.support.netns import Netns
from weft.kernel.netfilter import nfnetlink
from weft.kernel.netfilter.nfnetlink import NfSocket
from weft.kernel.rtnetlink.netlink import NetlinkError
from weft.model.kernel.nftset import (
    Add,
    Delete,
    DeleteChain,
    DeleteSet,
    DeleteTable,
    Element,
    Empty,
    Table,
    field,
)

TABLE = Table("inet", "try")
FRAME = """
add table inet try
add map inet try ports { type inet_proto . inet_service : ipv4_addr . inet_service; }
add set inet try pods { type ipv4_addr; }
add chain inet try rules
add rule inet try rules meta l4proto { tcp, udp } counter comment "both"
add rule inet try rules counter
"""
TCP_8080 = field(b"\x06") + field((8080).to_bytes(2, "big"))
TO_POD = bytes((10, 1, 1, 2)) + field((80).to_bytes(2, "big"))
PORT = Element(set="ports", key=TCP_8080, data=TO_POD, comment="of the first pod")
POD = Element(set="pods", key=bytes((10, 1, 1, 2)))


@pytest.fixture
def nf(netns: Netns) -> NfSocket:
    netns.run(["nft", "-f", "-"], input=FRAME)
    sock = netns.call(NfSocket.open)
    netns.closing.callback(sock.close)
    return sock


def test_nft_sees_what_we_add_and_we_see_it_too(netns, nf):
    assert nf.transaction(TABLE, [Add(PORT), Add(POD)]) == {}
    text = netns.run("nft list table inet try")
    assert 'elements = { tcp . 8080 comment "of the first pod" : 10.1.1.2 . 80 }' in text
    assert "elements = { 10.1.1.2 }" in text
    assert nf.element(TABLE, "ports", TCP_8080) == PORT
    assert nf.element(TABLE, "pods", POD.key) == POD
    assert nf.elements(TABLE, "ports") == [PORT]
    assert nf.transaction(TABLE, [Delete(PORT), Delete(POD)]) == {}
    assert nf.elements(TABLE, "ports") == nf.elements(TABLE, "pods") == []
    assert nf.element(TABLE, "ports", TCP_8080) is None


def test_we_see_what_elements_have_counted(netns, nf):
    netns.run(
        "nft 'add set inet try seen { type ipv4_addr; flags dynamic; size 16; };"
        " add chain inet try out { type filter hook output priority 0; };"
        " add rule inet try out update @seen { ip daddr counter }'; ping -q -c 3 -i 0.01 -s 72 127.0.0.1"
    )
    [found] = nf.elements(TABLE, "seen")
    assert (found.key, found.packets, found.octets) == (bytes((127, 0, 0, 1)), 6, 600)


def test_we_see_what_nft_adds(netns, nf):
    netns.run('nft add element inet try ports { udp . 53 comment "dns" : 10.1.1.3 . 5353 }')
    [found] = nf.elements(TABLE, "ports")
    assert found.key == field(b"\x11") + field(b"\0\x35")
    assert found.data == bytes((10, 1, 1, 3)) + field((5353).to_bytes(2, "big"))
    assert found.comment == "dns"


def test_all_or_nothing_and_who_was_refused(nf):
    assert nf.transaction(TABLE, [Add(PORT)]) == {}
    nowhere = Element(set="nowhere", key=b"\0\0\0\0")
    refused = nf.transaction(TABLE, [Add(POD), Add(PORT), Add(nowhere)])
    assert {position: error.errno for position, error in refused.items()} == {1: errno.EEXIST, 2: errno.ENOENT}
    assert nf.elements(TABLE, "pods") == []
    # The socket is in step afterwards.
    assert nf.transaction(TABLE, [Add(POD)]) == {}
    assert nf.transaction(TABLE, []) == {}


def test_deleted_and_added_anew_in_one_go(nf):
    nf.transaction(TABLE, [Add(PORT)])
    other = Element(set="ports", key=TCP_8080, data=bytes((10, 1, 1, 9)) + TO_POD[4:], comment="of the second")
    assert nf.transaction(TABLE, [Delete(PORT), Add(other)]) == {}
    assert nf.elements(TABLE, "ports") == [other]


def test_what_is_there(netns, nf):
    assert nf.sets(TABLE) == {"ports", "pods"}
    assert nf.comments(TABLE) == [("rules", "both"), ("rules", "")]
    assert nf.has_table(TABLE)
    assert nf.has_chain(TABLE, "rules")
    assert not nf.has_chain(TABLE, "none")
    nothing = Table("ip", "nothing")
    assert nf.sets(nothing) == set()
    assert nf.comments(nothing) == []
    assert nf.elements(nothing, "ports") == []
    assert not nf.has_table(nothing)
    assert not nf.has_chain(nothing, "rules")
    netns.run("iptables -t nat -N CNI-DN-123")
    assert nf.has_chain(Table("ip", "nat"), "CNI-DN-123")


def test_a_kernel_without_nf_tables_has_none_of_it(nf, monkeypatch):
    """Another subsystem of nfnetlink that is not there is answered in the same way."""
    for name in ("_GETTABLE", "_GETCHAIN", "_GETRULE", "_GETSET", "_GETSETELEM"):
        monkeypatch.setattr(nfnetlink, name, 200 << 8 | getattr(nfnetlink, name) & 0xFF)
    assert nf.sets(TABLE) == set()
    assert nf.comments(TABLE) == nf.elements(TABLE, "pods") == []
    assert nf.element(TABLE, "pods", POD.key) is None
    assert not nf.has_table(TABLE)
    assert not nf.has_chain(TABLE, "rules")


def test_a_long_transaction(nf):
    many = [
        Element(set="ports", key=field(b"\x06") + field(port.to_bytes(2, "big")), data=TO_POD, comment="x" * 127)
        for port in range(1, 1001)
    ]
    assert nf.transaction(TABLE, [Add(element) for element in many]) == {}
    assert len(nf.elements(TABLE, "ports")) == 1000
    refused = nf.transaction(TABLE, [Add(element) for element in many])
    assert set(refused) == set(range(1000))


def test_without_permission_the_whole_is_refused(netns):
    def inside() -> None:
        import os

        os.setresuid(65534, 65534, 65534)
        sock = NfSocket.open()
        with pytest.raises(NetlinkError) as refused:
            sock.transaction(TABLE, [Add(PORT)])
        assert refused.value.errno == errno.EPERM

    assert netns.fork(inside) == 0


@pytest.mark.parametrize("family", ["inet", "bridge"])
def test_verdicts_as_nft_writes_and_reads_them(netns, family):
    table = Table(family, "try")
    netns.run(f"nft 'add table {table}; add map {table} to {{ type ipv4_addr : verdict; }}; add chain {table} class'")
    with closing(netns.call(NfSocket.open)) as nf:
        keys = [bytes((10, 1, 1, last)) for last in (2, 3, 4)]
        verdicts = ("class", "accept", "drop")
        wanted = [Element(set="to", key=key, verdict=verdict) for key, verdict in zip(keys, verdicts, strict=True)]
        assert nf.transaction(table, [*map(Add, wanted)]) == {}
        listed = netns.run(f"nft list table {table}")
        assert "elements = { 10.1.1.2 : goto class, 10.1.1.3 : accept,\n\t\t\t     10.1.1.4 : drop }" in listed
        netns.run(f"nft 'add element {table} to {{ 10.1.1.5 comment \"by nft\" : jump class }}'")
        by_nft = Element(set="to", key=bytes((10, 1, 1, 5)), verdict="another verdict class", comment="by nft")
        assert sorted(nf.elements(table, "to"), key=lambda each: each.key) == [*wanted, by_nft]


def test_what_rules_fill_is_told_from_other_sets(netns, nf):
    netns.run("nft 'add set inet try seen { type ipv4_addr; flags dynamic,timeout; timeout 1m; size 16; }'")
    assert nf.sets(TABLE) == {"ports", "pods", "seen"}
    assert nf.sets(TABLE, filled_by_rules=False) == {"ports", "pods"}


def test_chains_sets_and_tables_are_deleted(netns, nf):
    netns.run("nft 'add chain inet try one; add chain inet try two; add rule inet try one ip saddr @pods jump two'")
    assert nf.chains(TABLE) == {"rules", "one", "two"}
    refused = nf.transaction(TABLE, [DeleteChain("two"), DeleteSet("pods"), DeleteSet("ports")])
    assert {position: error.errno for position, error in refused.items()} == {0: errno.EBUSY, 1: errno.EBUSY}
    gone = [Empty("two"), Empty("one"), DeleteChain("two"), DeleteChain("one"), DeleteSet("pods")]
    assert nf.transaction(TABLE, gone) == {}
    assert (nf.chains(TABLE), nf.sets(TABLE)) == ({"rules"}, {"ports"})
    refused = nf.transaction(TABLE, [Empty("none"), DeleteChain("none"), DeleteSet("none")])
    assert [error.errno for error in refused.values()] == [errno.ENOENT] * 3
    assert nf.transaction(TABLE, [DeleteTable()]) == {}
    assert not nf.has_table(TABLE)
    assert nf.transaction(TABLE, [DeleteTable()])[0].errno == errno.ENOENT
