"""Elements of a table of our own, which many change at once: the table is made once, and every change holds."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from tests.support.netns import Netns
from weft.cni.host import nftsets
from weft.kernel.netfilter.nfnetlink import NfSocket
from weft.model.kernel.nftset import Add, Delete, Element, Table, replacing
from weft.wire.cni import CniError

TABLE = Table("inet", "try")


def frame(present):
    return [] if present else [f"create table {TABLE}", f"create set {TABLE} pods {{ type ipv4_addr; }}"]


def pod(last, comment="mine"):
    return Element(set="pods", key=bytes((10, 0, 0, last)), comment=comment)


@pytest.fixture
def inside(netns: Netns):
    """Call a function with a socket of its own, in the namespace."""

    def call(function: Callable[[NfSocket], object]):
        def opened():
            with closing(NfSocket.open()) as nf:
                return function(nf)

        return netns.call(opened)

    return call


def put(*elements):
    return lambda nf: nftsets.put(nf, TABLE, elements, replacing, frame)


def listed(nf):
    return sorted(nf.elements(TABLE, "pods"), key=lambda each: each.key)


def test_many_who_find_no_table_make_it_once(inside):
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda last: inside(put(pod(last))), range(1, 17)))
    assert inside(listed) == [pod(last) for last in range(1, 17)]


def test_what_is_there_stays_and_what_is_another_is_replaced(inside):
    inside(put(pod(1), pod(2, "another's")))
    inside(put(pod(1), pod(2), pod(3)))
    assert inside(listed) == [pod(1), pod(2), pod(3)]


def test_what_somebody_else_removes_meanwhile_is_removed(inside):
    inside(put(pod(1), pod(2), pod(3)))

    def remove(nf):
        def look():
            found = listed(nf)
            inside(lambda other: other.transaction(TABLE, [Delete(pod(2))]))
            return found[:2]

        return nftsets.remove(nf, TABLE, look)

    assert inside(remove) == 2
    assert inside(listed) == []  # as it looked a second time, and found the third


def test_nothing_is_there_to_remove_without_the_table(inside):
    assert inside(lambda nf: nftsets.remove(nf, TABLE, list)) == 0
    with pytest.raises(CniError, match="table inet try keeps changing"):
        inside(lambda nf: nftsets.remove(nf, TABLE, lambda: [pod(1)]))


def test_a_change_that_never_holds_is_given_up(inside):
    inside(put(pod(1)))
    looks = []

    def look():
        looks.append(1)
        return [Add(pod(1)), Add(pod(2))]

    with pytest.raises(CniError, match="table inet try keeps changing"):
        inside(lambda nf: nftsets.change(nf, TABLE, [Add(pod(1))], look, frame))
    assert len(looks) > 1
    assert inside(listed) == [pod(1)]


def test_what_the_kernel_refuses_for_what_it_is_is_said_at_once(inside):
    inside(put(pod(1)))
    looks = []
    too_long = Element(set="pods", key=bytes(8), comment="mine")
    with pytest.raises(CniError, match=r"table inet try: the kernel refuses a change: .*[Ii]nvalid argument"):
        inside(lambda nf: nftsets.change(nf, TABLE, [Add(pod(1)), Add(too_long)], lambda: looks.append(1) or [], frame))
    assert not looks


def test_a_table_that_nft_refuses_is_said_with_its_reason(inside):
    with pytest.raises(nftsets.Unusable, match="table inet try cannot be made: running nft"):
        inside(lambda nf: nftsets.put(nf, TABLE, [pod(1)], replacing, lambda _: ["nonsense"]))
