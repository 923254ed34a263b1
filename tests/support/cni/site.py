"""A node for tests of plugins: a namespace as the host's, containers as others, and calls as the daemon makes them."""

import asyncio
import json
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.cni.call import Answer
from tests.support.netns import SECONDS, Netns
from weft.cni import build
from weft.cni.host.files import RootedFiles
from weft.cni.host.host import RETIRED, Host, NodeHandles, Request
from weft.cni.host.openat import open_root
from weft.cni.host.sysctls import Settings, is_outside, open_all_settings, open_settings
from weft.cni.serve import plugins
from weft.cni.serve.endpoint import Endpoint
from weft.cni.serve.server import serve
from weft.kernel.rtnetlink.netlink import NetlinkError
from weft.wire.cni import VERSIONS, Ran

REFERENCE = "/usr/lib/cni"
WITHOUT_BLOCKS = VERSIONS[2:]


@dataclass(slots=True)
class Site:
    """A host namespace with the directories that plugins use, all below `directory`."""

    host: Netns
    directory: Path
    node: NodeHandles = field(init=False)
    retired: list[int] = field(default_factory=list)
    lease_problem: str = ""
    unready: str = ""
    lease: Callable[[], bool] = field(default=lambda: False)
    boot_id: str = "boot-1"
    deletes: bool = True
    wrap: Callable[[Host], Host] = field(default=lambda host: host)
    served: "Served | None" = None
    by: str = "weft"  # how `call` calls

    def __post_init__(self) -> None:
        (self.directory / "state").mkdir(mode=0o700, parents=True)
        self.node = self.new_node()

    def new_node(self) -> NodeHandles:
        """Open the node anew, as a daemon that has just started: it remembers nothing."""

        def opened() -> NodeHandles:
            own = Path("/proc/thread-self/ns/net").stat()
            settings, state = open_all_settings(), open_root(str(self.directory / "state"))
            for descriptor in (*settings.values(), state):
                self.host.closing.callback(os.close, descriptor)
            return NodeHandles(
                namespace=(own.st_dev, own.st_ino),
                settings=Settings(settings),
                state=RootedFiles(state, own=True),
                boot_id=self.boot_id,
                retire=self.retired.append,
                lease_problem=lambda: self.lease_problem,
                unready=lambda: self.unready,
                lease_comes=self._lease_comes,
            )

        node = self.host.call(opened)
        self.host.closing.callback(node.close)
        return node

    def _lease_comes(self, _: Callable[[], bool]) -> bool:
        return self.lease()

    @property
    def store(self) -> Path:
        """host-local's `dataDir`."""
        return self.directory / "networks"

    def foreign(self, plugin: str) -> dict[str, str]:
        """`extra` for a call whose CNI_PATH has the reference's `plugin` as `theirs`, which no plugin of ours is."""
        directory = self.directory / "theirs"
        if not directory.exists():
            directory.mkdir()
            for program in Path(REFERENCE).iterdir():
                (directory / program.name).symlink_to(program)
            (directory / "theirs").symlink_to(Path(REFERENCE, plugin))
        return {"CNI_PATH": str(directory)}

    def reservations(self, network: str) -> dict[str, bytes]:
        """The reserved addresses of a network and who has them."""
        directory = self.store / network
        if not directory.exists():
            return {}
        found = {}
        for path in directory.iterdir():
            if path.name[0].isdigit() or ":" in path.name:
                with suppress(FileNotFoundError):  # freed since it was listed
                    found[path.name] = path.read_bytes()
        return found

    def call(self, plugin: str, command: str, conf: Mapping[str, Any] | bytes, **more: Any) -> Answer:
        """Call a plugin by the way of `by`; what more there is says `via`."""
        return self.via(self.by)(plugin, command, conf, **more)

    def via(self, by: str) -> Callable[..., Answer]:
        """Return what calls plugins: ours by the client and a server, `weft`, or in this thread, `here`; or `debian`'s.

        `here` is for a process that is to die, and for its programs alone. `debian`'s is the reference's binary in the
        same place, so that both can be compared and can take over from each other.
        """
        ways = {"weft": self._by_client, "here": self._here, "debian": self._by_debian}

        def call(
            plugin: str,
            command: str,
            conf: Mapping[str, Any] | bytes,
            *,
            container: Netns | None = None,
            id_: str = "c1",
            ifname: str = "eth0",
            netns: str | None = None,
            args: str = "",
            extra: Mapping[str, str] | None = None,
        ) -> Answer:
            """Call a plugin. `netns` replaces the path of `container` in the environment."""
            env = self.env(command, container, id_=id_, ifname=ifname, netns=netns, args=args) | dict(extra or {})
            stdin = conf if isinstance(conf, bytes) else json.dumps(conf).encode()
            # No client can be told one namespace and have another.
            elsewhere = by == "weft" and container is not None and netns is not None
            done = ways["here" if elsewhere else by](plugin, env, stdin, container)
            if by != "debian":
                self.finish_deletions()
            return Answer.of(done.exit, done.stdout, done.stderr)

        return call

    def env(
        self, command: str, container: Netns | None, *, id_: str, ifname: str, netns: str | None, args: str
    ) -> dict[str, str]:
        path = container.path if container is not None else ""
        return {
            "CNI_COMMAND": command,
            "CNI_CONTAINERID": id_,
            "CNI_NETNS": path if netns is None else netns,
            "CNI_IFNAME": ifname,
            "CNI_ARGS": args,
            "CNI_PATH": REFERENCE,
        }

    def _by_client(self, plugin: str, env: Mapping[str, str], stdin: bytes, _: Netns | None) -> Ran:
        return self.serve().call(plugin, env, stdin)

    def _here(self, plugin: str, env: Mapping[str, str], stdin: bytes, container: Netns | None) -> Ran:
        request = Request(plugin=plugin, command=env.get("CNI_COMMAND", ""), env=env, stdin=stdin)
        return self.host.call(lambda: self._run(request, container))

    def _by_debian(self, plugin: str, env: Mapping[str, str], stdin: bytes, _: Netns | None) -> Ran:
        everything = {**os.environ, **env}
        return self.host.call(lambda: _ran([f"{REFERENCE}/{plugin}"], everything, stdin))

    def serve(self) -> "Served":
        """Return what serves the node as it is now."""
        if self.served is None:
            self.host.closing.callback(self.stop)
        if self.served is not None and self.served.node is not self.node:
            self.stop()
        if self.served is None:
            self.served = Served(
                self.host, self.directory, self.node, lambda request, host: plugins.run(request, self.wrap(host))
            )
        return self.served

    def stop(self) -> None:
        """End what serves the node, if it is served."""
        if self.served is not None:
            self.served.close()
            self.served = None

    def finish_deletions(self) -> None:
        """Delete what DEL has retired, as the daemon's worker does a little later; not with `deletes` off."""
        while self.deletes and self.retired:
            with suppress(NetlinkError):
                self.host.rtnl.delete_link(self.retired.pop())

    def restart(self) -> None:
        """Do what a daemon does when it starts after a crash: forget all, and delete what was retired."""
        self.node = self.new_node()
        self.retired.extend(link.index for link in self.host.rtnl.links() if link.alias == RETIRED)
        self.finish_deletions()

    def reboot(self) -> None:
        """Another boot: files stay, the kernel forgets. Containers are for the test to close."""
        self.boot_id = f"{self.boot_id}+"
        for link in self.host.rtnl.links():
            if link.kind in ("veth", "bridge"):
                with suppress(NetlinkError):  # the other end of one that has gone
                    self.host.rtnl.delete_link(link.index)
        self.restart()

    def _run(self, request: Request, container: Netns | None) -> Ran:
        with ExitStack() as stack:
            stack.callback(self.node.close)
            host = stack.enter_context(closing(self.open_host(request.plugin, request.env, container, stack)))
            return plugins.run(request, self.wrap(host))

    def open_host(self, plugin: str, env: Mapping[str, str], container: Netns | None, stack: ExitStack) -> Host:
        """Open what the client would send. Runs in the host's namespace."""

        def keep(name: str, fd: int) -> None:
            stack.callback(os.close, fd)
            descriptors[name] = fd

        def settings(name: str) -> int:
            assert container is not None
            fd = container.call(lambda: open_settings(name))
            stack.callback(os.close, fd)
            return fd

        descriptors: dict[str, int] = {}
        keep("own", os.open("/proc/thread-self/ns/net", os.O_RDONLY))
        keep("root", open_root("/"))
        problem = ""
        if container is not None:
            for name, fd in container.call(lambda: _descriptors(plugin)).items():
                keep(name, fd)
        elif env["CNI_NETNS"]:
            problem = "statfs 2"
        return Host(
            self.node,
            plugin=plugin,
            descriptors=descriptors,
            env=env,
            netns_problem=problem,
            delegate=_delegate(env),
            settings=settings,
        )


