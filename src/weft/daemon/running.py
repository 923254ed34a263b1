"""The last phase of a start: a network that is put into the kernel, and kept there until the node stops."""

import asyncio
import gc
import logging
import socket
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, get_args

from weft.cluster.store import Store
from weft.config.blocks import asked_at
from weft.config.options import Options
from weft.daemon import doctor, start
from weft.daemon.confwatch import ConfWatch
from weft.daemon.leasing import Leasing
from weft.daemon.network import Network
from weft.daemon.planes import traffic
from weft.daemon.planes.kernel import NodeKernel
from weft.daemon.process.supervise import Supervisor
from weft.daemon.state import Reporter
from weft.daemon.upkeep import Upkeep
from weft.daemon.ways import Ways
from weft.daemon.world import World
from weft.desired.node import devices_of
from weft.kernel.netfilter.monitor import Monitor as RuleMonitor
from weft.kernel.rtnetlink.events import Monitor
from weft.kernel.rtnetlink.rtnl import Rtnl
from weft.model.errors import Problem, Unavailable
from weft.model.lease import WayKind
from weft.model.net import Ip, Net
from weft.model.node.nodestate import Plan
from weft.model.node.status import Status
from weft.model.text import counted
from weft.model.value import Value, replace

if TYPE_CHECKING:
    from weft.daemon.enforcement import Enforcement

log = logging.getLogger(__name__)

_NOTICE_REST_SECONDS: Final = 0.01
_UP_SECONDS: Final = 1.0
_START_SECONDS: Final = 8.0  # for a start that is tried; less than a command waits (`_SECONDS` in kernel/daemons.py)


