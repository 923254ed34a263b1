"""firewall's configuration: defaults, spellings, and names that could not stand in a rule."""

import pytest

from weft.cni.plugins.firewall import conf as firewallconf
from weft.cni.plugins.firewall.conf import DeleteConf, FirewallConf
from weft.wire.cni import CniError


def test_keys():
    assert firewallconf.parse({}) == FirewallConf(backend="", zone="trusted", admin_chain="CNI-ADMIN", policy="open")
    config = {
        "backend": "nft",
        "firewalldZone": "z",
        "iptablesAdminChainName": "CNI-foobar",
        "ingressPolicy": "same-bridge",
    }
    expected = FirewallConf(backend="nftables", zone="z", admin_chain="CNI-foobar", policy="same-bridge")
    assert firewallconf.parse(config) == expected
    assert firewallconf.parse({"backend": "nftables"}).backend == "nftables"


@pytest.mark.parametrize(
    "config, message",
    [
        ({"backend": "x"}, 'unknown backend: "x"'),
        ({"backend": 5}, "failed to load netconf: cannot use an integer as backend (expected a string)"),
        ({"ingressPolicy": "x"}, 'unknown ingress policy: "x"'),
        ({"iptablesAdminChainName": "a b"}, 'invalid iptablesAdminChainName: "a b"'),
        ({"iptablesAdminChainName": "-A"}, 'invalid iptablesAdminChainName: "-A"'),
        ({"iptablesAdminChainName": "x" * 29}, f'invalid iptablesAdminChainName: "{"x" * 29}"'),
    ],
)
def test_what_is_refused(config, message):
    with pytest.raises(CniError) as caught:
        firewallconf.parse(config)
    assert caught.value.msg == message


def test_del_reads_no_key_that_it_does_not_need():
    config = {"backend": "x", "ingressPolicy": 5, "iptablesAdminChainName": ["y"]}
    assert firewallconf.parse_for_delete(config) == DeleteConf(backend="x")


@pytest.mark.parametrize("name", ["", "a b", 'a"', "br+", "!x", "-x", "a\nb", "ä", "a\\b", "a*"])
def test_names_that_are_no_words(name):
    assert not firewallconf.is_word(name)


@pytest.mark.parametrize("name", ["cni0", "br-lan.7", "CNI-ADMIN", "KUBE:x", "a@b", "_"])
def test_names_that_are(name):
    assert firewallconf.is_word(name)
