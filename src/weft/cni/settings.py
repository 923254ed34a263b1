"""Settings of network namespaces, below /proc/sys/net, and which of them a plugin may need."""

import errno
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final

from weft.cni.openat import open_root, openat2

_MAX_SETTING: Final = 4096
_NET_SETTINGS: Final = "/proc/sys/net"
# They have nothing to do in the container's namespace: it is named to them, and nothing of it is opened.
_OUTSIDE: Final = frozenset({"firewall", "host-local", "portmap", "static"})


class Settings:
    """The settings of one network namespace, through descriptors of the first-level directories of /proc/sys/net.

    A descriptor of /proc/sys/net itself would not do: below it names resolve in the namespace of the thread that
    uses it. Names start with `net/` (`net/ipv4/ip_forward`). Implements `weft.cni.host.Sysctls`.
    """

    def __init__(self, directories: Mapping[str, int]) -> None:
        self._directories = directories

    def read(self, name: str) -> str:
        """Return the value without its newline. `OSError` if it is missing or refused."""
        fd = self._open(name, os.O_RDONLY)
        try:
            return os.read(fd, _MAX_SETTING).decode().removesuffix("\n")
        finally:
            os.close(fd)

    def write(self, name: str, value: str) -> None:
        """Set the value. `OSError` if it is missing or refused."""
        fd = self._open(name, os.O_WRONLY)
        try:
            os.write(fd, value.encode())
        finally:
            os.close(fd)

    def same(self, name: str, fd: int) -> bool:
        """Tell whether `fd` is our directory `name`: the same one of another namespace has another inode."""
        ours = self._directories.get(name)
        return ours is not None and os.path.sameopenfile(ours, fd)

    def _open(self, name: str, flags: int) -> int:
        net, _, rest = name.partition("/")
        directory, _, path = rest.partition("/")
        if net != "net" or directory not in self._directories:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        return openat2(self._directories[directory], path, flags)


def open_settings(names: Iterable[str] | None = None) -> dict[str, int]:
    """Open first-level directories of /proc/sys/net, all if none are named, in the calling thread's namespace.

    The caller closes them. One that is not there is left out.
    """
    opened: dict[str, int] = {}
    for name in os.listdir(_NET_SETTINGS) if names is None else names:
        with suppress(FileNotFoundError, NotADirectoryError):
            opened[name] = open_root(f"{_NET_SETTINGS}/{name}")
    return opened


def is_outside(plugin: str) -> bool:
    """Tell whether a plugin works in the host's namespace alone; the client decides so too (outside, netns.c)."""
    return plugin in _OUTSIDE


def settings_for(plugin: str) -> tuple[str, ...] | None:
    """Return the directories of settings of the container that a plugin may need, None for all.

    Each costs a search among those of all namespaces of the machine, and so does each name of a list of them.
    """
    return None if plugin == "tuning" else ("ipv6",)
