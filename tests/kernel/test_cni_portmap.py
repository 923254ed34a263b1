"""portmap in our own maps: what is there after ADD, CHECK, DEL and GC, whose a port is, and what a crash leaves."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.kernel.hostports import BRIDGE, NETWORK, mapping
from tests.kernel.portmaps import DNS, GOLDEN, HTTP, WEB6, break_, elements, records
from tests.support.cni.call import Caller
from tests.support.netns import Netns
from weft.cni.host import programs
from weft.cni.install.executables import install


def comments(host: Netns) -> set[str]:
    text = host.run("nft list table inet weft-hostport")
    return {part.split('"')[0] for part in text.split('comment "')[1:] if "net: " in part}


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


def test_a_pod_that_no_route_leads_to(netns, ports, pods):
    netns.run("ip route del 10.1.2.0/24")
    assert ports.portmap("ADD", HTTP).exit == 0
    assert netns.run("cat /proc/sys/net/ipv4/conf/cni0/route_localnet").strip() == "0"
