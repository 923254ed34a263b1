"""Network namespaces for tests, without names: they are gone with the threads and descriptors that hold them.

`inside(work)` runs `work` in a thread in a new namespace; programs started there are in it too. Everything that
opens files below /proc in such a thread must say /proc/thread-self, for /proc/self is the main thread.
"""

import ctypes
import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def inside(work: Callable[[], T]) -> T:
    """Run `work` in a thread of its own in a new network namespace, whose lo is up."""

    def in_thread() -> T:
        _check(_libc.unshare(_CLONE_NEWNET))
        run("ip", "link", "set", "lo", "up")
        return work()

    # A thread cannot leave its namespace for the old one without holding it, so it is not used again.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(in_thread).result()


def run(*argv: str, stdin: str = "", check: bool = True) -> str:
    """Run a program in this thread's namespace and return what it printed."""
    done = subprocess.run(argv, input=stdin, capture_output=True, text=True, check=False, timeout=200)
    if check and done.returncode:
        raise AssertionError(f"{argv}: exit {done.returncode}: {done.stderr}{done.stdout}")
    return done.stdout


def write(path: str, value: str) -> None:
    """Write a sysctl (`net/ipv4/ip_forward`) of this thread's namespace."""
    Path("/proc/sys", path).write_text(value, "ascii")


class Namespace:
    """Another namespace, held by a descriptor."""

    def __init__(self) -> None:
        self.fd = inside(lambda: os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC))
        self.path = f"/proc/{os.getpid()}/fd/{self.fd}"

    def run(self, *argv: str) -> str:
        return run("nsenter", f"--net={self.path}", "--", *argv)

    def do(self, work: Callable[[], T]) -> T:
        """Run `work` in a thread that is in this namespace."""

        def in_thread() -> T:
            _check(_libc.setns(self.fd, _CLONE_NEWNET))
            return work()

        with ThreadPoolExecutor(1) as thread:
            return thread.submit(in_thread).result()

    def udp(self, address: str, port: int) -> socket.socket:
        """Open a bound UDP socket that lives here, whoever uses it."""
        return self.do(lambda: udp(address, port))


@contextmanager
def namespace() -> Iterator[Namespace]:
    """Make another namespace for as long as the block runs."""
    made = Namespace()
    try:
        yield made
    finally:
        os.close(made.fd)


def udp(address: str, port: int) -> socket.socket:
    """Open a bound UDP socket in this thread's namespace; what it waits for comes within 2 s or not at all."""
    sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
    sock.settimeout(2)
    sock.bind((address, port))
    return sock


def _check(result: int) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
