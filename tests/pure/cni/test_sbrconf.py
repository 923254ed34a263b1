"""sbr's configuration."""

from ipaddress import ip_address

import pytest

from weft.cni.plugins.sbr import conf as sbr
from weft.cni.plugins.sbr.conf import SbrConf
from weft.wire.cni import CniError


def test_keys():
    assert sbr.parse({}) == SbrConf()
    config = {"table": 7, "gateways": ["10.0.0.1", "fd00::1", "10.0.0.1"], "addSourceHints": True}
    gateways = tuple(map(ip_address, config["gateways"]))
    assert sbr.parse(config) == SbrConf(table=7, gateways=gateways, source_hints=True)


@pytest.mark.parametrize(
    "config, message",
    [
        ({"table": "x"}, "failed to parse network configuration: cannot use a string as table (expected an integer)"),
        ({"gateways": ["x"]}, "failed to parse network configuration: invalid IP address: x"),
        ({"table": 0}, "invalid table 0 (must be between 1 and 4294967295)"),
        ({"gateways": ["10.0.0.1", "10.0.0.2"]}, "more than one IPv4 gateway: 10.0.0.1 and 10.0.0.2"),
    ],
)
def test_what_is_refused(config, message):
    with pytest.raises(CniError) as caught:
        sbr.parse(config)
    assert caught.value.msg == message
