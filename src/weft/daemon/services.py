"""What the daemon offers besides the network: health over HTTP, and the socket that CNI plugins ask."""

import asyncio
import errno
import logging
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from weft.beside.tasks import awaited
from weft.beside.threads import beside, bounded
from weft.config.options import Options
from weft.daemon.process.supervise import Supervisor
from weft.daemon.state import Reporter
from weft.daemon.strandedpods import StrandedPods
from weft.kernel.rtnetlink.rtnl import Rtnl
from weft.model.errors import Problem, Unavailable
from weft.model.kernel.marks import POD_ALIAS

if TYPE_CHECKING:
    from weft.cni.host.host import NodeHandles
    from weft.cni.leaks.sweeper import PodNames
    from weft.daemon.enforcement import Enforcement
    from weft.desired.policy.inputs import Attached

T = TypeVar("T")

log = logging.getLogger(__name__)

# A start that takes longer than this is waiting for something.
_PATIENCE_SECONDS: Final = 0.3
# Pods that come in so many first seconds wait for the lease.
_START_SECONDS: Final = 8.0
_RETRY_SECONDS: Final = 5.0
_SCRAPE_SECONDS: Final = 1.0
_LOOK_SECONDS: Final = 5.0  # at the disk of pods' records
# So many looks in a row without an answer are the disk's: a single one may have waited for a thread.
_MOST_UNANSWERED: Final = 3
# More than the records, locks and directories of one pod.
_BYTES: Final = 1 << 15
_FILES: Final = 8
_HINT: Final = "Pods keep their network, no new one is attached. Look at `df` and `df -i` of it"


