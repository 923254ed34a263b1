"""What planes of back ends share, whose objects processes or other sockets of netlink keep."""

import errno
import os
import socket
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final

from weft.beside.threads import beside
from weft.kernel import ending, tun
from weft.kernel.portholders import with_holder
from weft.model.errors import Failure
from weft.model.kernel.objects import Key, Object, Objects
from weft.plan.diff import Step

START_SECONDS: Final = 3.0  # Python takes a tenth of it
_DEVICE_SECONDS: Final = 1.0  # for the plane of links to make the device, which runs beside
_LOOK_AGAIN: Final = 0.002


class ThreadPlane:
    """A plane that looks and acts in a thread, one call at a time. Nothing announces what others change there."""

    announces = False
    blind = False
    counts: Mapping[str, int] = {}

    async def look(self, known: Objects, _only: Collection[Key] | None, /) -> dict[Key, Object]:
        """See all."""
        return await beside(partial(self._look, known))

    async def apply(self, steps: Sequence[Step], /) -> list[Failure]:
        return await beside(partial(self._apply, steps))

    def close(self) -> None:
        """Leave all as it is: packets go on."""

    def _look(self, known: Objects, /) -> dict[Key, Object]:
        raise NotImplementedError

    def _apply(self, steps: Sequence[Step]) -> list[Failure]:
        raise NotImplementedError


class Children:
    """Processes that outlive this one, which reaps those that end.

    They end with their network namespace (`weft.kernel.ending`).
    """

    def __init__(self) -> None:
        self._pids: set[int] = set()

    def add(self, pid: int) -> None:
        self._pids |= {pid, ending.guard(pid)} - {0}

    def reap(self) -> dict[int, int]:
        """Take the statuses of those that have ended, by process id."""
        ended = {pid: status for pid, status in (os.waitpid(each, os.WNOHANG) for each in self._pids) if pid}
        self._pids -= ended.keys()
        return ended

    def wait_for(self, pid: int, answers: Callable[[], bool]) -> None:
        """Wait until a new process answers. `OSError` if it ends before, or takes too long."""
        end = time.monotonic() + START_SECONDS
        while not answers():
            status = self.reap().get(pid)
            if status is not None:
                code = os.waitstatus_to_exitcode(status)
                raise OSError(errno.ECHILD, f"process {pid} has ended with status {code}")
            if time.monotonic() > end:
                raise OSError(errno.ETIMEDOUT, f"process {pid} does not answer")
            time.sleep(_LOOK_AGAIN)

    def wait_for_end(self) -> None:
        end = time.monotonic() + START_SECONDS
        while self.reap() or (self._pids and time.monotonic() < end):
            time.sleep(_LOOK_AGAIN)


def wait_for_device(name: str, *, one_queue: bool = False) -> None:
    """Wait a moment for a link, and for the one queue of a TUN device, which its maker holds for a moment.

    Raises `OSError` (ENODEV, EBUSY).
    """
    end = time.monotonic() + _DEVICE_SECONDS
    while True:
        try:
            socket.if_nametoindex(name)
            if one_queue:
                tun.take_queue(name)
        except OSError as error:
            if time.monotonic() > end:
                why = f"another process has {name}" if error.errno == errno.EBUSY else f"there is no link {name}"
                raise OSError(error.errno or errno.ENODEV, why) from None
            time.sleep(_LOOK_AGAIN)
        else:
            return


def attempt(steps: Sequence[Step], work: Callable[[], None]) -> list[Failure]:
    """Do `work` for all steps at once; an `OSError` is the failure of each."""
    try:
        work()
    except OSError as error:
        return [failed(step, error) for step in steps]
    return []


def failed(step: Step, error: OSError) -> Failure:
    number = error.errno or errno.EIO
    message = with_holder(error.strerror or str(error), number, step.object.port)
    return Failure(step=step, errno=number, message=message)
