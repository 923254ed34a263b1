"""One node, from its start to its stop: the order of things, and the task tree.

Configuration, uplink, lease; then peers and rules; and only when those are in the kernel, subnet.env and
readiness (flannel.md §1.5, with the differences of docs/compat.md). Stopping removes nothing.
"""

import asyncio
import gc
import logging
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, ExitStack, aclosing
from functools import partial
from pathlib import Path
from typing import Any, Final

from weft.beside.threads import beside, bounded
from weft.cluster.store import Store
from weft.config.netconf import NetConf
from weft.config.options import Options
from weft.daemon import control, doctor, events, host, places, start
from weft.daemon.backends.backend import Backend
from weft.daemon.confwatch import ConfWatch, digest
from weft.daemon.disk import history, identity, instance, memory, statefile
from weft.daemon.disk.identity import Identity
from weft.daemon.leasing import Leasing
from weft.daemon.network import Network
from weft.daemon.networkpolicies import Policies
from weft.daemon.planes.contract import Place
from weft.daemon.planes.kernel import NodeKernel
from weft.daemon.planes.rules import RulesPlane
from weft.daemon.process.notify import notify
from weft.daemon.process.supervise import Supervisor
from weft.daemon.services import start_cni, start_health
from weft.daemon.state import Reporter
from weft.daemon.strandedpods import StrandedPods
from weft.daemon.upkeep import Upkeep
from weft.daemon.world import World
from weft.desired.facts import ailing, overlaps
from weft.desired.inputs import Inputs
from weft.desired.node import devices_of
from weft.kernel.rtnetlink.events import Monitor
from weft.kernel.rtnetlink.rtnl import Rtnl
from weft.kernel.tools import Tools
from weft.model.cluster import StoreEvent
from weft.model.errors import ConfigError, Problem, Unavailable
from weft.model.kernel.snapshot import Snapshot
from weft.model.net import Subnets
from weft.model.node.history import History
from weft.model.node.status import Status
from weft.model.text import as_typed, counted
from weft.model.value import Value, replace

log = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 1.0
_RULES_SWEEP_SECONDS: Final = 60.0
_NOTICE_REST_SECONDS: Final = 0.01
_UP_SECONDS: Final = 1.0
_OPEN_SECONDS: Final = 5.0
_STARTING: Final = Problem(code="LEASE-001", where="weftd", seen="starting", hint="Try again in a moment")