class Running(Value):
    """`options` have the addresses that an operator has set in the store; `why` the uplink was chosen.

    `prepare` is of a back end that prepares once more for each lease.
    """

    options: Options
    why: str
    store: Store
    leasing: Leasing
    kernel: NodeKernel
    network: Network
    world: World
    configured: ConfWatch
    prepare: Callable[[], Awaitable[Value | None]] | None = None
    policies: "Enforcement | None" = None

    async def run(
        self,
        report: Reporter,
        may_attach: asyncio.Event,
        rule_monitor: RuleMonitor | None,
        *,
        tasks: asyncio.TaskGroup,
        parts: Supervisor,
        held: ExitStack,
    ) -> None:
        network, leasing, status = self.network, self.leasing, report.status
        policies = self.policies
        monitor = self._listen(held)
        configured = self.configured
        status.losses["configuration"] = lambda: configured.problem
        upkeep = Upkeep(
            self.options,
            network,
            leasing,
            self.kernel,
            status,
            prepare=self.prepare,
            reconnect=self.store.close,
            now=self.world.now,
        )
        await self._begin(parts)
        if policies is not None:
            parts.start("network policies", partial(policies.run, lambda: network.inputs))
        up = tasks.create_task(self._come_up(status, may_attach, parts))
        await asyncio.wait((up,), timeout=_UP_SECONDS)  # as a rule it needs the processor for a moment only
        network.start(parts, monitor, rule_monitor, lambda: policies.keeper if policies is not None else None)
        upkeep.start(parts)
        if paths := self.store.paths:
            ways = Ways(
                paths,
                own=lambda: [
                    (kind, ip)
                    for kind in get_args(WayKind)
                    for ip in self._asked_at(kind, network.inputs.v4, network.inputs.v6)
                ],
                where=lambda lease, kind: self._asked_at(kind, *lease.subnets),
                most=lambda: network.inputs.backend.mtu(network.inputs),
                now=self.world.now,
                unix=self.world.unix,
                random=self.world.random,
                tunnels=lambda: traffic.tunnels_of(keeper.plane for keeper in network.keepers.values()),
            )
            parts.start("ways", ways.run)
        parts.start("configuration", configured.run)
        parts.start("doctor", partial(doctor.watch, report, Path(self.options.subnet_file)))

    async def plan(self, flags: Options, status: Status) -> Plan:
        """Where the configuration has changed, of the next start. Raises `OSError`, `ConfigError` and `Unavailable`."""
        from weft.daemon.commands import preview  # what nobody asks for need not be in memory

        if not self.network.reconciler.begun and status.waiting is not None:
            raise Unavailable(status.waiting)
        new = self.configured.differs  # the store need not answer, as long as it is the same
        if not new:
            return await preview.of_running(self.network, self.leasing, status, self.why, self.policies)
        before = self.network.peers.known(self.leasing.remembered)
        try:
            async with asyncio.timeout(_START_SECONDS):
                plan = await preview.of_start(flags, self.world, self.store, before)
        except TimeoutError:
            seen = f"it has not said within {_START_SECONDS:g} s what a start with the changed configuration asks it"
            hint = "Try again once it answers: 'weft status' has what is known of it"
            raise Unavailable(Problem(code="STORE-001", where="the store", seen=seen, hint=hint)) from None
        note = f"the configuration has changed ({'; '.join(new)}): this is what the next start of weftd does"
        return replace(plan, notes=(note, *plan.notes))

    def _asked_at(self, kind: WayKind, *subnets: Net | None) -> list[Ip]:
        netconf = self.network.inputs.netconf
        return [asked_at(netconf, subnet, kind) for subnet in subnets if subnet is not None]

    def _listen(self, held: ExitStack) -> Monitor:
        """On a socket of its own: the loop's may be busy in a thread."""
        monitor = Monitor(
            held.enter_context(Rtnl.open()),
            devices=devices_of(self.network.inputs),
            uplinks=self.network.uplinks,
            ports=frozenset({self.kernel.rtnl.port}),
            rest=_NOTICE_REST_SECONDS,
        )
        held.callback(monitor.close)
        for notice in monitor.known:
            self.network.notice(notice)
        return monitor

    async def _begin(self, parts: Supervisor) -> None:
        """Once the store has confirmed our lease and said what there is."""
        network, leasing = self.network, self.leasing
        await network.peers.recall(leasing.remembered)

        async def follow() -> None:
            await network.peers.follow(leasing.listed, lambda: leasing.saw(network.peers.known))

        parts.start("other leases", follow, again=network.reconciler.decide_all_again)
        if leasing.confirmed:
            await network.peers.spoken.wait()
        await network.begin(parts)

    async def _come_up(self, status: Status, may_attach: asyncio.Event, parts: Supervisor) -> None:
        """Wait for what pods need, say that it is there, and remove what an earlier configuration had in its place."""
        network, store = self.network, self.store
        await network.devices_there()
        await network.subnet_file.write()
        parts.start("subnet file", network.subnet_file.keep, again=network.subnet_file.renew)
        may_attach.set()
        self._say_ready(status)
        parts.start("readiness in the store", lambda: start.answered(store.tenure.ready, "the store to take it"))
        await start.remove_former_devices(self.kernel, network.reconciler.decider.ownership)

    def _say_ready(self, status: Status) -> None:
        """Whether all is well is another matter, and said."""
        reconciler = self.network.reconciler
        status.waiting = None
        log.info(
            "%s: %s, %d refused, %d failing, %s",
            "ready" if status.ready else "up",
            counted(status.peers, "peer"),
            status.peers_refused,
            reconciler.failing_peers(),
            counted(len(reconciler.decider.wanted), "object"),
        )
        status.history.note("started", "weftd", words=f"with {counted(status.peers, 'peer')}")
        if status.unable is not None:
            log.warning("up, but not ready: %s", status.unable)
        _notify(self.world.notify_socket, "READY=1")
        # What the start has made is there to stay: the collector need not walk over it again and again.
        gc.freeze()
        gc.enable()


def _notify(address: str, state: str) -> None:
    """Tell systemd (sd_notify(3)) at NOTIFY_SOCKET, if any; `@` begins an abstract name."""
    if not address:
        return
    target = "\0" + address[1:] if address.startswith("@") else address
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock, suppress(OSError):
        sock.sendto(state.encode(), target)
