"""Addresses as numbers, which tell the families apart."""

from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given, strategies

from weft.model.net import Endpoint, address_of, number_of, with_port


@given(strategies.ip_addresses())
def test_a_number_is_of_one_address(ip):
    assert address_of(number_of(ip)) == ip


def test_addresses_of_both_families_have_different_numbers():
    assert number_of(IPv4Address("10.5.2.1")) == int(IPv4Address("10.5.2.1"))
    assert number_of(IPv6Address("::a05:201")) != number_of(IPv4Address("10.5.2.1"))
    assert number_of(IPv6Address("::")) != number_of(IPv4Address(0))


def test_an_address_stands_before_its_port():
    assert with_port(IPv4Address("10.0.0.1"), 80) == "10.0.0.1:80"
    assert with_port("fd00::1", 80) == "[fd00::1]:80"
    assert with_port("fd00::1", 0) == "fd00::1"


@pytest.mark.parametrize("text", ["10.0.0.1:80", "[fd00::1]:65535"])
def test_an_endpoint_is_read_as_it_is_said(text: str):
    assert str(Endpoint.parse(text)) == text


@pytest.mark.parametrize("text", ["", "10.0.0.1", "300.0.0.1:80", "10.0.0.1:0", "10.0.0.1:65536", "[fd00::1]:"])
def test_what_is_no_endpoint_is_refused(text: str):
    with pytest.raises(ValueError):  # noqa: PT011 - of whoever reads a part of it
        Endpoint.parse(text)
