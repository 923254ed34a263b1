"""Listens to what the kernel says about a namespace's routes, neighbours and FDB entries, without asking it anything.

A clock for measurements: it costs the daemon under test nothing but the second core.
"""

import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Mapping
from typing import Self

from tests.support.netns import Netns

ROUTE, NO_ROUTE, NEIGH, NO_NEIGH, LINK, NO_LINK = 24, 25, 28, 29, 16, 17  # linux/rtnetlink.h
_GROUPS = 0x1 | 0x4 | 0x40 | 0x400  # RTMGRP_LINK, NEIGH, IPV4_ROUTE, IPV6_ROUTE
_SO_RCVBUFFORCE = 33
_BUFFER = 256 << 20
BRIDGE = 7  # AF_BRIDGE: a neighbour message of this family is an FDB entry
INET = 2

_HEADER = 16  # struct nlmsghdr
_STATE = struct.Struct("=8xH")  # struct ndmsg: family, padding, interface index; then the state (linux/neighbour.h)
_PERMANENT = 0x80  # NUD_PERMANENT

Kind = tuple[int, int]  # message type, family


class Notices:
    """Counts notices by kind and remembers when each kind came last. Use as a context.

    Neighbours and FDB entries count only as permanent ones, as a daemon puts them: `ip neigh del` makes the kernel tell
    of a failed neighbour before it tells that the neighbour is gone.
    """

    def __init__(self, netns: Netns) -> None:
        self._socket = netns.call(self._open)
        self._lock = threading.Condition()
        self._counts: Counter[Kind] = Counter()
        self._last: dict[Kind, float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._listen, daemon=True)

    @staticmethod
    def _open() -> socket.socket:
        sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER)
        sock.bind((0, _GROUPS))
        sock.settimeout(0.2)  # how long the end of a measurement may wait for the thread
        return sock

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._socket.close()

    def reset(self) -> None:
        """Forget what was counted."""
        with self._lock:
            self._counts.clear()
            self._last.clear()

    def wait(self, want: Mapping[Kind, int], *, seconds: float = 30.0) -> float:
        """Wait until as many notices of each kind came; returns when the last of them did (perf_counter)."""
        with self._lock:
            if not self._lock.wait_for(lambda: all(self._counts[kind] >= n for kind, n in want.items()), seconds):
                raise TimeoutError(f"wanted {dict(want)}, saw {dict(self._counts)}")
            return max(self._last[kind] for kind in want)

    def _listen(self) -> None:
        while not self._stop.is_set():
            try:
                data = self._socket.recv(65536)
            except TimeoutError:
                continue
            now, offset = time.perf_counter(), 0
            with self._lock:
                while offset + 17 <= len(data):
                    length, message = struct.unpack_from("=IH", data, offset)
                    kind = (message, data[offset + _HEADER])
                    if message != NEIGH or _STATE.unpack_from(data, offset + _HEADER)[0] & _PERMANENT:
                        self._counts[kind] += 1
                        self._last[kind] = now
                    offset += (length + 3) & ~3
                self._lock.notify_all()
