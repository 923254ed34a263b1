"""An underlay for many tests, one of a test's own, and clusters on them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import etcd
from tests.support.weftd import Cluster, Underlay, clusters


@pytest.fixture(scope="session")
def underlay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Underlay]:
    """An underlay whose store stays up."""
    made = Underlay(tmp_path_factory.mktemp("store") / "etcd", etcd.wheel())
    yield made
    made.close()


@pytest.fixture
def cluster(underlay: Underlay, tmp_path: Path) -> Iterator[Cluster]:
    """A cluster of the test's own on the shared underlay."""
    yield from clusters(underlay, tmp_path)


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster with an underlay and a store of its own, to be stopped, restarted and worse."""
    made = Underlay(tmp_path / "etcd", etcd.wheel())
    try:
        yield from clusters(made, tmp_path)
    finally:
        made.close()