def _descriptors(plugin: str) -> dict[str, int]:
    sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
    netns = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    if is_outside(plugin):
        sock.close()
        return {"netns-only": netns}
    return {"netns": netns, "route": sock.detach()}


def _delegate(env: Mapping[str, str]) -> Callable[[str, str, Mapping[str, str], bytes], Ran | None]:
    def run(name: str, command: str, changes: Mapping[str, str], stdin: bytes) -> Ran | None:
        path = Path(env["CNI_PATH"], name)
        if not path.is_file():
            return None
        return _ran([str(path)], {**env, **changes, "CNI_COMMAND": command}, stdin)

    return run


def _ran(command: list[str], env: Mapping[str, str], stdin: bytes, *, executable: Path | None = None) -> Ran:
    done = subprocess.run(
        command, executable=executable, input=stdin, env=env, capture_output=True, check=False, timeout=3 * SECONDS
    )
    return Ran(exit=done.returncode, stdout=done.stdout, stderr=done.stderr)


@cache
def _client() -> Path:
    program = build.PROGRAM.build() or build.PROGRAM.built()  # where there is no compiler, what was brought along
    assert program, "musl-gcc is missing"
    return program


class Served:
    """A CNI server in threads of the test's process, from the namespace `host`, until closed, which closes `node`, too.

    What a test changes on the node or around its plugins is seen by the next call, which a daemon's own process hides.
    """

    def __init__(self, host: Netns, directory: Path, node: NodeHandles, run: Callable[[Request, Host], Ran]) -> None:
        self.node = node
        self._host = host
        self._socket = directory / "run" / "cni.sock"
        self._run = run
        self._loop = asyncio.new_event_loop()
        self._task: asyncio.Future[None] | None = None
        serving = threading.Event()
        # A thread is in the namespace of the one that starts it.
        self._thread = threading.Thread(target=self._serve, args=[serving], name="served")
        host.call(self._thread.start)
        assert serving.wait(SECONDS)

    def call(self, plugin: str, env: Mapping[str, str], stdin: bytes) -> Ran:
        """Call a plugin as a runtime does."""
        everything = {**os.environ, **env, "WEFT_CNI_SOCKET": str(self._socket)}
        return self._host.call(lambda: _ran([plugin], everything, stdin, executable=_client()))

    def close(self) -> None:
        """Stop serving."""
        assert self._task
        self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(SECONDS)

    def _serve(self, serving: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._task = self._loop.create_task(serve(Endpoint.open(str(self._socket)), self.node, run=self._run))
            self._loop.call_soon(serving.set)
            self._loop.run_until_complete(asyncio.wait([self._task]))
        finally:
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()
