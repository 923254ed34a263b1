"""portmap's CHECK, GC, and what is put back after others have removed it."""

import pytest

from tests.kernel.hostports import NETWORK, Ports
from tests.kernel.portmaps import DNS, GOLDEN, HTTP, WEB6, as_node, break_, elements, gc, records
from weft.cni.host.host import Host
from weft.cni.plugins.portmap import backends, maps
from weft.cni.plugins.portmap.backends import BACKENDS, MAPS
from weft.cni.plugins.portmap.conf import PortMap
from weft.model.attachment import Attachment
from weft.model.value import replace
from weft.wire.cni import failure


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
