"""Namespaces for all kernel tests, an uplink and a VTEP in one, pyroute2 as oracle; clients of plugins and a daemon."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from pyroute2 import IPRoute

from tests.kernel.cniclient import compiled, fake_interpreter
from tests.kernel.hostports import Ports
from tests.support.cni.daemon import CniDaemon
from tests.support.cni.site import Site
from tests.support.netns import Losable, Netns, make_netns, netns
from weft.cni import build
from weft.cni.install.executables import install
from weft.model.net import Mac

__all__ = ["make_netns", "netns"]


@pytest.fixture
def pyroute2(netns: Netns) -> Callable[[Callable[[IPRoute], Any]], list[Any]]:
    """Asks pyroute2, which opens its sockets late, so that all of it happens inside."""

    def ask(question: Callable[[IPRoute], Any]) -> list[Any]:
        def inside() -> list[Any]:
            with IPRoute() as oracle:
                return list(question(oracle))

        return netns.call(inside)

    return ask


@pytest.fixture
def eth0(netns: Netns) -> int:
    return netns.bridge("eth0", "10.0.0.1/24", "fd00::1/64")


@pytest.fixture
def vtep(netns: Netns, eth0: int) -> int:
    netns.run("ip link add flannel.1 type vxlan id 1 dstport 8472 local 10.0.0.1 dev eth0 nolearning")
    made = netns.rtnl.link("flannel.1")
    assert made is not None
    netns.rtnl.set_link(made.index, up=True, mac=Mac.parse("02:00:00:00:01:07"))
    return made.index


@pytest.fixture
def site(netns: Netns, tmp_path: Path) -> Site:
    """A node on which plugins are called."""
    return Site(netns, tmp_path)


@pytest.fixture
def make_losable() -> Iterator[Callable[[], Losable]]:
    """Namespaces whose path may lead elsewhere by and by."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(Losable())


@pytest.fixture
def ports(netns: Netns, tmp_path: Path) -> Ports:
    """A node with portmap."""
    return Ports(netns, tmp_path / "site")


@pytest.fixture
def pods(ports: Ports, make_netns: Callable[[], Netns]) -> list[Netns]:
    """Two pods, attached as c1 and c2: 10.1.2.2 and 10.1.2.3."""
    made = [make_netns(), make_netns()]
    for number, pod in enumerate(made, 1):
        ports.attach(pod, f"c{number}")
    return made


@pytest.fixture
def pod(make_netns: Callable[[], Netns]) -> Netns:
    """The namespace of a container."""
    return make_netns()


@pytest.fixture(scope="module")
def bin_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    assert build.PROGRAM.build(), "musl-gcc is missing"
    return install(tmp_path_factory.mktemp("bin")).bin_dir


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory, bin_dir: Path) -> Iterator[CniDaemon]:
    with Netns() as netns:
        started = CniDaemon(tmp_path_factory.mktemp("daemon"), netns, bin_dir)
        yield started
        assert started.stop() == 0


@pytest.fixture
def own_daemon(tmp_path: Path, bin_dir: Path, netns: Netns) -> Iterator[CniDaemon]:
    started = CniDaemon(tmp_path / "d", netns, bin_dir, limit=0.5)
    yield started
    started.stop()


@pytest.fixture(scope="module")
def program() -> Path:
    built = build.PROGRAM.build()
    assert built, "musl-gcc is missing"
    return built


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The client with limits of seconds."""
    # Of a large request the stand-in reads the end once its interpreter has started.
    limits = ["-DSEND_SECONDS=4", "-DBEGIN_SECONDS=1", "-DANSWER_SECONDS=4", "-DCOMING_SECONDS=1"]
    return compiled(tmp_path_factory.mktemp("hasty"), "musl-gcc", *limits, "-static")


@pytest.fixture
def clients(tmp_path: Path, program: Path) -> Path:
    """A directory with the client as `bridge`, and an interpreter that tells what a stand-in is asked for."""
    directory = tmp_path / "bin"
    directory.mkdir()
    shutil.copy2(program, directory / "bridge")
    fake_interpreter(directory / "python")
    (directory / ".weft-python").write_text(f"{directory}/python\n")
    return directory
