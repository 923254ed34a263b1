"""portmap where the host lacks something or refuses it, and with another backend than before."""

import errno

import pytest

from tests.kernel.hostports import NETWORK, mapping
from tests.kernel.portmaps import DNS, HTTP, as_node, break_, elements, gc, records
from weft.cni.host import programs
from weft.cni.plugins.portmap import backends, iptables
from weft.cni.plugins.portmap.backends import hand_back
from weft.kernel.rtnetlink.netlink import NetlinkError
from weft.wire.cni import CniError


@pytest.mark.spec("cni.md M13")
def test_without_nft_the_rules_are_iptables(netns, ports, pods, monkeypatch):
    """Vector M13 means upstream, which has no maps of its own; here it is what is left when they cannot be made."""
    real = programs.find
    monkeypatch.setattr(programs, "find", lambda name, path: None if name == "nft" else real(name, path))
    answer = ports.portmap("ADD", HTTP)
    assert answer.exit == 0
    assert "cannot be made: nft: program not found" in answer.stderr
    assert iptables.chain_of(NETWORK, "c1") in netns.run("iptables-save -t nat")
    assert ports.portmap("CHECK", HTTP).exit == 0
    assert ports.portmap("DEL").exit == 0
    assert "CNI-DN" not in netns.run("iptables-save -t nat; ip6tables-save -t nat")


def test_nft_is_not_looked_for_where_the_maps_are_there(netns, ports, pods, monkeypatch):
    assert ports.portmap("ADD", HTTP).exit == 0
    real = programs.find
    monkeypatch.setattr(programs, "find", lambda name, path: None if name == "nft" else real(name, path))
    answer = ports.portmap("ADD", HTTP)  # its elements are there, so that it looks at everything
    assert (answer.exit, answer.stderr) == (0, "")
    assert "CNI-DN" not in netns.run("iptables-save -t nat")


def test_nothing_stays_when_neither_works(netns, ports, pods, monkeypatch):
    real = programs.find
    missing = ("nft", "ip6tables-restore")
    monkeypatch.setattr(programs, "find", lambda name, path: None if name in missing else real(name, path))
    answer = ports.portmap("ADD", HTTP)
    assert answer.msg == "ip6tables-restore: program not found"
    assert "CNI-DN" not in netns.run("iptables-save -t nat; ip6tables-save -t nat")
    assert records(ports) == []


class Changed:
    """A host of which something is otherwise."""

    def __init__(self, host):
        self._host = host

    def __getattr__(self, name):
        return getattr(self._host, name)


class WithoutNftables(Changed):
    @property
    def netfilter(self):
        raise OSError(93, "Protocol not supported")


class WithoutLocalnet(Changed):
    @property
    def sysctls(self):
        return self

    def read(self, name):
        return self._host.sysctls.read(name)

    def write(self, *_):
        raise PermissionError(1, "Operation not permitted")


def test_a_kernel_without_nf_tables(netns, ports, pods):
    ports.site.wrap = WithoutNftables
    answer = ports.portmap("ADD", HTTP, DNS)
    assert answer.exit == 0
    assert "the kernel has no nf_tables" in answer.stderr
    assert "UDP flows are not ended" in answer.stderr
    assert ports.portmap("CHECK", HTTP, DNS).exit == 0
    break_(ports)
    assert ports.portmap("CHECK", HTTP, DNS).exit == 0
    assert gc(ports, "c1").exit == 0
    assert ports.portmap("DEL", HTTP, DNS).exit == 0
    assert "CNI-DN" not in netns.run("iptables-save -t nat; ip6tables-save -t nat")
    assert give_back(ports) == []


class WithoutTables(Changed):
    """A kernel whose nfnetlink knows conntrack and no nf_tables."""

    @property
    def netfilter(self):
        return WithoutTransactions(self._host.netfilter)


class WithoutTransactions(Changed):
    def transaction(self, *_):
        raise NetlinkError(errno.EOPNOTSUPP, "Operation not supported")


def test_a_kernel_that_refuses_transactions_of_nf_tables(netns, ports, pods):
    ports.site.wrap = WithoutTables
    answer = ports.portmap("ADD", HTTP)
    assert answer.exit == 0
    assert "the kernel has no nf_tables" in answer.stderr
    assert "CNI-DN" in netns.run("iptables-save -t nat")
    assert ports.portmap("DEL", HTTP).exit == 0
    assert "CNI-DN" not in netns.run("iptables-save -t nat")


