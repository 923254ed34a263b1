"""What a plugin gets and what it may use: a request, and the `Host` over open descriptors that the client has sent.

Clients see other files than this process does. A plugin reaches the world through `Host` alone: it opens no path,
starts no process, enters no namespace, and reads neither a clock nor the environment itself. The descriptors belong to
the caller of `Host`, who closes them.

All calls are synchronous, in a worker thread for each request, to which the `Rtnl` objects belong while it runs.
"""

import errno
import os
import socket
from collections.abc import Callable, Mapping, MutableMapping
from contextlib import AbstractContextManager
from fcntl import ioctl
from typing import Final, Protocol

from weft.cni.host import locks
from weft.cni.host.files import RootedFiles
from weft.cni.host.openat import open_root
from weft.cni.host.state import open_state
from weft.cni.host.sysctls import Settings, is_outside, open_all_settings
from weft.kernel.namespaces import CLONE_NEWNET
from weft.kernel.netfilter.nfnetlink import NfSocket
from weft.kernel.rtnetlink.rtnl import Rtnl
from weft.model.errors import Problem
from weft.model.kernel.marks import ALIAS
from weft.model.net import Ip
from weft.model.value import Value, field
from weft.wire import cni
from weft.wire.cni import CniError, Ran

# The alias of a link that is to be deleted: what a crash leaves is found by it.
RETIRED: Final = f"{ALIAS}retired"
_SIOCGSKNS: Final = 0x894C  # linux/sockios.h: a descriptor of a socket's network namespace
# asm-generic/socket.h: Python names neither.
_SO_PROTOCOL: Final = 38
_SO_DOMAIN: Final = 39
_NS_GET_NSTYPE: Final = 0xB703  # linux/nsfs.h
_ERRNO_DIGITS: Final = 4  # MAX_ERRNO is 4095 (linux/err.h)
NamespaceId = tuple[int, int]
_GONE: Final = frozenset(
    f"{step} {number}"
    for step, numbers in {
        "statfs": (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG),
        "open": (errno.ENOENT, errno.ENOTDIR, errno.ESRCH, errno.ENXIO),
        "setns": (errno.EINVAL,),
    }.items()
    for number in numbers
)
_BOOT_ID: Final = "/sys/kernel/random/boot_id"
# Waits some seconds while the daemon starts; tells whether it has written subnet.env, which its argument tells. False
# where no daemon is awaited.
LeaseComes = Callable[[Callable[[], bool]], bool]
# Runs a program of CNI_PATH by name and command, with changes of the client's environment and stdin. None: there is no
# regular file of that name. "Text file busy" has been retried (cni.md §2.5). Raises `ClientGone`.
Delegate = Callable[[str, str, Mapping[str, str], bytes], Ran | None]


class Request(Value):
    """`command` is empty if CNI_COMMAND is not set. `waited` says how many seconds a call waited for its turn."""

    plugin: str
    command: str
    env: Mapping[str, str]
    stdin: bytes
    stdin_error: str = ""
    waited: float = 0.0


class ClientGone(Exception):
    """The client left while it was to run a delegate: what was done must be undone, without delegates."""


class Container(Value):
    """The container's network namespace, opened by the client: never by path in the daemon."""

    rtnl: Rtnl
    sysctls: Settings
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


def namespace_of(fd: int) -> NamespaceId:
    """`CniError` if the descriptor is none of a network namespace."""
    try:
        if ioctl(fd, _NS_GET_NSTYPE) != CLONE_NEWNET:
            raise OSError(errno.EINVAL, "it belongs to another kind")
    except OSError as error:
        raise CniError(cni.BAD_NETNS, f"a descriptor that should be a network namespace is none: {error}") from error
    seen = os.fstat(fd)
    return seen.st_dev, seen.st_ino


def namespace_of_socket(fd: int) -> NamespaceId:
    try:
        netns = ioctl(fd, _SIOCGSKNS)
    except OSError as error:
        raise CniError(cni.BAD_NETNS, f"a descriptor that should be a socket is none: {error}") from error
    try:
        return namespace_of(netns)
    finally:
        os.close(netns)


def check_route(fd: int) -> None:
    """Refuse a socket of another kind. The kernel is asked: Python's object repeats what we say."""
    sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE, fileno=fd)
    try:
        kind = sock.getsockopt(socket.SOL_SOCKET, _SO_DOMAIN), sock.getsockopt(socket.SOL_SOCKET, _SO_PROTOCOL)
    finally:
        sock.detach()
    if kind != (socket.AF_NETLINK, socket.NETLINK_ROUTE):
        raise CniError(cni.INTERNAL, "the client has sent a socket that is not of rtnetlink")


