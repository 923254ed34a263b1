"""Finds the pods of this node by their network namespaces, and enters these.

A pod is any namespace with an address in the node's part of the pod network, on a link whose other end or parent is in
the node's namespace, whatever runtime made it: a lab on the same machine may have the same addresses. Namespaces are
those of processes, and those with a name below /run/netns.
"""

import errno
import os
import re
from asyncio import get_running_loop
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final, Self, TypeVar

from weft.diag.sight.node import Pod, Sight
from weft.kernel import namespaces
from weft.kernel.namespaces import CLONE_NEWNET, CLONE_NEWUTS, setns
from weft.kernel.rtnetlink.rtnl import Rtnl
from weft.model.errors import Problem, Unavailable
from weft.model.net import FAMILIES, Net
from weft.model.text import some_of
from weft.model.value import replace

T = TypeVar("T")

_FILES: Final = {CLONE_NEWNET: "net", CLONE_NEWUTS: "uts"}  # below /proc/PID/ns
_GONE: Final = (errno.ENOENT, errno.ESRCH, errno.EINVAL)  # of a process that has ended, and of a file that is no more
_RIGHTS: Final = 1 << 19 | 1 << 21  # CAP_SYS_PTRACE, CAP_SYS_ADMIN (linux/capability.h)
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", re.ASCII)  # a pod may have set any other


class Pods:
    """The pods of this node, and the one thread that enters their namespaces. A context manager.

    `hidden` are the files of namespaces that could not be looked into.
    """

    def __init__(
        self, ranges: Iterable[Net], node: str, *, proc: Path = Path("/proc"), run: Path = Path("/run/netns")
    ) -> None:
        """Find those with an address in one of `ranges`; no pod gets the name of the `node`.

        `PermissionError` without the right to enter namespaces, `OSError` if there are more than descriptors.
        """
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="pods")
        self._home = {kind: _opened(proc / "self/ns" / file) for kind, file in _FILES.items()}
        self._ranges, self._node = tuple(ranges), node
        self._netns: dict[str, int] = {}
        self.found: list[Pod] = []
        self.hidden: list[str] = []
        try:
            self._thread.submit(self._find, proc, run).result()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._thread.shutdown()
        for descriptor in (*self._home.values(), *self._netns.values()):
            os.close(descriptor)

    def named(self, address: str) -> Pod | None:
        return next((pod for pod in self.found if address in pod.all_addresses), None)

    def ended(self, names: Collection[str]) -> set[str]:
        """Those of `names` that are pods no more."""
        return {pod.name for pod in self.found if pod.name in names and not self.is_there(pod)}

    def is_there(self, pod: Pod) -> bool:
        """A pod that has ended loses its link to the node."""
        now = self._thread.submit(self._seen, self._netns[pod.name]).result()
        return now is not None and now.addresses == pod.addresses

    def has(self, place: str) -> bool:
        return place in self._netns

    def run(self, place: str, work: Callable[[], T]) -> T:
        return self._thread.submit(self._inside, self._namespace(place), work).result()

    async def visit(self, place: str, work: Callable[[], T]) -> T:
        """Do as `run`: it is a `check.answering.Visit`."""
        return await get_running_loop().run_in_executor(self._thread, self._inside, self._namespace(place), work)

    def _namespace(self, place: str) -> dict[int, int]:
        return {CLONE_NEWNET: self._netns[place]} if place in self._netns else {}

    def _find(self, proc: Path, run: Path) -> None:
        seen = {os.fstat(self._home[CLONE_NEWNET]).st_ino}
        for file in _namespaces(proc, run):
            try:
                with ExitStack() as opened:
                    descriptor = _opened(file)
                    opened.callback(os.close, descriptor)
                    number = os.fstat(descriptor).st_ino
                    if number not in seen and (pod := self._seen(descriptor)) is not None:
                        name = self._name(file, next(iter(pod.addresses.values())), number)
                        self._netns[name] = descriptor
                        self.found.append(replace(pod, name=name))
                        opened.pop_all()
                    seen.add(number)
            except PermissionError:
                if namespaces.held() & _RIGHTS != _RIGHTS:
                    raise
                self.hidden.append(str(file))  # a process that even root may not look into: of another user namespace
            except OSError as error:
                if error.errno not in _GONE:
                    raise
        self.found.sort(key=lambda pod: pod.name)

    def _seen(self, netns: int) -> Pod | None:
        return self._inside({CLONE_NEWNET: netns}, self._look)

    def _look(self) -> Pod | None:
        with closing(Rtnl.open()) as rtnl:
            inside = [each for each in rtnl.addresses() if any(each.ip in net for net in self._ranges)]
            node = rtnl.netns_number(self._home[CLONE_NEWNET]) if inside else -1
            links = {link.index: link for link in rtnl.links() if link.peer_netns == node} if node >= 0 else {}
        own = [each for each in inside if each.index in links]
        if not own:
            return None
        link = links[own[0].index]
        return Pod(
            name="",
            addresses={
                family: text
                for family in FAMILIES
                if (text := next((str(each.ip) for each in own if each.ip.version == family), ""))
            },
            all_addresses=tuple(str(each.ip) for each in own),
            device=link.name,
            mtu=link.mtu,
            peer=link.link,
        )

    def _name(self, file: Path, address: str, number: int) -> str:
        """It is the host name of its processes, the name of its file, or its address; no two have one name."""
        name = file.name if file.parent.name != "ns" else self._host_name(file.with_name("uts"))
        name = name if _NAME.fullmatch(name) else address
        names = (name, f"{name} {address}", f"{name} {address} {number}")
        return next(each for each in names if each != self._node and each not in self._netns)

    def _host_name(self, file: Path) -> str:
        """Empty for the node's own."""
        descriptor = _opened(file)
        try:
            own = os.fstat(self._home[CLONE_NEWUTS]).st_ino == os.fstat(descriptor).st_ino
            return "" if own else self._inside({CLONE_NEWUTS: descriptor}, lambda: os.uname().nodename)
        finally:
            os.close(descriptor)

    def _inside(self, namespaces: Mapping[int, int], work: Callable[[], T]) -> T:
        try:
            for kind, descriptor in namespaces.items():
                setns(descriptor, kind)
            return work()
        finally:
            for kind in namespaces:
                setns(self._home[kind], kind)


def hidden_words(hidden: Sequence[str]) -> str:
    if not hidden:
        return ""
    which = "these namespaces" if len(hidden) > 1 else "that namespace"
    return f"pods of {some_of(hidden, 1)}: even root may not look into {which}"


def _namespaces(proc: Path, run: Path) -> Iterator[Path]:
    """Those of processes first: these have host names."""
    yield from (
        proc / str(pid) / "ns/net" for pid in sorted(int(each.name) for each in proc.iterdir() if each.name.isdigit())
    )
    if run.is_dir():
        yield from sorted(run.iterdir())


def _opened(file: Path) -> int:
    return os.open(file, os.O_RDONLY | os.O_CLOEXEC)


def pods_of(sight: Sight, node: str, command: str) -> Pods:
    """The pods of a node for a command. `Unavailable` without the right to find them."""
    try:
        return Pods(sight.ranges_of_pods, node)
    except PermissionError as error:
        hint = "This command needs the right to see and to enter network namespaces (CAP_SYS_PTRACE, CAP_SYS_ADMIN)."
        raise Unavailable(Problem("HOST-002", command, str(error), hint=hint)) from None
