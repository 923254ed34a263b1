"""Open connections are judged after a change: one walk for a burst, when the kernel has what was decided."""

import asyncio
import threading
from ipaddress import ip_address

import pytest

from tests.support.waiting import comes
from weft.daemon import policycuts
from weft.daemon.policycuts import Cuts

A, B, C = (ip_address(f"10.5.1.{last}") for last in (2, 3, 4))


class Judge:
    def forbids(self, *_):
        return True


class Node:
    """A kernel that says what it was asked for, and policies that are in it or not yet."""

    def __init__(self):
        self.asked, self.judge, self.answer, self.shut = [], Judge(), 1, 0
        self.may_end = threading.Event()
        self.may_end.set()
        self.cuts = Cuts(self.cut)

    def connections(self):
        return self.judge

    def cut(self, _forbids, of):
        self.asked.append(of if of is None else set(of))
        self.may_end.wait()
        if isinstance(self.answer, OSError):
            raise self.answer
        return self.answer, self.shut


@pytest.fixture
async def node(monkeypatch):
    monkeypatch.setattr(policycuts, "_RETRY_SECONDS", 0.01)
    made = Node()
    running = asyncio.ensure_future(made.cuts.run(made))
    yield made
    made.may_end.set()
    running.cancel()


async def test_what_comes_while_the_kernel_is_asked_is_one_more_walk(node):
    node.may_end.clear()
    node.cuts.concern({A.packed})
    await comes(lambda: node.asked == [{A.packed}])
    for ip in (B, C):
        node.cuts.concern({ip.packed})
    assert all(node.cuts.concerns([ip]) for ip in (A, B, C))
    node.may_end.set()
    await comes(lambda: node.asked == [{A.packed}, {B.packed, C.packed}])
    await comes(lambda: not node.cuts.concerns([A, B, C]))
    assert node.cuts.done == 2


async def test_nothing_is_judged_before_packets_are_led_by_what_was_decided(node):
    judge, node.judge = node.judge, None
    node.cuts.everything()
    await asyncio.sleep(0.05)
    assert node.asked == []
    assert node.cuts.concerns([A])
    node.judge = judge
    await comes(lambda: node.asked == [None])
    await comes(lambda: not node.cuts.concerns([A]))


async def test_a_change_that_concerns_nobody_costs_nothing(node):
    node.cuts.concern(set())
    await asyncio.sleep(0.02)
    assert (node.asked, node.cuts.done) == ([], 0)


async def test_what_is_shut_is_judged_after_each_change_until_nothing_is(node):
    node.shut = 1
    node.cuts.concern({A.packed})
    await comes(lambda: node.asked == [{A.packed}])
    for asked in (2, 3):
        await comes(lambda: not node.cuts.concerns([A]))
        node.cuts.concern(set())
        await comes(lambda asked=asked: len(node.asked) == asked)
        assert node.asked[-1] == set()
        node.shut = 0
    await comes(lambda: node.cuts._shut == 0)
    node.cuts.concern(set())
    await asyncio.sleep(0.05)
    assert len(node.asked) == 3


async def test_what_cannot_be_looked_at_is_said_once_keeps_no_pod_waiting_and_is_tried_again(node, caplog):
    node.answer = OSError(22, "no such thing")
    node.cuts.concern({A.packed})
    await comes(lambda: len(node.asked) > 2)
    assert {frozenset(each) for each in node.asked} == {frozenset({A.packed})}
    assert "no such thing" in str(node.cuts.problem)
    assert not node.cuts.concerns([A])
    node.answer = 0
    await comes(lambda: node.cuts.problem is None)
    assert sum("no such thing" in each for each in caplog.messages) == 1