def describe_netns_problem(problem: str, path: str) -> str:
    """Return the words of cni.md §1.18 for `STEP NUMBER`: which step failed for the path, and how."""
    if not problem:
        return ""
    step, _, number = problem.partition(" ")
    if step == "magic":
        return f'unknown FS magic on "{path}": {number}'
    is_errno = number.isascii() and number.isdigit() and len(number) <= _ERRNO_DIGITS
    reason = os.strerror(int(number)) if is_errno else problem
    reason = reason[:1].lower() + reason[1:]
    return f'failed to {"Statfs" if step == "statfs" else step} "{path}": {reason}'


def is_gone(problem: str) -> bool:
    """Tell whether `STEP NUMBER` says that the path leads to no network namespace any more, whatever lies there.

    After a crash it leads to the file or directory on which the namespace was mounted, or to a process that has ended.
    What can lead nowhere, such as a link to itself, has not led to one either.
    """
    return problem in _GONE or problem.startswith("magic ")


def check_settings(name: str, fd: int) -> None:
    """Refuse what is no directory of settings: a wrong one might change the host's."""
    try:
        target = os.readlink(f"/proc/self/fd/{fd}")
    except OSError as error:
        raise CniError(cni.INTERNAL, f"the directory of settings {name!r} cannot be looked at: {error}") from error
    if "/" in name or not target.endswith(f"/sys/net/{name}"):
        raise CniError(cni.INTERNAL, f"the client has sent {target!r} as the directory of settings {name!r}")


class Gate(Protocol):
    """Holds pods shut until their policies are in effect. Called in worker threads; an attachment is known by `key`."""

    def admit(self, key: str, *, pod: str, uid: str, ips: tuple[Ip, ...], port: str, link: str) -> str:
        """Wait until packets of the attachment are judged; returns why they are not, which ends its ADD.

        `port` is the host's end of its links, `link` what its packets come from: the port's bridge or the port itself.
        """
        ...

    def release(self, key: str) -> None:
        """Before its addresses are free for others."""
        ...


class NodeHandles(Value):
    """What all requests on a node share. `state` is the directory `cni` below `--state-dir`.

    `namespace` is device and inode of the host's: a link that is missing elsewhere need not be gone. `retire` deletes a
    link later, by index; it is down, off its bridge and marked `RETIRED`. `lease_problem` says for people why there is
    no subnet.env yet, `unready` why pods cannot be served now. `gate` is None where no policies are enforced.
    """

    namespace: NamespaceId
    settings: Settings
    state: RootedFiles
    boot_id: str
    retire: Callable[[int], None]
    lease_problem: Callable[[], str]
    unready: Callable[[], str] = lambda: ""
    lease_comes: LeaseComes = lambda _: False
    gate: Gate | None = None
    stores: StoreViews = field(default_factory=dict)
    # Sockets of the node's namespace that no request uses now: to open one takes nine system calls.
    idle: list[Rtnl] = field(default_factory=list)
    idle_netfilter: list[NfSocket] = field(default_factory=list)
    # The first client's root, where the paths of plugin configuration are: for work that no client has asked for.
    roots: list[int] = field(default_factory=list)

    def keep_root(self, root: int) -> None:
        if not self.roots:
            self.roots.append(os.dup(root))

    def close(self) -> None:
        while self.idle:
            self.idle.pop().close()
        while self.idle_netfilter:
            self.idle_netfilter.pop().close()
        while self.roots:
            os.close(self.roots.pop())


def open_node(
    state_dir: str,
    *,
    retire: Callable[[int], None],
    lease_problem: Callable[[], str],
    unready: Callable[[], str] = lambda: "",
    lease_comes: LeaseComes = lambda _: False,
    gate: Gate | None = None,
    say: Callable[[Problem], None] = lambda _: None,
) -> NodeHandles:
    """Raises `ConfigError` (STATE-003) when `state_dir` is another user's, `OSError` when it cannot be made."""
    own = os.stat("/proc/thread-self/ns/net")
    return NodeHandles(
        namespace=(own.st_dev, own.st_ino),
        settings=Settings(open_all_settings()),
        state=open_state(state_dir, say),
        boot_id=RootedFiles(open_root("/proc")).read(_BOOT_ID).decode().strip(),
        retire=retire,
        lease_problem=lease_problem,
        unready=unready,
        lease_comes=lease_comes,
        gate=gate,
    )


