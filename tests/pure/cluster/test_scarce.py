"""When a network is nearly full, which the log says: from a fifth of free subnets on, in whichever family."""

from typing import Any

import pytest

from tests.support import builders
from weft.cluster.etcd.own import _warn_when_scarce
from weft.cluster.etcd.values import Entry, Listing, Mark
from weft.config.netconf import Pool
from weft.desired.backends import vxlan
from weft.model.value import replace


def warned(caplog: pytest.LogCaptureFixture, *, taken: int, v4: int = 0, v6: int = 0) -> str:
    """Warn of a network with so many subnets in each family, of which the first ones are taken."""
    pools = {
        "v4": Pool(network=builders.NETWORK_V4, subnet_len=24, first=of_v4(1), last=of_v4(v4)) if v4 else None,
        "v6": Pool(network=builders.NETWORK_V6, subnet_len=64, first=of_v6(1), last=of_v6(v6)) if v6 else None,
    }
    entries = tuple(
        Entry(replace(builders.lease(node, vxlan), v6=builders.subnet_v6(node)), 1, 1) for node in range(1, taken + 1)
    )
    netconf = replace(builders.netconf(family="46"), **pools)
    caplog.clear()
    _warn_when_scarce(netconf, Listing(mark=Mark(revision=1, cluster=1, term=1), entries=entries))
    return "".join(record.getMessage() for record in caplog.records)


def of_v4(node: int) -> Any:
    return builders.subnet_v4(node).network_address


def of_v6(node: int) -> Any:
    return builders.subnet_v6(node).network_address


def said(taken: int, total: int) -> str:
    return f"LEASE-003 {taken} of {total} node subnets are taken: room for {total - taken} more nodes"


def test_a_fifth_of_free_subnets_is_scarce_and_more_is_not(caplog):
    assert warned(caplog, v4=5, taken=3) == ""
    assert warned(caplog, v4=5, taken=4) == said(4, 5)
    assert warned(caplog, v4=9, taken=7) == ""
    assert warned(caplog, v4=11, taken=9) == said(9, 11)
    assert warned(caplog, v4=5, taken=5) == said(5, 5)


def test_the_family_with_less_room_counts(caplog):
    assert warned(caplog, v6=5, taken=4) == said(4, 5)
    assert warned(caplog, v4=200, v6=5, taken=4) == said(4, 5)
    assert warned(caplog, v4=5, v6=200, taken=4) == said(4, 5)
    assert warned(caplog, v4=200, v6=200, taken=4) == ""
