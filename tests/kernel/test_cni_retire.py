"""Links are deleted after the answer: all of them, by index, in groups, and after a crash too."""

import time
from collections.abc import Iterator

import pytest

from tests.support.netns import Netns
from tests.support.waiting import eventually, in_time
from weft.cni.attachment.retire import Retirement
from weft.cni.host.host import RETIRED


@pytest.fixture
def retirement(netns: Netns) -> Iterator[Retirement]:
    made = netns.call(Retirement)
    yield made
    made.close()


def pair(netns: Netns, name: str) -> int:
    return netns.rtnl.add_veth(name, peer=f"{name}p").index


def names(netns: Netns) -> list[str]:
    return [link.name for link in netns.rtnl.links() if not link.loopback]


def test_forty_links_are_gone_soon(netns: Netns, retirement: Retirement):
    indexes = [pair(netns, f"v{number}") for number in range(40)]
    start = time.monotonic()
    for index in indexes:
        retirement.retire(index)
    assert in_time(start, 0.3), "the caller has waited for the kernel"
    eventually(lambda: not names(netns), seconds=5)


def test_a_successor_of_the_same_name_lives(netns: Netns, retirement: Retirement):
    old = pair(netns, "eth0")
    netns.rtnl.set_link(old, name="gone1")
    netns.rtnl.set_link(netns.rtnl.link("eth0p").index, name="gone2")
    retirement.retire(old)
    new = pair(netns, "eth0")
    eventually(lambda: netns.rtnl.link(old) is None, seconds=5)
    assert netns.rtnl.link(new) is not None


def test_links_that_went_by_themselves_harm_nobody(netns: Netns, retirement: Retirement):
    gone, left = pair(netns, "a"), pair(netns, "b")
    netns.rtnl.delete_link(gone)
    for index in (gone, left, 99999):
        retirement.retire(index)
    eventually(lambda: netns.rtnl.link(left) is None, seconds=5)
    retirement.retire(gone)
    other = pair(netns, "c")
    retirement.retire(other)
    eventually(lambda: netns.rtnl.link(other) is None, seconds=5)


def test_what_a_crash_has_left_is_swept_at_the_start(netns: Netns):
    left, live = pair(netns, "left"), pair(netns, "live")
    netns.rtnl.set_link(left, alias=RETIRED)
    netns.rtnl.set_link(live, alias="weft:bridge")
    retirement = netns.call(Retirement)
    eventually(lambda: netns.rtnl.link(left) is None, seconds=5)
    assert netns.rtnl.link(live) is not None
    retirement.close()


def test_closing_deletes_what_waits(netns: Netns):
    indexes = [pair(netns, f"v{number}") for number in range(20)]
    retirement = netns.call(Retirement)
    for index in indexes:
        retirement.retire(index)
    retirement.close()
    assert names(netns) == []


def test_it_works_in_its_own_namespace_alone(netns: Netns, make_netns):
    other = make_netns()
    index = pair(netns, "eth0")
    assert pair(other, "eth0") == index
    retirement = netns.call(Retirement)
    retirement.retire(index)
    retirement.close()
    assert netns.rtnl.link(index) is None
    assert other.rtnl.link(index) is not None
