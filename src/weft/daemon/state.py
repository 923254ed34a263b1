"""The node's state as one value, put together when it is asked for: the loops keep no second account of themselves.

There may be thousands of peers, so it is put together in slices, between which the event loop gets a turn.
"""

import logging
import os
import sys
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Final

import msgspec

from weft import __version__
from weft.cluster.store import Store
from weft.daemon.calls import Calls
from weft.daemon.leasing import Leasing
from weft.daemon.network import Network
from weft.daemon.planes import traffic
from weft.daemon.planes.plane import Keeper
from weft.daemon.planes.traffic import Traffic, together
from weft.daemon.reconcile import Reconciler
from weft.desired.inputs import Inputs
from weft.desired.node import devices_of
from weft.kernel import daemons
from weft.kernel.cooperative import Slices, in_turns
from weft.model.errors import Problem, WeftError
from weft.model.kernel.objects import Key, Objects
from weft.model.lease import Lease, LeaseAttrs
from weft.model.node.meshstate import MeshAsk, MeshDone
from weft.model.node.nodestate import (
    CallState,
    HealthState,
    LeaseState,
    LoopState,
    NetworkState,
    NodeState,
    PeerState,
    Plan,
    PlanAnswer,
    RefusedState,
    RequestState,
    UplinkState,
)
from weft.model.node.status import Status
from weft.model.value import Value, replace

if TYPE_CHECKING:
    from weft.daemon.enforcement import Enforcement

log = logging.getLogger(__name__)

_SLICE: Final = 256  # peers at a stretch: about 3 ms
_NOTHING: Final[Mapping[Key, Traffic]] = {}


class _Question(Value):
    ask: str
    after: int = 0
    mesh: MeshAsk | None = None
    addresses: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


class Reporter:
    """What the daemon is asked about. What `serves` tells is not known before: the node waits for it.

    `now` counts seconds.
    """

    def __init__(self, status: Status, store: Store, instance: str, *, now: Callable[[], float]) -> None:
        self.status = status
        self.store = store
        self.instance = instance
        self.network: Network | None = None
        self.leasing: Leasing | None = None
        self.why = ""  # of the uplink
        self.rules = ""  # the version of the program that writes them
        self.policies: Enforcement | None = None  # where they are enforced
        self._plan: Callable[[], Awaitable[Plan]] | None = None
        self.config = ""  # short for the network configuration
        self.calls = Calls()
        self.findings: list[Problem] = []
        self._now = now
        self._began = now()

    def serves(
        self,
        network: Network,
        leasing: Leasing,
        *,
        plan: Callable[[], Awaitable[Plan]],
        why: str,
        rules: str,
        config: str,
    ) -> None:
        self.network, self.leasing, self._plan = network, leasing, plan
        self.why, self.rules, self.config = why, rules, config

    @property
    def seconds(self) -> float:
        return self._now() - self._began

    async def look(self, counted: Mapping[Key, Traffic] = _NOTHING, *, peers: int | None = None) -> NodeState:
        """The state as it is now, of so many `peers` at most; `counted` is what is known of peers' packets."""
        return await in_turns(_looking(self, self._now(), counted, peers))

    async def whole(self) -> NodeState:
        keepers = () if self.network is None else self.network.keepers.values()
        return await self.look(await traffic.ask([keeper.plane for keeper in keepers]))

    def enforcing(self) -> list[str]:
        """The other nodes that say that they enforce policies."""
        return [lease.id for lease in self._others() if lease.attrs.policies == "enforce"]

    def _others(self) -> Collection[Lease]:
        return () if self.network is None else self.network.roster.believed.values()

    async def _planned(self) -> PlanAnswer:
        if self._plan is None:
            return PlanAnswer(unable=() if self.status.waiting is None else (self.status.waiting,))
        try:
            return PlanAnswer(plan=await self._plan())
        except WeftError as error:
            return PlanAnswer(unable=tuple(error.problems))
        except OSError as error:
            seen, hint = f"the kernel could not be asked: {error}", "Try again in a moment"
            return PlanAnswer(unable=(Problem(code="INST-003", where="weftd", seen=seen, hint=hint),))
        except Exception as fault:  # a plan must not take along what answers the other questions
            seen, hint = f"a fault in weft ended it: {fault!r}", "Report this, with the lines of weftd's log"
            problem = Problem(code="INST-002", where="weftd's plan", seen=seen, hint=hint)
            self.status.faults += 1
            log.exception("%s", problem)
            return PlanAnswer(unable=(problem,))

    def _health(self) -> HealthState:
        status = self.status
        return HealthState(ready=status.ready, parts=status.look(), losses=status.lost(), store=status.store)

    async def answer(self, question: bytes) -> bytes:
        """Answer what is asked at the control socket, as JSON; nothing where that is not understood."""
        if question == daemons.ASK_HEALTH:
            return msgspec.json.encode(self._health())
        if question == daemons.ASK_STATE:
            return msgspec.json.encode(await self.whole())
        if question == daemons.ASK_PLAN:
            return msgspec.json.encode(await self._planned())
        try:
            asked = msgspec.json.decode(question, type=_Question)
        except msgspec.MsgspecError:
            return b""
        if asked.mesh is not None:
            return msgspec.json.encode(await self._commanded(asked.mesh))
        return self._told(asked)

    def _told(self, asked: _Question) -> bytes:
        if asked.ask == "events":
            return msgspec.json.encode(self.status.history.told(asked.after))
        if asked.ask == "pods" and self.policies is not None:
            return msgspec.json.encode(self.policies.pods_at(asked.addresses))
        if asked.ask == "policies" and self.policies is not None:
            return msgspec.json.encode(self.policies.told(asked.names, self._others()))
        return b""

    async def _commanded(self, ask: MeshAsk) -> MeshDone:
        try:
            return MeshDone(lines=await self.store.command(ask))
        except WeftError as error:
            return MeshDone(unable=tuple(error.problems))


