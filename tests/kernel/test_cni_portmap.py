"""portmap in our own maps: what is there after ADD, CHECK, DEL and GC, whose a port is, and what a crash leaves."""

import errno
import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from tests.kernel.hostports import BRIDGE, NETWORK, Ports, mapping
from tests.support.cni.call import Caller
from tests.support.netns import Netns
from weft.cni.host import programs
from weft.cni.host.host import Host
from weft.cni.install.executables import install
from weft.cni.plugins.portmap import backends, iptables, maps
from weft.cni.plugins.portmap.backends import BACKENDS, MAPS, hand_back
from weft.cni.plugins.portmap.conf import PortMap
from weft.kernel.rtnetlink.netlink import NetlinkError
from weft.model.attachment import Attachment
from weft.model.value import replace
from weft.wire.cni import CniError, failure

HTTP, DNS, WEB6 = mapping(8080, 80), mapping(5353, 53, "udp"), mapping(8443, 443, "tcp", "2001:db8::1")
GOLDEN = {
    "any4": {"tcp . 8080": "10.1.2.2 . 80", "udp . 5353": "10.1.2.2 . 53"},
    "any6": {"tcp . 8080": "fd00::2 . 80", "udp . 5353": "fd00::2 . 53"},
    "bound6": {"2001:db8::1 . tcp . 8443": "fd00::2 . 443"},
    "masq4-24": ["10.1.2.0 . 10.1.2.2"],
    "masq4-32": ["127.0.0.1 . 10.1.2.2"],
    "masq6-64": ["fd00:: . fd00::2"],
}


@pytest.fixture
def ports(netns: Netns, tmp_path: Path) -> Ports:
    return Ports(netns, tmp_path / "site")


@pytest.fixture
def pods(ports: Ports, make_netns: Callable[[], Netns]) -> list[Netns]:
    """Two pods, attached as c1 and c2: 10.1.2.2 and 10.1.2.3."""
    made = [make_netns(), make_netns()]
    for number, pod in enumerate(made, 1):
        ports.attach(pod, f"c{number}")
    return made


def elements(host: Netns) -> dict[str, object]:
    """What is in our maps, as nft says it; empty sets are left out."""
    found: dict[str, object] = {}
    try:
        listed = json.loads(host.run("nft -j list table inet weft-hostport"))["nftables"]
    except AssertionError:
        return {}
    for item in listed:
        named = item.get("map") or item.get("set")
        if named and named.get("elem"):
            pairs = [(words(each[0]), words(each[1])) if "map" in item else words(each) for each in named["elem"]]
            found[named["name"]] = dict(pairs) if "map" in item else pairs
    return found


def words(value: object) -> str:
    if isinstance(value, dict):
        return words(value["elem"]["val"]) if "elem" in value else " . ".join(map(str, value["concat"]))
    return str(value)


def comments(host: Netns) -> set[str]:
    text = host.run("nft list table inet weft-hostport")
    return {part.split('"')[0] for part in text.split('comment "')[1:] if "net: " in part}


def records(ports: Ports) -> list[str]:
    return sorted(path.name for path in (ports.site.directory / "state" / "portmap").glob("*"))


def break_(ports: Ports) -> None:
    """Forget all state of ours."""
    shutil.rmtree(ports.site.directory / "state" / "portmap")


def as_node(ports, function):
    """Call a function with a host that belongs to no request."""

    def inside():
        with ExitStack() as stack:
            stack.callback(ports.site.node.close)
            env = ports.site.env("GC", None, id_="", ifname="", netns="", args="")
            host = stack.enter_context(closing(ports.site.open_host("portmap", env, None, stack)))
            return function(ports.site.wrap(host))

    return ports.site.host.call(inside)


def test_what_is_in_the_maps(netns, ports, pods):
    assert ports.portmap("ADD", HTTP, DNS, WEB6).result == ports.results["c1 eth0"]
    assert elements(netns) == GOLDEN
    assert comments(netns) == {"77fa157b4f32b23b-f4d01f2ef4b92245, net: dbnet, if: eth0, id: c1"}
    assert netns.run("cat /proc/sys/net/ipv4/conf/cni0/route_localnet").strip() == "1"
    assert netns.run("iptables-save; ip6tables-save") == ""
    assert ports.portmap("DEL", HTTP, DNS, WEB6).exit == 0
    assert elements(netns) == {}
    assert records(ports) == []
    assert ports.portmap("DEL", HTTP, DNS, WEB6).exit == 0


