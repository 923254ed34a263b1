"""bridge's configuration: what is read, what is refused, and what a later build will serve."""

import pytest

from weft.model.attachment import BridgeConf, Dns
from weft.wire import bridgeconf
from weft.wire.cni import CniError


def test_defaults():
    assert bridgeconf.parse({}, "") == BridgeConf()
    assert BridgeConf().bridge == "cni0"


def test_every_key_of_this_build():
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
        "unknown": {"x": 1},
    }
    assert bridgeconf.parse(config, "MAC=c2:11:22:33:44:55") == BridgeConf(
        bridge="br7",
        is_gateway=True,
        is_default_gateway=True,
        force_address=True,
        ip_masq=True,
        masq_kind="nftables",
        mtu=1400,
        hairpin=True,
        ipam_type="host-local",
        mac="c2:11:22:33:44:55",
        dns=Dns(nameservers=("8.8.8.8",), search=("a",)),
    )
    assert bridgeconf.parse({"promiscMode": True, "isGateway": True}, "").promisc


@pytest.mark.parametrize(
    "config, message",
    [
        ({"mtu": "x"}, "failed to load netconf: cannot use a string as mtu (expected an integer)"),
        ({"mtu": -1}, "invalid MTU -1 (must be between 0 and 65535)"),
        ({"mtu": 65536}, "invalid MTU 65536 (must be between 0 and 65535)"),
        ({"ipMasq": True, "ipMasqBackend": "x"}, 'unknown ipmasq backend "x"'),
        ({"hairpinMode": True, "promiscMode": True}, "cannot set hairpin mode and promiscuous mode at the same time"),
        ({"bridge": "a/b"}, "interface name contains / or : or whitespace characters"),
        ({"vlan": 100}, 'bridge: key "vlan" with value 100: not in this build'),
        ({"macspoofchk": True}, 'bridge: key "macspoofchk" with value True: not in this build'),
    ],
)
def test_what_is_refused(config, message):
    with pytest.raises(CniError) as caught:
        bridgeconf.parse(config, "")
    assert caught.value.msg == message


def test_a_masquerade_backend_only_matters_with_masquerading():
    assert bridgeconf.parse({"ipMasqBackend": "x"}, "").masq_kind == "x"


def test_keys_of_a_later_build_at_their_defaults():
    assert (
        bridgeconf.parse({"vlan": 0, "vlanTrunk": [], "macspoofchk": False, "portIsolation": None}, "") == BridgeConf()
    )


def test_del_reads_what_add_refuses():
    assert bridgeconf.parse_for_delete({"vlan": 100, "mtu": -1}).mtu == -1
    with pytest.raises(CniError, match=r"^failed to load netconf: "):
        bridgeconf.parse_for_delete({"ipMasq": "yes"})
