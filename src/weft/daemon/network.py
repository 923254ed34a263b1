"""The network of a node whose lease is known: notices and events in, marks for the loops out.

Every change of what decides (uplink, own lease) goes through `set_inputs`, so that the loop over routes, the
loop over rules and subnet.env always speak of the same thing.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final

from weft.cluster.store import Directory
from weft.daemon.disk.subnetfile import SubnetFile
from weft.daemon.peers import Peers
from weft.daemon.planes.contract import Plane
from weft.daemon.planes.kernel import NodeKernel
from weft.daemon.planes.plane import Keeper
from weft.daemon.planes.rules import RulesPlane
from weft.daemon.process.supervise import Supervisor
from weft.daemon.reconcile import Reconciler
from weft.daemon.strandedpods import StrandedPods
from weft.desired.decide import deciding
from weft.desired.inputs import Inputs
from weft.desired.leasecheck import ours
from weft.desired.node import device_of, forwarded
from weft.kernel import sysctl
from weft.kernel.netfilter.monitor import PLUGINS, POLICIES
from weft.kernel.netfilter.monitor import Monitor as RuleMonitor
from weft.kernel.netfilter.monitor import Resync as RulesLost
from weft.kernel.portholders import Askers
from weft.kernel.rtnetlink.events import Monitor
from weft.kernel.rtnetlink.notices import AddressMoved, Lost, Notice, ObjectChanged, PodCut, Resync, UplinkChanged
from weft.model.errors import Problem
from weft.model.kernel.links import Link, NodeLink
from weft.model.kernel.marks import BRIDGE_NETFILTER, FORWARDING
from weft.model.kernel.objects import Key, RuleSet, Sysctl
from weft.model.kernel.policytable import KINDS as POLICY_KINDS
from weft.model.net import Ip
from weft.model.node.status import Status
from weft.model.value import replace
from weft.wire.subnetenv import SubnetEnv, render

log = logging.getLogger(__name__)

_BRIDGE_SECONDS: Final = 1.0
_RETRY_SECONDS: Final = 1.0


class Network:
    """Keeps the kernel and subnet.env as the inputs and the leases of others say.

    `addresses` are all of this node's, which no lease of another may take.
    `rules` is None when another daemon keeps the rules in this network namespace: two would fight. `others` are the
    planes of what is neither rtnetlink's nor rules.
    `clock` and `now` only go forward; `now` goes on while the machine sleeps.
    """

    def __init__(
        self,
        kernel: NodeKernel,
        rules: RulesPlane | None,
        *,
        others: Mapping[str, Plane],
        inputs: Inputs,
        addresses: Collection[Ip],
        uplink_problem: Problem | None = None,
        subnet_file: Path,
        status: Status,
        stranded_pods: StrandedPods,
        clock: Callable[[], float],
        now: Callable[[], float],
        directory: Directory[Any],
    ) -> None:
        # Both may have changed since the machine was looked at and before notices come.
        self.uplink_changed = asyncio.Event()
        self.uplink_changed.set()
        self.addresses_changed = asyncio.Event()
        self.addresses_changed.set()
        # The uplink's name and index, for the monitor to read when a notice comes.
        self.uplinks: set[str | int] = set()
        self.uplink_problem = uplink_problem
        self.subnet_file = SubnetFile(subnet_file, lambda: render(self._subnet_env()).encode(), clock=clock)
        self._status = status
        self._stranded_pods = stranded_pods
        self._addresses = addresses
        self._ours = ours(inputs, addresses)
        self._kernel = kernel
        self._askers = Askers(clock)
        roster, decider = deciding(inputs, addresses)
        self.reconciler = Reconciler(decider, clock=clock)
        planes: dict[str, Plane] = {"routes": kernel, **({} if rules is None else {"rules": rules}), **others}
        self.keepers = {name: self.reconciler.keep(plane, history=status.history) for name, plane in planes.items()}
        self.links, self.rules = self.keepers["routes"], self.keepers.get("rules")
        self.links.tell_of_links(self.keepers[name] for name in others)
        self.roster = roster
        self.peers = Peers(roster, self.reconciler, status, directory, now=now)
        status.parts["devices"] = self._device_problem
        status.parts["uplink"] = lambda: self.uplink_problem
        status.parts["forwarding"] = self._forwarding_problem
        if inputs.policies:
            status.parts["bridge netfilter"] = self._bridge_filter_problem
        status.parts["bridges"] = self._node_link_problem
        status.losses["leases"] = lambda: self.peers.problem
        status.losses["pods"] = lambda: stranded_pods.problem
        if rules is not None:
            status.parts["rules"] = self._rules_problem
        status.parts["subnet.env"] = lambda: self.subnet_file.problem
        self._pass_on(inputs)

    @property
    def inputs(self) -> Inputs:
        return self.reconciler.decider.inputs

    def set_inputs(self, inputs: Inputs, addresses: Collection[Ip] | None = None) -> None:
        """`addresses` are this node's now, if they may have changed."""
        self._addresses = self._addresses if addresses is None else addresses
        self._ours = ours(inputs, self._addresses)
        self.reconciler.decider.inputs = inputs
        self.reconciler.decide_all_again()
        self.peers.judge_by(self._ours)
        self._pass_on(inputs)

    def _set_shared(self, **changes: frozenset[int] | frozenset[str]) -> None:
        """Change inputs on which neither peers nor rules depend."""
        inputs = replace(self.inputs, **changes)
        self.reconciler.decider.inputs = inputs
        self.reconciler.decide_shared()
        self._kernel.follow(inputs)

    def _pass_on(self, inputs: Inputs) -> None:
        self.uplinks.clear()
        self.uplinks.update((inputs.facts.uplink.name, inputs.facts.uplink.index))
        self._kernel.follow(inputs)

    def addresses_are(self, addresses: Collection[Ip]) -> None:
        self._addresses = addresses
        now = ours(self.inputs, addresses)
        if now == self._ours:
            return
        self._ours = now
        self.peers.judge_by(now)

    def notice(self, notice: Notice) -> None:
        match notice:
            case ObjectChanged(thing=Sysctl() as setting):
                self._forwarding_is(setting)
            case ObjectChanged(key=("nodelink", str(name)) as key, thing=NodeLink() | None as thing):
                self._node_link_is(key, name, thing)
            case ObjectChanged(key=key, thing=thing, port=port):
                self.links.seen(key, thing, self._askers.name(port))
            case PodCut(key=key, bridge=bridge):
                self._stranded_pods.add(key, bridge)
            case Lost():
                self.links.look_again()
            case UplinkChanged():
                self.uplink_changed.set()
            case AddressMoved(ip=ip, gone=gone):
                if gone == (ip in self._ours.addresses) and not any(ip in net for net in self._ours.subnets):
                    self.addresses_changed.set()
            case Resync(reason=reason):
                log.info("%s: comparing everything in the kernel", reason)
                self.links.look_again()
                self.uplink_changed.set()
                self.addresses_changed.set()

    def _forwarding_is(self, setting: Sysctl) -> None:
        [family] = (family for family, name in FORWARDING.items() if name == setting.name)
        inputs = self.inputs
        if family in forwarded(inputs):
            self.links.seen(setting.key, setting)
        elif setting.value == "1" and family not in inputs.forwarding:
            # A pod's plugin turned it on, or somebody else: from now on it is needed.
            self._set_shared(forwarding=inputs.forwarding | {family})

    def _node_link_is(self, key: Key, name: str, thing: NodeLink | None) -> None:
        known = self.inputs.node_links
        if thing is None:
            self._set_shared(node_links=known - {name})
        elif name not in known:
            self._set_shared(node_links=known | {name})
        self.links.seen(key, thing)

    def _forwarding_problem(self) -> Problem | None:
        """Only if it did forward."""
        for name in (FORWARDING[family] for family in forwarded(self.inputs)):
            key = ("sysctl", name)
            refused = self.links.tally.failing.get(key)
            if refused or self.links.is_otherwise(key):
                seen = refused or "another program turned it off"
                hint = "Trying again; until then no pod reaches another node. Find who sets it: `sysctl --system`"
                return Problem(code="KERN-002", where=name, seen=seen, expected="1", hint=hint)
        return None

    def _bridge_filter_problem(self) -> Problem | None:
        for name in BRIDGE_NETFILTER.values():
            key = ("sysctl", name)
            if key in self.reconciler.decider.wanted and not self.links.is_as_wanted(key):
                seen = self.links.tally.failing.get(key, "another program turned it off")
                hint = (
                    "Trying again; until then policies do not hold between pods of this node: `modprobe br_netfilter`"
                )
                return Problem(code="POL-002", where=name, seen=seen, expected="1", hint=hint)
        return None

    def _node_link_problem(self) -> Problem | None:
        """Of a link that pods of this node share."""
        for name in sorted(self.inputs.node_links):
            key = NodeLink(name=name).key
            if not self.links.is_as_wanted(key):
                seen = self.links.tally.failing.get(key, "another program set it down")
                hint = "Trying again; until then no pod on it reaches anything. Find who does: `ip monitor link`"
                return Problem(code="BRIDGE-006", where=f"link {name}", seen=seen, expected="up", hint=hint)
        return None

    def _rules_problem(self) -> Problem | None:
        hint = "Trying again every few seconds; pods may reach less than they should until then"
        for thing in self.reconciler.decider.part():
            if self.rules is None or not isinstance(thing, RuleSet):
                continue
            if words := self.rules.tally.failing.get(thing.key):
                seen = f"cannot be written: {words}"
                return Problem(code="NFT-001", where="firewall rules", seen=seen, hint=hint)
            if self.rules.is_held(thing.key):
                seen = f"another program keeps changing {thing}"
                return Problem(code="NFT-002", where="firewall rules", seen=seen, hint=f"Find it. {hint}")
        return None

    async def begin(self, parts: Supervisor) -> None:
        """What is refused is tried again."""
        for name, keeper in self.keepers.items():
            parts.start(name, keeper.run, again=self.reconciler.start_over)
        self.reconciler.start_over()
        await self.reconciler.decide()
        for keeper in self.reconciler.keepers:
            if not self._serves_spare(keeper):
                await keeper.idle()

    def _serves_spare(self, keeper: Keeper) -> bool:
        """Tell whether a plane has nothing to do but for devices for which nothing waits."""
        decider = self.reconciler.decider
        spare = decider.spare
        mine = [thing for key, thing in decider.wanted.items() if key[0] in keeper.plane.kinds] if spare else ()
        return bool(mine) and all(device_of(thing) in spare for thing in mine)

    async def devices_there(self) -> None:
        """May take days; says why they are not there yet."""
        said = None
        while problem := self._device_problem():
            if problem != said:
                log.error("%s", problem)
            said = problem
            await asyncio.sleep(_RETRY_SECONDS)

    def _device_problem(self) -> Problem | None:
        for key, words in self.reconciler.own_failures().items():
            thing = self.reconciler.decider.wanted[key]
            advice = thing.advice
            code = thing.code_if_refused
            seen = f"the kernel refuses it: {words}" if code == Link.code_if_refused else words
            return Problem(code=code, where=str(thing), seen=seen, hint=f"Trying again. {advice}")
        return None

    def _subnet_env(self) -> SubnetEnv:
        inputs = self.inputs
        return SubnetEnv(
            network_v4=inputs.netconf.v4.network if inputs.netconf.v4 else None,
            subnet_v4=inputs.v4,
            network_v6=inputs.netconf.v6.network if inputs.netconf.v6 else None,
            subnet_v6=inputs.v6,
            mtu=inputs.backend.mtu(inputs),
            ip_masq=inputs.ip_masq,
        )

    def start(
        self,
        parts: Supervisor,
        monitor: Monitor,
        rules: RuleMonitor | None,
        policies: Callable[[], Keeper | None] = lambda: None,
    ) -> None:
        """`policies` is the keeper of their tables, once there is one."""
        parts.start("deciding", self.reconciler.run, again=self.reconciler.decide_all_again)
        parts.start("peers", self.peers.run)
        parts.start("notices", lambda: self.listen(monitor))
        if self.inputs.policies:
            parts.start("bridge netfilter", self._watch_bridges)
        if rules is not None:

            def keepers() -> list[Keeper]:
                return [keeper for keeper in (self.rules, policies()) if keeper is not None]

            def look_again() -> None:
                for keeper in keepers():
                    keeper.look_again()

            parts.start("notices of rules", lambda: _listen(rules, keepers, self._stranded_pods), again=look_again)

    async def _watch_bridges(self) -> None:
        """The kernel announces no change of these settings, without which no policy holds between pods of a bridge."""
        while True:
            await asyncio.sleep(_BRIDGE_SECONDS)
            for name in BRIDGE_NETFILTER.values():
                key = ("sysctl", name)
                if key in self.reconciler.decider.wanted and self.links.is_as_wanted(key):
                    value = sysctl.read(name)
                    self.links.seen(key, None if value is None else Sysctl(name=name, value=value))

    async def listen(self, monitor: Monitor) -> None:
        async for notices in monitor:
            for notice in notices:
                self.notice(notice)


async def _listen(monitor: RuleMonitor, keepers: Callable[[], list[Keeper]], pods: StrandedPods) -> None:
    async for wake in monitor.wakes():
        for keeper in keepers():
            if isinstance(wake, RulesLost) or (POLICIES in wake.keys and keeper.plane.kinds == POLICY_KINDS):
                keeper.look_again()
            else:
                keeper.unseen(wake.keys, wake.by)
        if isinstance(wake, RulesLost) or PLUGINS in wake.keys:
            pods.look_at_all()
