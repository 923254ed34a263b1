"""static, case by case beside Debian's binary: the same results, the same errors."""

import pytest

from weft.wire.cni import VERSIONS

NONE = {"type": "static"}
BOTH = {
    "type": "static",
    "addresses": [
        {"address": "10.10.0.1/24", "gateway": "10.10.0.254"},
        {"address": "3ffe:ffff:0:01ff::1/64", "gateway": "3ffe:ffff:0::1"},
    ],
    "routes": [
        {"dst": "0.0.0.0/0"},
        {"dst": "192.168.0.0/16", "gw": "10.10.5.1"},
        {"dst": "3ffe:ffff:0:01ff::1/64"},
    ],
    "dns": {"nameservers": ["8.8.8.8"], "domain": "d", "search": ["s"], "options": ["o"]},
}
WRONG = {"type": "static", "addresses": [{"address": "zz"}]}


def of(*addresses, **more):
    return {"type": "static", "addresses": [{"address": one} for one in addresses], **more}


def call(site, command, ipam, *, by="weft", version="1.0.0", environment="", **more):
    conf = {"cniVersion": version, "name": "net", "type": "bridge", "ipam": ipam, **more}
    plugin = site.via(by)
    return plugin("static", command, conf, netns="/x", args=environment)


def both(site, command, ipam, **more):
    """Call both and return their common answer; of 1.x results older versions hold an empty `dns` (cni.md §1.14)."""
    answers = [call(site, command, ipam, by=by, **more) for by in ("weft", "debian")]
    for answer in answers:
        if answer.json and not answer.json.get("dns"):
            answer.json.pop("dns", None)
    assert (answers[0].exit, answers[0].json) == (answers[1].exit, answers[1].json)
    return answers[0]


@pytest.mark.parametrize("version", VERSIONS[:-1])
@pytest.mark.parametrize("ipam", [BOTH, of("10.10.0.1/24"), of("10.10.0.1/24", "10.10.0.2/24"), NONE])
def test_results_in_every_dialect(site, version, ipam):
    both(site, "ADD", ipam, version=version)


def test_without_a_version(site):
    both(site, "ADD", BOTH, version="")


def test_the_newest_dialect_which_debians_has_not(site):
    ipam = {**of("10.10.0.1/24"), "routes": [{"dst": "1.2.3.0/24", "mtu": 1400, "table": 0}]}
    assert call(site, "ADD", ipam, version="1.1.0").result == {
        "cniVersion": "1.1.0",
        "ips": [{"address": "10.10.0.1/24"}],
        "routes": [{"dst": "1.2.3.0/24", "mtu": 1400, "table": 0}],
    }


@pytest.mark.parametrize(
    "ipam, args",
    [
        (NONE, "IP=10.10.0.1/24"),
        (NONE, "IP=10.10.0.1/24;GATEWAY=10.10.0.254"),
        (NONE, "IP=10.10.0.1/24, 11.11.0.1/24;GATEWAY=10.10.0.254"),
        (NONE, "IP=10.10.0.1/24,11.11.0.1/24;GATEWAY=10.10.0.254,11.11.0.254"),
        (NONE, "IP=10.10.0.1/24,fd00::1/64;GATEWAY=fd00::fe, 10.10.0.254"),
        (NONE, "IP=10.10.0.1/24,10.10.0.2/24;GATEWAY=10.10.0.9,10.10.0.8"),
        (NONE, "IP=10.10.0.1"),
        (NONE, "IP="),
        (NONE, "IP=10.0.0.1/24,"),
        (NONE, "IP=10.10.0.1/24;GATEWAY=zz"),
        (NONE, "IP=10.10.0.1/24;GATEWAY="),
        (NONE, "GATEWAY=10.10.0.1"),
        (NONE, "IP=10.10.0.1/24;FOO=1"),
        (NONE, "IP=10.10.0.1/24;FOO=1;IgnoreUnknown=1"),
        (NONE, "FOO"),
        (BOTH, "IP=11.10.0.1/24"),
        (BOTH, "IP=11.10.0.1/24;GATEWAY=10.10.0.9"),
        (of("10.10.0.1/24"), "GATEWAY=10.10.0.9"),
        (WRONG, "IP=zz"),
    ],
)
def test_addresses_of_the_environment(site, ipam, args):
    both(site, "ADD", ipam, environment=args)


def test_what_another_plugin_understands_is_no_error_here(site):
    args = "MAC=c2:11:22:33:44:66;IP=10.10.0.1/24"
    assert call(site, "ADD", NONE, environment=args).result["ips"] == [{"address": "10.10.0.1/24"}]


