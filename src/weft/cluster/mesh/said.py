"""What the core of a mesh says for people: it is logged, and the newest is remembered."""

import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from weft.cluster.mesh.leases import Leasebook
from weft.model.mesh.effects import Say
from weft.model.node.meshstate import MeshSaid
from weft.model.value import replace

log = logging.getLogger(__name__)

_NEWEST: Final = 200


class Said:
    """The core speaks of blocks; of which subnets these are, `book` knows."""

    def __init__(self, book: Leasebook, now: Callable[[], float]) -> None:
        self._newest: deque[tuple[float, Say]] = deque(maxlen=_NEWEST)
        self._book = book
        self._now = now

    @property
    def newest(self) -> tuple[MeshSaid, ...]:
        now = self._now()
        return tuple(MeshSaid(seconds=now - when, text=say.text, problem=say.problem) for when, say in self._newest)

    def take(self, said: Say) -> None:
        problem = said.problem
        if problem is not None and said.blocks:
            runs = ", ".join(map(self._run, said.blocks))
            problem = replace(problem, seen=f"{runs}: {problem.seen}")
        self._newest.append((self._now(), replace(said, problem=problem)))
        if problem is None:
            log.info("mesh: %s", said.text)
        else:
            log.warning("%s", problem)

    def _run(self, blocks: tuple[int, int]) -> str:
        ends = dict.fromkeys((blocks[0], blocks[1] - 1))
        return " to ".join(" ".join(self._book.subnets(end)) or f"block {end}" for end in ends)