def test_a_setting_that_is_refused_undoes_it_all(netns, ports, pods):
    ports.site.wrap = WithoutLocalnet
    answer = ports.portmap("ADD", HTTP)
    assert answer.msg == "unable to enable route_localnet: Operation not permitted"
    assert elements(netns) == {}
    assert records(ports) == []


def test_del_that_fails_can_be_repeated(netns, ports, pods, monkeypatch):
    assert ports.portmap("ADD", HTTP, backend="iptables").exit == 0
    with monkeypatch.context() as patch:
        patch.setattr(programs, "find", lambda *_: None)
        assert ports.portmap("DEL", HTTP, backend="iptables").msg == "iptables-save: program not found"
        assert len(records(ports)) == 1
    assert ports.portmap("DEL", backend="iptables").exit == 0
    assert records(ports) == []
    assert "CNI-DN" not in netns.run("iptables-save -t nat; ip6tables-save -t nat")


def test_an_add_that_cannot_be_undone_is_left_to_del(netns, ports, pods, monkeypatch):
    real = programs.find

    def fails(*_: object, **__: object) -> None:
        raise OSError(5, "an undo that fails")

    monkeypatch.setattr(programs, "find", lambda name, path: None if name == "ip6tables-restore" else real(name, path))
    monkeypatch.setattr(backends, "undo", fails)
    answer = ports.portmap("ADD", HTTP, backend="iptables")
    assert answer.msg == "ip6tables-restore: program not found"
    assert "while undoing: [Errno 5] an undo that fails" in answer.stderr
    monkeypatch.undo()
    assert len(records(ports)) == 1
    assert ports.portmap("DEL").exit == 0
    assert "CNI-DN" not in netns.run("iptables-save -t nat; ip6tables-save -t nat")


@pytest.mark.parametrize("backend", ["iptables", "nftables"])
def test_a_change_of_backend_takes_the_old_form_away(netns, ports, pods, backend):
    assert ports.portmap("ADD", HTTP).exit == 0
    assert ports.portmap("ADD", HTTP, backend=backend).exit == 0
    assert elements(netns) == {}
    assert ports.portmap("ADD", HTTP).exit == 0
    assert list(elements(netns)["any4"]) == ["tcp . 8080"]
    assert "dnat to 10.1.2.2:80" not in netns.run("nft list ruleset")


def test_a_thousand_ports(netns, ports, pods):
    many = [mapping(port, port) for port in range(10000, 11000)]
    assert ports.portmap("ADD", *many).exit == 0
    assert len(elements(netns)["any4"]) == 1000
    assert ports.portmap("CHECK", *many).exit == 0
    assert ports.portmap("DEL").exit == 0
    assert elements(netns) == {}


def give_back(ports):
    return as_node(ports, hand_back)


def test_handed_back_the_reference_can_end_them(netns, ports, pods):
    assert ports.portmap("ADD", HTTP, DNS, id_="c1").exit == 0
    assert ports.portmap("ADD", mapping(81, 81), id_="c2", backend="nftables").exit == 0
    [attachment] = give_back(ports)
    assert attachment.container_id == "c1"
    assert "weft" not in netns.run("nft list tables")
    assert records(ports) == []
    assert give_back(ports) == []
    assert ports.portmap("DEL", HTTP, DNS, id_="c1", debian=True).exit == 0
    assert "CNI-DN" not in netns.run("iptables-save -t nat; ip6tables-save -t nat")
    assert ports.portmap("DEL", id_="c2").exit == 0
    assert "dnat" not in netns.run("nft list ruleset")


def test_handed_back_we_can_still_end_them(netns, ports, pods):
    assert ports.portmap("ADD", HTTP, id_="c1").exit == 0
    give_back(ports)
    assert ports.portmap("CHECK", HTTP, id_="c1").exit == 0
    assert ports.portmap("DEL", id_="c1").exit == 0
    assert "CNI-DN" not in netns.run("iptables-save -t nat; ip6tables-save -t nat")


def test_what_nobody_knows_of_is_not_handed_back_in_silence(netns, ports, pods):
    assert ports.portmap("ADD", HTTP, id_="c1").exit == 0
    break_(ports)
    with pytest.raises(CniError) as refused:
        give_back(ports)
    assert "has ports of which nothing else is known: 77fa157b4f32b23b-" in refused.value.msg
    assert elements(netns) != {}
