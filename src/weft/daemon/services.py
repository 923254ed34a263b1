"""What the daemon offers besides the network: health over HTTP, and the socket that CNI plugins ask."""

import asyncio
import logging
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Final, TypeVar

from weft.beside.tasks import awaited
from weft.beside.threads import beside
from weft.config.options import Options
from weft.daemon.podrecords import PodRecords
from weft.daemon.process.supervise import Supervisor
from weft.daemon.state import Reporter
from weft.daemon.strandedpods import StrandedPods
from weft.kernel.rtnetlink.rtnl import Rtnl
from weft.model.errors import Problem, Unavailable
from weft.model.kernel.marks import POD_ALIAS
from weft.model.node.status import Status

if TYPE_CHECKING:
    from weft.cni.host.descriptors import LeaseComes, NodeHandles

T = TypeVar("T")

log = logging.getLogger(__name__)

# A start that takes longer than this is waiting for something.
_PATIENCE_SECONDS: Final = 0.3
# Pods that come in so many first seconds wait for the lease.
_START_SECONDS: Final = 8.0
_RETRY_SECONDS: Final = 5.0
_SCRAPE_SECONDS: Final = 1.0


def start_health(listening: socket.socket, options: Options, parts: Supervisor, report: Reporter) -> None:
    """Serve health at the port that was bound at the start, so that one that is taken was noticed then."""
    from weft.web import health

    async def serve(bound: socket.socket) -> None:
        await health.serve(bound, report.status, Scrapes(report, pods=options.pod_metrics).page)

    async def bind_again() -> None:
        await serve(health.bind(str(options.healthz_ip), options.healthz_port))

    parts.start("health", bind_again, first=lambda: serve(listening))


class Scrapes:
    """The page of `/metrics`, made once a second at most: anybody may ask, and it takes tens of milliseconds.

    With `pods` it names the node's pods.
    """

    def __init__(self, report: Reporter, *, pods: bool) -> None:
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

        state, report = await self._report.whole(), self._report

        def render() -> str:
            with Rtnl.open() as rtnl:
                links = rtnl.counters()
            pods: Mapping[str, str] | None = None
            if self._pods:
                pods = {}
                with suppress(OSError):  # their records cannot be read now
                    pods = report.pods(link.alias for link in links if link.alias.startswith(POD_ALIAS))
            return metrics.render(state, links=links, pods=pods)

        return await beside(render)


def start_cni(
    options: Options,
    parts: Supervisor,
    status: Status,
    *,
    up: asyncio.Event,
    stranded_pods: StrandedPods,
    report: Reporter,
) -> None:
    """Serve CNI plugins once the network is up, or after a moment: without a lease pods wait a little, then fail.

    Of pods that are stranded it is said whose they are, which the records of plugins tell.
    """
    settled = threading.Event()
    records = PodRecords(f"{options.state_dir}/cni")
    status.parts["records"] = lambda: records.problem

    async def settle() -> None:
        """End the wait of the first pods: with the lease, after some seconds, or at the stop."""
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(_START_SECONDS):
                    await up.wait()
        finally:
            settled.set()

    def lease_comes(_: Callable[[], bool]) -> bool:
        """Called in a worker thread."""
        settled.wait()
        return up.is_set()

    async def serve() -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await up.wait()
        with ExitStack() as held:
            await _serve_cni(
                options,
                status,
                held,
                records=records,
                stranded_pods=stranded_pods,
                report=report,
                lease_comes=lease_comes,
            )

    parts.start("first pods", settle)
    parts.start("cni", serve)


async def _serve_cni(
    options: Options,
    status: Status,
    held: ExitStack,
    *,
    records: PodRecords,
    stranded_pods: StrandedPods,
    report: Reporter,
    lease_comes: "LeaseComes",
) -> None:
    """Serve plugins, unless another daemon does: then say so, and do without."""
    # Late: 30 ms of imports that the network does not wait for.
    from weft.cni.attachment.retire import Retirement
    from weft.cni.host.descriptors import open_node
    from weft.cni.host.state import publish
    from weft.cni.leaks.sweeper import PodNames, Sweeper, stranded
    from weft.cni.serve.endpoint import Endpoint
    from weft.cni.serve.plugins import run
    from weft.cni.serve.server import serve

    retirement = Retirement()
    held.callback(retirement.close)

    def unable() -> str:
        return str(status.unable or "")

    def open_state() -> "NodeHandles":
        return open_node(
            options.state_dir,
            retire=retirement.retire,
            lease_problem=unable,
            unready=unable,
            lease_comes=lease_comes,
            say=_warn,
        )

    node = await _opened(open_state, records.path, records.tell)
    records.tell(None)
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

    async def sweep() -> None:
        sweeper = await _opened(lambda: Sweeper(node), "the search for leaks")
        held.callback(sweeper.close)
        stranded_pods.look_at_all = sweeper.again

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(sweep())
        tasks.create_task(stranded_pods.tell(lambda bridges: beside(lambda: stranded(node, bridges))))
        tasks.create_task(records.watch(node.state.check_room))
        report.pods = PodNames(node).of
        await serve(endpoint, node, run=report.calls.counting(run))


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
