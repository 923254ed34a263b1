"""Namespaces: made, entered by threads and children of their own, and left behind without a trace."""

import os
import threading

import pytest

from tests.support import namespaces
from tests.support.netns import Netns
from weft.kernel.rtnetlink.rtnl import Rtnl


def test_only_the_thread_that_was_asked_is_inside(netns: Netns) -> None:
    outside = namespaces.open_own()
    inside = netns.call(namespaces.open_own)
    try:
        assert namespaces.same(inside, netns.fd)
        assert not namespaces.same(outside, netns.fd)
        again = namespaces.open_own()
        assert namespaces.same(outside, again)
        os.close(again)
    finally:
        os.close(outside)
        os.close(inside)


def test_no_thread_is_left_behind(netns: Netns) -> None:
    before = threading.active_count()
    netns.call(lambda: None)
    assert threading.active_count() == before


def test_what_is_raised_inside_is_raised_outside(netns: Netns) -> None:
    with pytest.raises(ZeroDivisionError):
        netns.call(lambda: 1 // 0)
    with pytest.raises(OSError, match="setns"), open(os.devnull) as no_namespace:  # noqa: PTH123
        namespaces.run_in(no_namespace.fileno(), lambda: None)


def test_a_namespace_by_path(netns: Netns) -> None:
    again = namespaces.open_path(netns.path)
    assert namespaces.same(again, netns.fd)
    with namespaces.rtnl_in(again) as rtnl:
        rtnl.add_bridge("br0")
    os.close(again)
    assert netns.run("ip -br link show br0")


def test_a_forked_child_inside(netns: Netns) -> None:
    def make() -> None:
        with Rtnl.open() as rtnl:
            rtnl.add_bridge("child0")

    assert netns.fork(make) == 0
    assert netns.rtnl.link("child0") is not None
    assert netns.fork(lambda: 1 // 0) == 1
    assert netns.fork(lambda: os._exit(7)) == 7


def test_what_was_started_inside_ends_with_it() -> None:
    with Netns() as netns:
        child = netns.popen("sleep 1000 & sleep 1000")
    assert child.returncode == -9


def test_what_this_kernel_can_do(netns: Netns) -> None:
    """The probe and `ip link add` agree on every kind, and the probe leaves nothing behind."""
    kinds = {"veth", "bridge", "vxlan", "dummy", "wireguard", "ipip", "macvlan", "nonsense"}
    known = {kind for kind in kinds if netns.rtnl.knows(kind)}
    assert [link.name for link in netns.rtnl.links()] == ["lo"]
    assert {"veth", "bridge", "vxlan"} <= known
    for kind in kinds:
        told = netns.popen(["ip", "link", "add", f"x-{kind}", "type", kind], stderr=-1)
        _, errors = told.communicate(timeout=200)
        assert (b"Unknown device type" in errors or b"not supported" in errors) == (kind not in known), (kind, errors)
