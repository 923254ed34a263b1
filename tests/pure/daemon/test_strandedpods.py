"""Pods that are stranded are looked at a moment later, once; those whose bridge is gone until that has an end."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest

from tests.support.waiting import HANGS, comes
from weft.daemon import strandedpods
from weft.daemon.strandedpods import StrandedPods
from weft.desired.leaks import Stranded
from weft.model.errors import Problem


class Node:
    """Tells what is asked about, and answers what a test says."""

    def __init__(self) -> None:
        self.pods = StrandedPods()
        self.asked: asyncio.Queue[Mapping[str, str]] = asyncio.Queue()
        self.answers: asyncio.Queue[list[Stranded] | OSError] = asyncio.Queue()

    async def look(self, bridges: Mapping[str, str]) -> list[Stranded]:
        self.asked.put_nowait(bridges)
        answer = await self.answers.get()
        if isinstance(answer, OSError):
            raise answer
        return answer

    async def is_asked(self, **bridges: str) -> None:
        async with asyncio.timeout(HANGS):
            assert await self.asked.get() == bridges

    async def is_not_asked(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)
        assert self.asked.empty()


def stranded(key: str, bridge: str = "") -> Stranded:
    return Stranded(key=key, bridge=bridge, problem=Problem(code="CHECK-001", where=f"pod {key}", seen="stranded"))


@asynccontextmanager
async def telling(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Node]:
    monkeypatch.setattr(strandedpods, "_GRACE_SECONDS", 0.0)
    node = Node()
    task = asyncio.create_task(node.pods.tell(node.look))
    yield node
    task.cancel()


async def test_a_pod_that_was_cut_is_said_and_forgotten(monkeypatch, caplog):
    async with telling(monkeypatch) as node:
        node.pods.add("a", "")
        node.pods.add("b", "cni0")
        await node.is_asked(a="", b="cni0")
        node.pods.add("c", "")  # while the others are looked at
        node.answers.put_nowait([stranded("a"), stranded("b")])
        await node.is_asked(c="")
        assert [record.getMessage() for record in caplog.records] == [
            "CHECK-001 pod a: stranded",
            "CHECK-001 pod b: stranded",
        ]
        assert node.pods.problem is None
        node.answers.put_nowait([])
        await node.is_not_asked()
        assert len(caplog.records) == 2


async def test_those_whose_bridge_is_gone_are_looked_at_until_they_are_gone_or_it_is_back(monkeypatch, caplog):
    async with telling(monkeypatch) as node:
        for key in "ab":
            node.pods.add(key, "cni0")
        await node.is_asked(a="cni0", b="cni0")
        node.answers.put_nowait([stranded("a", "cni0"), stranded("b", "cni0")])
        await node.is_asked(a="cni0", b="cni0")
        assert "BRIDGE-006 link cni0: another program deleted it with 2 pods on it" in str(node.pods.problem)
        node.answers.put_nowait([stranded("b", "cni0")])
        await node.is_asked(b="cni0")
        assert "with 1 pod on it" in str(node.pods.problem)
        node.pods.add("c", "")
        node.answers.put_nowait([stranded("b", "cni0")])
        await node.is_asked(b="cni0", c="")
        node.answers.put_nowait([stranded("b")])  # it is back
        await node.is_not_asked()
        assert node.pods.problem is None
        said = [record.getMessage().split(":")[0] for record in caplog.records]
        assert said == ["BRIDGE-006 link cni0", "CHECK-001 pod a", "CHECK-001 pod b"], "each once"


async def test_one_look_that_fails_is_said_and_the_next_is_made(monkeypatch, caplog):
    async with telling(monkeypatch) as node:
        node.pods.add("a", "")
        node.answers.put_nowait(OSError("no descriptors"))
        await node.is_asked(a="")
        await node.is_not_asked()
        assert "cannot find out which pods have lost their links: no descriptors" in caplog.text
        node.pods.add("b", "")
        node.answers.put_nowait([stranded("b")])
        await node.is_asked(b="")
        await node.is_not_asked()
        assert "pod b" in caplog.text


def test_a_search_for_lost_rules_begins_once_for_each_time_that_it_is_asked_for():
    async def searches() -> list[int]:
        pods, begun = StrandedPods(), list[int]()
        pods.look_at_all()  # before anything can search
        working = asyncio.create_task(pods.pass_on(lambda: begun.append(1)))
        await comes(lambda: len(begun) == 1)
        pods.look_at_all()
        pods.look_at_all()
        await comes(lambda: len(begun) == 2)
        working.cancel()
        return begun

    assert len(asyncio.run(searches())) == 2
