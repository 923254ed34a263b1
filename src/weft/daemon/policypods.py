"""The attachments of this node that policies are decided for: which there are, and which pods they are of."""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final

from weft.desired.policy.inputs import UNKNOWN, Attached, Mode
from weft.model.errors import Problem
from weft.model.net import Ip
from weft.model.policy import Pod, Thing
from weft.model.text import some_of
from weft.model.value import replace

_NAMED: Final = 5  # pods in one message

Attachments = Mapping[str, Attached]  # by the key of each


class PodsHere:
    """Attachments come and go before it is known which were there at the start (`found`)."""

    def __init__(self) -> None:
        self.attached: dict[str, Attached] = {}
        self._gone: set[str] | None = set()  # since the look at who lives began; None once it has ended

    def look(self) -> None:
        self._gone = set()

    def found(self, living: Attachments) -> None:
        """What the look has seen, but for what changed meanwhile."""
        gone, self._gone = self._gone or (), None
        self.attached = {key: each for key, each in living.items() if key not in gone} | self.attached

    def detach(self, key: str) -> None:
        self.attached.pop(key, None)
        if self._gone is not None:
            self._gone.add(key)

    def identified(self, told: Collection[Thing], things: Collection[Thing]) -> Iterator[tuple[str, Attached]]:
        """Find the owners of attachments that have no record, by the addresses that they were given.

        They are among `things`; attachments to which none of `told` fits are left out.
        """
        for key, each in [*self.attached.items()]:
            if each.pod != UNKNOWN or not each.ips or not any(_has(pod, each.ips) for pod in told):
                continue
            owners = [pod for pod in things if _has(pod, each.ips)]
            if len(owners) == 1 and isinstance(owners[0], Pod):
                self.attached[key] = replace(each, pod=str(owners[0]), uid=owners[0].uid)
                yield key, self.attached[key]

    def unready(self, is_ready: Callable[[str], bool], mode: Mode, advice: str) -> Problem | None:
        """Pods that were attached before and that nobody has said anything of: one that comes now waits for that."""
        names = sorted(each.pod for key, each in self.attached.items() if not is_ready(key))
        if not names:
            return None
        what = "are refused" if mode == "enforce" else "would be refused"
        seen = f"no Pod is read for what runs here as {some_of(names, _NAMED)}: packets {what}"
        return Problem(code="POL-003", where="policies", seen=seen, hint=advice)


def _has(thing: Thing, ips: tuple[Ip, ...]) -> bool:
    """Tell whether it is a pod with these addresses."""
    return isinstance(thing, Pod) and thing.counts and set(ips) <= set(thing.ips)
