"""Links are deleted after the answer, in groups: a deletion waits 16 ms for a grace period, a group waits once.

Nothing can reach a link that comes here. It is found by index: its name may belong to its successor by then. What a
crash leaves is found by its alias.
"""

import errno
import logging
import secrets
import threading
import time
from queue import Empty, SimpleQueue
from typing import Final

from weft.beside.threads import start_thread
from weft.cni.host.host import RETIRED
from weft.kernel.rtnetlink.netlink import NetlinkError
from weft.kernel.rtnetlink.rtnl import Rtnl

# A group of 40 held up another socket's route change for 8 ms, one of 16 for less than 4.
_GROUP: Final = 16
# Long enough to collect the links of pods that go together, short beside what the kernel takes.
_GATHER_SECONDS: Final = 0.02

_log = logging.getLogger(__name__)


class Retirement:
    """Deletes retired links of the namespace it was made in. Any thread may call `retire`."""

    def __init__(self) -> None:
        self._rtnl = Rtnl.open()
        self._queue: SimpleQueue[int | None] = SimpleQueue()
        for link in self._rtnl.links():
            if link.alias == RETIRED:
                self._queue.put(link.index)
        self._deleting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._begin()

    def retire(self, index: int) -> None:
        """At once where no thread can be started."""
        self._queue.put(index)
        if self._thread is None and not self._begin():
            with self._deleting:
                group, _ = self._gather()
                self._delete(group)

    def close(self) -> None:
        self._queue.put(None)
        if self._thread is not None:
            self._thread.join()
        self._rtnl.close()

    def _work(self) -> None:
        while (first := self._queue.get()) is not None:
            time.sleep(_GATHER_SECONDS)
            group, last = self._gather(first)
            with self._deleting:
                self._delete(group)
            if last:
                return

    def _begin(self) -> bool:
        try:
            self._thread = start_thread(self._work, name="cni-retire")
        except OSError:
            return False
        return True

    def _gather(self, *first: int) -> tuple[list[int], bool]:
        """Also tell whether the end was among it."""
        group = [*first]
        try:
            while len(group) < _GROUP:
                index = self._queue.get_nowait()
                if index is None:
                    return group, True
                group.append(index)
        except Empty:
            pass
        return group, False

    def _delete(self, group: list[int]) -> None:
        if not group:
            return
        try:
            # Any unused number would do; a fresh one cannot take along what another program has put into an old one.
            self._rtnl.delete_links(group, group=secrets.randbits(30) | 1 << 30)
        except NetlinkError as error:
            # They went by themselves when the container's namespace went.
            if error.errno != errno.ENODEV:
                _log.warning("retired links not deleted: indexes=%s error=%s", group, error)