class Host:
    """One request's host. `descriptors` are named as in `weft.wire.frames`; `close` before they are closed."""

    def __init__(
        self,
        node: NodeHandles,
        *,
        plugin: str,
        descriptors: Mapping[str, int],
        env: Mapping[str, str],
        netns_problem: str,
        delegate: Delegate,
        settings: Callable[[str], int],
    ) -> None:
        """Raises `CniError`. The caller closes what `settings` opens, a directory of the container's /proc/sys/net."""
        for name in ("own", "root"):
            if name not in descriptors:
                raise CniError(cni.INTERNAL, f"the client has sent no descriptor {name!r}")
        self._node = node
        self._problem = netns_problem
        self._path = env.get("CNI_NETNS", "")
        self._rtnl: Rtnl | None = None
        self._netfilter: NfSocket | None = None
        self.delegate = delegate
        self.netns_fd = descriptors["own"]
        self.files = RootedFiles(descriptors["root"])  # the client's: all paths of plugin configuration
        self.state, self.stores, self.boot_id = node.state, node.stores, node.boot_id
        self.sysctls, self.namespace = node.settings, node.namespace
        self.retire, self.lease_problem = node.retire, node.lease_problem
        self.unready, self.lease_comes, self.gate = node.unready, node.lease_comes, node.gate
        self.same_namespace = False  # as CNI_NETNS is
        self._entered: int | None = None  # the container's namespace, by the client
        self._descriptors = descriptors
        self._settings = settings
        self._container: Container | None = None
        if namespace_of(self.netns_fd) != node.namespace:
            raise CniError(cni.BAD_NETNS, "the client is in another network namespace than weftd")
        netns = descriptors.get("netns", descriptors.get("netns-only"))
        if netns is not None:
            # ADD would go by the one and DEL by the other.
            if netns_problem:
                raise CniError(cni.INTERNAL, "the client has sent a network namespace, and why there is none")
            namespace = namespace_of(netns)
            self.same_namespace = namespace == node.namespace
            if not is_outside(plugin):  # whatever else an older client sends for it
                self._check_inside(namespace, descriptors)
                self._entered = netns

    def _check_inside(self, namespace: NamespaceId, descriptors: Mapping[str, int]) -> None:
        if "route" not in descriptors:
            raise CniError(cni.INTERNAL, "the client has sent no socket of the container's network namespace")
        if namespace_of_socket(descriptors["route"]) != namespace:
            raise CniError(cni.BAD_NETNS, "the socket is in another network namespace than the container")
        check_route(descriptors["route"])

    def _open_settings(self, name: str) -> int:
        fd = self._settings(name)
        check_settings(name, fd)
        if not self.same_namespace and self._node.settings.same(name, fd):
            raise CniError(cni.BAD_NETNS, f"the directory of settings {name!r} is the host's, not the container's")
        return fd

    @property
    def container(self) -> Container | None:
        """Made on first use; None if CNI_NETNS is empty, gone or unusable."""
        if self._container is None and self._entered is not None:
            own = os.dup(self._descriptors["route"])  # closed with the socket, as the client's is by the session
            self._container = Container(
                rtnl=Rtnl(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE, fileno=own)),
                sysctls=Settings({}, self._open_settings),
                netns_fd=self._entered,
            )
        return self._container

    def close(self) -> None:
        if self._rtnl is not None:
            self._node.idle.append(self._rtnl)
            self._rtnl = None
        if self._netfilter is not None:
            self._node.idle_netfilter.append(self._netfilter)
            self._netfilter = None
        if self._container is not None:
            self._container.rtnl.close()
            self._container = None

    @property
    def rtnl(self) -> Rtnl:
        """In the host's namespace: that of the plugin's caller."""
        if self._rtnl is None:
            # Other threads take and give back as well; both are one step of the interpreter.
            try:
                self._rtnl = self._node.idle.pop()
            except IndexError:
                self._rtnl = Rtnl.open()
        return self._rtnl

    @property
    def netfilter(self) -> NfSocket:
        """For nf_tables and conntrack. `OSError` where the kernel has neither."""
        if self._netfilter is None:
            try:
                self._netfilter = self._node.idle_netfilter.pop()
            except IndexError:
                self._netfilter = NfSocket.open()
        return self._netfilter

    @property
    def netns_gone(self) -> bool:
        """True when CNI_NETNS leads to no network namespace, whatever is there: to DEL, that is a namespace gone."""
        return is_gone(self._problem)

    @property
    def netns_problem(self) -> str:
        """Why CNI_NETNS could not be used, in the words of cni.md §1.18; empty if it could, or was not given."""
        return describe_netns_problem(self._problem, self._path)

    def claim(self, container_id: str) -> AbstractContextManager[bool]:
        return locks.claim(self._node.state, container_id)

    def random(self, count: int) -> bytes:
        return os.urandom(count)
