"""How lists are asked for: in pages, at once, and in smaller pages where objects are large."""

import json
from collections import Counter
from typing import Any

import pytest

from weft.cluster.kube.collection import Collection, gathered
from weft.cluster.kube.problems import LargeError
from weft.model.errors import Problem
from weft.wire import kubepolicy
from weft.wire.kubepolicy import PolicyText

PATH = "/apis/networking.k8s.io/v1/networkpolicies"


class Api:
    """Has ten policies, and answers with `most` of them at once."""

    where = "https://k"

    def __init__(self, most: int) -> None:
        self.most = most
        self.asked: list[dict[str, str]] = []

    async def get(self, path: str, *, accept: str, **query: str) -> bytes:  # noqa: ARG002 - the client has it
        self.asked.append(query)
        start, limit = int(query.get("continue", "0")), int(query.get("limit", "10"))
        stop = min(start + limit, 10)
        if stop - start > self.most:
            raise LargeError(Problem(code="STORE-001", where=path, seen="an answer of more than 1 byte"))
        items = [{"metadata": {"name": f"p{each}", "namespace": "shop"}} for each in range(start, stop)]
        meta = {"resourceVersion": "7", "continue": str(stop) if stop < 10 else ""}
        return json.dumps({"metadata": meta, "items": items}).encode()

    async def all(self, **how: Any) -> tuple[Counter[str], str]:
        what: Collection[PolicyText] = Collection(
            path=PATH, kind=kubepolicy.POLICIES, query={"fieldSelector": "x"}, **how
        )
        client: Any = self
        return await gathered(
            client, what, Counter[str], lambda found, page: found.update(each.name for each in page.items)
        )


WHOLE = (Counter({f"p{each}": 1 for each in range(10)}), "7")


async def test_a_list_comes_in_pages():
    api = Api(10)
    assert await api.all(page=4) == WHOLE
    assert [(each["limit"], each.get("continue")) for each in api.asked] == [("4", None), ("4", "4"), ("4", "8")]


@pytest.mark.parametrize("few", [False, True])
async def test_of_large_objects_fewer_are_asked_for_at_once(few: bool):
    api = Api(1)
    assert await api.all(page=8, few=few) == WHOLE
    with pytest.raises(LargeError):
        await Api(0).all(page=8, few=few)


async def test_few_of_many_come_from_the_memory_of_the_api():
    api = Api(10)
    assert await api.all(few=True) == WHOLE
    assert api.asked == [{"fieldSelector": "x", "resourceVersion": "0"}]


async def test_the_version_is_asked_for_without_looking_for_what_is_selected():
    api = Api(10)
    client: Any = api
    what = Collection(path=PATH, kind=kubepolicy.POLICIES, query={"fieldSelector": "x"}, few=True)
    assert await what.version_now(client) == "7"
    assert api.asked == [{"limit": "1"}]
