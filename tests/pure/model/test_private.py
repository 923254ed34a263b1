"""Which addresses are private (flannel.md §11.3).

weft decides nothing by it, so there is no function to test: the rows hold for the networks of RFC 1918 and RFC 4193
and the containment that weft uses everywhere, of typed addresses, which strips no leading zeros (12.3.7).
"""

from ipaddress import ip_address, ip_network

import pytest

PRIVATE = [ip_network(text) for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")]


def private(text: str) -> bool:
    return any(ip_address(text) in network for network in PRIVATE)


@pytest.mark.spec("flannel.md 11.3/private-v4", cases="*.*")
@pytest.mark.spec("flannel.md 11.3/private-v6", cases="*:*")
@pytest.mark.parametrize(
    "text", ["192.168.0.1", "172.16.0.1", "172.31.0.1", "10.1.2.3", "fc00::1", "fcff::1", "fd00::1", "fdff::1"]
)
def test_these_are_private(text):
    assert private(text)


@pytest.mark.spec("flannel.md 11.3/public-v4", cases="*.*")
@pytest.mark.spec("flannel.md 11.3/public-v6", cases="*:*")
@pytest.mark.parametrize("text", ["8.8.8.8", "172.32.0.1", "192.167.0.1", "192.169.0.1", "2001::", "fe00::"])
def test_these_are_not(text):
    assert not private(text)


@pytest.mark.parametrize("text", ["::", "::a00:1", "0a00::1", "00fc::1"])
def test_leading_zeros_are_part_of_an_address(text):
    assert not private(text)
