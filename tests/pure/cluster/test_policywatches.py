"""What is watched for policies, and when it is told: over an API in memory that is slow, away or without a kind."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NoReturn, cast

import pytest

from tests.pure.cluster.kubeworld import POLICIES, Api
from tests.support.waiting import comes
from weft.cluster.kube import clusterpolicies, policywatches
from weft.cluster.kube.access import Timing
from weft.cluster.kube.collection import Collection
from weft.cluster.kube.follow import Follower
from weft.cluster.kube.mirror import Mirror
from weft.cluster.kube.policywatches import PolicyWatches
from weft.cluster.kube.problems import NotFoundError
from weft.cluster.pace import Pace
from weft.cluster.policysource import Change
from weft.model.errors import ConfigError
from weft.model.policy import Id, Pod, Thing
from weft.model.value import replace
from weft.wire import kubepolicy
from weft.wire.kubelist import Happened

PODS = "/api/v1/pods"
TIMING = Timing(backoff=0.001, backoff_most=0.002, quiet=0.1, held=1000.0)
TEAM_A = {"namespaceSelector": {"matchLabels": {"team": "a"}}, "podSelector": {"matchLabels": {"app": "a"}}}


def peers(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


class Node:
    """A node's reading, and all that it has told."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.things: dict[Id, Thing] = {}
        self.told: list[Change | ConfigError] = []
        client: Any = api
        self.watches = PolicyWatches(client, "node1", self.things, self._follow, Pace(0.001, 0.002, lambda: 0.5))

    async def _follow(self, mirror: Mirror[Any]) -> NoReturn:
        client: Any = self.api
        await Follower(client, mirror.what, timing=TIMING, now=lambda: 0.0, jitter=lambda: 0.5).run(mirror)

    def knows(self, *names: str) -> bool:
        return {str(each) for each in self.things.values()} == set(names)


@pytest.fixture
async def api() -> Api:
    made = Api()
    for name, team in ("shop", "a"), ("bank", "a"), ("other", "b"):
        await made.put("namespaces", name, metadata={"labels": {"team": team}})
    return made


@pytest.fixture
async def node(api: Api, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Node]:
    monkeypatch.setattr(clusterpolicies, "_LOOK_SECONDS", 0.01)
    async with reading(api) as made:
        yield made


@asynccontextmanager
async def reading(api: Api) -> AsyncIterator[Node]:
    made = Node(api)
    running = asyncio.ensure_future(made.watches.run(made.told.append))
    yield made
    assert not running.done()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def pod(api: Api, name: str, namespace: str, node: str = "node2", ip: str = "10.244.2.9", **labels: str) -> None:
    status = {"phase": "Running", "podIPs": [{"ip": ip}]}
    await api.put("pods", name, namespace, metadata={"labels": labels}, spec={"nodeName": node}, status=status)


async def policy(api: Api, name: str, namespace: str, *sources: Any, app: str = "web") -> None:
    spec = {"podSelector": {"matchLabels": {"app": app}}, "ingress": [{"from": list(sources)}] if sources else []}
    await api.put("networkpolicies", name, namespace, spec=spec)


NAMESPACES = ("shop", "bank", "other")


async def test_while_no_policy_selects_a_pod_here_no_peers_are_read(api, node):
    await pod(api, "web", "shop", "node1", app="web")
    await pod(api, "far", "bank")
    await policy(api, "elsewhere", "bank", TEAM_A)
    await policy(api, "others", "shop", TEAM_A, app="db")
    await comes(lambda: node.knows(*NAMESPACES, "shop/web", "shop/others"))
    assert +api.watched == {POLICIES: 1, "/api/v1/namespaces": 1, PODS: 1}


