"""Which objects are watched for policies, and when a change of them is passed on."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from collections.abc import Set as AbstractSet
from typing import Any, Final, NoReturn

from weft.cluster.kube.client import Client
from weft.cluster.kube.clusterpolicies import ClusterPolicies
from weft.cluster.kube.collection import Collection
from weft.cluster.kube.effective import Effective
from weft.cluster.kube.mirror import Mirror
from weft.cluster.kube.problems import reading
from weft.cluster.pace import Pace
from weft.cluster.policysource import Change, TakeChange
from weft.model.errors import ConfigError, Problem
from weft.model.policy import Id, Namespace, Pod, Thing
from weft.model.value import replace
from weft.wire import kubepolicy
from weft.wire.kubelist import Kind
from weft.wire.kubepolicy import PolicyText

_POLICIES: Final[Collection[PolicyText]] = Collection(
    path="/apis/networking.k8s.io/v1/networkpolicies", kind=kubepolicy.POLICIES, page=500
)
_META: Final = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1"
_NAMESPACES: Final[Collection[Namespace]] = Collection(
    path="/api/v1/namespaces",
    kind=kubepolicy.NAMESPACES,
    page=500,
    list_as=_META.format("List"),
    watch_as=_META.format(""),
)
_PODS_PAGE: Final = 200  # 5 KB and more each
# What may have an address of its own.
_PEERS: Final = "spec.hostNetwork=false,status.phase!=Succeeded,status.phase!=Failed"
# Namespaces with a watch each. Where they are more there is one for all, until they are as few as the latter.
_MOST_WATCHES: Final = 64
_FEW_WATCHES: Final = 48
_ALL: Final = ""

Follow = Callable[[Mirror[Any]], Coroutine[Any, Any, NoReturn]]


class PolicyWatches:
    """`things` is what was passed on; it is kept here. `follow` follows a mirror until it is cancelled."""

    def __init__(self, client: Client, node: str, things: dict[Id, Thing], follow: Follow, pace: Pace) -> None:
        self._client = client
        self._node = node
        self._things = things
        self._follow = follow
        self._policies = Mirror(client, _POLICIES, self._touch)
        self._cluster = ClusterPolicies(client, self._touch, pace)
        self._namespaces = Mirror(client, _NAMESPACES, self._touch)
        own = replace(_pods("", f"spec.nodeName={node}", kubepolicy.PODS), few=True)
        self._own = Mirror(client, own, self._touch)
        self._peers: dict[str, Mirror[Pod]] = {}  # by namespace, or of all
        self._watches: dict[str, asyncio.Task[NoReturn]] = {}
        self.effective = Effective(self.text, self._namespaces.get, self._own.get, self._peer)
        self._touched = set(things)
        self._untold: set[Id] = set()
        self._woken = asyncio.Event()
        self._old: tuple[str, Problem] | None = None  # why what is known may be old: the API's code, and what is said
        self._said: tuple[Problem, ...] | None = None  # None before anything was told

    async def run(self, take: TakeChange) -> NoReturn:
        async with asyncio.TaskGroup() as tasks:
            for mirror in (self._policies, self._namespaces, self._own):
                tasks.create_task(self._follow(mirror))
            tasks.create_task(self._cluster.run(self._follow))
            while True:
                await self._woken.wait()
                self._woken.clear()
                self._settle(tasks)
                self._tell(take)

    async def ask(self, pod: Id) -> None:
        """Read a pod by itself. Raises `Unavailable`, and `Unreadable` for what is no name of one."""
        body = await self._client.get(kubepolicy.path_of("pods", *pod[1:]))
        with reading(self._client.where):
            found, version = kubepolicy.PODS.versioned(body)
        if found.node == self._node:
            self._own.put(found, version)

    @property
    def settled(self) -> bool:
        """Tell whether all that was read is in what was told."""
        return not (self._touched or self._untold) and all(each.complete for each in self._mirrors())

    def form(self, name: Id) -> str:
        found = self._namespaces.get(name) if name[0] == "namespace" else self.text(name)
        return "" if found is None else kubepolicy.form_of(found)

    def text(self, policy: Id) -> PolicyText | None:
        return (self._policies if policy[0] == "policy" else self._cluster).get(policy)

    def _peer(self, pod: Id) -> Pod | None:
        mirror = self._peers.get(pod[1]) or self._peers.get(_ALL)
        return None if mirror is None else mirror.get(pod)

    def _touch(self, ids: Iterable[Id]) -> None:
        self._touched.update(ids)
        self._woken.set()

    def _mirrors(self) -> Iterator[Mirror[Any]]:
        yield from (self._policies, self._namespaces, self._own, self._cluster)
        yield from self._peers.values()

    def _settle(self, tasks: asyncio.TaskGroup) -> None:
        """Take what has changed, and watch what matters by now."""
        touched, self._touched = self._touched, set()
        self._untold |= self.effective.settle(touched)
        if not all(each.complete for each in self._mirrors()):
            return
        wanted = _watches(self.effective.meant, now=self._watches.keys())
        for name in self._watches.keys() - wanted:
            self._watches.pop(name).cancel()
            self._untold |= self._peers.pop(name).items.keys()
        for name in wanted - self._watches.keys():
            self._peers[name] = Mirror(self._client, _pods(name, _PEERS, kubepolicy.PEERS), self._touch)
            self._watches[name] = tasks.create_task(self._follow(self._peers[name]))

    def _tell(self, take: TakeChange) -> None:
        old = self._note_problem()
        if not all(each.complete for each in self._mirrors()):
            if old is not None and self._said != (old,):
                self._said = (old,)
                take(ConfigError(old))
            return
        put, gone = list[Thing](), list[Id]()
        for name in self._untold:
            thing = self.effective.thing(name)
            if thing is None:
                if self._things.pop(name, None) is not None:
                    gone.append(name)
            elif self._things.get(name) != thing:
                self._things[name] = thing
                put.append(thing)
        self._untold.clear()
        wrong = (each for problems in self.effective.wrong.values() for each in problems)
        problems = (*(() if old is None else (old,)), *wrong)
        if put or gone or problems != self._said:
            self._said = problems
            now, current = time.time(), old is None
            take(Change(put=tuple(put), gone=tuple(gone), problems=problems, written=now, current=current))

    def _note_problem(self) -> Problem | None:
        """A missing right comes first. Error texts differ from try to try, so the first text is kept."""
        found = [each.problem for each in self._mirrors() if each.problem is not None]
        problem = next((each for each in found if each.code == "API-001"), found[0] if found else None)
        if problem is None:
            self._old = None
        elif self._old is None or problem.code != self._old[0]:
            self._old = problem.code, stale(problem, known=bool(self._things))
        return None if self._old is None else self._old[1]


def _watches(meant: frozenset[str] | None, *, now: Iterable[str]) -> AbstractSet[str]:
    """Which namespaces to watch: those whose pods matter, or all by one watch where they are many."""
    most = _FEW_WATCHES if _ALL in now else _MOST_WATCHES
    return {_ALL} if meant is None or len(meant) > most else meant


def _pods(namespace: str, selected: str, kind: Kind[Pod]) -> Collection[Pod]:
    path = f"/api/v1/namespaces/{namespace}/pods" if namespace else "/api/v1/pods"
    return Collection(path=path, kind=kind, query={"fieldSelector": selected}, page=_PODS_PAGE)


def stale(problem: Problem, *, known: bool) -> Problem:
    """POL-003 for as long as the API answers with `problem`; `known`: everything had been read before."""
    seen = f"what is known may be old: {problem}" if known else f"not all of them is known yet: {problem}"
    hint = "What was known before holds. Trying again" if known else "Nothing is changed before that. Trying again"
    return Problem(code="POL-003", where="policies", seen=seen, hint=hint)
