"""DEL that comes late, for another pod's path, or with a configuration that is wrong by now."""

import pytest

from tests.kernel.anyorder import (
    NETWORK,
    PLUGINS,
    add,
    chain,
    check,
    config,
    config_of,
    delete,
    has_nothing,
    lose,
)


@pytest.mark.parametrize("plugin", PLUGINS)
@pytest.mark.parametrize("remembered", [True, False], ids=["with the result", "without"])
@pytest.mark.parametrize("recorded", [True, False], ids=["with records", "records lost"])
def test_a_late_del_leaves_the_pod_that_has_its_path_by_now(site, make_losable, plugin, remembered, recorded):
    dead, living = make_losable(), make_losable()
    result = add(site, plugin, dead, "c1", port=8080).result
    other = add(site, plugin, living, "c2", port=8081).result
    [own] = [ip for ip, owner in site.reservations(NETWORK).items() if owner.startswith(b"c1")]
    lose(site, dead)
    if not recorded:
        for path in (site.directory / "state").rglob("*.json"):
            if b'"c1"' in path.read_bytes():
                path.unlink()
    before = {link.name: (link.up, link.mtu) for link in living.rtnl.links()}
    for _ in range(2):
        delete(site, plugin, "c1", pod=living, result=result if remembered else None)
    assert {link.name: (link.up, link.mtu) for link in living.rtnl.links()} == before
    assert own not in site.reservations(NETWORK)
    check(site, plugin, living, "c2", result=other, port=8081)
    delete(site, plugin, "c2", pod=living)
    if recorded:
        assert has_nothing(site)


def test_a_late_del_of_loopback_leaves_another_pods_lo(site, make_losable):
    living = make_losable()
    conf = {"cniVersion": "1.0.0", "name": "lo", "type": "loopback"}
    assert site.call("loopback", "ADD", conf, container=living, id_="c2", ifname="lo").exit == 0
    assert add(site, "bridge", living, "c2").exit == 0
    assert site.call("loopback", "DEL", conf, container=living, id_="c1", ifname="lo").exit == 0
    assert living.rtnl.link("lo").up
    assert site.call("loopback", "DEL", conf, container=living, id_="c2", ifname="lo").exit == 0
    assert not living.rtnl.link("lo").up


def test_a_late_del_of_sbr_leaves_another_pods_rules(site, make_losable):
    living = make_losable()
    result = add(site, "bridge", living, "c2").result
    conf = {"cniVersion": "1.0.0", "name": NETWORK, "type": "sbr", "prevResult": {**result, "cniVersion": "1.0.0"}}
    assert site.call("sbr", "ADD", conf, container=living, id_="c2").exit == 0
    rules = living.run("ip rule")
    assert site.call("sbr", "DEL", conf, container=living, id_="c1").exit == 0
    assert living.run("ip rule") == rules
    assert site.call("sbr", "DEL", conf, container=living, id_="c2").exit == 0
    assert living.run("ip rule") != rules


@pytest.mark.parametrize("version", ["0.4.0", "1.0.0"])
@pytest.mark.parametrize("remembered", [True, False], ids=["with the result", "without"])
def test_a_late_del_of_what_upstream_has_made(site, make_losable, version, remembered):
    """Pods of the reference's plugins have neither record nor alias: result and reservations tell them apart."""
    one, two = make_losable(), make_losable()
    conf = config(site, cniVersion=version, ipMasq=False)
    first = site.via("debian")("bridge", "ADD", conf, container=one, id_="c1").result
    assert site.via("debian")("bridge", "ADD", conf, container=two, id_="c2").exit == 0
    told = {**conf, "prevResult": first} if remembered else conf
    for _ in range(2):
        assert site.call("bridge", "DEL", told, container=two, id_="c1").exit == 0
        assert two.rtnl.link("eth0") is not None
    assert [owner.split()[0] for owner in site.reservations(NETWORK).values()] == [b"c2"]
    assert site.call("bridge", "DEL", told, container=one, id_="c1").exit == 0
    assert one.rtnl.link("eth0") is None