def _looking(report: Reporter, now: float, counted: Mapping[Key, Traffic], most: int | None) -> Slices[NodeState]:
    status, network = report.status, report.network
    heard = report.store.directory.heard
    base = NodeState(
        version=__version__,
        instance=report.instance,
        pid=os.getpid(),
        seconds=report.seconds,
        ready=status.ready,
        parts=status.look(),
        losses=status.lost(),
        store=status.store,
        faults=status.faults,
        calls=_calls(report.calls),
        requests={
            kind: RequestState(count=tally.asked, received=tally.received)
            for kind, tally in sorted(report.store.tallies.items())
        },
        versions=_versions(report.rules),
        findings=report.findings,
        took={kind: each.copy() for kind, each in report.calls.took.copy().items()},
        waited=report.calls.waited.copy(),
        heard=None if heard is None else round(max(0.0, now - heard), 1),
        mesh=report.store.mesh(),
        policies=None if report.policies is None else report.policies.as_of,
        policy=None if report.policies is None else report.policies.state(),
    )
    if network is None:
        return base
    roster = network.roster
    believed = tuple(islice(roster.believed, most))
    keepers = {kind: keeper for keeper in network.keepers.values() for kind in keeper.plane.kinds}
    peers: list[PeerState] = []
    for start in range(0, len(believed), _SLICE):
        there = [name for name in believed[start : start + _SLICE] if name in roster.believed]
        known = [(roster.believed[name], roster.served_since(name), roster.doubt(name)) for name in there]
        peers += [
            peer_state(network.reconciler, keepers, lease, now - since, counted, doubt=doubt)
            for lease, since, doubt in known
        ]
        yield
    wanted = network.reconciler.decider.wanted
    return replace(
        base,
        network=replace(_network(network.inputs), config=report.config),
        uplink=_uplink(network.inputs, report.why),
        lease=None if report.leasing is None else _lease(report.leasing),
        peers=peers,
        refused=[_refused(name, problem, *roster.known(name), now) for name, problem in roster.refused.items()],
        loops={name: _loop(keeper, wanted) for name, keeper in network.keepers.items()} | _policy_loop(report.policies),
    )


def _policy_loop(policies: "Enforcement | None") -> dict[str, LoopState]:
    keeper = None if policies is None else policies.keeper
    return {} if policies is None or keeper is None else {"policies": _loop(keeper, policies.wanted)}


