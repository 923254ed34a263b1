"""Settings of network namespaces, below /proc/sys/net, and which plugins need none of the container's."""

import errno
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from weft.cni.host.openat import open_root, openat2
from weft.kernel import sysctl

_MAX_SETTING: Final = 4096
_NET_SETTINGS: Final = f"{sysctl.ROOT}/net"
# They have nothing to do in the container's namespace: it is named to them, and nothing of it is opened.
_OUTSIDE: Final = frozenset({"firewall", "host-local", "portmap", "static"})


class Settings:
    """The settings of one network namespace, through descriptors of the first-level directories of /proc/sys/net.

    A descriptor of /proc/sys/net itself would not do: below it names resolve in the namespace of the thread that uses
    it. Names start with `net/` (`net/ipv4/ip_forward`); `FileNotFoundError` for any other.
    """

    def __init__(self, directories: Mapping[str, int], more: Callable[[str], int] | None = None) -> None:
        """The caller closes the descriptors."""
        self._directories = dict(directories)
        self._more = more

    def read(self, name: str) -> str:
        fd = self._open(name, os.O_RDONLY)
        try:
            return os.read(fd, _MAX_SETTING).decode().removesuffix("\n")
        finally:
            os.close(fd)

    def write(self, name: str, value: str) -> None:
        fd = self._open(name, os.O_WRONLY)
        try:
            os.write(fd, value.encode())
        finally:
            os.close(fd)

    def same(self, name: str, fd: int) -> bool:
        ours = self._directories.get(name)
        return ours is not None and os.path.sameopenfile(ours, fd)

    def _open(self, name: str, flags: int) -> int:
        net, _, rest = name.partition("/")
        directory, _, path = rest.partition("/")
        known = directory in self._directories
        if net != "net" or not path or not (known or (self._more and directory.isidentifier())):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        if self._more and not known:
            self._directories[directory] = self._more(directory)
        return openat2(self._directories[directory], path, flags)


def open_all_settings() -> dict[str, int]:
    """Open those of the calling thread's namespace; the caller closes them."""
    opened: dict[str, int] = {}
    for name in os.listdir(_NET_SETTINGS):
        with suppress(FileNotFoundError, NotADirectoryError):
            opened[name] = open_settings(name)
    return opened


def open_settings(name: str) -> int:
    """`OSError` if it is not there."""
    return open_root(f"{_NET_SETTINGS}/{name}")


def is_outside(plugin: str) -> bool:
    """True for one that works in the host's namespace alone; the client decides so too (outside, netns.c)."""
    return plugin in _OUTSIDE
