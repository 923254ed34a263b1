"""Blocks of a mesh's network: how many there are, which are never given, and what subnets they are."""

import json
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

import pytest

from weft.config.blocks import asked_at, layout_of, subnets_of
from weft.config.netconf import NetConf, parse_netconf
from weft.desired.backends import BACKENDS
from weft.model.errors import ConfigError


def netconf(**keys) -> tuple[str, NetConf]:
    text = json.dumps({**keys, "Backend": {"Type": "vxlan"}})
    return text, parse_netconf(text, backends=BACKENDS)


BOTH = {"Network": "10.0.0.0/16", "EnableIPv6": True, "IPv6Network": "fd00::/56", "IPv6SubnetLen": 64}


@pytest.mark.parametrize(
    "keys, blocks, first",
    [
        ({"Network": "10.32.0.0/12"}, 4096, 32),  # two addresses for each block, 256 in a block
        ({"Network": "10.244.0.0/16"}, 256, 2),
        ({"Network": "10.0.0.0/28"}, 4, 2),
        ({"Network": "10.0.0.0/24", "SubnetLen": 26}, 4, 1),  # the first subnet is never given, as flannel has it
        ({"Network": "10.0.0.0/16", "SubnetMin": "10.0.16.0", "SubnetMax": "10.0.31.0"}, 32, 16),
        ({"Network": "10.0.0.0/8"}, 65536, 512),
        ({"Network": "10.0.0.0/8", "SubnetLen": 28}, 65536, 8192),  # more nodes than that no mesh has
        (BOTH, 256, 2),
        ({"EnableIPv4": False, "EnableIPv6": True, "IPv6Network": "fd00::/32"}, 65536, 1),
    ],
)
def test_a_network_has_blocks_of_which_the_first_are_never_given(keys, blocks, first):
    text, parsed = netconf(**keys)
    layout = layout_of(text, parsed)
    assert (layout.net_conf, layout.blocks, layout.first) == (text, blocks, first)


def test_a_network_without_room_is_refused():
    with pytest.raises(ConfigError) as caught:
        layout_of(*netconf(**BOTH, SubnetMax="10.0.1.0", IPv6SubnetMin="fd00:0:0:7::"))
    assert caught.value.problems[0].code == "CONF-002"
    assert "all of the 2 subnets" in str(caught.value)


def test_a_block_is_a_subnet_of_each_family():
    _, both = netconf(**BOTH)
    assert subnets_of(both, 7) == (IPv4Network("10.0.7.0/24"), IPv6Network("fd00:0:0:7::/64"))
    _, v4 = netconf(Network="10.32.0.0/12", SubnetMin="10.32.40.0")
    assert subnets_of(v4, 40) == (IPv4Network("10.32.40.0/24"), None)  # from the network on, not from SubnetMin
    _, v6 = netconf(EnableIPv4=False, EnableIPv6=True, IPv6Network="fd00::/32")
    assert subnets_of(v6, 1) == (None, IPv6Network("fd00:0:0:1::/64"))


def test_each_block_has_addresses_at_which_its_paths_are_asked():
    """In blocks that are never given: first those of WireGuard."""
    _, both = netconf(**BOTH)
    v4, v6 = IPv4Network("10.0.7.0/24"), IPv6Network("fd00:0:0:7::/64")
    assert [asked_at(both, v4, "direct"), asked_at(both, v4, "vxlan")] == [
        IPv4Address("10.0.0.7"),
        IPv4Address("10.0.1.7"),
    ]
    assert [asked_at(both, v6, "direct"), asked_at(both, v6, "vxlan")] == [
        IPv6Address("fd00::7"),
        IPv6Address("fd00::107"),
    ]
    _, wide = netconf(Network="10.32.0.0/12")
    assert asked_at(wide, IPv4Network("10.32.40.0/24"), "vxlan") == IPv4Address("10.32.16.40")