def _calls(calls: Calls) -> dict[str, CallState]:
    return {
        kind: CallState(
            count=count,
            failed=failed,
            median_ms=round(seconds[len(seconds) // 2] * 1e3, 1),
            worst_ms=round(seconds[-1] * 1e3, 1),
        )
        for kind, (count, failed, seconds) in sorted(calls.look().items())
    }


def _versions(rules: str) -> dict[str, str]:
    machine = {"Linux": os.uname().release, "Python": ".".join(map(str, sys.version_info[:3]))}
    return machine | ({"packet filter": rules} if rules else {})


def _network(inputs: Inputs) -> NetworkState:
    return NetworkState(
        networks=_texts(inputs.netconf.networks),
        backend=inputs.netconf.backend,
        mtu=inputs.backend.mtu(inputs),
        devices=sorted(devices_of(inputs)),
    )


def _uplink(inputs: Inputs, why: str) -> UplinkState:
    uplink = inputs.facts.uplink
    addresses = _texts((uplink.v4, uplink.v6))
    return UplinkState(name=uplink.name, index=uplink.index, mtu=uplink.mtu, addresses=addresses, why=why)


def _lease(leasing: Leasing) -> LeaseState:
    own = leasing.lease
    left = leasing.left
    return LeaseState(
        id=own.id,
        subnets=_texts(own.subnets),
        public=_public(own.attrs),
        confirmed=leasing.confirmed,
        seconds=None if left is None else round(left, 1),
    )


def peer_state(
    reconciler: Reconciler,
    keepers: Mapping[str, Keeper],
    lease: Lease,
    seconds: float = 0.0,
    counted: Mapping[Key, Traffic] = _NOTHING,
    *,
    doubt: Problem | None = None,
) -> PeerState:
    """What became of a believed lease, `seconds` ago. `keepers` are by the kinds of objects that are theirs."""
    wanted = reconciler.decider.part(lease.id)
    ages = (keepers[str(thing.key[0])].retries.age(thing.key) for thing in wanted)
    packets = together([counted[thing.key] for thing in wanted if thing.key in counted])
    lacks = [f"{thing}: {words}" for thing in wanted if (words := _wrong(keepers[str(thing.key[0])], thing.key))]
    if not wanted and reconciler.is_deciding:
        lacks = ["what leads to it: not decided yet"]
    return PeerState(
        id=lease.id,
        subnets=_texts(lease.subnets),
        public=_texts(lease.remotes),
        backend=lease.attrs.backend,
        lacks=lacks,
        trouble=reconciler.decider.unusable.get(lease.id),
        doubt=doubt,
        seconds=round(min([seconds, *(age for age in ages if age is not None)]), 1),
        sent=packets.sent,
        received=packets.received,
        sent_bytes=packets.sent_bytes,
        received_bytes=packets.received_bytes,
        heard=packets.heard,
        way="" if lease.way is None else str(lease.way),
    )


def _refused(name: str, problem: Problem, lease: Lease | None, since: float | None, now: float) -> RefusedState:
    if lease is None or since is None:
        return RefusedState(id=name, trouble=problem)
    return RefusedState(
        id=name,
        trouble=problem,
        subnets=_texts(lease.subnets),
        public=_public(lease.attrs),
        backend=lease.attrs.backend,
        seconds=round(now - since, 1),
    )


def _wrong(keeper: Keeper, key: Key) -> str:
    """Empty if it is."""
    refusal = keeper.tally.failing.get(key)
    return refusal or ("" if keeper.is_as_wanted(key) else "not there yet")


def _loop(keeper: Keeper, wanted: Objects) -> LoopState:
    tally = keeper.tally
    failing = {str(wanted.get(key) or " ".join(map(str, key))): words for key, words in tally.failing.items()}
    return LoopState(
        rounds=tally.rounds,
        repairs=dict(tally.repairs),
        lately=keeper.lately(),
        unannounced=tally.unannounced,
        failing=failing,
        counts=dict(keeper.plane.counts),
        took=tally.took.copy(),
    )


def _public(attrs: LeaseAttrs) -> list[str]:
    return _texts((attrs.public_ip, attrs.public_ipv6))


def _texts(things: Iterable[object]) -> list[str]:
    return [str(thing) for thing in things if thing is not None]
