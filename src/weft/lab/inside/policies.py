"""A lab's policies: one file, with the pods that they speak of, which the daemons of all nodes read."""

import asyncio
import json
from collections.abc import Iterable, Mapping
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
        found = await asyncio.gather(*(_has_taken(node, written, inside) for node in nodes))
        return [name for name in found if name]

    def _write(self, running: Mapping[str, RunningPod]) -> float:
        """Returns when."""
        pods = [of_spec(pod, ()) for name, pod in self._coming.items() if name not in running]
        pods += [of_spec(each.spec, [str(address.ip) for address in each.addresses]) for each in running.values()]
        new = filesystem.POLICIES / f"{_FILE}.new"
        new.write_text(json.dumps(listed([*self.objects.values(), *pods])))
        new.rename(filesystem.POLICIES / _FILE)
        return written_at(filesystem.POLICIES / _FILE)


async def _has_taken(node: RunningNode, written: float, inside: Inside) -> str:
    """Empty if it has, or if there is no daemon."""
    try:
        async with asyncio.timeout(_PATIENCE):
            while node.process:
                state = await control.state(inside, node.room, node.process)
                if state is not None and (state.policies or 0.0) >= written:
                    return ""
                await asyncio.sleep(_LOOK_AGAIN)
    except TimeoutError:
        return node.spec.name
    return ""