@pytest.mark.parametrize(
    "ipam, more",
    [
        (NONE, {"args": {"cni": {"ips": ["10.10.0.1/24", "fd00::1/64"]}}}),
        (BOTH, {"args": {"cni": {"ips": ["10.10.0.7/24"]}}}),
        (BOTH, {"args": {"cni": {"ips": []}}}),
        (NONE, {"args": {"cni": {"ips": ["10.10.0.1"]}}}),
        (NONE, {"runtimeConfig": {"ips": ["10.10.0.1/24", "fd00::1/64"]}}),
        (NONE, {"runtimeConfig": {"ips": ["10.10.0.1/24"]}, "environment": "IP=10.11.0.1/24;GATEWAY=10.10.0.3"}),
        (BOTH, {"runtimeConfig": {"ips": ["10.10.0.9/24"]}, "args": {"cni": {"ips": ["10.10.0.7/24"]}}}),
        (BOTH, {"runtimeConfig": {"ips": []}}),
        (NONE, {"runtimeConfig": {"ips": [" 10.10.0.1/24"]}}),
        (NONE, {"runtimeConfig": {"ips": ["10.0.0.1/24"]}, "args": {"cni": {"ips": ["zz"]}}}),
        (NONE, {"runtimeConfig": {"ips": ["10.0.0.1/24"]}, "environment": "IP=zz"}),
        (WRONG, {"runtimeConfig": {"ips": ["10.0.0.1/24"]}}),
        (WRONG, {"args": {"cni": {"ips": ["10.0.0.1/24"]}}}),
    ],
)
def test_addresses_of_the_runtime(site, ipam, more):
    both(site, "ADD", ipam, **more)


@pytest.mark.parametrize(
    "ipam",
    [
        None,
        of("10.10.0.1"),
        of("zz/24"),
        of("10.10.0.1/33"),
        {"type": "static", "addresses": [{}]},
        {"type": "static", "addresses": [{"address": "10.10.0.1/24", "gateway": "zz"}]},
        {"type": "static", "addresses": [{"address": "10.10.0.1/24", "gateway": "fd00::1"}]},
        {**BOTH, "routes": [{"dst": "1.2.3.4"}]},
        {**BOTH, "routes": [{"dst": "1.2.3.4/24", "gw": "x"}]},
    ],
)
def test_what_is_wrong(site, ipam):
    both(site, "ADD", ipam)


def test_a_wrong_type_is_an_error(site):
    for ipam in ({**NONE, "addresses": 5}, {**NONE, "dns": 5}):
        answers = [call(site, "ADD", ipam, by=by) for by in ("weft", "debian")]
        assert [(one.exit, one.code) for one in answers] == [(1, 999), (1, 999)]


@pytest.mark.parametrize(
    "ips",
    [
        [],
        [{"address": "10.10.0.1/24"}, {"address": "3ffe:ffff:0:1ff::1/64"}],
        [{"address": "10.10.0.1/25", "gateway": "10.10.0.254"}, BOTH["addresses"][1]],
        BOTH["addresses"],
        [{"address": "10.10.0.1/24", "gateway": "10.10.0.253"}, BOTH["addresses"][1]],
    ],
)
def test_check(site, ips):
    previous = {"cniVersion": "1.0.0", "ips": ips}
    ours = call(site, "CHECK", BOTH, prevResult=previous)
    theirs = call(site, "CHECK", BOTH, by="debian", prevResult=previous)
    if ips:
        assert (ours.exit, ours.msg) == (theirs.exit, theirs.msg)
    else:  # theirs finds no fault with an address that is not there at all
        assert ours.msg == "static: Failed to match addr 10.10.0.1 on interface eth0"
        assert ours.json["details"] == "expected 10.10.0.1 with gateway 10.10.0.254, there is no such address"


def test_check_without_a_previous_result(site):
    assert both(site, "CHECK", BOTH).msg == "Required prevResult missing"


@pytest.mark.parametrize("ipam", [None, {"addresses": "x"}, BOTH])
def test_del_always_succeeds(site, ipam):
    assert both(site, "DEL", ipam).exit == 0


@pytest.mark.parametrize("first, second", [("weft", "debian"), ("debian", "weft")])
def test_as_a_delegate_of_bridge(site, make_netns, first, second):
    """An ADD by one and the DEL by the other."""
    pod = make_netns()
    ipam = of("10.10.0.1/24", "fd00::1/64")
    conf = {"cniVersion": "1.0.0", "name": "net", "type": "bridge", "bridge": "cni0", "ipam": ipam}
    calls = {"weft": site.call, "debian": site.via("debian")}
    ips = calls[first]("bridge", "ADD", conf, container=pod).result["ips"]
    assert [ip["address"] for ip in ips] == ["10.10.0.1/24", "fd00::1/64"]
    [shown] = pod.json("ip -j -4 addr show eth0")
    assert [one["local"] for one in shown["addr_info"]] == ["10.10.0.1"]
    assert calls[second]("bridge", "DEL", conf, container=pod).exit == 0
