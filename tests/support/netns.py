"""Network namespaces for tests. Nameless: they end with the test's process, however that ends.

The fixtures `netns` (one namespace) and `make_netns` (as many as wanted) come with tests/kernel/conftest.py;
elsewhere import them. The machine's own namespace is never entered or changed.
"""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from ipaddress import ip_address
from typing import Any, Final, Self, TypeVar

import pytest

from tests.support import namespaces
from weft.kernel.rtnetlink.netlink import NetlinkError
from weft.kernel.rtnetlink.rtnl import Rtnl
from weft.model.net import Ip

T = TypeVar("T")

SECONDS = 120  # for a command that hangs
RELAYED: Final = "flannel0"  # its relay outlives its daemon, and keeps the namespace until the device goes

# Give a link as many alternative names as the kernel takes: what it then says of it is larger than 64 KiB.
MANY_NAMES: Final = (
    r"for i in $(seq 496); do printf 'link property add dev {dev} altname n%0126d\n' $i; done | ip -batch -"
)


class Netns:
    """A namespace with loopback up, by default a fresh one. Whoever uses it without the fixtures closes it (`with`)."""

    def __init__(self, fd: int | None = None) -> None:
        """With `fd`, use the namespace of this descriptor, and close it in the end."""
        self.fd = namespaces.create() if fd is None else fd
        self.rtnl: Rtnl = namespaces.rtnl_in(self.fd)
        self._children: list[subprocess.Popen[Any]] = []
        self.closing = ExitStack()  # what ends with the namespace: closing.callback(os.close, descriptor)
        self.rtnl.set_link(1, up=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def path(self) -> str:
        """Where other processes find the namespace as long as this one lives."""
        return f"/proc/{os.getpid()}/fd/{self.fd}"

    def run(self, command: str | list[str], *, check: bool = True, input: str | None = None) -> str:  # noqa: A002
        """Run a command inside, by the shell if it is a string; returns what it printed."""
        pipe = subprocess.PIPE
        with self.popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as child:
            try:
                output, errors = child.communicate(input, timeout=SECONDS)
            except subprocess.TimeoutExpired:
                _end(child)
                raise
        self._children.remove(child)
        if check and child.returncode != 0:
            raise AssertionError(f"{command!r} ended with {child.returncode}: {output}{errors}")
        return str(output)

    def json(self, command: str) -> Any:
        """Run a command that prints JSON (`ip -j link`); nothing printed is an empty list."""
        return json.loads(self.run(command) or "[]")

    def popen(self, command: str | list[str], **options: Any) -> subprocess.Popen[Any]:
        """Start a command inside; it is killed with its children when the namespace is closed."""
        child = subprocess.Popen(self._inside(command), pass_fds=[self.fd], process_group=0, **options)
        self._children.append(child)
        return child

    def call(self, function: Callable[[], T]) -> T:
        """Run a function inside, in a thread of its own; what it raises is raised here."""
        return namespaces.run_in(self.fd, function)

    def fork(self, function: Callable[[], object]) -> int:
        """Run a function inside in a forked child, for what no thread can do (die); returns its exit status."""
        child = os.fork()
        if child == 0:
            status = 1
            try:
                namespaces.enter(self.fd)
                function()
                status = 0
            finally:
                os._exit(status)
        _, status = os.waitpid(child, 0)
        return os.waitstatus_to_exitcode(status)

    def bridge(self, name: str, *addresses: str) -> int:
        """A bridge without ports, up, with addresses (`10.0.0.1/24`): what stands in for an Ethernet uplink."""
        made = self.rtnl.add_bridge(name, up=True)
        for text in addresses:
            ip, length = split(text)
            self.rtnl.add_address(made.index, ip, length)
        return made.index

    def close(self) -> None:
        """End what was started inside, and the namespace with it."""
        for child in self._children:
            _end(child)
        self.closing.close()
        relayed = self.rtnl.link(RELAYED)
        if relayed is not None:
            self.rtnl.delete_link(relayed.index)
        self.rtnl.close()
        os.close(self.fd)

    def _inside(self, command: str | list[str]) -> list[str]:
        words = ["sh", "-ec", command] if isinstance(command, str) else command
        return ["nsenter", f"--net=/proc/self/fd/{self.fd}", *words]


class Losable(Netns):
    """A namespace that a test may close before its end."""

    lost = False

    def close(self) -> None:
        if not self.lost:
            self.lost = True
            super().close()


def _end(child: subprocess.Popen[Any]) -> None:
    """Kill a process of ours and what it started; the group is its own."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def split(text: str) -> tuple[Ip, int]:
    """`10.0.0.1/24` as address and prefix length."""
    ip, _, length = text.partition("/")
    return ip_address(ip), int(length)


@pytest.fixture
def make_netns() -> Iterator[Callable[[], Netns]]:
    """Makes namespaces that are closed when the test is over."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(Netns())


@pytest.fixture
def netns(make_netns: Callable[[], Netns]) -> Netns:
    """A fresh network namespace."""
    return make_netns()


def wire(one: Netns, other: Netns, *, names: tuple[str, str] = ("eth0", "eth0")) -> tuple[int, int]:
    """Join two namespaces by a veth pair, both ends up; returns their indexes."""
    made = one.rtnl.add_veth(names[0], peer=names[1], peer_netns_fd=other.fd, up=True)
    peer = other.rtnl.link(names[1])
    if peer is None:
        raise NetlinkError(19, f"no {names[1]} in the other namespace")
    other.rtnl.set_link(peer.index, up=True)
    return made.index, peer.index
