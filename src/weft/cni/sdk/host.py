"""What a plugin gets and what it may use: a request, an answer, and the `Host` between them.

A plugin works for clients that see other files than its own process does. It must therefore reach the world through
`Host` alone: no path is opened, no process started, no namespace entered, no clock or environment read by a plugin
itself.

All calls are synchronous. `weft.cni.serve.plugins.run` is called in a worker thread, one request a thread, and the
`Rtnl` objects of a host belong to that request alone while it runs.
"""

import socket
from collections.abc import Callable, Mapping, MutableMapping
from contextlib import AbstractContextManager
from typing import Final, Protocol

from weft.kernel.netfilter.nfnetlink import NfSocket
from weft.kernel.rtnetlink.rtnl import Rtnl
from weft.model.kernel.marks import ALIAS
from weft.model.net import Ip
from weft.model.value import Value, field
from weft.wire.cni import Ran

# The alias of a link that is to be deleted: what a crash leaves is found by it.
RETIRED: Final = f"{ALIAS}retired"
# How the names of files begin that are being written and have not got their own name yet.
TEMPORARY: Final = ".weft-"


class Request(Value):
    """One call of a plugin. `command` is CNI_COMMAND (empty: not set); `env` holds the other `CNI_*` variables too.

    `stdin` is what the runtime wrote, unchanged; `stdin_error` says why it could not be read, else is empty. `waited`
    is how many seconds it took until it was this call's turn.
    """

    plugin: str
    command: str
    env: Mapping[str, str]
    stdin: bytes
    stdin_error: str = ""
    waited: float = 0.0


class ClientGone(Exception):
    """The client has left while it was asked to run a delegate: what was done must be undone, without delegates."""


class Files(Protocol):
    """Files below one root; every path is absolute in that root (`/var/lib/cni/x`), symbolic links stay inside it.

    Failures are `OSError` with the kernel's errno (`FileNotFoundError`, `FileExistsError`, …). Modes are exact:
    the umask does not apply. Nothing is fsynced: no file of a plugin outlives a boot in value (settled.md §9).
    """

    def read(self, path: str) -> bytes:
        """Return the whole content of a regular file; `Spoilt` if it is none, or larger than any of ours."""
        ...

    def write_new(self, path: str, data: bytes, *, mode: int = 0o600) -> None:
        """Make a file that is complete from its first moment; `FileExistsError` if the name is taken.

        A temporary file `.weft-*` beside it gets the content and then the name, so that a crash leaves the whole
        file or at most the temporary one.
        """
        ...

    def replace(self, path: str, data: bytes, *, mode: int = 0o600, parents: int | None = None) -> None:
        """Put `data` in place of whatever is there, by rename: a reader sees the old content or the new.

        With `parents` directories on the way that are missing are made, with that mode.
        """
        ...

    def rewrite(self, path: str, data: bytes, *, mode: int = 0o600) -> None:
        """Write `data` over the old content, or make the file: for hints, of which a crash may leave a mixture."""
        ...

    def unlink(self, path: str) -> None: ...

    def set_aside(self, path: str) -> str:
        """Rename what lies there, so that the name is free; returns the new name, empty if that is impossible."""
        ...

    def list(self, path: str) -> list[str]:
        """Return the names in a directory, in no order."""
        ...

    def connect(self, path: str, *, seconds: float) -> socket.socket:
        """Return a unix stream socket that is connected to this name and waits at most so long for anything."""
        ...

    def makedirs(self, path: str, *, mode: int = 0o755) -> None:
        """Make a directory and its parents, all with `mode`; those that exist stay as they are."""
        ...

    def stamp(self, path: str) -> tuple[int, int, int]:
        """Return device, inode and modification time (ns) of a directory: equal stamps mean nothing came or went."""
        ...

    def modified(self, path: str) -> int:
        """Return a file's time of modification, in nanoseconds."""
        ...

    def lock(self, path: str, *, mode: int = 0o600) -> AbstractContextManager[None]:
        """Hold an exclusive flock on a file, made if missing, opened for reading only. Threads exclude each other.

        `BlockingIOError` if another program does not give it free within some seconds.
        """
        ...