class Node:
    """The daemon. `run` serves until cancelled; it raises `ConfigError` when the node cannot be served."""

    def __init__(self, options: Options, world: World) -> None:
        self._options = options
        self._world = world
        self._directory = instance.directory(
            Path(options.state_dir), options.subnet_file, world.store.identity(options)
        )
        self._place = Place(directory=self._directory, boot=world.boot)
        self._status = Status(waiting=_STARTING, history=History(world.unix))
        self._up = asyncio.Event()
        self._stranded_pods = StrandedPods()
        self._report = Reporter(self._status, self._directory.name, now=world.now)
        self._identity: Identity | None = None  # once it is settled, on disk or not
        self._prepared: Value | None = None
        self._backend: Backend | None = None  # once it is known
        self._writing: asyncio.Task[None] | None = None  # of the state: a task that nothing holds may vanish

    @property
    def goes_on(self) -> str:
        """The process that serves pods beside this one and outlives it, for people; empty if there is none."""
        return "" if self._backend is None else self._backend.goes_on

    def write_state(self) -> None:
        """Begin to write the state into a file of the state directory; where it is, or why not, is logged."""
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(statefile.write(self._report.whole, self._directory))

    async def run(self) -> None:
        """Serve this node."""
        with ExitStack() as held:
            # All that flags name is tried before the first thing is made: a wrong one leaves the node as it was.
            await beside(lambda: places.examine(self._options))
            store = await start.answered(self._open, "the files of the store's flags", self._status)
            held.callback(store.close)
            self._report.asked = store.tallies
            self._status.heard = lambda: store.heard
            listening = await beside(lambda: places.listen(self._options, self._directory))
            await beside(lambda: instance.take_directory(self._directory))
            async with asyncio.TaskGroup() as tasks:
                parts = Supervisor(tasks, self._status)
                parts.start("history", partial(history.keep, self._status.history, self._directory))
                if listening is not None:
                    start_health(listening, self._options, parts, self._report)
                start_cni(
                    self._options,
                    parts,
                    self._status,
                    up=self._up,
                    stranded_pods=self._stranded_pods,
                    report=self._report,
                )
                self._start_control(parts, held)
                await self._start(store, tasks, parts, held)

    async def _open(self) -> Store[Any]:
        """Open the store, which reads files. Raises `Unavailable` when their disk does not answer."""
        world = self._world
        opening = partial(world.store.open, self._options, now=world.now, random=world.random)
        try:
            return await bounded(("store", id(self)), opening, seconds=_OPEN_SECONDS)
        except OSError as error:
            seen = f"what the flags name cannot be read: {error.strerror}"
            raise Unavailable(Problem(code="STORE-001", where="the store's files", seen=seen)) from None

    def _start_control(self, parts: Supervisor, held: ExitStack) -> None:
        """Claim the name of this instance, and answer there what is asked of it.

        Where another process holds that name, a random suffix is added: commands go by who made the socket.
        """
        name = f"instance/{self._directory.name}"
        claimed = instance.claim([name]) or instance.claim([f"{name}.{self._world.random(4).hex()}"])
        for each in claimed:
            held.callback(each.close)
            parts.start("control", partial(control.serve, each, self._report.answer))

    async def _start(self, store: Store[Any], tasks: asyncio.TaskGroup, parts: Supervisor, held: ExitStack) -> None:
        options, status = self._options, self._status
        before = await beside(lambda: memory.load(self._directory, self._world.moment()))
        remembered = await start.read_net_conf(store, before, status)
        netconf = start.understand(remembered, store, self._world)
        backend = self._backend = self._world.backends[netconf.backend]
        addresses = await start.answered(lambda: store.addresses(remembered.own), "this node in the store", status)
        options = self._options = start.with_addresses(options, addresses)
        prepare = partial(backend.prepare, netconf.options, options, self._directory)
        self._prepared = await start.answered(prepare, f"what {netconf.backend} needs first", status)
        self._announce(store, parts)
        leasing = Leasing(
            store,
            self._directory,
            netconf=netconf,
            remembered=remembered,
            margin=options.subnet_lease_renew_margin * 60,
            moment=self._world.moment,
            random=self._world.random,
        )
        rules = tasks.create_task(start.firewall(netconf, held, self._world.modules))  # takes its time
        kernel = NodeKernel(held.enter_context(Rtnl.open()))
        snapshot = await kernel.snapshot()
        previous = host.previous_subnets(options)
        inputs = await self._look(netconf, leasing, kernel, snapshot, parts)
        inputs = replace(inputs, former_networks=previous.networks)
        devices = devices_of(inputs)
        for claimed in instance.claim(f"device/{name}" for name in sorted(devices)):
            held.callback(claimed.close)
        await start.remove_remains(self._world, self._place, inputs)
        kernel.devices = devices
        last = previous.subnet_v4, previous.subnet_v6
        while not await self._acquire(leasing, inputs, last):
            snapshot, inputs = await self._look_again(netconf, leasing, kernel, inputs, parts)
        status.waiting = _STARTING
        firewall, tooling, rule_monitor = await rules
        self._report.rules = f"{'nft' if netconf.nftables else 'iptables'} {tooling.version}"
        inputs = replace(inputs, random_fully=inputs.random_fully and tooling.random_fully)
        sweep = _RULES_SWEEP_SECONDS if tooling.notices else float(options.iptables_resync)
        inputs = start.with_lease(inputs, leasing.lease, kernel, snapshot)
        network = Network(
            kernel,
            RulesPlane(firewall, sweep=sweep, announces=tooling.notices) if self._claim_rules(held) else None,
            others=backend.open_planes(self._place, held),
            inputs=inputs,
            addresses=snapshot.ips,
            subnet_file=Path(options.subnet_file),
            status=status,
            stranded_pods=self._stranded_pods,
            clock=self._world.monotonic,
            now=self._world.now,
            continues=store.continues,
        )
        self._report.network, self._report.leasing = network, leasing
        self._report.config = digest(remembered.net_conf)
        network.uplink_problem = ailing(inputs.facts.uplink, snapshot)
        ports = frozenset({kernel.rtnl.port})
        # A socket of its own: the loop's may be busy in a thread.
        monitor = Monitor.open(
            held.enter_context(Rtnl.open()),
            devices=devices,
            uplinks=network.uplinks,
            ports=ports,
            rest=_NOTICE_REST_SECONDS,
        )
        held.callback(monitor.close)
        for notice in monitor.known:
            network.notice(notice)
        configured = ConfWatch(store, netconf, remembered.net_conf, self._world.backends)
        status.losses["configuration"] = lambda: configured.problem
        upkeep = Upkeep(options, network, leasing, kernel, status, now=self._world.now)
        following = await _begin(network, leasing, parts)
        up = tasks.create_task(self._come_up(network, kernel, parts, store))
        await asyncio.wait((up,), timeout=_UP_SECONDS)  # as a rule it needs the processor for a moment only
        network.start(parts, monitor, rule_monitor)
        upkeep.start(parts)
        parts.start("configuration", configured.run)
        parts.start("doctor", partial(doctor.watch, self._report, Path(options.subnet_file)))
        watches = [following]
        parts.start("other leases", lambda: _follow(watches.pop() if watches else leasing.watch(), network, leasing))

    def _announce(self, store: Store[Any], parts: Supervisor) -> None:
        """Start what tells the store of problems here, and what looks for NetworkPolicies that nobody enforces."""
        policies = Policies(store, Tools())
        self._status.losses["policies"] = lambda: policies.problem
        parts.start("policies", policies.run)
        words = partial(as_typed, environ=self._options.surroundings.environ)
        parts.start("events", partial(events.announce, store, self._status, now=self._world.monotonic, words=words))

    async def _come_up(self, network: Network, kernel: NodeKernel, parts: Supervisor, store: Store[Any]) -> None:
        """Wait for what pods need, say that it is there, and remove what an earlier configuration had in its place."""
        await network.devices_there()
        await network.subnet_file.write()
        parts.start("subnet file", network.subnet_file.keep, again=network.subnet_file.renew)
        self._ready(network)
        parts.start("readiness in the store", lambda: start.answered(store.ready, "the store to take it"))
        await start.remove_former_devices(kernel, network.reconciler.decider.ownership)

    async def _look(
        self, netconf: NetConf, leasing: Leasing, kernel: NodeKernel, snapshot: Snapshot, parts: Supervisor
    ) -> Inputs:
        """Find out what this machine is: its uplink, and its MACs, which no other live node may have."""
        facts, why = await start.look_around(self._options, netconf, kernel, snapshot)
        if why != self._report.why:
            log.info("%s", why)
            for problem in overlaps(netconf, facts):
                log.warning("%s", problem)
            self._report.why = why
        known = self._identity or identity.load(self._directory)
        if await start.is_a_copy(leasing.recorded, facts, snapshot, kernel):
            log.warning("LEASE-004 the node that took our recorded lease is alive: this disk is a copy of its disk")
            leasing.disown()
        listing = await leasing.listing()
        published = None if listing is None else listing.published
        backend = self._world.backends[netconf.backend].desired
        own = start.settle_identity(known, self._world, snapshot, netconf, facts, published=published)
        if listing is not None:
            own = start.without_clones(own, leasing.elders(listing), self._world, backend=backend, facts=facts)
        self._identity = own
        if own != known:
            file = identity.file(self._directory, own)
            if not await file.attempt():  # before they are published, if that is possible
                parts.start("identity", file.keep_trying)
        made = start.make_inputs(self._options, netconf, backend, facts, own)
        return replace(made, prepared=self._prepared)

    async def _look_again(
        self, netconf: NetConf, leasing: Leasing, kernel: NodeKernel, before: Inputs, parts: Supervisor
    ) -> tuple[Snapshot, Inputs]:
        """Find out what this machine is now, after there was no lease: waiting may take days."""
        while True:
            await asyncio.sleep(_RETRY_SECONDS)
            snapshot = await kernel.snapshot()
            try:
                inputs = await self._look(netconf, leasing, kernel, snapshot, parts)
            except ConfigError as error:
                self._wait(error.problems[0])
            else:
                return snapshot, replace(inputs, former_networks=before.former_networks)

    def _claim_rules(self, held: ExitStack) -> bool:
        """Claim the firewall rules of this network namespace: their names are upstream's, the same for all networks."""
        try:
            for claimed in instance.claim(["rules"]):
                held.callback(claimed.close)
        except ConfigError as error:
            log.warning("INST-001 firewall rules: %s; this network has none here", error.problems[0].seen)
            return False
        return True

    async def _acquire(self, leasing: Leasing, inputs: Inputs, previous: Subnets) -> bool:
        """Take a lease; while the store is away, the one of an earlier run will do. False when there is none now."""
        try:
            await leasing.acquire(inputs.backend.advertise(inputs), previous)
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

    def _ready(self, network: Network) -> None:
        """Pods can be attached from now on; whether all is well is another matter, and said."""
        status = self._status
        status.waiting = None
        self._up.set()
        log.info(
            "%s: %s, %d refused, %d failing, %s",
            "ready" if status.ready else "up",
            counted(status.peers, "peer"),
            status.peers_refused,
            status.peers_failing,
            counted(len(network.reconciler.decider.wanted), "object"),
        )
        status.history.note("started", "weftd", words=f"with {counted(status.peers, 'peer')}")
        if status.unable is not None:
            log.warning("up, but not ready: %s", status.unable)
        notify(self._world.notify_socket, "READY=1")
        # What the start has made is there to stay: the collector need not walk over it again and again.
        gc.freeze()
        gc.enable()


async def _begin(network: Network, leasing: Leasing, parts: Supervisor) -> AsyncGenerator[StoreEvent, None]:
    """Put into the kernel what is known; returns the watch that has told of it, for `_follow`, which closes it."""
    async with AsyncExitStack() as closing:
        events = await closing.enter_async_context(aclosing(leasing.watch()))
        await network.peers.recall(leasing.remembered)
        if leasing.confirmed:
            await network.peers.take(await anext(events))
        if network.reconciler.complete:
            leasing.saw(network.peers.known)
        else:  # the store is away, or went between our lease and the list
            await network.peers.settle()
        await network.begin(parts)
        closing.pop_all()
    return events


async def _follow(watch: AsyncGenerator[StoreEvent, None], network: Network, leasing: Leasing) -> None:
    """Take what the store says, for ever."""
    async with aclosing(watch) as events:
        async for event in events:
            await network.peers.take(event)
            if network.reconciler.complete:
                leasing.saw(network.peers.known)
