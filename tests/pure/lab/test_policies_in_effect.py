"""Who has a change of policies in effect, of nodes that read Kubernetes' API: asked by objects' forms, in few names."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from weft.lab.inside import control, policies
from weft.model.node.nodestate import PoliciesTold, PolicyEffect

FORMS = {f"NetworkPolicy shop/p{number}": f"u-{number} 1" for number in range(25)}


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> dict[str, PoliciesTold | None]:
    """What each node's weftd would say of all of them; None for one that does not answer."""
    told: dict[str, PoliciesTold | None] = {}

    async def ask(_: object, room: str, __: int, names: Sequence[str]) -> PoliciesTold | None:
        assert len(b"".join(name.encode() for name in names)) < 4000
        said = told[room]
        if said is None:
            return None
        forms = {name: said.forms[name] for name in names if name in said.forms}
        return PoliciesTold(effect=said.effect, settled=said.settled, forms=forms)

    monkeypatch.setattr(control, "policies", ask)
    monkeypatch.setattr(policies, "_PATIENCE", 0.1)
    monkeypatch.setattr(policies, "_LOOK_AGAIN", 0.01)
    return told


async def late(nodes: dict[str, Any], forms: dict[str, str]) -> list[str]:
    running: Any = [SimpleNamespace(spec=SimpleNamespace(name=name), room=name, process=0) for name in nodes]
    inside: Any = None
    return await policies.settled_in_api(running, inside, forms)


def has(forms: dict[str, str], *, settled: bool = True) -> PoliciesTold:
    return PoliciesTold(effect=PolicyEffect(), settled=settled, forms=forms)


async def test_those_that_have_not_are_named(nodes):
    last = next(reversed(FORMS))
    nodes |= {
        "well": has(FORMS),
        "silent": None,
        "writes": has(FORMS, settled=False),
        "behind": has({**FORMS, last: "u-24 0"}),
        "another": has({**FORMS, last: "u-x 1"}),
        "unread": has({}),
    }
    assert await late(nodes, FORMS) == ["silent", "writes", "behind", "another", "unread"]


async def test_what_is_gone_is_awaited_too(nodes):
    nodes |= {"well": has({}), "behind": has(FORMS)}
    assert await late(nodes, dict.fromkeys(FORMS, "")) == ["behind"]