class Sysctls(Protocol):
    """The settings of one network namespace; names have slashes and start with `net/` (`net/ipv4/ip_forward`)."""

    def read(self, name: str) -> str:
        """Return the value without its newline. `OSError` if it is missing or refused."""
        ...

    def write(self, name: str, value: str) -> None:
        """Set the value. `OSError` if it is missing or refused."""
        ...


class Container(Value):
    """The container's network namespace, opened by the client: never by path in the daemon."""

    rtnl: Rtnl
    sysctls: Sysctls
    netns_fd: int


class StoreView(Value, kw_only=False, frozen=False):
    """What a host-local directory held at `stamp`: who has each address (file contents), and the reverse."""

    stamp: tuple[int, int, int] = (0, 0, 0)
    owners: dict[Ip, bytes] = field(default_factory=dict)
    addresses: dict[bytes, set[Ip]] = field(default_factory=dict)
    # The addresses of living pods when the directory was read; None until they are asked for.
    living: frozenset[Ip] | None = None


# Kept by the daemon between requests, by device and inode of the directory. Losing it costs time only. An entry is
# read and changed only under the flock of its directory.
StoreViews = MutableMapping[tuple[int, int], StoreView]


class Host(Protocol):
    """What plugin code may use."""

    @property
    def rtnl(self) -> Rtnl:
        """A socket in the host's namespace (the namespace of the plugin's caller)."""
        ...

    @property
    def netfilter(self) -> NfSocket:
        """A socket for nf_tables and conntrack in the host's namespace. `OSError` where the kernel has neither."""
        ...

    @property
    def netns_fd(self) -> int:
        """The host's namespace, for `IFLA_NET_NS_FD`."""
        ...

    @property
    def namespace(self) -> tuple[int, int]:
        """Device and inode of the host's namespace: what is missing elsewhere is no proof that it is gone."""
        ...

    @property
    def sysctls(self) -> Sysctls:
        """The host's settings."""
        ...

    @property
    def container(self) -> Container | None:
        """The namespace of CNI_NETNS; None if that is empty, gone or unusable."""
        ...

    @property
    def netns_gone(self) -> bool:
        """True when CNI_NETNS leads to no network namespace, whatever is there: to DEL, that is a namespace gone."""
        ...

    @property
    def netns_problem(self) -> str:
        """Why CNI_NETNS could not be used, in the words of cni.md §1.18; empty if it could, or was not given."""
        ...

    @property
    def same_namespace(self) -> bool:
        """True when CNI_NETNS is the host's own namespace (same st_dev and st_ino)."""
        ...

    @property
    def files(self) -> Files:
        """The client's file system: all paths of plugin configuration."""
        ...

    @property
    def state(self) -> Files:
        """Below `--state-dir`: what we know beyond upstream's files. `/` is the directory for CNI state."""
        ...

    @property
    def stores(self) -> StoreViews:
        """Memory of host-local directories."""
        ...

    @property
    def boot_id(self) -> str:
        """/proc/sys/kernel/random/boot_id: records with another one are stale."""
        ...

    def claim(self, container_id: str) -> AbstractContextManager[bool]:
        """Keep all requests of a container away meanwhile. False, at once, if one is running."""
        ...

    def random(self, count: int) -> bytes:
        """Return `count` random bytes."""
        ...

    def delegate(self, name: str, command: str, env: Mapping[str, str], stdin: bytes) -> Ran | None:
        """Run a program of CNI_PATH with the client's environment, `CNI_COMMAND` and `env` changed.

        None: CNI_PATH holds no regular file of that name. "Text file busy" has been retried (cni.md §2.5).
        Raises `ClientGone`.
        """
        ...

    def retire(self, index: int) -> None:
        """Delete a link of the host's namespace later, by index. It is down, off its bridge and marked `RETIRED`."""
        ...

    def lease_problem(self) -> str:
        """Why the daemon has written no subnet.env yet, for people; empty if it does not know of any reason."""
        ...

    def unready(self) -> str:
        """Why the running daemon says that pods cannot be served now, for people; empty if they can, or without it."""
        ...

    def lease_comes(self, written: Callable[[], bool]) -> bool:
        """Wait some seconds while the daemon starts; tell whether it has written subnet.env, which `written` tells.

        False where no daemon is awaited.
        """
        ...