def test_again_is_the_same(netns, ports, pods):
    for _ in range(2):
        assert ports.portmap("ADD", HTTP, DNS, WEB6).exit == 0
    assert elements(netns) == GOLDEN
    assert ports.portmap("ADD", HTTP).exit == 0  # a repeat with fewer
    assert list(elements(netns)["any4"]) == ["tcp . 8080"]


def test_no_program_is_started_but_for_the_frame(ports, pods, monkeypatch):
    ports.site.by = "here"
    started = []
    real = programs.run
    monkeypatch.setattr(programs, "run", lambda *command, **how: started.append(command[0]) or real(*command, **how))
    assert ports.portmap("ADD", HTTP).exit == 0
    assert started == ["nft"]
    started.clear()
    assert ports.portmap("ADD", DNS, id_="c2").exit == 0
    assert ports.portmap("CHECK", DNS, id_="c2").exit == 0
    assert ports.portmap("DEL", HTTP).exit == 0
    assert ports.portmap("DEL").exit == 0  # a pod without ports
    assert started == []


def test_without_a_daemon_it_is_the_same(netns, ports, pods):
    own = ports.site.directory / "own"
    installed = install(ports.site.directory / "bin")
    caller = Caller(netns, installed.bin_dir, socket=own / "cni.sock", state=own)

    def call(command: str) -> Any:
        conf = ports.conf(HTTP, DNS, WEB6)
        answer = caller.start(command, conf, plugin="portmap", CNI_NETNS="/proc/1/none").end()
        assert (answer.exit, answer.stderr) == (0, ""), answer
        return answer.json

    assert call("ADD") == ports.results["c1 eth0"]
    assert elements(netns) == GOLDEN
    call("CHECK")
    call("DEL")
    assert elements(netns) == {}


def test_a_taken_port_is_an_error_that_names_the_holder(netns, ports, pods):
    assert ports.portmap("ADD", HTTP, id_="c1").exit == 0
    before = elements(netns)
    answer = ports.portmap("ADD", DNS, HTTP, id_="c2")
    assert answer.msg == (
        "cannot map host port 8080/tcp to 10.1.2.3:80: taken by host port 8080/tcp to 10.1.2.2:80"
        " (77fa157b4f32b23b-f4d01f2ef4b92245, net: dbnet, if: eth0, id: c1)"
    )
    assert answer.json["details"].startswith("HOSTPORT-001: ")
    assert elements(netns) == before
    assert len(records(ports)) == 1
    assert ports.portmap("DEL", DNS, HTTP, id_="c2").exit == 0
    assert elements(netns) == before
    # The same port of one address is another port.
    assert ports.portmap("ADD", mapping(8080, 80, "tcp", BRIDGE[4]), id_="c2").exit == 0


def test_a_port_of_a_pod_whose_links_are_gone_is_freed(netns, ports, pods):
    assert ports.portmap("ADD", HTTP, DNS, id_="c1").exit == 0
    pods[0].run("ip link del eth0")
    assert ports.portmap("ADD", HTTP, id_="c2").exit == 0
    assert list(elements(netns)["any4"].values()) == ["10.1.2.3 . 80"]
    assert ports.portmap("DEL", HTTP, DNS, id_="c1").exit == 0
    assert ports.portmap("CHECK", HTTP, id_="c2").exit == 0


def test_a_port_of_a_pod_of_which_nothing_is_proved_stays(netns, ports, pods):
    assert ports.portmap("ADD", HTTP, id_="c1").exit == 0
    pods[0].run("ip link del eth0")
    for path in (ports.site.directory / "state" / "attachments").iterdir():
        path.unlink()
    assert ports.portmap("ADD", HTTP, id_="c2").json["details"].startswith("HOSTPORT-001: ")
    break_(ports)
    assert ports.portmap("ADD", HTTP, id_="c2").json["details"].startswith("HOSTPORT-001: ")


def test_a_port_that_a_dead_pod_of_our_address_left_is_taken_over(netns, ports, pods):
    assert ports.portmap("ADD", HTTP, id_="c1").exit == 0
    ports.results["c9 eth0"] = ports.results["c1 eth0"]
    assert ports.portmap("ADD", HTTP, id_="c9").exit == 0
    [comment] = comments(netns)
    assert comment.endswith(" id: c9")
    # What comes late for the dead one leaves the living one alone.
    assert ports.portmap("DEL", HTTP, id_="c1").exit == 0
    assert ports.portmap("CHECK", HTTP, id_="c9").exit == 0


