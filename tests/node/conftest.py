"""An underlay for many tests, one of a test's own, and clusters on them."""

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.support import etcd
from tests.support.weftd import Cluster, Daemon, Underlay, clusters


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Function, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Have a failure say what the nodes were like: it may not happen again while somebody looks."""
    report = yield
    if report.failed and call.when == "call":
        for name in {"cluster", "own_cluster"} & item.funcargs.keys():
            for daemon in item.funcargs[name].daemons:
                report.sections.append((f"node {daemon.number}, {daemon.folder.name}", _describe(daemon)))
    return report


def _describe(daemon: Daemon) -> str:
    """What it is like, or why that cannot be told: the failure itself must not get lost."""
    try:
        return daemon.describe()
    except Exception as error:  # noqa: BLE001
        return repr(error)


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