class Services:
    """Health over HTTP, and CNI for plugins, of which `up` says that the network is there.

    Of pods that are stranded it is said whose they are, which the records of plugins tell.
    """

    def __init__(
        self,
        options: Options,
        report: Reporter,
        *,
        up: asyncio.Event,
        stranded_pods: StrandedPods,
        policies: "Enforcement | None" = None,
    ) -> None:
        self._options = options
        self._report = report
        self._status = report.status
        self._up = up
        self._stranded_pods = stranded_pods
        self._policies = policies
        self._settled = threading.Event()  # pods wait for the lease no longer
        self._records = PodRecords(f"{options.state_dir}/cni")
        self._names: PodNames | None = None  # once plugins are served
        self._status.parts["records"] = lambda: self._records.problem

    def start(self, parts: Supervisor, listening: socket.socket | None) -> None:
        """Start them; health at the port that was bound at the start, so that one that is taken was noticed then."""
        if listening is not None:
            parts.start("health", self._bind_again, first=lambda: self._serve_health(listening))
        parts.start("first pods", self._settle)
        parts.start("cni", self._serve)

    async def _serve_health(self, listening: socket.socket) -> None:
        from weft.web import health

        scrapes = Scrapes(self._report, self._pods if self._options.pod_metrics else None)
        await health.serve(listening, self._status, scrapes.page)

    async def _bind_again(self) -> None:
        from weft.web import health

        await self._serve_health(health.bind(str(self._options.healthz_ip), self._options.healthz_port))

    def _pods(self, aliases: Iterable[str]) -> Mapping[str, str]:
        return {} if self._names is None else self._names.of(aliases)

    async def _settle(self) -> None:
        """End the wait of the first pods: with the lease, after some seconds, or at the stop."""
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(_START_SECONDS):
                    await self._up.wait()
        finally:
            self._settled.set()

    def _lease_comes(self, _: Callable[[], bool]) -> bool:
        """Called in a worker thread."""
        self._settled.wait()
        return self._up.is_set()

    def _unable(self) -> str:
        return str(self._status.unable or "")

    async def _serve(self) -> None:
        """Serve plugins once the network is up, or after a moment: without a lease pods wait a little, then fail."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await self._up.wait()
        with ExitStack() as held:
            await self._serve_cni(held)

    async def _serve_cni(self, held: ExitStack) -> None:
        """Serve plugins, unless another daemon does: then say so, and do without."""
        # Late: 30 ms of imports that the network does not wait for.
        from weft.cni.attachment.retire import Retirement
        from weft.cni.host.host import open_node
        from weft.cni.host.state import publish
        from weft.cni.leaks.sweeper import PodNames, stranded
        from weft.cni.serve.endpoint import Endpoint
        from weft.cni.serve.plugins import run
        from weft.cni.serve.server import serve

        options, records = self._options, self._records
        retirement = Retirement()
        held.callback(retirement.close)
        opening = partial(
            open_node,
            options.state_dir,
            retire=retirement.retire,
            lease_problem=self._unable,
            unready=self._unable,
            lease_comes=self._lease_comes,
            gate=None if self._policies is None else self._policies.gate,
            say=_warn,
        )
        node = await _opened(opening, records.path, records.tell)
        records.tell(None)
        if self._policies is not None:
            self._policies.look_at_pods(partial(_attachments, node))
        try:
            endpoint = await _opened(lambda: Endpoint.open(options.cni_socket), options.cni_socket)
        except Unavailable as error:
            log.warning("%s", error)
            return
        held.callback(endpoint.close)
        try:
            publish(options.cni_socket, options.state_dir)
        except OSError as error:
            log.warning("plugins without this daemon will not know its --state-dir: %s", error)
        self._names = PodNames(node)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._sweep(node, held))
            tasks.create_task(self._stranded_pods.tell(lambda bridges: beside(lambda: stranded(node, bridges))))
            tasks.create_task(records.watch(node.state.check_room))
            await serve(endpoint, node, run=self._report.calls.counting(run))

    async def _sweep(self, node: "NodeHandles", held: ExitStack) -> None:
        """Search for leaks, and for what pods have lost each time that is asked for."""
        from weft.cni.leaks.sweeper import Sweeper

        sweeper = await _opened(lambda: Sweeper(node), "the search for leaks")
        held.callback(sweeper.close)
        await self._stranded_pods.pass_on(sweeper.again)


class Scrapes:
    """The page of `/metrics`, made once a second at most: anybody may ask, and it takes tens of milliseconds.

    `pods` names the node's pods by the aliases of their links; without it none is named.
    """

    def __init__(self, report: Reporter, pods: Callable[[Iterable[str]], Mapping[str, str]] | None) -> None:
        self._report = report
        self._pods = pods
        self._made: asyncio.Future[str] | None = None
        self._until = 0.0

    async def page(self) -> str:
        """The page as it was within the last second."""
        now = asyncio.get_running_loop().time()
        if self._made is None or (self._made.done() and (now >= self._until or self._made.exception() is not None)):
            self._made = awaited(self._make())
            self._until = now + _SCRAPE_SECONDS
        return await asyncio.shield(self._made)

    async def _make(self) -> str:
        from weft.web import metrics  # a library of 4 MB, which a node that nothing scrapes does without

        state = await self._report.whole()

        def refused() -> Mapping[str, int]:
            if state.policy is not None:
                from weft.kernel.netfilter.refused import counted

                with suppress(OSError):  # it cannot be asked now
                    return counted(state.policy.mode)
            return {}

        def render() -> str:
            with Rtnl.open() as rtnl:
                links = rtnl.counters()
            pods: Mapping[str, str] | None = None
            if self._pods is not None:
                pods = {}
                with suppress(OSError):  # their records cannot be read now
                    pods = self._pods(link.alias for link in links if link.alias.startswith(POD_ALIAS))
            return metrics.render(state, links=links, pods=pods, refused=refused())

        return await beside(render)


def _attachments(node: "NodeHandles") -> "dict[str, Attached]":
    from weft.cni.attachment import living
    from weft.cni.leaks.sweeper import node_host

    with node_host(node) as host:
        return living.attachments(host)


def _warn(problem: Problem) -> None:
    log.warning("%s", problem)


async def _opened(opening: Callable[[], T], path: str, tell: Callable[[Problem], None] = _warn) -> T:
    """Open what plugins need, however long that takes: on a full disk they cannot be served, and the network can."""
    said = ""
    while True:
        try:
            return opening()
        except OSError as error:
            hint = "Plugins are not served until it can: without their locks two could do the same. Trying again"
            problem = Problem(code="STATE-002", where=path, seen=f"cannot be used: {error.strerror}", hint=hint)
            if str(problem) != said:
                tell(problem)
            said = str(problem)
        await asyncio.sleep(_RETRY_SECONDS)


class PodRecords:
    """Whether the directory `path` takes the records of a new pod, without which no plugin attaches it.

    It is asked, not written to: a trial each few seconds would be a write of the disk each time.
    """

    def __init__(self, path: str) -> None:
        self.problem: Problem | None = None
        self.path = path

    def tell(self, problem: Problem | None) -> None:
        """Take what is wrong now, and say it if it is new."""
        if problem == self.problem:
            return
        if problem is not None:
            log.warning("%s", problem)
        else:
            log.info("STATE-002 %s can be written again", self.path)
        self.problem = problem

    async def watch(self, check_room: Callable[[int, int], None]) -> None:
        """Ask, for ever, whether there is room for so many bytes in so many files."""
        unanswered = 0
        while True:
            try:
                await bounded(("records", self.path), lambda: check_room(_BYTES, _FILES), seconds=_LOOK_SECONDS)
            except OSError as error:
                unanswered = unanswered + 1 if error.errno == errno.ETIMEDOUT else _MOST_UNANSWERED
                if unanswered >= _MOST_UNANSWERED:
                    seen = f"cannot be written: {error.strerror}"
                    self.tell(Problem(code="STATE-002", where=self.path, seen=seen, hint=_HINT))
            else:
                unanswered = 0
                self.tell(None)
            await asyncio.sleep(_LOOK_SECONDS)