def test_del_needs_neither_mappings_nor_result(netns, ports, pods):
    assert ports.portmap("ADD", HTTP, DNS).exit == 0
    bare = {"cniVersion": "1.0.0", "name": NETWORK, "type": "portmap"}
    assert ports.site.call("portmap", "DEL", bare, netns="").exit == 0
    assert elements(netns) == {}


@pytest.mark.parametrize("wrong", [{"hostPort": 70000}, {"hostPort": "80"}, {"protocol": "none"}])
def test_what_add_has_refused_del_takes(ports, pods, wrong):
    assert ports.portmap("ADD", HTTP | wrong).exit
    assert ports.portmap("DEL", HTTP | wrong).exit == 0


@pytest.mark.parametrize("torn", [b"", b"{", b'{"form": "maps", "boot": "boot-1"}'])
def test_del_with_lost_or_torn_state_goes_by_the_comments(netns, ports, pods, torn):
    assert ports.portmap("ADD", HTTP, DNS, id_="c1").exit == 0
    assert ports.portmap("ADD", mapping(81, 81), id_="c2").exit == 0
    for path in (ports.site.directory / "state" / "portmap").iterdir():
        path.write_bytes(torn)
    assert ports.portmap("DEL", HTTP, id_="c1").exit == 0
    assert elements(netns) == {
        "any4": {"tcp . 81": "10.1.2.3 . 81"},
        "any6": {"tcp . 81": "fd00::3 . 81"},
        "masq4-24": ["10.1.2.0 . 10.1.2.3"],
        "masq4-32": ["127.0.0.1 . 10.1.2.3"],
        "masq6-64": ["fd00:: . fd00::3"],
    }


def test_two_interfaces_of_a_container(netns, ports, pods):
    """Upstream's DEL of one takes the other's ports along (cni.md §9 item 12)."""
    ports.attach(pods[0], "c1", "eth1")
    assert ports.portmap("ADD", HTTP).exit == 0
    assert ports.portmap("ADD", DNS, ifname="eth1").exit == 0
    assert ports.portmap("DEL", HTTP).exit == 0
    assert list(elements(netns)["any4"]) == ["udp . 5353"]
    assert ports.portmap("CHECK", DNS, ifname="eth1").exit == 0


def test_attachments_of_a_container_share_its_ports(netns, ports, pods):
    """Some runtimes repeat the ports for every network of a container."""
    ports.attach(pods[0], "c1", "eth1")
    first, second = ports.address("c1"), ports.address("c1", ifname="eth1")
    assert ports.portmap("ADD", HTTP).exit == 0
    assert ports.portmap("ADD", HTTP, DNS, ifname="eth1").exit == 0
    assert elements(netns)["any4"] == {"tcp . 8080": f"{first} . 80", "udp . 5353": f"{second} . 53"}
    for ifname in ("eth0", "eth1"):
        assert ports.portmap("CHECK", HTTP, ifname=ifname).exit == 0
    assert ports.portmap("ADD", HTTP, id_="c2").exit == 1
    assert ports.portmap("DEL", HTTP).exit == 0
    assert elements(netns)["any4"] == {"tcp . 8080": f"{second} . 80", "udp . 5353": f"{second} . 53"}
    assert ports.portmap("CHECK", HTTP, DNS, ifname="eth1").exit == 0
    assert ports.portmap("DEL", HTTP, DNS, ifname="eth1").exit == 0
    assert elements(netns) == {}
    assert not list((ports.site.directory / "state" / "portmap-shared").iterdir())


@pytest.mark.parametrize("torn", [b"", b'{"attachments": 1, "boot": "boot-1"}'])
def test_a_torn_note_of_what_is_shared_costs_the_port_alone(netns, ports, pods, torn):
    ports.attach(pods[0], "c1", "eth1")
    assert ports.portmap("ADD", HTTP).exit == 0
    assert ports.portmap("ADD", HTTP, ifname="eth1").exit == 0
    [note] = (ports.site.directory / "state" / "portmap-shared").iterdir()
    note.write_bytes(torn)
    assert ports.portmap("DEL", HTTP).exit == 0
    assert elements(netns)["masq4-24"] == [f"10.1.2.0 . {ports.address('c1', ifname='eth1')}"]
    assert ports.portmap("DEL", HTTP, ifname="eth1").exit == 0
    assert elements(netns) == {}