@pytest.mark.parametrize("what", ["file", "directory", "below a file", "another kind", "file of /proc", "nothing"])
@pytest.mark.parametrize("plugin", PLUGINS)
def test_del_where_the_path_leads_to_no_namespace(site, make_losable, tmp_path, plugin, what):
    pod = make_losable()
    assert add(site, plugin, pod, "c1").exit == 0
    lose(site, pod)
    (tmp_path / "file").touch()
    paths = {
        "file": tmp_path / "file",
        "directory": tmp_path,
        "below a file": tmp_path / "file" / "netns",
        "another kind": "/proc/self/ns/uts",
        "file of /proc": "/proc/self/status",
        "nothing": tmp_path / "nothing",
    }
    answer = site.call(plugin, "CHECK", {**config(site, plugin), "prevResult": {}}, netns=str(paths[what]))
    assert answer.exit == 1
    delete(site, plugin, "c1", netns=str(paths[what]))
    assert has_nothing(site)


@pytest.mark.parametrize("remembered", [True, False], ids=["with the result", "without"])
def test_a_late_del_of_ours_leaves_a_pod_that_upstream_has_made(site, make_losable, remembered):
    dead, living = make_losable(), make_losable()
    conf = config(site, cniVersion="1.0.0", ipMasq=False)
    first = site.call("bridge", "ADD", conf, container=dead, id_="c1").result
    lose(site, dead)
    assert site.via("debian")("bridge", "ADD", conf, container=living, id_="c2").exit == 0
    told = {**conf, "prevResult": first} if remembered else conf
    assert site.call("bridge", "DEL", told, container=living, id_="c1").exit == 0
    assert living.rtnl.link("eth0") is not None
    assert [owner.split()[0] for owner in site.reservations(NETWORK).values()] == [b"c2"]


BAD = (
    {"cniVersion": "9.9.9"},
    {"cniVersion": 5},
    {"cniVersion": "0.1.0"},
    {"ipMasq": "yes"},
    {"ipam": None},
    {"ipam": []},
    {"ipam": {"type": 7}},
    {"ipam": {"type": "host-local", "dataDir": 1}},
    {"prevResult": "x"},
    {"prevResult": {"cniVersion": "7.0.0"}},
    {"dataDir": {}},
    {"runtimeConfig": 3},
    {"backend": 4},
    {"mtu": []},
)


@pytest.mark.parametrize("bad", BAD, ids=str)
def test_del_does_what_it_can_whatever_the_configuration_has_become(site, make_losable, bad):
    """A list may be changed while pods of it live, and what ADD would refuse must not keep them from going."""
    pod = make_losable()
    result = add(site, "bridge", pod, "c1").result
    firewall = {"cniVersion": "1.1.0", "name": NETWORK, "type": "firewall", "prevResult": result}
    assert site.call("firewall", "ADD", firewall, container=pod).exit == 0
    bandwidth = {**firewall, "type": "bandwidth", "ingressRate": 8_000_000, "ingressBurst": 8_000_000}
    assert site.call("bandwidth", "ADD", bandwidth, container=pod).exit == 0
    for conf in (bandwidth, firewall, *reversed(chain(site, "bridge"))):
        answer = site.call(conf["type"], "DEL", {**conf, **bad}, container=pod)
        assert answer.exit == 0, answer
    assert has_nothing(site)
    assert {link.name for link in pod.rtnl.links()} == {"lo"}


@pytest.mark.parametrize("plugin", ["bandwidth", "firewall"])
def test_del_in_a_version_that_the_plugin_never_spoke(site, make_losable, plugin):
    pod = make_losable()
    for version in ("", "0.1.0", "0.2.0"):
        conf = {"cniVersion": version, "name": NETWORK, "type": plugin}
        assert site.call(plugin, "ADD", conf, container=pod).code == 1
        assert site.call(plugin, "DEL", conf, container=pod).exit == 0


def test_del_finds_what_add_has_kept_elsewhere(site, make_losable):
    """Nobody tells the plugins that a directory in the configuration was changed."""
    pod, network = make_losable(), config_of(site, "flannel")
    new = {"dataDir": str(site.directory / "other"), "ipam": {"dataDir": str(site.directory / "others")}}
    assert site.call("flannel", "ADD", network, container=pod).exit == 0
    assert site.call("flannel", "DEL", {**network, **new}, container=pod).exit == 0
    assert has_nothing(site)
    assert list((site.directory / "flannel").iterdir()) == []
    assert site.call("bridge", "ADD", config(site), container=pod).exit == 0
    moved = config(site, ipam={"type": "host-local", "dataDir": "/elsewhere"})
    assert site.call("bridge", "DEL", moved, container=pod).exit == 0
    assert has_nothing(site)