async def test_peers_are_read_of_the_namespaces_that_a_policy_in_effect_means(api, node):
    await pod(api, "web", "shop", "node1", app="web")
    await pod(api, "a", "bank", app="a")
    await pod(api, "b", "other", app="a")
    await policy(api, "some", "shop", TEAM_A)
    await comes(lambda: node.knows(*NAMESPACES, "shop/web", "shop/some", "bank/a"))
    assert api.watched[peers("bank")] == api.watched[peers("shop")] == 1
    assert peers("other") not in api.watched
    await api.put("namespaces", "other", metadata={"labels": {"team": "a"}})
    await comes(lambda: node.knows(*NAMESPACES, "shop/web", "shop/some", "bank/a", "other/b"))
    await api.delete("networkpolicies", "some", "shop")
    await comes(lambda: node.knows(*NAMESPACES, "shop/web"))
    await comes(lambda: not sum(api.watched[peers(each)] for each in NAMESPACES))


async def test_a_policy_is_told_with_all_of_its_peers(api, node):
    """Else it would shut them out until they are read."""
    await pod(api, "web", "shop", "node1", app="web")
    await pod(api, "a", "bank", app="a")
    await comes(lambda: node.knows(*NAMESPACES, "shop/web"))
    api.closed.add(peers("bank"))
    await policy(api, "some", "shop", TEAM_A)
    await comes(lambda: peers("bank") in api.asked)
    await asyncio.sleep(0.05)
    assert node.knows(*NAMESPACES, "shop/web")
    assert node.watches.form(("policy", "shop", "some")) == "u-some 0"
    assert not node.watches.settled, "it is read, and not told"
    before = len(node.told)
    api.closed.clear()
    await comes(lambda: node.knows(*NAMESPACES, "shop/web", "shop/some", "bank/a"))
    [change] = node.told[before:]
    assert node.watches.settled
    assert "team=a" in node.watches.form(("namespace", "", "bank"))
    assert node.watches.form(("policy", "shop", "none")) == ""
    assert isinstance(change, Change)
    assert {str(each) for each in change.put} == {"shop/some", "bank/a"}


async def test_nothing_is_told_before_all_is_known(api):
    api.closed.add(POLICIES)
    await pod(api, "web", "shop", "node1", app="web")
    async with reading(api) as node:
        await comes(lambda: PODS in api.asked)
        await asyncio.sleep(0.05)
        assert (node.things, node.told) == ({}, [])
        api.closed.clear()
        await comes(lambda: node.knows(*NAMESPACES, "shop/web"))


async def test_where_many_namespaces_are_meant_one_watch_is_for_all(api, node, monkeypatch):
    monkeypatch.setattr(policywatches, "_MOST_WATCHES", 2)
    monkeypatch.setattr(policywatches, "_FEW_WATCHES", 1)
    await pod(api, "web", "shop", "node1", app="web")
    await pod(api, "b", "other", app="a")
    await policy(api, "some", "shop", TEAM_A)
    await comes(lambda: api.watched[peers("bank")])
    await api.put("namespaces", "other", metadata={"labels": {"team": "a"}})
    await comes(lambda: node.knows(*NAMESPACES, "shop/web", "shop/some", "other/b"))
    await comes(lambda: api.watched[PODS] == 2 and not api.watched[peers("bank")])
    await api.put("namespaces", "other", metadata={"labels": {"team": "b"}})
    await comes(lambda: node.knows(*NAMESPACES, "shop/web", "shop/some", "other/b"), seconds=1)
    await api.put("namespaces", "bank", metadata={"labels": {"team": "b"}})
    await comes(lambda: node.knows(*NAMESPACES, "shop/web", "shop/some"))
    await comes(lambda: (api.watched[PODS], api.watched[peers("shop")]) == (1, 1))


async def test_a_pod_is_asked_for_and_what_is_heard_later_and_is_older_counts_no_more(api, node):
    await comes(lambda: node.knows(*NAMESPACES))
    api.behind = True
    await asyncio.sleep(0.01)
    await pod(api, "web", "shop", "node1", app="a")
    await pod(api, "web", "shop", "node1", app="b")
    await pod(api, "far", "shop", "node2")
    for name in ("web", "far"):
        await node.watches.ask(("pod", "shop", name))
    await comes(lambda: node.knows(*NAMESPACES, "shop/web"))
    with pytest.raises(NotFoundError):
        await node.watches.ask(("pod", "shop", "none"))
    api.behind = False
    await pod(api, "last", "shop", "node1")
    await comes(lambda: node.knows(*NAMESPACES, "shop/web", "shop/last"))
    put = [each for change in node.told if isinstance(change, Change) for each in change.put]
    assert [each.labels for each in put if isinstance(each, Pod) and each.name == "web"] == [{"app": "b"}]
    await api.delete("pods", "web", "shop")
    await comes(lambda: node.knows(*NAMESPACES, "shop/last"))