def test_many_at_once(netns, ports, pods, make_netns):
    for number in range(3, 13):
        ports.results[f"c{number} eth0"] = {
            **ports.results["c1 eth0"],
            "ips": [{"address": f"10.1.2.{number + 1}/24", "interface": 2}],
        }
    ids = [f"c{number}" for number in range(1, 13)]
    with ThreadPoolExecutor(6) as pool:
        added = list(pool.map(lambda id_: ports.portmap("ADD", mapping(8000 + int(id_[1:]), 80), id_=id_), ids))
    assert [answer.msg for answer in added] == [""] * 12
    assert len(elements(netns)["any4"]) == 12
    rules = netns.run("nft list chain inet weft-hostport postrouting").count("masquerade")
    assert rules == len([name for name in elements(netns) if name.startswith("masq")])
    with ThreadPoolExecutor(6) as pool:
        deleted = list(pool.map(lambda id_: ports.portmap("DEL", id_=id_), [*ids, *ids]))
    assert [answer.msg for answer in deleted] == [""] * 24
    assert elements(netns) == {}


def test_a_race_for_one_port_has_one_winner(netns, ports, pods):
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda id_: ports.portmap("ADD", HTTP, id_=id_), ["c1", "c2"]))
    assert sorted(answer.exit for answer in answers) == [0, 1]
    assert len(comments(netns)) == 1


@pytest.mark.spec("cni.md M26")
@pytest.mark.parametrize("form", [{}, {"backend": "iptables"}, {"backend": "nftables"}])
def test_check_of_ipv4_alone(netns, make_netns, tmp_path, form):
    ports = Ports(netns, tmp_path / "site", ipv6=False)
    ports.attach(make_netns())
    assert ports.portmap("ADD", HTTP, **form).exit == 0
    assert ports.portmap("CHECK", HTTP, **form).exit == 0


@pytest.mark.parametrize(
    "harm,words",
    [
        (
            "nft delete element inet weft-hostport any6 { tcp . 8080 }",
            "host port 8080/tcp to [fd00::2]:80: not found in map any6 of table inet weft-hostport",
        ),
        (
            "nft delete element inet weft-hostport masq4-32 { 127.0.0.1 . 10.1.2.2 }",
            "masquerading from 127.0.0.1/32 to 10.1.2.2: not found in map masq4-32 of table inet weft-hostport",
        ),
        (
            (
                "nft delete element inet weft-hostport any4 { tcp . 8080 };"
                "nft add element inet weft-hostport any4 { tcp . 8080 comment 'mine' : 10.9.9.9 . 90 }"
            ),
            (
                "host port 8080/tcp to 10.1.2.2:80: found host port 8080/tcp to 10.9.9.9:90 (mine) in map any4 of table"
                " inet weft-hostport"
            ),
        ),
        (
            "nft flush chain inet weft-hostport output",
            'rule "fib daddr type local jump ports" not found in chain output of table inet weft-hostport',
        ),
        (
            "nft flush ruleset",
            "host port 8080/tcp to 10.1.2.2:80: not found in map any4 of table inet weft-hostport",
        ),
    ],
)
def test_check_names_what_is_missing(netns, ports, pods, harm, words):
    assert ports.portmap("ADD", HTTP).exit == 0
    assert ports.portmap("CHECK", HTTP).exit == 0
    netns.run(harm)
    answer = ports.portmap("CHECK", HTTP)
    assert answer.msg == words
    assert answer.code == 999
    assert answer.json["details"].startswith("HOSTPORT-002: ")


def test_after_a_flush_of_everything_ports_can_be_had_again(netns, ports, pods):
    assert ports.portmap("ADD", HTTP, id_="c1").exit == 0
    netns.run("nft flush ruleset")
    assert ports.portmap("ADD", DNS, id_="c2").exit == 0
    assert ports.portmap("CHECK", DNS, id_="c2").exit == 0
    assert ports.portmap("DEL", HTTP, id_="c1").exit == 0
    assert list(elements(netns)["any4"]) == ["udp . 5353"]


def put_back(ports, id_="c1"):
    attachment = Attachment(network=NETWORK, container_id=id_, ifname="eth0")
    return as_node(ports, lambda host: backends.put_back(host, attachment))


