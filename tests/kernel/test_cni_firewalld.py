"""firewall with firewalld, on a bus of the test's own."""

import socket
import threading

import pytest

from tests.kernel.firewalld import system_bus
from tests.kernel.podfirewall import call, config, for_ip, root, rules, site

__all__ = ["root", "site"]


@pytest.mark.spec("cni.md I4")
def test_firewalld(site, root):
    conf = config()
    with system_bus(root) as start:
        firewalld = start()
        assert call(site, "ADD", conf).result == conf["prevResult"]
        assert firewalld.told == [
            ("addSource", "trusted", "10.0.0.2/32"),
            ("addSource", "trusted", "2001:db8:1:2::1/128"),
        ]
        assert rules(site.host) == []
        assert call(site, "ADD", conf).exit == 0
        assert call(site, "CHECK", conf).exit == 0
        firewalld.told.clear()
        assert call(site, "DEL", {**conf, "prevResult": {}}).exit == 0
        assert firewalld.told == [
            ("removeSource", "trusted", "10.0.0.2/32"),
            ("removeSource", "trusted", "2001:db8:1:2::1/128"),
        ]
        assert firewalld.zones == {"trusted": set(), "public": set()}


def test_firewalld_that_says_no_or_has_forgotten(site, root):
    conf = config(("10.0.0.2/24",), backend="firewalld", firewalldZone="nowhere")
    with system_bus(root) as start:
        assert call(site, "ADD", conf).msg == "firewalld is not running"
        firewalld = start()
        answer = call(site, "ADD", conf)
        assert answer.msg.startswith("failed to add the address 10.0.0.2 to nowhere zone: ")
        assert answer.msg.endswith("INVALID_ZONE: nowhere")
        conf = config(("10.0.0.2/24",), firewalldZone="public")
        assert call(site, "ADD", conf).exit == 0
        assert firewalld.zones["public"] == {"10.0.0.2/32"}
        firewalld.zones["public"].clear()
        assert call(site, "CHECK", conf).msg == "expected source 10.0.0.2 not found in zone public"
        deleted = call(site, "DEL", conf)
        assert (deleted.exit, "UNKNOWN_SOURCE" in deleted.stderr) == (0, True)
    assert call(site, "ADD", config(backend="firewalld")).msg == "firewalld is not running"
    assert call(site, "DEL", config(backend="firewalld")).exit == 0


def test_an_address_that_is_lost_keeps_no_other_in_the_zone(site, root):
    with system_bus(root) as start:
        firewalld = start()
        assert call(site, "ADD", config()).exit == 0
        firewalld.zones["trusted"].discard("10.0.0.2/32")
        assert call(site, "DEL", config()).exit == 0
        assert firewalld.zones["trusted"] == set()


def test_a_bus_without_firewalld(site, root):
    with system_bus(root):
        assert call(site, "ADD", config(("10.0.0.2/24",))).exit == 0
    assert for_ip("10.0.0.2/32")[0] in rules(site.host)


@pytest.mark.parametrize("answer", [b"", b"REJECTED EXTERNAL\r\n", b"OK 1234\r\nnonsense"])
def test_a_bus_that_is_none(site, root, answer):
    """Whatever it says to the login, iptables does without it, and with `firewalld` explicit it is an error."""
    path = root / "run" / "dbus" / "system_bus_socket"
    path.parent.mkdir(parents=True)
    with socket.create_server(str(path), family=socket.AF_UNIX) as server:
        threading.Thread(target=reply, args=(server, answer), daemon=True).start()
        assert call(site, "ADD", config(("10.0.0.2/24",))).exit == 0
        assert call(site, "ADD", config(("10.0.0.3/24",), backend="firewalld"), id_="c2").msg.startswith("D-Bus: ")
        server.shutdown(socket.SHUT_RDWR)
    assert for_ip("10.0.0.2/32")[0] in rules(site.host)


def reply(server, answer):
    while True:
        try:
            client, _ = server.accept()
        except OSError:
            return
        with client:
            client.recv(1024)
            client.sendall(answer)
            client.shutdown(socket.SHUT_WR)
            while client.recv(1024):
                pass


def test_firewalld_with_an_ingress_policy(site, root):
    with system_bus(root) as start:
        start()
        assert call(site, "ADD", config(("10.0.0.2/24",), ingressPolicy="isolated")).exit == 0
        assert call(site, "CHECK", config(("10.0.0.2/24",), ingressPolicy="isolated")).exit == 0
    assert any("-i cni0 -o cni0" in line for line in rules(site.host))
