"""Whether the state directory takes the records of a new pod: without them no plugin attaches it, nor a stand-in's.

It is asked, not written to: a trial each few seconds would be a write of the disk each time.
"""

import asyncio
import errno
import logging
from collections.abc import Callable
from typing import Final

from weft.beside.threads import bounded
from weft.model.errors import Problem

log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 5.0
# So many looks in a row without an answer are the disk's: a single one may have waited for a thread.
_MOST_UNANSWERED: Final = 3
# More than the records, locks and directories of one pod.
_BYTES: Final = 1 << 15
_FILES: Final = 8
_HINT: Final = "Pods keep their network, no new one is attached. Look at `df` and `df -i` of it"


class PodRecords:
    """`problem` is why none can be written at `path` now."""

    def __init__(self, path: str) -> None:
        self.problem: Problem | None = None
        self.path = path

    def tell(self, problem: Problem | None) -> None:
        """Take what is wrong now, and say it if it is new."""
        if problem == self.problem:
            return
        if problem is not None:
            log.warning("%s", problem)
        else:
            log.info("STATE-002 %s can be written again", self.path)
        self.problem = problem

    async def watch(self, check_room: Callable[[int, int], None]) -> None:
        """Ask, for ever, whether there is room for so many bytes in so many files."""
        unanswered = 0
        while True:
            try:
                await bounded(("records", self.path), lambda: check_room(_BYTES, _FILES), seconds=_LOOK_SECONDS)
            except OSError as error:
                unanswered = unanswered + 1 if error.errno == errno.ETIMEDOUT else _MOST_UNANSWERED
                if unanswered >= _MOST_UNANSWERED:
                    seen = f"cannot be written: {error.strerror}"
                    self.tell(Problem(code="STATE-002", where=self.path, seen=seen, hint=_HINT))
            else:
                unanswered = 0
                self.tell(None)
            await asyncio.sleep(_LOOK_SECONDS)
