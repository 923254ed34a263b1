"""tuning's configuration: what counts, what is refused, and which files its names may reach."""

import json

import pytest

from weft.cni.plugins.tuning import conf as tuning
from weft.cni.plugins.tuning.conf import LinkTuning
from weft.model.net import Mac
from weft.wire.cni import CniError
from weft.wire.cnijson import JsonError

MACS = [f"c2:11:22:33:44:0{number}" for number in range(4)]


def parse(config, args="", text=None):
    return tuning.parse(config, json.dumps(config).encode() if text is None else text, args)


def refused(action):
    with pytest.raises(CniError) as caught:
        action()
    return caught.value.msg


def test_nothing_is_changed_unless_asked():
    conf = parse({"promisc": False, "mtu": 0})
    assert conf.link.given == {}
    assert (conf.sysctls, conf.data_dir) == ((), "/run/cni/tuning")


def test_every_key():
    link = {"mac": MACS[0], "promisc": True, "mtu": 1454, "allmulti": False, "txQLen": 0}
    sysctl = {"net.ipv4.ip_forward": "1"}
    expected = LinkTuning(mac=Mac.parse(MACS[0]), promisc=True, mtu=1454, allmulti=False, queue_length=0)
    own = parse({**link, "sysctl": sysctl, "dataDir": "/x"})
    assert own.link == expected
    assert (own.sysctls, own.mac, own.data_dir) == ((("net.ipv4.ip_forward", "1"),), MACS[0], "/x")
    by_args = parse({"mtu": 9, "allmulti": True, "args": {"cni": {**link, "sysctl": sysctl}}})
    assert (by_args.link, by_args.sysctls) == (expected, own.sysctls)


def test_del_reads_the_directory_alone():
    assert tuning.data_dir({"dataDir": "/x", "mtu": "no number"}) == "/x"


def test_whose_mac_counts():
    config = {"mac": MACS[0]}
    assert parse(config).mac == MACS[0]
    assert parse(config, f"MAC={MACS[1]}").mac == MACS[1]
    config["runtimeConfig"] = {"mac": MACS[2]}
    assert parse(config, f"MAC={MACS[1]}").mac == MACS[2]
    config["args"] = {"cni": {"mac": MACS[3]}}
    assert parse(config, f"MAC={MACS[1]}").mac == MACS[3]


def test_settings_of_args_without_settings_of_its_own_are_no_crash():
    conf = parse({"args": {"cni": {"sysctl": {"net.ipv4.ip_forward": "0"}}}})
    assert conf.sysctls == (("net.ipv4.ip_forward", "0"),)
    both = parse({"sysctl": {"a": "1", "b": "2"}, "args": {"cni": {"sysctl": {"b": "3"}}}})
    assert both.sysctls == (("a", "1"), ("b", "3"))


@pytest.mark.parametrize(
    "config, message",
    [
        ({"mtu": "x"}, "failed to load netconf: cannot use a string as mtu (expected an integer)"),
        ({"sysctl": {"a": 5}}, "failed to load netconf: cannot use an integer as sysctl 'a' (expected a string)"),
        ({"sysctl": {"a": "\ud800"}}, "failed to load netconf: sysctl: '\\ud800' is no Unicode"),
        ({"mac": "zz"}, "invalid args zz for MAC addr: address zz: invalid MAC address"),
        (
            {"mtu": -1},
            "failed to load netconf: cannot use -1 as mtu (expected an integer from 0 to 4294967295)",
        ),
        (
            {"args": {"cni": {"txQLen": 1 << 32}}},
            "failed to load netconf: cannot use 4294967296 as txQLen (expected an integer from 0 to 4294967295)",
        ),
    ],
)
def test_what_is_refused(config, message):
    assert refused(lambda: parse(config, text=b"{}")) == message


@pytest.mark.parametrize(
    "text",
    [
        b'{"sysctl": {"net.a": "1", "net.a": "2"}}',
        b'{"SysCtl": {"net.a": "1", "net.a": "1"}}',
        b'{"args": {"cni": {"sysctl": {"net.a": "1", "net.a": "1"}}}}',
    ],
)
def test_a_repeated_setting_is_refused(text):
    assert refused(lambda: parse({}, text=text)) == "duplicated sysctl keys are not allowed"
    assert parse({}, text=b'{"x": 1, "x": 2, "args": {"y": 1, "y": 2}, "sysctl": {"net.a": "1"}}').sysctls == ()


