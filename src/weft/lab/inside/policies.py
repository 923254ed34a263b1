"""A lab's policies: one file, with the pods that they speak of, which the daemons of all nodes read."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

from weft.cluster.policysource import written_at
from weft.lab.inside import control, filesystem
from weft.lab.inside.namespaces import Inside
from weft.lab.inside.node import RunningNode
from weft.lab.inside.pod import RunningPod
from weft.lab.manifests import Manifest, by_name, listed, of_spec
from weft.lab.spec import Pod

_FILE: Final = "lab.json"
_LOOK_AGAIN: Final = 0.05  # seconds
_ASKED: Final = 10  # names in one question
_PATIENCE: Final = 30.0  # seconds until a change is in effect: half of one, on a busy machine many
_PATH: Final = filesystem.KUBE_FLANNEL / filesystem.POLICIES.name  # as nodes see it


class PolicyFiles:
    """`objects` are policies and namespaces, by their names."""

    flags: Final = ("--network-policy=enforce", f"--network-policy-files={_PATH}")

    def __init__(self, objects: Iterable[Manifest]) -> None:
        self.objects = by_name(objects)
        self._coming: dict[str, Pod] = {}
        filesystem.POLICIES.mkdir(exist_ok=True)

    def expect(self, pods: Iterable[Pod], running: Mapping[str, RunningPod]) -> None:
        """Have nodes know pods before they are attached: until then ADD waits."""
        more = {pod.name: pod for pod in pods if pod.name not in self._coming}
        if more:
            self._coming |= more
            self._write(running)

    def forget(self, pod: str) -> None:
        """One that has not come."""
        self._coming.pop(pod, None)

    async def settled(
        self, running: Mapping[str, RunningPod], nodes: Iterable[RunningNode], inside: Inside
    ) -> list[str]:
        """Wait until all daemons have in effect what there is now; names those that do not in time."""
        self._coming = {name: pod for name, pod in self._coming.items() if name not in running}
        written = self._write(running)

        async def has_taken(node: RunningNode) -> bool:
            """One without a daemon, or whose daemon enforces none, takes nothing, and is not waited for."""
            if not (node.process and node.policed):
                return True
            state = await control.state(inside, node.room, node.process)
            return state is not None and (state.policies or 0.0) >= written

        return await _late(nodes, has_taken)

    def _write(self, running: Mapping[str, RunningPod]) -> float:
        """Returns when."""
        pods = [of_spec(pod, ()) for name, pod in self._coming.items() if name not in running]
        pods += [of_spec(each.spec, [str(address.ip) for address in each.addresses]) for each in running.values()]
        new = filesystem.POLICIES / f"{_FILE}.new"
        new.write_text(json.dumps(listed([*self.objects.values(), *pods])))
        new.rename(filesystem.POLICIES / _FILE)
        return written_at(filesystem.POLICIES / _FILE)


async def settled_in_api(nodes: Iterable[RunningNode], inside: Inside, forms: Mapping[str, str]) -> list[str]:
    """Wait until nodes of Kubernetes have in effect what its API has; names those that do not in time.

    `forms` are those of policies and namespaces, by their names; empty of what is gone.
    """
    names = list(forms)

    async def has_taken(node: RunningNode) -> bool:
        for start in range(0, len(names), _ASKED):
            some = names[start : start + _ASKED]
            told = await control.policies(inside, node.room, node.process, some)
            if told is None or not told.settled or any(told.forms.get(name, "") != forms[name] for name in some):
                return False
        return True

    return await _late(nodes, has_taken)


async def _late(nodes: Iterable[RunningNode], has_taken: Callable[[RunningNode], Awaitable[bool]]) -> list[str]:
    async def name_of_late(node: RunningNode) -> str:
        try:
            async with asyncio.timeout(_PATIENCE):
                while not await has_taken(node):  # noqa: ASYNC110 - a daemon is asked, and does not tell
                    await asyncio.sleep(_LOOK_AGAIN)
        except TimeoutError:
            return node.spec.name
        return ""

    return [name for name in await asyncio.gather(*map(name_of_late, nodes)) if name]
