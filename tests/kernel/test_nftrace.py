"""The tables that have packets traced: the kernel takes them away, or, where it cannot, their maker does."""

import socket
from collections.abc import Sequence
from contextlib import closing

import pytest

from tests.kernel.localprobes import local
from tests.support.netns import Netns
from weft.diag.sight import listings, look
from weft.diag.trace.following import Filters, Ground
from weft.diag.trace.probes import Probe, ProbesSeen, patterns
from weft.diag.trace.ruled import Ruling, dropped
from weft.diag.trace.sending import send, told
from weft.kernel.netfilter import nftrace

DROP = "nft add table ip x; nft 'add chain ip x p { type filter hook input priority 0; policy drop; }'"


def steps(netns: Netns) -> list[tuple[str, int]]:
    """The chains that dropped three probes, and how many."""
    numbers = [1, 3, 5]
    sock = netns.call(lambda: nftrace.listen(patterns("icmp", numbers)))
    netns.call(lambda: send(local("icmp", numbers)))
    found = [
        (f"{each.family} {each.table} {each.chain}", each.count)
        for each in dropped(nftrace.take(sock), nftrace.tables(sock))
    ]
    nftrace.close(sock)
    return found


def test_a_kernel_that_knows_owners(netns: Netns):
    netns.run(DROP)
    assert steps(netns) == [("ip x p", 3)]
    assert netns.run("nft list tables") == "table ip x\n"


def test_two_traces_at_once(netns: Netns):
    netns.run(DROP)
    with netns.call(lambda: nftrace.listen(patterns("icmp", [7]))) as other:
        assert steps(netns) == [("ip x p", 3)]
        assert dropped(nftrace.take(other), nftrace.tables(other)) == []
        assert netns.run("nft list tables").count("weft-trace-") == 2


class _One(Ground):
    """One namespace, of whose packet filter alone is asked."""

    def __init__(self, netns: Netns) -> None:
        self._netns = netns

    def filtered(self, place: str, probe: Probe) -> socket.socket:  # noqa: ARG002 - there is one place
        return self._netns.call(lambda: nftrace.listen(patterns(probe.kind, probe.numbers)))

    def told(self, place: str, ruling: Ruling) -> Ruling:  # noqa: ARG002 - there is one place
        return self._netns.call(lambda: told(ruling))


def test_that_no_probe_is_left_is_known_at_once_and_who_dropped_them_later_too(netns: Netns):
    netns.run(DROP)
    numbers, seen = [1, 3, 5], ProbesSeen()
    with closing(Filters(_One(netns), ["node"], local("icmp", numbers))) as filters:
        assert not filters.have_dropped(1)
        netns.call(lambda: send(local("icmp", numbers)))
        assert filters.have_dropped(3)
        assert not filters.have_dropped(4)
        filters.explain(seen)
    [ruling] = seen.ruled["node"]
    assert (ruling.table, ruling.chain, ruling.count, ruling.beside) == ("x", "p", 3, ("p",))


def test_a_kernel_that_knows_no_owner(netns: Netns, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(nftrace, "_NFT_TABLE_F_OWNER", 1 << 30)
    netns.run(DROP)
    netns.call(lambda: nftrace.listen([])).close()  # as a process ends that is killed
    assert netns.run("nft list tables") == "table ip x\ntable inet weft-trace\ntable bridge weft-trace\n"
    assert steps(netns) == [("ip x p", 3)]
    assert netns.run("nft list tables") == "table ip x\n"


def test_rules_are_read_beside_tables_of_traces(netns: Netns, monkeypatch: pytest.MonkeyPatch):
    """Also where nft's listing breaks off at such a table, as that of 1.0.6 may; but not those of a table that does."""
    said, broken = listings.said, ["ruleset"]

    def cut(command: Sequence[str]) -> str:
        listed = said(command)
        return listed if broken[0] not in command else listed[:-20]

    netns.run(DROP)
    with netns.call(lambda: nftrace.listen(patterns("icmp", [7]))):
        assert ("ip", "x", "p") in netns.call(look.inside).rules.chains
        monkeypatch.setattr(listings, "said", cut)
        found = netns.call(look.inside)
        assert [*found.rules.chains] == [("ip", "x", "p")], found.unseen
        broken[0] = "-j"
        assert netns.call(look.inside).unseen["rules"] == "nft does not list table ip 'x' as a whole"
