"""What all tests with real runtimes share: our plugins in a bin directory, an image, an underlay with its store."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runtime import ociimage
from tests.runtime.machine import remove_stale_cgroups
from tests.support import etcd
from tests.support.weftd import Underlay
from weft.cni.install.executables import install


@pytest.fixture(scope="session", autouse=True)
def _cgroups() -> None:
    remove_stale_cgroups()


@pytest.fixture(scope="session")
def bin_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CNI bin directory with weft's plugins and nothing else."""
    return install(tmp_path_factory.mktemp("bin")).bin_dir


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What runtimes load for containers, and for pods where these have a container of their own."""
    path = tmp_path_factory.mktemp("image") / "busybox.tar"
    ociimage.write(path)
    return path


@pytest.fixture(scope="session")
def underlay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Underlay]:
    made = Underlay(tmp_path_factory.mktemp("store") / "etcd", etcd.wheel())
    yield made
    made.close()
