"""A lab waits until daemons know each other, as long as there is progress: weft's say so, others have routes."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from collections.abc import Set as AbstractSet
from ipaddress import IPv4Network
from types import SimpleNamespace
from typing import Any

import pytest

from weft.lab.inside import control, daemons
from weft.lab.inside.node import RunningNode
from weft.lab.spec import Node
from weft.model.errors import Unavailable
from weft.model.net import Net
from weft.model.node.nodestate import PeerState

OURS, THEIRS = "10.244.1.0/24", "10.244.2.0/24"


class Here:
    """`Inside` without namespaces."""

    async def run(self, _room: object, act: Callable[[], Any]) -> Any:
        return act()


class Subnets(RunningNode, frozen=False):
    """A node that has a subnet without having a subnet.env."""

    def subnet_env(self) -> Any:
        return SimpleNamespace(subnets=[IPv4Network(OURS if self.spec.name == "a" else THEIRS)])


def node(name: str, *routes: str) -> RunningNode:
    ways = [SimpleNamespace(dst=IPv4Network(route)) for route in ("0.0.0.0/0", *routes)]
    lease = asyncio.Event()
    lease.set()
    made: Any = {"room": None, "rtnl": SimpleNamespace(routes=lambda: iter(ways)), "run": 0, "init": None}
    return Subnets(spec=Node(name=name, index=1), lease=lease, **made)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """What weft's daemons say: `state` is None where none answers; `runs` is whether there is one."""
    said = SimpleNamespace(state=None, runs=False)

    async def state(*_: object) -> object:
        return said.state

    async def runs(*_: object) -> bool:
        return bool(said.runs)

    monkeypatch.setattr(control, "state", state)
    monkeypatch.setattr(control, "runs", runs)
    return said


def ask(*routes: str) -> AbstractSet[Net]:
    """What a node with these routes does not know of both subnets."""

    async def unknown() -> AbstractSet[Net]:
        inside: Any = Here()
        return await node("a", *routes).unknown({IPv4Network(OURS), IPv4Network(THEIRS)}, inside, apart=False)

    return asyncio.run(unknown())


@pytest.mark.parametrize("routes, known", [((THEIRS,), True), ((), False), (("10.0.0.0/8",), True)])
def test_routes_tell_of_a_daemon_that_is_not_wefts_whoever_has_started_it(told, routes, known):
    assert ask(*routes) == (set() if known else {IPv4Network(THEIRS)})


def test_routes_tell_nothing_while_wefts_daemon_does_not_answer(told):
    told.runs = True
    assert ask(THEIRS) == {IPv4Network(THEIRS)}


class Pods:
    """Daemons in pods that get further at each of so many looks, and know each other then if they `join`."""

    def __init__(self, told: SimpleNamespace, looks: int, *, join: bool) -> None:
        self._told = told
        self._left = looks
        self._join = join

    async def progress(self) -> object:
        self._left = max(0, self._left - 1)
        if self._join and not self._left:
            peers = {"a": OURS, "b": THEIRS}
            known = [PeerState(id=name, subnets=[net], public=[], backend="vxlan") for name, net in peers.items()]
            self._told.state = SimpleNamespace(peers=known)
        return self._left

    async def words(self, node: str) -> str:
        return f"ErrImagePull on {node}"


def join(told: SimpleNamespace, pods: Pods) -> list[str]:
    """Wait for two nodes; returns what was noted."""
    noted: list[str] = []
    told.state = SimpleNamespace(peers=[])

    async def wait() -> None:
        nodes: Any = [node("a"), node("b")]
        await daemons.joined(nodes, Here(), SimpleNamespace(), noted.append, pods)  # type: ignore[arg-type]

    asyncio.run(wait())
    return noted


@pytest.fixture
def slow_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two looks almost all of the patience passes, though the test takes no time."""
    now = iter(range(0, 10**9, int(daemons.SECONDS) - 1))
    monkeypatch.setattr(daemons, "_PROGRESS_SECONDS", 0.01)
    monkeypatch.setattr(daemons.Patience.__init__, "__defaults__", (daemons.SECONDS, lambda: float(next(now))))
    monkeypatch.setattr(daemons, "_LOOK_AGAIN", 0.05)


@pytest.mark.usefixtures("slow_machine")
def test_a_lab_on_a_busy_machine_waits_as_long_as_its_pods_get_further(told):
    assert join(told, Pods(told, 20, join=True))[-1] == "every node has a route to every other"


@pytest.mark.usefixtures("slow_machine")
def test_a_lab_in_which_nothing_changes_ends_with_what_is_missing_and_what_the_api_says_of_the_pod(told):
    missing = r"(?s)LAB-002 a: no way to 10\.244\.2\.0/24, and nothing has changed for 45 s:\nErrImagePull on a"
    with pytest.raises(Unavailable, match=missing):
        join(told, Pods(told, 3, join=False))


def test_a_lab_whose_daemons_know_each_other_when_the_patience_ends_is_up(told, monkeypatch: pytest.MonkeyPatch):
    async def over(work: Coroutine[Any, Any, None], _progress: object) -> None:
        work.close()
        await Pods(told, 1, join=True).progress()
        raise TimeoutError

    monkeypatch.setattr(daemons, "patiently", over)
    assert join(told, Pods(told, 1, join=False)) == ["every node has a route to every other"]
