"""bridge's configuration: what is read, and what is refused."""

import pytest

from weft.cni.plugins.bridge import conf as bridgeconf
from weft.cni.plugins.bridge.conf import BridgeConf, BridgeDeleteConf
from weft.model.attachment import Dns
from weft.model.value import replace
from weft.wire.cni import CniError


def test_defaults():
    assert bridgeconf.parse({}, "") == BridgeConf()
    assert BridgeConf().bridge == "cni0"


def test_every_key():
    config = {
        "bridge": "br7",
        "isDefaultGateway": True,
        "forceAddress": True,
        "ipMasq": True,
        "ipMasqBackend": "nftables",
        "mtu": 1400,
        "hairpinMode": True,
        "ipam": {"type": "host-local"},
        "dns": {"nameservers": ["8.8.8.8"], "search": ["a"]},
        "vlan": 100,
        "preserveDefaultVlan": True,
        "macspoofchk": True,
        "enabledad": True,
        "portIsolation": True,
        "unknown": {"x": 1},
    }
    conf = bridgeconf.parse(config, "MAC=c2:11:22:33:44:55")
    assert conf == BridgeConf(
        bridge="br7",
        is_gateway=True,
        is_default_gateway=True,
        force_address=True,
        ip_masq=True,
        masq_kind="nftables",
        mtu=1400,
        hairpin=True,
        vlan=100,
        keep_default_vlan=True,
        spoof_check=True,
        detect_duplicates=True,
        isolated=True,
        ipam_type="host-local",
        mac="c2:11:22:33:44:55",
        dns=Dns(nameservers=("8.8.8.8",), search=("a",)),
    )
    assert (conf.trunk, conf.vlan_filtering) == ((), True)
    assert not BridgeConf().vlan_filtering
    assert bridgeconf.parse({"promiscMode": True, "isGateway": True}, "").promisc
    assert bridgeconf.parse({"disableContainerInterface": True}, "").container_down


@pytest.mark.parametrize(
    "config, message",
    [
        ({"mtu": "x"}, "failed to load netconf: cannot use a string as mtu (expected an integer)"),
        ({"mtu": -1}, "invalid MTU -1 (must be between 0 and 65535)"),
        ({"mtu": 65536}, "invalid MTU 65536 (must be between 0 and 65535)"),
        ({"ipMasq": True, "ipMasqBackend": "x"}, 'unknown ipmasq backend "x"'),
        ({"hairpinMode": True, "promiscMode": True}, "cannot set hairpin mode and promiscuous mode at the same time"),
        ({"bridge": "a/b"}, "interface name contains / or : or whitespace characters"),
        pytest.param(
            {"vlan": -100},
            "invalid VLAN ID -100 (must be between 0 and 4094)",
            marks=pytest.mark.spec("cni.md B10"),
        ),
        pytest.param(
            {"vlan": 5000},
            "invalid VLAN ID 5000 (must be between 0 and 4094)",
            marks=pytest.mark.spec("cni.md B10"),
        ),
        ({"vlanTrunk": [7]}, "failed to load netconf: cannot use an integer as vlanTrunk[0] (expected an object)"),
        ({"macspoofchk": 1}, "failed to load netconf: cannot use an integer as macspoofchk (expected a boolean)"),
        (
            {"disableContainerInterface": True, "ipam": {"type": "static"}},
            "cannot use IPAM when DisableContainerInterface flag is set",
        ),
    ],
)
def test_what_is_refused(config, message):
    with pytest.raises(CniError) as caught:
        bridgeconf.parse(config, "")
    code = 4 if message.startswith("interface name") else 999  # the framework's own, for a name of the kernel's
    assert (caught.value.code, caught.value.msg) == (code, message)


def test_a_masquerade_backend_only_matters_with_masquerading():
    assert bridgeconf.parse({"ipMasqBackend": "x"}, "").masq_kind == "x"


@pytest.mark.spec("cni.md B8")
@pytest.mark.parametrize(
    "items, ids",
    [
        ([], ()),
        ([{}], ()),
        ([{"id": 101}, {"id": 101}], (101,)),
        ([{"minID": 100, "maxID": 105}], (100, 101, 102, 103, 104, 105)),
        ([{"id": 10}, {"minID": 100, "maxID": 105}], (10, 100, 101, 102, 103, 104, 105)),
        ([{"minID": 1, "maxID": 2, "id": 4094}], (1, 2, 4094)),
    ],
)
def test_the_vlans_of_a_trunk(items, ids):
    conf = bridgeconf.parse({"vlanTrunk": items}, "")
    assert (conf.trunk, conf.vlan_filtering) == (ids, True)
    assert replace(conf, trunks=None) == BridgeConf()


@pytest.mark.spec("cni.md B9")
@pytest.mark.parametrize(
    "item, message",
    [
        ({"minID": 100}, "minID and maxID should be configured simultaneously, maxID is missing"),
        ({"maxID": 100}, "minID and maxID should be configured simultaneously, minID is missing"),
        ({"minID": -1, "maxID": 100}, "incorrect trunk minID parameter"),
        ({"minID": 5000, "maxID": 5001}, "incorrect trunk minID parameter"),
        ({"minID": 100, "maxID": 5000}, "incorrect trunk maxID parameter"),
        ({"id": 5000}, "incorrect trunk id parameter"),
        ({"id": -1}, "incorrect trunk id parameter"),
        ({"minID": 1000, "maxID": 100}, "minID is greater than maxID in trunk parameter"),
    ],
)
def test_what_is_no_trunk(item, message):
    with pytest.raises(CniError) as caught:
        bridgeconf.parse({"vlanTrunk": [{"id": 7}, item]}, "")
    assert (caught.value.code, caught.value.msg) == (999, message)


def test_keys_at_their_defaults():
    assert bridgeconf.parse({"vlan": 0, "vlanTrunk": None, "macspoofchk": False, "portIsolation": None}, "") == (
        BridgeConf()
    )


@pytest.mark.parametrize("trunk", [[{"id": 5000}], [{"id": "7"}], [7], "7"])
def test_del_reads_no_key_that_it_does_not_need(trunk):
    needed = {"ipMasq": True, "macspoofchk": True, "ipam": {"type": "host-local"}}
    config = {"vlan": -1, "vlanTrunk": trunk, "mtu": "x", "dns": [], "runtimeConfig": 5, **needed}
    assert bridgeconf.parse_for_delete(config) == BridgeDeleteConf(
        ip_masq=True, ipam_type="host-local", spoof_check=True
    )
    with pytest.raises(CniError, match=r"^failed to load netconf: "):
        bridgeconf.parse_for_delete({"ipMasq": "yes"})


@pytest.mark.parametrize(
    "config, there",
    [
        ({"ipMasq": True, "ipam": {"type": "host-local"}}, True),
        ({"ipMasq": True}, False),
        ({"ipam": {"type": "host-local"}}, False),
    ],
)
def test_del_looks_for_masquerade_rules_where_addresses_were_masqueraded(config, there):
    assert bridgeconf.parse_for_delete(config).masquerades is there