def test_two_names_of_one_setting_must_agree():
    names = ("net.ipv4.ip_forward", "net/ipv4/ip_forward")
    assert tuning.paths(((names[0], "1"), (names[1], "1")), "eth0") == {names[1]: "1"}
    message = refused(lambda: tuning.paths(((names[0], "1"), (names[1], "0")), "eth0"))
    assert message == "duplicated sysctl keys are not allowed"


@pytest.mark.parametrize(
    "name, path",
    [
        ("net.ipv4.ip_forward", "net/ipv4/ip_forward"),
        ("net/ipv4/ip_forward", "net/ipv4/ip_forward"),
        ("net.ipv4.conf.IFNAME.arp_notify", "net/ipv4/conf/eth0.7/arp_notify"),
        ("net.ipv4.conf.eth1/7.arp_notify", "net/ipv4/conf/eth1.7/arp_notify"),
        ("net/ipv4/conf/eth1.7/arp_notify", "net/ipv4/conf/eth1.7/arp_notify"),
        ("/net/ipv4/conf/eth1.7/arp_notify", "net/ipv4/conf/eth1.7/arp_notify"),
        ("net//ipv4/./ip_forward", "net/ipv4/ip_forward"),
        ("net/ipv4/IFNAME/IFNAME", "net/ipv4/eth0.7/IFNAME"),
        ("net/x", "net/x"),
    ],
)
def test_paths_of_settings(name, path):
    assert tuning.path_of(name, "eth0.7") == path


@pytest.mark.parametrize(
    "name, shown",
    [
        ("kernel.shmmax", "kernel/shmmax"),
        ("net/../kernel/shmmax", "net/../kernel/shmmax"),
        ("net.ipv4.//.ip_forward", "net/ipv4/../ip_forward"),
        ("/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv4/ip_forward"),
        ("net", "net"),
        ("", ""),
        ("net/ipv4/a\0b", "net/ipv4/a\0b"),
        ("net/ipv4/\ud800", "net/ipv4/\ud800"),
    ],
)
def test_names_that_lead_elsewhere(name, shown):
    assert refused(lambda: tuning.path_of(name, "eth0")) == f'invalid net sysctl key: "{shown}"'


def test_the_list_of_what_is_allowed():
    lines = "^net\\.core\\.\r\n\nnet.ipv4.conf.[a-z]*.arp_notify\n"
    tuning.check_allowed(["net.core.somaxconn", "net.ipv4.conf.all.arp_notify"], lines)
    message = refused(lambda: tuning.check_allowed(["net.core.somaxconn", "net.ipv4.ip_forward"], lines))
    assert message == (
        "Sysctl net.ipv4.ip_forward is not allowed. Only the following sysctls are allowed: "
        "[^net\\.core\\. net.ipv4.conf.[a-z]*.arp_notify]"
    )
    assert refused(lambda: tuning.check_allowed([], "(")).startswith("/etc/cni/tuning/allowlist.conf: ")
    assert refused(lambda: tuning.check_allowed(["net.a"], "")).endswith("allowed: []")


def test_the_backup_file_is_upstreams():
    whole = LinkTuning(mac=Mac.parse("12:7b:79:3a:42:f7"), promisc=False, mtu=1500, allmulti=False, queue_length=1000)
    text = (
        b'{\n "mac": "12:7b:79:3a:42:f7",\n "promisc": false,\n "mtu": 1500,\n "allmulti": false,\n "txQLen": 1000\n}'
    )
    assert tuning.render_backup(whole) == text
    assert tuning.parse_backup(text) == whole
    assert tuning.parse_backup(tuning.render_backup(LinkTuning(mtu=7))) == LinkTuning(mtu=7)
    assert tuning.parse_backup(b'{"mac": "00:00:00:00:00:00", "mtu": 0}').given == {}
    for torn in (b'{"mac"', b'{"mac": "zz"}', b'{"mtu": "x"}'):
        with pytest.raises(JsonError):
            tuning.parse_backup(torn)
