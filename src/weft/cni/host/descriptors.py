"""`Host` over open descriptors, which the client has sent.

Nothing here opens a path of the container or enters a namespace. The descriptors belong to the caller of
`OpenedHost`, who closes them; sockets made here are closed by `close`.
"""

import os
import socket
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Final

from weft.cni.host import locks
from weft.cni.host.files import RootedFiles
from weft.cni.host.openat import open_root
from weft.cni.host.received import (
    NamespaceId,
    check_route,
    check_settings,
    describe_netns_problem,
    is_gone,
    namespace_of,
    namespace_of_socket,
)
from weft.cni.host.state import open_state
from weft.cni.host.sysctls import Settings, is_outside, open_all_settings
from weft.cni.sdk.host import Container, StoreViews
from weft.kernel.netfilter.nfnetlink import NfSocket
from weft.kernel.rtnetlink.rtnl import Rtnl
from weft.model.errors import Problem
from weft.model.value import Value, field
from weft.wire import cni
from weft.wire.cni import CniError, Ran

_BOOT_ID: Final = "/sys/kernel/random/boot_id"

LeaseComes = Callable[[Callable[[], bool]], bool]
Delegate = Callable[[str, str, Mapping[str, str], bytes], Ran | None]


class NodeHandles(Value):
    """What all requests on a node share. `state` is the directory `cni` below `--state-dir`."""

    namespace: NamespaceId
    settings: Settings
    state: RootedFiles
    boot_id: str
    retire: Callable[[int], None]
    lease_problem: Callable[[], str]
    unready: Callable[[], str] = lambda: ""
    lease_comes: LeaseComes = lambda _: False
    stores: StoreViews = field(default_factory=dict)
    # Sockets of the node's namespace that no request uses now: to open one takes nine system calls.
    idle: list[Rtnl] = field(default_factory=list)
    idle_netfilter: list[NfSocket] = field(default_factory=list)
    # The first client's root, where the paths of plugin configuration are: for work that no client has asked for.
    roots: list[int] = field(default_factory=list)

    def keep_root(self, root: int) -> None:
        """Remember a client's root unless there is one."""
        if not self.roots:
            self.roots.append(os.dup(root))

    def close(self) -> None:
        """Close the idle sockets and the root."""
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
    say: Callable[[Problem], None] = lambda _: None,
) -> NodeHandles:
    """Open what a process that serves plugins needs, in its own namespaces and for its whole life.

    Raises `ConfigError` (STATE-003) when `state_dir` is another user's, `OSError` when it cannot be made.
    """
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
    )


class OpenedHost:
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
        """Look at the descriptors. `CniError` for those that are not what their names say.

        `settings` opens a first-level directory of the container's /proc/sys/net; the caller closes it.
        """
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
        self.files = RootedFiles(descriptors["root"])
        self.same_namespace = False
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
        """The container's namespace; made on first use, because a verb may have nothing to do in there."""
        if self._container is None and self._entered is not None:
            own = os.dup(self._descriptors["route"])  # closed with the socket, as the client's is by the session
            self._container = Container(
                rtnl=Rtnl(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE, fileno=own)),
                sysctls=Settings({}, self._open_settings),
                netns_fd=self._entered,
            )
        return self._container

    def close(self) -> None:
        """Close the container's socket and give the host's back. Answers that still come to it are not waited for."""
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
        if self._rtnl is None:
            # Other threads take and give back as well; both are one step of the interpreter.
            try:
                self._rtnl = self._node.idle.pop()
            except IndexError:
                self._rtnl = Rtnl.open()
        return self._rtnl

    @property
    def netfilter(self) -> NfSocket:
        if self._netfilter is None:
            try:
                self._netfilter = self._node.idle_netfilter.pop()
            except IndexError:
                self._netfilter = NfSocket.open()
        return self._netfilter

    @property
    def sysctls(self) -> Settings:
        return self._node.settings

    @property
    def netns_gone(self) -> bool:
        return is_gone(self._problem)

    @property
    def netns_problem(self) -> str:
        return describe_netns_problem(self._problem, self._path)

    @property
    def state(self) -> RootedFiles:
        return self._node.state

    @property
    def stores(self) -> StoreViews:
        return self._node.stores

    @property
    def boot_id(self) -> str:
        return self._node.boot_id

    @property
    def namespace(self) -> NamespaceId:
        return self._node.namespace

    def claim(self, container_id: str) -> AbstractContextManager[bool]:
        return locks.claim(self._node.state, container_id)

    def random(self, count: int) -> bytes:
        return os.urandom(count)

    def retire(self, index: int) -> None:
        self._node.retire(index)

    def lease_problem(self) -> str:
        return self._node.lease_problem()

    def unready(self) -> str:
        return self._node.unready()

    def lease_comes(self, written: Callable[[], bool]) -> bool:
        return self._node.lease_comes(written)
