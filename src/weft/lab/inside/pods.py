"""The pods of a running lab: how they come, how they go, and which are there.

Policies know of a pod before it is attached, and speak of its addresses once it runs.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import groupby
from typing import TYPE_CHECKING, Final

from weft.lab import spec
from weft.lab.inside import pod
from weft.lab.inside.namespaces import Inside
from weft.lab.inside.node import RunningNode
from weft.lab.inside.pod import RunningPod
from weft.lab.inside.processes import Processes
from weft.model.errors import ConfigError, Problem, Unavailable
from weft.model.text import one_of
from weft.model.value import replace

if TYPE_CHECKING:
    from weft.lab.inside.policies import PolicyFiles

_LOOK_AGAIN: Final = 0.02  # seconds
_AT_ONCE: Final = 8  # nodes on which pods are started together


class Pods:
    """`nodes` are the lab's own, and change with it. `taken` says the names that a new pod cannot have."""

    def __init__(
        self,
        lab: spec.Lab,
        inside: Inside,
        processes: Processes,
        *,
        nodes: Mapping[str, RunningNode],
        taken: Callable[[], Collection[str]],
    ) -> None:
        self.running: dict[str, RunningPod] = {}
        self.policies = _policies(lab)
        self._lab, self._inside, self._processes = lab, inside, processes
        self._nodes, self._taken = nodes, taken
        self._changing: set[str] = set()  # those that come or go
        self._closed: set[str] = set()  # nodes to which no pod comes

    @property
    def names(self) -> Collection[str]:
        """Also of pods that come or go."""
        return self.running.keys() | self._changing

    def in_order(self) -> list[RunningPod]:
        """Return the pods by node, and pod1-2 before pod1-10."""

        def order(running: RunningPod) -> tuple[int, int, str]:
            return self._nodes[running.spec.node].spec.index, len(running.spec.name), running.spec.name

        return sorted(self.running.values(), key=order)

    async def start_all(self, wanted: Sequence[spec.Pod]) -> None:
        """Raises the first failure. A node's pods start one after the other, so that each has the same address."""
        gate = asyncio.Semaphore(_AT_ONCE)

        async def start_in_turn(pods: Iterable[spec.Pod]) -> None:
            for each in pods:
                async with gate:
                    try:
                        await self.start(each)
                    except Unavailable as error:  # the logs end with the lab, so the words are shown here
                        words = self._processes.last_words(each.node)
                        seen = f"{error.problems[0].seen}\nweftd of {each.node} said last:\n{words}"
                        raise Unavailable(replace(error.problems[0], seen=seen, hint="")) from error

        async with asyncio.TaskGroup() as group:
            for _, own in groupby(sorted(wanted, key=lambda pod: pod.node), key=lambda pod: pod.node):
                group.create_task(start_in_turn(list(own)))

    async def start(self, wanted: spec.Pod) -> None:
        """On failure nothing of it stays."""
        name = wanted.name
        if self._lab.kubelets:
            hint = f"kubectl run {name} --image=localhost/pause:1"
            seen = "this lab's nodes run the pods of Kubernetes' API, and no others"
            raise ConfigError(Problem("LAB-001", f"pod {name}", seen, hint=hint))
        if wanted.node in self._closed:
            raise ConfigError(refused(self._lab, wanted.node, "it is leaving the lab", "a node that stays"))
        if name in self._taken():
            seen, expected = "the name is taken", "a name that no node, pod or Service has"
            raise ConfigError(refused(self._lab, f"pod {name}", seen, expected))
        self._changing.add(name)
        self.expect([wanted])
        try:
            self.running[name] = await pod.start(wanted, self._nodes[wanted.node], self._inside, self._processes)
        except Unavailable as error:
            if self.policies is not None:
                self.policies.forget(name)
            raise self._of_pod(error, wanted) from error
        finally:
            self._changing.discard(name)

    @asynccontextmanager
    async def stopping(self, running: RunningPod) -> AsyncIterator[None]:
        """Stop a pod; inside, others forget it. If a plugin refuses, the pod stays."""
        name, node = running.spec.name, self._nodes[running.spec.node]
        if name in self._changing:
            raise ConfigError(refused(self._lab, f"pod {name}", "it is being removed already"))
        await node.refuse_silent(self._inside, self._lab.option)
        self._changing.add(name)
        try:
            await pod.stop(running, node, self._inside, self._processes)
            del self.running[name]
            yield
        except Unavailable as error:
            raise self._of_pod(error, running.spec) from error
        finally:
            self._changing.discard(name)

    @asynccontextmanager
    async def none_come_to(self, node: str) -> AsyncIterator[None]:
        """Also none that was on its way."""
        self._closed.add(node)
        try:
            while self._changing:  # noqa: ASYNC110 - nothing tells us when
                await asyncio.sleep(_LOOK_AGAIN)
            yield
        finally:
            self._closed.discard(node)

    async def police(self) -> list[str]:
        """Have policies speak of the pods that there are. Names the nodes where that takes too long."""
        if self.policies is None:
            return []
        return await self.policies.settled(self.running, self._nodes.values(), self._inside)

    def expect(self, pods: Iterable[spec.Pod]) -> None:
        """Have nodes know the policies of pods before they start."""
        if self.policies is not None:
            self.policies.expect(pods, self.running)

    def _of_pod(self, error: Unavailable, of: spec.Pod) -> Unavailable:
        hint = f"'weft lab logs{self._lab.option} {of.node}' shows the daemon's side."
        where = f"pod {of.name} on {of.node}"
        return Unavailable(
            *(replace(problem, where=f"{where}: {problem.where}", hint=hint) for problem in error.problems)
        )


def refused(lab: spec.Lab, where: str, seen: str, expected: str = "") -> Problem:
    hint = f"'weft lab ps{lab.option}' shows what there is."
    return Problem("LAB-002", where, seen, expected=expected, hint=hint)


def unknown(lab: spec.Lab, what: str, name: str, known: Iterable[str]) -> ConfigError:
    return ConfigError(refused(lab, name, f"no {what} of this name", one_of(known, name)))


def _policies(lab: spec.Lab) -> "PolicyFiles | None":
    """Not even imported in labs without. Nodes of Kubernetes have policies from its API."""
    if lab.policies is None or lab.kubelets:
        return None
    from weft.lab.inside.policies import PolicyFiles

    return PolicyFiles(lab.policies)
