"""Network namespaces for tests and benchmarks: make one, open one, run something inside one.

A namespace belongs to a thread. So that no thread of ours is ever left in another's, everything here runs in a
thread of its own that ends with it. What must stay inside (a socket) is opened there and used from anywhere.
"""

import ctypes
import os
import socket
import threading
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from weft.kernel.rtnetlink.rtnl import Rtnl

T = TypeVar("T")

_CLONE_NEWNET: Final = 0x40000000
_OWN: Final = "/proc/thread-self/ns/net"


def create() -> int:
    """Make a network namespace; returns a descriptor that keeps it alive. Needs CAP_SYS_ADMIN."""

    def unshare() -> int:
        _call("unshare", _CLONE_NEWNET)
        return open_path(_OWN)

    return _Thread(unshare).result()


def open_path(path: str | os.PathLike[str]) -> int:
    """A descriptor of the namespace at `path` (`/run/netns/NAME`, `/proc/PID/ns/net`). Raises OSError."""
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def open_own() -> int:
    """A descriptor of the calling thread's namespace."""
    return open_path(_OWN)


def same(first: int, second: int) -> bool:
    """Tell whether two descriptors are of one namespace."""
    one, other = os.fstat(first), os.fstat(second)
    return (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)


def enter(namespace: int) -> None:
    """Put the calling thread into the namespace of a descriptor, for good: for new threads and children only."""
    _call("setns", namespace, _CLONE_NEWNET)


def run_in(namespace: int, function: Callable[[], T]) -> T:
    """Run `function` inside the namespace of a descriptor and wait; what it raises is raised here.

    In a thread of its own, which ends with it. Needs CAP_SYS_ADMIN.
    """

    def inside() -> T:
        enter(namespace)
        return function()

    return _Thread(inside).result()


def socket_in(namespace: int, family: int, kind: int, protocol: int) -> socket.socket:
    """A socket that lives in the namespace of a descriptor."""
    return run_in(namespace, lambda: socket.socket(family, kind | socket.SOCK_CLOEXEC, protocol))


def rtnl_in(namespace: int) -> Rtnl:
    """Rtnetlink of the namespace of a descriptor."""
    return Rtnl(socket_in(namespace, socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE))


class _Thread(Generic[T]):
    """A call in a thread of its own, with its result or its exception."""

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self._results: list[T] = []
        self._error: BaseException | None = None

    def result(self) -> T:
        thread = threading.Thread(target=self._run, name="netns", daemon=True)
        thread.start()
        thread.join()
        if self._error is not None:
            raise self._error
        return self._results[0]

    def _run(self) -> None:
        try:
            self._results.append(self._function())
        except BaseException as error:  # noqa: BLE001  it is raised again where it was asked for
            self._error = error


def _call(name: str, *arguments: int) -> None:
    """A system call of libc that Python 3.11 does not offer. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc[name](*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
