"""The order in which a range set's addresses are given (cni.md §4.3 and §7.7)."""

from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.cni.plugins.hostlocal import conf as ipamconf
from weft.cni.plugins.hostlocal.conf import Range


def range_of(subnet, *, gateway=1, first=1, last=None):
    net = ip_network(subnet)
    size = net.num_addresses
    base = net.network_address
    end = base + (last if last is not None else size - (2 if net.version == 4 else 1))
    return Range(subnet=net, first=base + first, last=end, gateway=base + gateway)


def given_next(ranges, *, taken=(), last=None):
    order = ipamconf.candidates(ranges, ip_address(last) if last else None)
    return next((str(ip) for ip, _ in order if str(ip) not in taken), None)


def low(*hosts):
    return tuple(f"10.0.0.{host}" for host in hosts)


ONE = (range_of("10.0.0.0/29"),)
SMALL = (range_of("10.0.0.0/30"),)
TWO = (range_of("10.0.0.0/30"), range_of("10.0.1.0/30"))
THREE = (*TWO, range_of("10.0.2.0/30"))


@pytest.mark.parametrize(
    "ranges, taken, last, expected",
    [
        pytest.param(ONE, (), None, "10.0.0.2", marks=pytest.mark.spec("cni.md A1")),
        pytest.param((range_of("2001:db8:1::/64"),), (), None, "2001:db8:1::2", marks=pytest.mark.spec("cni.md A2")),
        pytest.param(SMALL, (), None, "10.0.0.2", marks=pytest.mark.spec("cni.md A3")),
        pytest.param(ONE, low(2), None, "10.0.0.3", marks=pytest.mark.spec("cni.md A4")),
        pytest.param(ONE, (), "10.0.0.5", "10.0.0.6", marks=pytest.mark.spec("cni.md A5")),
        pytest.param(ONE, low(4, 5), "10.0.0.3", "10.0.0.6", marks=pytest.mark.spec("cni.md A6")),
        pytest.param(ONE, low(6), "10.0.0.5", "10.0.0.2", marks=pytest.mark.spec("cni.md A7")),
        pytest.param(ONE, low(2), "10.0.0.128", "10.0.0.3", marks=pytest.mark.spec("cni.md A8")),
        pytest.param(ONE, low(2, 4, 5, 6), "10.0.0.3", "10.0.0.3", marks=pytest.mark.spec("cni.md A9")),
        pytest.param(TWO, (), None, "10.0.0.2", marks=pytest.mark.spec("cni.md A10")),
        pytest.param(TWO, (), "10.0.0.2", "10.0.1.2", marks=pytest.mark.spec("cni.md A11")),
        pytest.param(THREE, (), "10.0.2.2", "10.0.0.2", marks=pytest.mark.spec("cni.md A12")),
        pytest.param(SMALL, low(2), None, None, marks=pytest.mark.spec("cni.md A13")),
        pytest.param(ONE, low(2, 3, 4, 5, 6), None, None, marks=pytest.mark.spec("cni.md A14")),
        pytest.param(TWO, ("10.0.0.2", "10.0.1.2"), None, None, marks=pytest.mark.spec("cni.md A15")),
        pytest.param(
            (range_of("10.0.0.0/29", gateway=3, first=3, last=3),),
            (),
            None,
            None,
            marks=pytest.mark.spec("cni.md A26"),
        ),
    ],
)
def test_which_address_comes_next(ranges, taken, last, expected):
    assert given_next(ranges, taken=taken, last=last) == expected


@pytest.mark.parametrize(
    "last, order", [(None, [2, 3, 4, 5, 6]), (3, [4, 5, 6, 2, 3]), (6, [2, 3, 4, 5, 6]), (200, [2, 3, 4, 5, 6])]
)
def test_the_whole_order_of_the_worked_example(last, order):
    found = ipamconf.candidates(ONE, ip_address(f"10.0.0.{last}") if last else None)
    assert [int(str(ip).rpartition(".")[2]) for ip, _ in found] == order


def test_a_gateway_is_only_skipped_in_its_own_range():
    ranges = (
        Range(
            subnet=ip_network("10.0.0.0/24"),
            first=ip_address("10.0.0.1"),
            last=ip_address("10.0.0.2"),
            gateway=ip_address("10.0.0.9"),
        ),
        Range(
            subnet=ip_network("10.0.0.0/24"),
            first=ip_address("10.0.0.9"),
            last=ip_address("10.0.0.9"),
            gateway=ip_address("10.0.0.1"),
        ),
    )
    assert [str(ip) for ip, _ in ipamconf.candidates(ranges, None)] == ["10.0.0.1", "10.0.0.2", "10.0.0.9"]


@given(start=st.integers(0, 30), gateway=st.integers(0, 31), last=st.one_of(st.none(), st.integers(0, 31)))
def test_every_address_comes_exactly_once(start, gateway, last):
    ranges = (range_of("10.0.0.0/27", gateway=gateway, first=start, last=30), range_of("10.0.1.0/30"))
    found = [ip for ip, _ in ipamconf.candidates(ranges, ip_address(f"10.0.0.{last}") if last is not None else None)]
    wanted = {ip_address(f"10.0.0.{host}") for host in range(start, 31) if host != gateway}
    assert sorted(found) == sorted(wanted | {ip_address("10.0.1.2")})


def test_a_requested_address_is_taken_from_the_range_that_has_it():
    requested = [ip_address("10.0.2.2"), ip_address("10.0.1.2")]
    found = ipamconf.pick_requested(TWO, requested)
    assert found == (ip_address("10.0.1.2"), TWO[1])
    assert ipamconf.pick_requested(SMALL, requested) is None


@pytest.mark.spec("cni.md G12")
@pytest.mark.parametrize(
    "first, last, before, after",
    [
        ("192.168.0.250", "192.168.1.9", "192.168.0.255", "192.168.1.0"),
        ("0.1.0.1", "0.1.0.9", "0.1.0.5", "0.1.0.6"),
        ("ab12::fff0", "ab12::1:9", "ab12::ffff", "ab12::1:0"),
    ],
)
def test_addresses_follow_each_other_across_their_bytes(first, last, before, after):
    net = ip_network("::/0" if ":" in first else "0.0.0.0/0")
    ends = ip_address(first), ip_address(last)
    ranges = (Range(subnet=net, first=ends[0], last=ends[1], gateway=ends[1]),)
    assert given_next(ranges, last=before) == after
    assert [str(ip) for ip, _ in ipamconf.candidates(ranges, ip_address(after))][-2:] == [before, after]
