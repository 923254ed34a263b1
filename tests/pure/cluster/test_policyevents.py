"""Events at policies that cannot be enforced as written: one an hour, and a missing right is said."""

import asyncio
import json
from typing import Any

import pytest

from tests.support.waiting import comes
from weft.cluster.kube import policies
from weft.cluster.kube.policies import PolicyEvents
from weft.model.errors import Problem, Unavailable
from weft.model.policy import Id
from weft.wire.kubepolicy import PolicyText

ODD: Id = ("policy", "shop", "odd")
WRONG = (Problem(code="POL-005", where="NetworkPolicy shop/odd: spec", seen="{}", expected="more\nof it"),)


class Client:
    def __init__(self) -> None:
        self.posted: list[tuple[str, Any]] = []
        self.refuses: Problem | None = None

    async def post(self, path: str, body: bytes) -> None:
        self.posted.append((path, json.loads(body)))
        if self.refuses is not None:
            raise Unavailable(self.refuses)

    def close(self) -> None:
        """Nothing is open."""


class Node:
    def __init__(self) -> None:
        self.client, self.now, self.wrong = Client(), 0.0, {ODD: WRONG}
        self.text: PolicyText | None = PolicyText(kind="policy", namespace="shop", name="odd", uid="u-1", spec=b"{}")
        client: Any = self.client
        self.events = PolicyEvents(
            client, "node1", self.wrong, lambda _: self.text, now=lambda: self.now, jitter=lambda: 0.5
        )


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Node:
    monkeypatch.setattr(policies, "_LOOK_SECONDS", 0.001)
    return Node()


async def test_a_policy_is_named_once_an_hour_and_again_when_it_is_another(node):
    running = asyncio.ensure_future(node.events.run())
    await comes(lambda: node.client.posted)
    await asyncio.sleep(0.02)
    [(path, event)] = node.client.posted
    assert path == "/api/v1/namespaces/shop/events"
    assert event["message"] == "NetworkPolicy shop/odd: spec: {}, expected more; of it"
    node.text = PolicyText(kind="policy", namespace="shop", name="odd", uid="u-2", spec=b"{}")
    await comes(lambda: len(node.client.posted) == 2)
    node.now = 3601.0
    await comes(lambda: len(node.client.posted) == 3)
    node.text = None  # it has gone meanwhile
    node.now = 9999.0
    await asyncio.sleep(0.02)
    assert len(node.client.posted) == 3
    running.cancel()


async def test_what_fails_is_left_and_a_missing_right_is_said_once(node, caplog):
    node.client.refuses = Problem(code="STORE-001", where="k", seen="away")
    running = asyncio.ensure_future(node.events.run())
    for hours, code in enumerate(("STORE-001", "API-001", "API-001"), start=1):
        node.client.refuses = Problem(code=code, where="k", seen="no")
        node.now = hours * 3601.0
        await comes(lambda hours=hours: len(node.client.posted) >= hours)
    await asyncio.sleep(0.02)
    assert caplog.text.count("no Event of policy/shop/odd: API-001") == 1
    node.client.refuses = None
    node.now = 5 * 3601.0
    before = len(node.client.posted)
    await comes(lambda: len(node.client.posted) == before + 1)
    assert not running.done()
    running.cancel()
