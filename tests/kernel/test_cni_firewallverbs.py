"""firewall's DEL, CHECK and GC: what is wrong is named, what is gone goes, what lives stays."""

import pytest

from tests.kernel.firewalld import system_bus
from tests.kernel.podfirewall import call, config, elements, for_ip, root, rules, site
from weft.cni.leaks import sweep
from weft.cni.leaks.sweeper import node_host

__all__ = ["root", "site"]


@pytest.mark.parametrize("backend", ["iptables", "nft"])
def test_del_needs_nothing_but_our_memory(site, backend):
    conf = config(backend=backend)
    assert call(site, "ADD", conf).exit == 0
    assert call(site, "DEL", {"cniVersion": "1.0.0", "name": "net", "type": "firewall"}, netns="").exit == 0
    assert not [line for family in (4, 6) for line in rules(site.host, family) if "ESTABLISHED" in line]
    assert elements(site.host, "pods4") == []
    assert list((site.directory / "state" / "firewall").iterdir()) == []
    assert list((site.directory / "state" / "firewall-owners").iterdir()) == []


@pytest.mark.parametrize(
    "damage",
    [
        "iptables -D CNI-FORWARD -s 10.0.0.2/32 -j ACCEPT",
        "iptables -D CNI-FORWARD -m comment --comment 'CNI firewall plugin admin overrides' -j CNI-ADMIN",
        "iptables -D FORWARD -m comment --comment 'CNI firewall plugin rules' -j CNI-FORWARD",
    ],
)
def test_check_says_what_upstreams_says(site, damage):
    conf = config(("10.0.0.2/24",))
    assert call(site, "ADD", conf).exit == 0
    site.host.run(damage)
    ours, theirs = (call(site, "CHECK", conf, by=by) for by in ("weft", "debian"))
    assert ours.msg == theirs.msg
    assert ours.json["details"].startswith("CHECK-001: ")


@pytest.mark.parametrize(
    "backend, damage, message",
    [
        (
            "iptables",
            "iptables -F CNI-ISOLATION-STAGE-2",
            "expected rule [-I CNI-ISOLATION-STAGE-2 1 -o cni0 ",
        ),
        ("nft", "nft flush set inet weft-firewall pods4", "expected element 10.0.0.2 of set pods4"),
        ("nft", "nft flush set inet weft-firewall bridges", "expected element cni0 of set bridges"),
        ("nft", "nft flush chain inet weft-firewall forward", 'expected rule "between guarded bridges" not found'),
        ("nft", "nft delete table inet weft-firewall", "expected element 10.0.0.2 of set pods4"),
    ],
)
def test_check_sees_more(site, backend, damage, message):
    conf = config(("10.0.0.2/24",), backend=backend, ingressPolicy="same-bridge")
    assert call(site, "ADD", conf).exit == 0
    assert call(site, "CHECK", conf).exit == 0
    site.host.run(damage)
    assert call(site, "CHECK", conf).msg.startswith(message)


def collect(site, *valid, name="net"):
    attachments = [{"containerID": container, "ifname": "eth0"} for container in valid]
    conf = {"cniVersion": "1.1.0", "name": name, "type": "firewall", "cni.dev/valid-attachments": attachments}
    assert site.call("firewall", "GC", conf).exit == 0


@pytest.mark.parametrize("backend", ["iptables", "nft"])
def test_gc_removes_what_is_gone_and_nothing_else(site, backend):
    ips = {"c1": "10.0.0.2", "c2": "10.0.0.3"}
    for container, ip in ips.items():
        assert call(site, "ADD", config((f"{ip}/24",), backend=backend), id_=container).exit == 0
    assert call(site, "ADD", config(("10.9.0.2/24",), backend=backend, name="other"), id_="c3").exit == 0

    def left():
        text = "\n".join(rules(site.host)) + str(elements(site.host, "pods4"))
        return [ip for ip in (*ips.values(), "10.9.0.2") if ip in text]

    collect(site, "c1", "c2")
    assert left() == ["10.0.0.2", "10.0.0.3", "10.9.0.2"]
    collect(site, "c1")
    assert left() == ["10.0.0.2", "10.9.0.2"]
    for path in (site.directory / "state" / "firewall").iterdir():
        path.unlink()  # the memory is lost
    collect(site)
    assert left() == (["10.9.0.2"] if backend == "nft" else ["10.0.0.2", "10.9.0.2"])