def test_what_somebody_has_deleted_is_put_back(netns, ports, pods):
    assert ports.portmap("ADD", HTTP, DNS, WEB6, id_="c1").exit == 0
    assert not put_back(ports)
    netns.run("nft flush ruleset")
    assert put_back(ports)
    assert elements(netns) == GOLDEN
    assert ports.portmap("CHECK", HTTP, DNS, WEB6, id_="c1").exit == 0
    netns.run("nft delete element inet weft-hostport any4 { tcp . 8080 }")
    assert put_back(ports)
    assert elements(netns) == GOLDEN


def test_what_cannot_be_put_back_is_left(netns, ports, pods):
    assert ports.portmap("ADD", HTTP, id_="c1").exit == 0
    netns.run("nft flush ruleset")
    assert ports.portmap("ADD", HTTP, id_="c2").exit == 0  # it was free
    assert not put_back(ports, "c1")
    assert ports.portmap("CHECK", HTTP, id_="c2").exit == 0
    netns.run("nft flush chain inet weft-hostport output")
    assert not put_back(ports, "c2")
    assert ports.portmap("ADD", DNS, id_="c1", backend="iptables").exit == 0
    assert not put_back(ports, "c1")
    assert not put_back(ports, "c3")


def gc(ports, *valid, network=NETWORK, key="cni.dev/valid-attachments"):
    attachments = [{"containerID": id_, "ifname": "eth0"} for id_ in valid]
    return ports.site.call(
        "portmap", "GC", {"cniVersion": "1.1.0", "name": network, "type": "portmap", key: attachments}
    )


@pytest.mark.parametrize("forgotten", [False, True])
def test_gc_removes_what_is_gone_and_only_that(netns, ports, pods, forgotten):
    assert ports.portmap("ADD", HTTP, id_="c1").exit == 0
    assert ports.portmap("ADD", DNS, id_="c2").exit == 0
    if forgotten:
        break_(ports)
    assert gc(ports, "c1", "c2", key="cni.dev/attachments").exit == 0
    assert gc(ports, network="other").exit == 0
    assert len(elements(netns)["any4"]) == 2
    assert gc(ports, "c2").exit == 0
    assert list(elements(netns)["any4"]) == ["udp . 5353"]
    assert len(records(ports)) == (0 if forgotten else 1)
    assert gc(ports).exit == 0
    assert elements(netns) == {}


def test_gc_goes_on_after_a_port_that_cannot_be_removed(netns, ports, pods, monkeypatch):
    """What fails is a program that is there and does not work, in whichever form; it is played here."""
    assert ports.portmap("ADD", HTTP, id_="c1").exit == 0
    assert ports.portmap("ADD", DNS, id_="c2").exit == 0
    refused = []

    def remove(host: Host, attachment: Attachment, wanted: PortMap | None) -> None:
        if not refused:
            refused.append(attachment.container_id)
            raise failure("it does not work")
        maps.remove(host, attachment, wanted)

    monkeypatch.setitem(BACKENDS, MAPS, replace(BACKENDS[MAPS], remove=remove))
    answer = gc(ports)
    assert answer.msg == f"failed to remove host ports: {refused[0]} eth0: it does not work"
    assert len(records(ports)) == 1
    assert gc(ports).exit == 0
    assert (elements(netns), records(ports)) == ({}, [])


def test_del_forgets_what_is_of_another_boot(ports, pods):
    assert ports.portmap("ADD", HTTP, id_="c1").exit == 0
    for path in (ports.site.directory / "state" / "portmap").iterdir():
        path.write_text(path.read_text().replace("boot-1", "boot-0"))
    assert ports.portmap("DEL", id_="c1").exit == 0
    assert records(ports) == []


def test_gc_forgets_what_is_of_another_boot(netns, ports, pods):
    assert ports.portmap("ADD", HTTP, id_="c1").exit == 0
    for path in (ports.site.directory / "state" / "portmap").iterdir():
        path.write_text(path.read_text().replace("boot-1", "boot-0"))
    assert gc(ports, "c1").exit == 0
    assert elements(netns) != {}
    assert gc(ports).exit == 0
    assert records(ports) == []


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


def test_a_pod_that_no_route_leads_to(netns, ports, pods):
    netns.run("ip route del 10.1.2.0/24")
    assert ports.portmap("ADD", HTTP).exit == 0
    assert netns.run("cat /proc/sys/net/ipv4/conf/cni0/route_localnet").strip() == "0"
