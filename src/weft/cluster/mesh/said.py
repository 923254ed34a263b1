"""What the core of a mesh says for people: it is logged, and noted in the history."""

import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from weft.cluster.mesh.leases import Leasebook
from weft.model.mesh.effects import Say
from weft.model.node.history import History
from weft.model.node.meshstate import MeshSaid
from weft.model.value import replace

log = logging.getLogger(__name__)

_NEWEST: Final = 200


class Said:
    """The core speaks of blocks; of which subnets these are, `book` knows."""

    def __init__(self, book: Leasebook, now: Callable[[], float], history: History) -> None:
        self._newest: deque[tuple[float, Say]] = deque(maxlen=_NEWEST)
        self._book = book
        self._now = now
        self._history = history

    @property
    def newest(self) -> tuple[MeshSaid, ...]:
        now = self._now()
        return tuple(MeshSaid(seconds=now - when, text=say.text, problem=say.problem) for when, say in self._newest)

    def take(self, said: Say) -> None:
        text, problem = said.text, said.problem
        runs = ", ".join(map(self._run, said.blocks))
        if problem is None:
            text = f"{text}: {runs}" if runs else text
            log.info("mesh: %s", text)
            self._history.note("ring", "mesh", words=text)
        else:
            problem = replace(problem, seen=f"{runs}: {problem.seen}") if runs else problem
            log.warning("%s", problem)
            self._history.note("ring", problem.where, code=problem.code, words=problem.seen)
        self._newest.append((self._now(), replace(said, text=text, problem=problem)))

    def _run(self, blocks: tuple[int, int]) -> str:
        ends = dict.fromkeys((blocks[0], blocks[1] - 1))
        return " to ".join(" ".join(self._book.subnets(end)) or f"block {end}" for end in ends)
