"""Namespaces for all kernel tests, an uplink and a VTEP in one, and pyroute2 as oracle."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyroute2 import IPRoute

from tests.support.cni.site import Site
from tests.support.netns import Netns, make_netns, netns
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
def pod(make_netns: Callable[[], Netns]) -> Netns:
    """The namespace of a container."""
    return make_netns()