async def test_a_list_that_is_older_than_what_was_asked_for_does_not_undo_it(api):
    client: Any = api
    mirror = Mirror(client, Collection(path=PODS, kind=kubepolicy.PODS), lambda _: None)
    await pod(api, "web", "shop", "node1")
    read = await mirror.list()
    found = mirror.get(("pod", "shop", "web"))
    assert found is not None
    mirror.put(replace(found, name="new"), str(int(read) + 1))
    await mirror.list()
    assert {each.name for each in mirror.items.values()} == {"web", "new"}
    await pod(api, "web", "shop", "node1")
    await mirror.list()
    assert {each.name for each in mirror.items.values()} == {"web"}


async def test_an_answer_that_is_older_than_what_was_heard_meanwhile_counts_no_more(api, node, monkeypatch):
    """Neither a pod that has gone since, nor its former labels."""
    await comes(lambda: node.knows(*NAMESPACES))
    answer = api.get
    held = asyncio.Event()

    async def late(path: str, **query: str) -> bytes:
        body = await answer(path, **query)
        await held.wait()
        return body

    for name in ("web", "db"):
        await pod(api, name, "shop", "node1", app="old")
    monkeypatch.setattr(api, "get", late)
    asking = [asyncio.ensure_future(node.watches.ask(("pod", "shop", name))) for name in ("web", "db")]
    await asyncio.sleep(0.01)
    await pod(api, "web", "shop", "node1", app="new")
    await api.delete("pods", "db", "shop")
    await comes(
        lambda: node.knows(*NAMESPACES, "shop/web") and node.things["pod", "shop", "web"].labels["app"] == "new"
    )
    held.set()
    await asyncio.gather(*asking)
    await asyncio.sleep(0.05)
    assert node.knows(*NAMESPACES, "shop/web")
    assert node.things["pod", "shop", "web"].labels == {"app": "new"}


async def test_while_the_api_is_away_what_is_known_goes_on_and_is_said_to_be_old(api, node):
    await pod(api, "web", "shop", "node1", app="web")
    await comes(lambda: node.knows(*NAMESPACES, "shop/web"))
    await api.cut()
    await comes(lambda: isinstance(node.told[-1], Change) and node.told[-1].problems)
    [problem] = node.told[-1].problems
    assert (problem.code, "it is silent" in problem.seen) == ("POL-003", True)
    assert not node.told[-1].current
    assert node.knows(*NAMESPACES, "shop/web")
    said = len(node.told)
    await asyncio.sleep(0.05)
    assert len(node.told) == said, "and is said once"
    api.away = False
    await pod(api, "db", "shop", "node1")
    await comes(lambda: node.knows(*NAMESPACES, "shop/web", "shop/db") and not node.told[-1].problems)
    assert node.told[-1].current


async def test_without_a_first_answer_it_is_said_why(api):
    api.away = True
    async with reading(api) as node:
        await comes(lambda: node.told)
        assert isinstance(node.told[0], ConfigError)
        assert node.told[0].problems[0].code == "POL-003"
        assert "not all of them is known yet: STORE-001" in str(node.told[0])
        api.away = False
        await comes(lambda: node.knows(*NAMESPACES))


async def test_a_right_that_is_missing_is_named_after_an_api_that_was_away(api):
    api.away = True
    async with reading(api) as node:
        await comes(lambda: node.told)
        api.forbidden = PODS
        api.away = False
        await comes(lambda: "API-001" in str(node.told[-1]))
        await asyncio.sleep(0.05)
        assert len(node.told) == 2, "each once"
        api.forbidden = ""
        await comes(lambda: node.knows(*NAMESPACES))