@pytest.mark.parametrize("backend", ["iptables", "nft"])
@pytest.mark.parametrize("how", ["GC", "DEL"])
def test_an_address_that_has_a_new_owner_keeps_its_rules(site, backend, how):
    conf = config(("10.0.0.2/24",), backend=backend)
    assert call(site, "ADD", conf, id_="dead").exit == 0
    assert call(site, "ADD", conf, id_="living").exit == 0
    if how == "GC":
        collect(site, "living")
    else:
        assert call(site, "DEL", conf, id_="dead").exit == 0
        assert call(site, "DEL", conf, id_="dead").exit == 0
    assert call(site, "CHECK", conf, id_="living").exit == 0


def test_what_another_boot_has_left_is_only_forgotten(site):
    conf = config(("10.0.0.2/24",), backend="iptables")
    site.boot_id = "boot-0"
    site.restart()
    assert call(site, "ADD", conf, id_="dead").exit == 0
    site.boot_id = "boot-1"
    site.restart()
    # Upstream's plugin has made the same for a pod of this boot.
    collect(site)
    assert for_ip("10.0.0.2/32")[0] in rules(site.host)
    assert list((site.directory / "state" / "firewall").iterdir()) == []


@pytest.mark.parametrize("backend", ["iptables", "nft"])
def test_the_sweep_frees_what_a_leak_has_let_through(site, make_netns, backend):
    site.wrap = lambda host: host  # the sweep has the machine's own root
    pod = make_netns()
    ipam = {"type": "host-local", "dataDir": str(site.store), "ranges": [[{"subnet": "10.0.0.0/24"}]]}
    bridge = {"cniVersion": "1.0.0", "name": "net", "type": "bridge", "ipam": ipam}
    result = site.call("bridge", "ADD", bridge, container=pod).result
    assert call(site, "ADD", config(backend=backend, prevResult=result)).exit == 0
    text = "\n".join(rules(site.host)) + str(elements(site.host, "pods4"))
    assert "10.0.0.2" in text

    def swept():
        with node_host(site.node) as host:
            return [sweep.free(host, one) for one in list(sweep.attachments(host))]

    assert site.host.call(swept) == [""]
    pod.run("ip link del eth0")
    assert all(site.host.call(swept))
    text = "\n".join(rules(site.host)) + str(elements(site.host, "pods4"))
    assert "10.0.0.2" not in text
    assert list((site.directory / "state").rglob("10.0.0.2")) == []


@pytest.mark.parametrize("backend", ["iptables", "nft"])
def test_gc_takes_back_the_policy_of_bridges_that_are_gone(site, backend):
    for bridge in ("cni0", "cni1"):
        site.host.bridge(bridge)
        conf = config(("10.0.0.2/24",), bridge=bridge, backend=backend, ingressPolicy="same-bridge")
        assert call(site, "ADD", conf, id_=bridge).exit == 0
    site.host.run("ip link del cni1")
    collect(site, "cni0", "cni1")
    text = "\n".join(rules(site.host)) + str([elements(site.host, name) for name in ("bridges", "within")])
    assert ("cni0" in text, "cni1" in text) == (True, False)


@pytest.mark.parametrize("backend", ["", "iptables", "nft"])
def test_status(site, monkeypatch, backend):
    conf = {"cniVersion": "1.1.0", "name": "net", "type": "firewall", "backend": backend}
    assert call(site, "STATUS", conf).exit == 0
    monkeypatch.setattr("weft.cni.host.programs.find", lambda *_: None)
    answer = call(site, "STATUS", conf)
    kind = "nftables" if backend == "nft" else "iptables"
    assert (answer.code, answer.msg) == (50, f"firewall needs {kind}, which does not work here")


def test_status_of_firewalld(site, root):
    conf = {"cniVersion": "1.1.0", "name": "net", "type": "firewall", "backend": "firewalld"}
    answer = call(site, "STATUS", conf)
    assert (answer.code, answer.msg) == (50, "firewalld is not running")
    with system_bus(root) as start:
        start()
        assert call(site, "STATUS", conf).exit == 0
