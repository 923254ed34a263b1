"""What ipsec makes of a configuration: charon has the peers, and what it has not goes nowhere."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.node import ipsecnode
from tests.node.states.said import Case, comes, configured
from tests.support.weftd import Cluster, Underlay, clusters

NOWHERE = "route blackhole 10.5.0.0/16 metric 1073741824"
CASES = {
    "no peer": Case(options={"PSK": ipsecnode.PSK}, says=NOWHERE),
    "one peer": Case(options={"PSK": ipsecnode.PSK}, peers=({},), says=NOWHERE),
}


@pytest.fixture
def cluster(underlay: Underlay) -> Iterator[Cluster]:
    """In a directory with a short name: a path to a socket has 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="weft-") as folder:
        yield from clusters(underlay, Path(folder))


@pytest.mark.parametrize("case", CASES)
def test_what_is_said(cluster: Cluster, case: str):
    node = configured(cluster, "ipsec", CASES[case])
    try:
        comes(node.start(), CASES[case])
    finally:
        ipsecnode.end_charons(cluster)
