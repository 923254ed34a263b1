"""Waiting for a file to appear, without looking again and again (inotify(7))."""

import asyncio
import ctypes
import os
import struct
from collections.abc import Iterator
from typing import Final

# linux/inotify.h
_IN_CLOSE_WRITE: Final = 0x8
_IN_MOVED_TO: Final = 0x80
_EVENT: Final = struct.Struct("=iIII")

_libc: Final = ctypes.CDLL(None, use_errno=True)


class Arrivals:
    """Tells when files are written or renamed into directories. One per event loop is enough."""

    def __init__(self) -> None:
        self._descriptor = _libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        if self._descriptor < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        self._wanted: dict[tuple[int, bytes], asyncio.Event] = {}
        asyncio.get_running_loop().add_reader(self._descriptor, self._read)

    def expect(self, directory: int, name: str) -> asyncio.Event:
        """Return an event that is set once `name` is in `directory`, which is an open descriptor."""
        path = f"/proc/self/fd/{directory}".encode()
        watch = _libc.inotify_add_watch(self._descriptor, path, _IN_CLOSE_WRITE | _IN_MOVED_TO)
        if watch < 0:
            raise OSError(ctypes.get_errno(), "inotify_add_watch")
        event = self._wanted.setdefault((watch, name.encode()), asyncio.Event())
        if name in os.listdir(directory):
            event.set()
        return event

    def _read(self) -> None:
        for watch, name in _events(os.read(self._descriptor, 1 << 16)):
            event = self._wanted.pop((watch, name), None)
            if event is not None:
                event.set()


def _events(data: bytes) -> Iterator[tuple[int, bytes]]:
    start = 0
    while start < len(data):
        watch, _, _, length = _EVENT.unpack_from(data, start)
        start += _EVENT.size
        yield watch, data[start : start + length].rstrip(b"\0")
        start += length
