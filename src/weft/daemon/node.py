"""One node, from its start to its stop: the order of things, and the task tree.

Configuration, uplink, lease; then peers and rules; and only when those are in the kernel, subnet.env and
readiness (flannel.md §1.5, with the differences of docs/compat.md). Stopping removes nothing.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from weft.beside.tasks import watched
from weft.beside.threads import beside, bounded
from weft.cluster.store import Store
from weft.config.options import Options
from weft.daemon import control, events, phases, places, start
from weft.daemon.confwatch import ConfWatch, digest
from weft.daemon.disk import history, identity, instance, memory, statefile
from weft.daemon.disk.identity import Identity
from weft.daemon.leasing import Leasing
from weft.daemon.network import Network
from weft.daemon.networkpolicies import Policies
from weft.daemon.phases import Configured, Known, Placed, Tenant
from weft.daemon.planes.contract import Place
from weft.daemon.planes.kernel import NodeKernel
from weft.daemon.planes.rules import RulesPlane
from weft.daemon.process.supervise import Supervisor
from weft.daemon.running import Running
from weft.daemon.services import Services
from weft.daemon.state import Reporter
from weft.daemon.strandedpods import StrandedPods
from weft.daemon.world import World
from weft.desired.facts import ailing, overlaps
from weft.desired.inputs import Inputs
from weft.desired.node import devices_of
from weft.kernel.netfilter.firewall import Firewall, Tooling
from weft.kernel.rtnetlink.rtnl import Rtnl
from weft.kernel.tools import Tools
from weft.model.errors import ConfigError, Problem, Unavailable
from weft.model.net import Subnets
from weft.model.node.history import History
from weft.model.node.status import POLICIES, Status
from weft.model.value import replace

if TYPE_CHECKING:
    from weft.daemon.enforcement import Enforcement

log = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 1.0
_RULES_SWEEP_SECONDS: Final = 60.0
_OPEN_SECONDS: Final = 5.0
_STARTING: Final = Problem(code="LEASE-001", where="weftd", seen="starting", hint="Try again in a moment")
_T = TypeVar("_T")


class Node:
    """`run` serves until cancelled; it raises `ConfigError` when the node cannot be served."""

    def __init__(self, options: Options, world: World) -> None:
        self._options = options
        self._world = world
        self._directory = world.directory(options)
        self._place = Place(directory=self._directory, boot=world.boot)
        self._status = Status(waiting=_STARTING, history=History(world.unix))
        self._up = asyncio.Event()
        self._stranded_pods = StrandedPods()
        self._report: Reporter | None = None
        self._identity: Identity | None = None  # once it is settled, on disk or not
        self._why = ""  # the uplink was chosen, as it was said
        self._goes_on = ""
        self._writing: asyncio.Task[None] | None = None  # of the state

    @property
    def goes_on(self) -> str:
        """The process that outlives this one and serves pods, for people; empty if there is none."""
        return self._goes_on

    def write_state(self) -> None:
        """Write it into the state directory; the log says where, or why not."""
        if self._report is None:
            log.info("SIGUSR1: there is no state yet: %s", self._status.waiting)
        elif self._writing is None or self._writing.done():
            self._writing = watched(statefile.write(self._report.whole, self._directory))

    async def run(self) -> None:
        with ExitStack() as held:
            # All that flags name is tried before the first thing is made: a wrong one leaves the node as it was.
            await beside(lambda: places.examine(self._options))
            store = await start.answered(self._open, "the files of the store's flags", self._status)
            held.callback(store.close)
            report = self._report = Reporter(self._status, store, self._directory.name, now=self._world.now)
            listening = await beside(lambda: places.listen(self._options, self._directory))
            await beside(lambda: instance.take_directory(self._directory))
            async with asyncio.TaskGroup() as tasks:
                parts = Supervisor(tasks, self._status)
                parts.start("store", store.run)
                parts.start("history", partial(history.keep, self._status.history, self._directory))
                tools = Tools()
                policies = report.policies = self._open_policies(store, tools, held)
                Services(
                    self._options, report, up=self._up, stranded_pods=self._stranded_pods, policies=policies
                ).start(parts, listening)
                self._start_control(report, parts, held)
                await self._start(store, report, tasks, parts, held, tools=tools, policies=policies)

    async def _open(self) -> Store:
        """Reads files. Raises `Unavailable` when their disk does not answer."""
        means = self._world.means(self._options, self._status.history)
        opening = partial(self._world.store.open, self._options, means)
        try:
            return await bounded(("store", id(self)), opening, seconds=_OPEN_SECONDS)
        except OSError as error:
            seen = f"what the flags name cannot be read: {error.strerror}"
            raise Unavailable(Problem(code="STORE-001", where="the store's files", seen=seen)) from None

    def _start_control(self, report: Reporter, parts: Supervisor, held: ExitStack) -> None:
        """Claim the name of this instance, and answer there what is asked of it.

        Where another process holds that name, a random suffix is added: commands go by who made the socket.
        """
        name = f"instance/{self._directory.name}"
        claimed = instance.claim([name]) or instance.claim([f"{name}.{self._world.random(4).hex()}"])
        for each in claimed:
            held.callback(each.close)
            parts.start("control", partial(control.serve, each, report.answer))

    def _open_policies(self, store: Store, tools: Tools, held: ExitStack) -> "Enforcement | None":
        """What enforces is not even imported where nothing is to be."""
        if self._options.network_policy == "off":
            return None
        from weft.daemon import enforcement

        found = enforcement.opened(
            self._options,
            tools,
            held,
            source=store.policy_source,
            clock=self._world.monotonic,
            history=self._status.history,
        )
        self._status.parts[POLICIES] = lambda: found.problem
        self._status.losses[POLICIES] = lambda: found.loss
        return found

    async def _start(
        self,
        store: Store,
        report: Reporter,
        tasks: asyncio.TaskGroup,
        parts: Supervisor,
        held: ExitStack,
        *,
        tools: Tools,
        policies: "Enforcement | None",
    ) -> None:
        configured = await self._configured(store)
        self._goes_on = configured.backend.goes_on  # now: what comes next may wait for ever
        known = await phases.know(configured, store, self._options, self._place, asking=self._ask)
        self._announce(store, report, parts)
        leasing = phases.leasing_of(known, store, self._world, self._place)
        rules = tasks.create_task(  # takes its time
            start.firewall(known.netconf, held, self._world.modules, tools, policies=policies is not None)
        )
        kernel = NodeKernel(held.enter_context(Rtnl.open()))
        placed = await self._look(known, leasing, kernel, parts)
        for claimed in instance.claim(f"device/{name}" for name in sorted(devices_of(placed.inputs))):
            held.callback(claimed.close)
        await start.remove_remains(self._world, self._place, placed.inputs)
        if policies is None:
            start.remove_policies()
        kernel.follow(placed.inputs)
        placed = await self._take_lease(known, leasing, kernel, placed, parts)
        firewall, tooling, rule_monitor = await rules
        if known.prepare is not None:
            prepared = await self._ask(known.prepare, f"what {known.netconf.backend} needs with this lease")
            placed = replace(placed, inputs=replace(placed.inputs, prepared=prepared))
        tenant = phases.settle(placed, leasing.lease, tooling, kernel)
        rules_plane = self._rules(known, firewall, tooling, held)
        network = self._network(known, tenant, kernel, rules=rules_plane, store=store, held=held)
        running = Running(
            options=known.options,
            why=tenant.why,
            store=store,
            leasing=leasing,
            kernel=kernel,
            network=network,
            world=self._world,
            prepare=known.prepare,
            configured=ConfWatch(store.settings, known.netconf, known.memory.net_conf, self._world.backends),
            policies=policies,
        )
        del placed  # with the store's first list, which may be long
        version = f"{'nft' if known.netconf.nftables else 'iptables'} {tooling.version}"
        report.serves(
            network,
            leasing,
            plan=partial(running.plan, self._options, self._status),
            why=tenant.why,
            rules=version,
            config=digest(known.memory.net_conf),
        )
        await running.run(report, self._up, rule_monitor, tasks=tasks, parts=parts, held=held)

    async def _configured(self, store: Store) -> Configured:
        before = await beside(lambda: memory.load(self._directory, self._world.moment()))
        return await phases.configure(
            store.settings, self._world, before, asking=self._ask, serves_without=self._serves_without
        )

    async def _ask(self, ask: Callable[[], Awaitable[_T]], what: str) -> _T:
        return await start.answered(ask, what, self._status)

    def _serves_without(self, problem: Problem) -> bool:
        """Tell whether a store that says this is away, so that what was known before serves."""
        if problem.code != "STORE-001":
            return False
        log.warning("%s; starting with what was known before", problem)
        self._status.store = problem
        return True

    def _announce(self, store: Store, report: Reporter, parts: Supervisor) -> None:
        if self._options.network_policy == "off":
            policies = Policies(store.settings, Tools(), report.enforcing)
            self._status.losses["policies"] = lambda: policies.problem
            parts.start("policies", policies.run)
        parts.start("events", partial(events.announce, store.tenure, self._status, now=self._world.monotonic))

    async def _look(self, known: Known, leasing: Leasing, kernel: NodeKernel, parts: Supervisor) -> Placed:
        """Raises `ConfigError` if the back end cannot run here."""
        before = self._identity or identity.load(self._directory)
        placed = await phases.place(known, leasing, kernel, self._world, before)
        if placed.why != self._why:
            log.info("%s", placed.why)
            for problem in overlaps(known.netconf, placed.inputs.facts):
                log.warning("%s", problem)
            self._why = placed.why
        known.backend.desired.check(placed.inputs)
        self._identity = placed.identity
        if placed.identity != before:
            file = identity.file(self._directory, placed.identity)
            if not await file.attempt():  # before they are published, if that is possible
                parts.start("identity", file.keep_trying)
        return placed

    async def _look_again(self, known: Known, leasing: Leasing, kernel: NodeKernel, parts: Supervisor) -> Placed:
        """After there was no lease: waiting may take days."""
        while True:
            await asyncio.sleep(_RETRY_SECONDS)
            try:
                return await self._look(known, leasing, kernel, parts)
            except ConfigError as error:
                self._wait(error.problems[0])

    async def _take_lease(
        self, known: Known, leasing: Leasing, kernel: NodeKernel, placed: Placed, parts: Supervisor
    ) -> Placed:
        """Returns where this node is by then."""
        last = known.previous.subnet_v4, known.previous.subnet_v6
        while not await self._acquire(leasing, placed.inputs, last):
            placed = await self._look_again(known, leasing, kernel, parts)
        self._status.waiting = _STARTING
        return placed

    async def _acquire(self, leasing: Leasing, inputs: Inputs, previous: Subnets) -> bool:
        """While the store is away, an earlier run's lease will do. False when there is none now."""
        try:
            await leasing.acquire(inputs.attrs, previous)
        except Unavailable as error:
            problem = error.problems[0]
            if problem.code == "STORE-001" and leasing.use_recorded():
                log.warning("%s; using the earlier lease", problem)
                return True
            self._wait(problem)
            return False
        return True

    def _wait(self, problem: Problem) -> None:
        if self._status.waiting != problem:
            log.warning("waiting for a lease: %s", problem)
        self._status.waiting = problem

    def _rules(self, known: Known, firewall: Firewall, tooling: Tooling, held: ExitStack) -> RulesPlane | None:
        """Their names are upstream's, the same for all networks: claim them."""
        try:
            for claimed in instance.claim(["rules"]):
                held.callback(claimed.close)
        except ConfigError as error:
            log.warning("INST-001 firewall rules: %s; this instance makes none", error.problems[0].seen)
            return None
        sweep = _RULES_SWEEP_SECONDS if tooling.notices else float(known.options.iptables_resync)
        return RulesPlane(firewall, sweep=sweep, announces=tooling.notices)

    def _network(
        self,
        known: Known,
        tenant: Tenant,
        kernel: NodeKernel,
        *,
        rules: RulesPlane | None,
        store: Store,
        held: ExitStack,
    ) -> Network:
        return Network(
            kernel,
            rules,
            others=known.backend.open_planes(self._place, held),
            inputs=tenant.inputs,
            addresses=tenant.snapshot.ips,
            uplink_problem=ailing(tenant.inputs.facts.uplink, tenant.snapshot),
            subnet_file=Path(known.options.subnet_file),
            status=self._status,
            stranded_pods=self._stranded_pods,
            clock=self._world.monotonic,
            now=self._world.now,
            directory=store.directory,
        )
