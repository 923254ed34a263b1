"""ptp's configuration: what is read, and what is refused."""

import pytest

from weft.cni.attachment.conf import DeleteConf
from weft.cni.plugins import ptp
from weft.cni.plugins.ptp import PtpConf
from weft.model.attachment import Dns
from weft.wire.cni import CniError

IPAM = {"ipam": {"type": "host-local"}}


def test_every_key():
    config = {"ipMasq": True, "ipMasqBackend": "nftables", "mtu": 1400, "dns": {"domain": "d"}, "vlan": 7, **IPAM}
    assert ptp.parse(config) == PtpConf(
        ip_masq=True, masq_kind="nftables", mtu=1400, ipam_type="host-local", dns=Dns(domain="d")
    )


@pytest.mark.parametrize(
    "config, message",
    [
        ({}, "no plugin name provided"),
        ({"mtu": "x"}, "failed to load netconf: cannot use a string as mtu (expected an integer)"),
        ({"mtu": -1, **IPAM}, "invalid MTU -1 (must be between 0 and 65535)"),
        ({"ipMasq": True, "ipMasqBackend": "x", **IPAM}, 'unknown ipmasq backend "x"'),
    ],
)
def test_what_is_refused(config, message):
    with pytest.raises(CniError) as caught:
        ptp.parse(config)
    assert caught.value.msg == message


def test_del_reads_no_key_that_it_does_not_need():
    config = {"mtu": "x", "ipMasqBackend": 5, "dns": [], "macspoofchk": "bridge's", "ipMasq": True, **IPAM}
    assert ptp.parse_for_delete(config) == DeleteConf(ip_masq=True, ipam_type="host-local")