async def test_what_says_nothing_new_of_a_pod_wakes_nobody(api):
    client, touched = cast("Any", api), list[Any]()
    mirror = Mirror(client, Collection(path=PODS, kind=kubepolicy.PODS), touched.append)
    await pod(api, "web", "shop", "node1")
    await mirror.list()
    found = mirror.get(("pod", "shop", "web"))
    assert found is not None
    touched.clear()
    assert not await mirror.changed([Happened(kind="MODIFIED", version="200", item=found)], "200")
    assert await mirror.changed([Happened(kind="DELETED", version="201", item=found)], "201")
    assert touched == [{found.id}]


async def test_the_kind_of_cluster_policies_comes_and_goes(api, node):
    await pod(api, "web", "shop", "node1", app="web")
    await comes(lambda: node.knows(*NAMESPACES, "shop/web"))
    spec = {"tier": "Admin", "priority": 1, "subject": {"namespaces": {}}, "ingress": []}
    await api.put("clusternetworkpolicies", "first", spec=spec)
    assert not [each for each in api.asked if each.endswith("clusternetworkpolicies")]
    api.has_cluster = True
    await comes(lambda: node.knows(*NAMESPACES, "shop/web", "first"))
    api.has_cluster = False
    await api.cut()
    api.away = False
    await comes(lambda: node.knows(*NAMESPACES, "shop/web"))


async def test_what_cannot_be_enforced_as_written_is_said_while_it_is_so(api, node):
    await pod(api, "web", "shop", "node1", app="web")
    await policy(api, "odd", "shop", {})
    await comes(lambda: node.knows(*NAMESPACES, "shop/web", "shop/odd"))
    [problem] = node.told[-1].problems
    assert (problem.code, problem.where) == ("POL-005", "NetworkPolicy shop/odd: spec.ingress[0].from[0]")
    await api.put("networkpolicies", "odd", "shop", spec={"podSelector": 5})
    await comes(lambda: "podSelector" in str(node.told[-1].problems))
    assert node.knows(*NAMESPACES, "shop/web", "shop/odd"), "as it was before"
    await policy(api, "odd", "shop", {})
    await comes(lambda: [each.where for each in node.told[-1].problems] == [problem.where])
    await policy(api, "odd", "shop")
    await comes(lambda: not node.told[-1].problems)
    await policy(api, "odd", "shop", *[{}] * 5000)
    await comes(lambda: len(node.told[-1].problems) == 10)


async def test_a_policy_that_becomes_right_again_as_it_was_is_not_named_any_more(api, node):
    await pod(api, "web", "shop", "node1", app="web")
    await policy(api, "shut", "shop")
    await comes(lambda: node.knows(*NAMESPACES, "shop/web", "shop/shut"))
    await api.put("networkpolicies", "shut", "shop", spec={"podSelector": 5})
    await comes(lambda: node.told[-1].problems)
    await policy(api, "shut", "shop")
    await comes(lambda: not node.told[-1].problems)


async def test_of_namespaces_that_come_and_go_nothing_is_kept(api, node):
    effective = node.watches.effective
    for name in ("job-1", "job-2"):
        await pod(api, "run", name, "node1", app="web")
        await policy(api, "shut", name)
        await policy(api, "other", name)
        await comes(lambda name=name: node.knows(*NAMESPACES, f"{name}/run", f"{name}/shut", f"{name}/other"))
        await api.delete("networkpolicies", "shut", name)
        await comes(lambda name=name: node.knows(*NAMESPACES, f"{name}/run", f"{name}/other"))
        await api.delete("networkpolicies", "other", name)
        await api.delete("pods", "run", name)
        await comes(lambda: node.knows(*NAMESPACES))
    assert (effective._in, effective._here) == ({}, {})


async def test_a_pod_that_leaves_takes_the_policies_of_its_namespace_along(api, node):
    await pod(api, "web", "shop", "node1", app="web")
    await policy(api, "shut", "shop")
    await comes(lambda: node.knows(*NAMESPACES, "shop/web", "shop/shut"))
    await api.delete("pods", "web", "shop")
    await comes(lambda: node.knows(*NAMESPACES))
