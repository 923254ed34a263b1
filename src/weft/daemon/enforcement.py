"""Policies in effect on this node: decided from policies, pods and attachments, and kept in the kernel.

Nothing is written before everything that was there at the start is known: policies and living attachments.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from weft.beside.threads import beside
from weft.cluster.policysource import Change, Files, PolicySource
from weft.config.options import Options
from weft.daemon.disk import instance
from weft.daemon.planes.plane import Keeper
from weft.daemon.policycuts import Cuts, of_kernel
from weft.daemon.policyeffect import Effects, unenforced
from weft.daemon.policygate import PolicyGate
from weft.daemon.policypods import Attachments, PodsHere
from weft.daemon.policyterm import PolicyPlane, Term, settings_of
from weft.desired.inputs import Inputs
from weft.desired.policy.connections import Connections, concerned
from weft.desired.policy.decide import PolicyDecider
from weft.desired.policy.inputs import Attached, Mode, PolicySettings
from weft.kernel.netfilter.cutting import own_addresses
from weft.kernel.netfilter.nfnetlink import NfSocket
from weft.kernel.netfilter.policies import PolicyTables
from weft.kernel.tools import Tools
from weft.model.errors import ConfigError, Problem
from weft.model.kernel.objects import Key, Objects
from weft.model.lease import Lease
from weft.model.net import ip_in
from weft.model.node.history import History
from weft.model.node.nodestate import PoliciesTold, PolicyState
from weft.model.policy import DIRECTIONS, ClusterPolicy, Pod, Policy, Thing, id_of
from weft.model.text import counted

log = logging.getLogger(__name__)

_SETTINGS_SECONDS: Final = 1.0
_BEGINNING: Final = Problem(
    code="POL-003", where="policies", seen="not all of them is known yet", hint="Try again in a moment"
)
_WRITING: Final = Problem(
    code="POL-003", where="policies", seen="not all of them is in the kernel yet", hint="Try again in a moment"
)


def opened(
    options: Options,
    tools: Tools,
    held: ExitStack,
    *,
    source: Callable[[], PolicySource] | None,
    clock: Callable[[], float],
    history: History,
) -> "Enforcement":
    """Policies are read from files without a `source`.

    Raises `ConfigError` beside another daemon that enforces in this network namespace, or without nf_tables.
    """
    for claimed in instance.claim(["policies"]):
        held.callback(claimed.close)
    try:
        nf = NfSocket.open()
    except OSError as error:
        seen = f"the kernel has no nf_tables: {error.strerror}"
        raise ConfigError(Problem(code="KERN-001", where="--network-policy", seen=seen)) from None
    held.callback(nf.close)
    mode: Mode = "audit" if options.network_policy == "audit" else "enforce"
    read = Files(Path(options.network_policy_files)) if source is None else source()
    cutting = NfSocket.open()  # used in a thread while the other one is in use
    held.callback(cutting.close)
    tools.own.started(cutting.port)
    cuts = Cuts(of_kernel(cutting)) if mode == "enforce" else None
    return Enforcement(read, PolicyTables(nf, tools), mode=mode, clock=clock, history=history, cuts=cuts)


class Enforcement:
    """It begins with `run`, and once `look_at_pods` has said who lives. Plugins wait at its `gate`."""

    def __init__(
        self,
        source: PolicySource,
        plane: PolicyPlane,
        *,
        mode: Mode,
        clock: Callable[[], float],
        history: History,
        cuts: Cuts | None = None,
    ) -> None:
        self.cuts = cuts
        self.gate = PolicyGate(self, source, mode=mode, clock=clock)
        self.term: Term | None = None
        self._transactions = plane.transactions
        self._unread_since: float | None = None
        self._unread: Problem | None = None
        self._warned: Problem | None = None
        self._source = source
        self._plane = plane
        self._mode: Mode = mode
        self._clock = clock
        self._history = history
        self._here = PodsHere()
        self._known: frozenset[Problem] = frozenset()  # of policies
        self._written = 0.0
        self._effects = Effects()
        self._read = asyncio.Event()
        self._live: asyncio.Future[Callable[[], Attachments]] = asyncio.get_running_loop().create_future()

    def look_at_pods(self, live: Callable[[], Attachments]) -> None:
        """`live` sees the attachments that are there, in a thread."""
        if not self._live.done():
            self._live.set_result(live)

    @property
    def unbegun(self) -> Problem:
        """Why none of it is in effect yet, while there is no term."""
        return self._unread or _BEGINNING

    @property
    def problem(self) -> Problem | None:
        """Why policies are not in effect."""
        if self.term is None:
            return self.unbegun
        for words in self.term.keeper.tally.failing.values():
            hint = "Trying again; what was in effect before stays so"
            return Problem(code="NFT-001", where="policies", seen=f"cannot be written: {words}", hint=hint)
        return None if self.term.holds else _WRITING

    @property
    def loss(self) -> Problem | None:
        """What of the latest policies is not in effect, or which pods here nobody has said anything of."""
        return None if self.term is None else self._unread or self._unknown()

    @property
    def as_of(self) -> float | None:
        """When the files were written whose policies are in effect; None while a change is on its way."""
        term = self.term
        at_rest = term is not None and term.holds and term.keeper.is_idle and not term.keeper.tally.failing
        return self._written if at_rest else None

    def told(self, names: Iterable[str], others: Iterable[Lease] = ()) -> PoliciesTold:
        """Of objects by their `names`, and of `others`' nodes."""
        settled = self._source.settled and self.as_of is not None
        ids = {name: found for name in names if (found := id_of(name)) is not None}
        forms = {name: form for name, found in ids.items() if (form := self._source.form(found))}
        return PoliciesTold(
            effect=self._effects.now,
            settled=settled,
            forms=forms,
            unenforced=unenforced(others),
            files=self._source.files,
        )

    @property
    def keeper(self) -> Keeper | None:
        return None if self.term is None else self.term.keeper

    def state(self) -> PolicyState | None:
        """None until it has begun."""
        term = self.term
        if term is None:
            return None
        kinds = Counter(name[0] for name in self._source.things)
        return PolicyState(
            mode=self._mode,
            policies=kinds["policy"] + kinds["clusterpolicy"],
            pods=len(self._here.attached),
            unknown=sum(not term.decider.ready(key) for key in self._here.attached),
            isolated={direction: term.decider.isolated(direction) for direction in DIRECTIONS},
            elements=term.decider.elements,
            transactions=self._transactions.copy(),
            waited=self.gate.waited.copy(),
            cut=0 if self.cuts is None else self.cuts.done,
            effect=self._effects.now,
            age=0.0 if self._unread_since is None else round(self._clock() - self._unread_since, 1),
        )

    @property
    def wanted(self) -> Objects:
        return {} if self.term is None else self.term.decider.wanted

    def pods_at(self, addresses: Collection[str]) -> dict[str, str]:
        """Names of pods that are known to have them."""
        wanted = {ip for ip in map(ip_in, addresses) if ip is not None}
        pods = (each for each in self._source.things.values() if isinstance(each, Pod) and each.counts)
        return {str(ip): str(pod) for pod in pods for ip in pod.ips if ip in wanted}

    async def run(self, inputs: Callable[[], Inputs]) -> None:
        """`inputs` are asked for again and again: the node may get another subnet."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._source.run(self._take))
            tasks.create_task(self._effects.run(lambda: self.as_of is not None, lambda: self._plane.made))
            if self.cuts is not None:
                tasks.create_task(self.cuts.run(self))
            live = await asyncio.shield(self._live)
            await self._read.wait()
            self.term = None
            self._here.look()
            self._here.found(await beside(live))
            while True:
                term = self.term = self._begin(settings_of(self._mode, inputs(), self._source.node))
                self._warn()
                keeping = tasks.create_task(term.keeper.run())
                while settings_of(self._mode, inputs(), self._source.node) == term.settings:  # noqa: ASYNC110 - a node's subnet hardly ever changes
                    await asyncio.sleep(_SETTINGS_SECONDS)
                await term.keeper.idle()
                keeping.cancel()

    def _begin(self, settings: PolicySettings) -> Term:
        def keep(decider: PolicyDecider) -> Keeper:
            return Keeper(self._plane, decider, may_remove=lambda: True, clock=self._clock, history=self._history)

        self._identify(self._source.things.values())
        term = Term(settings, keep)
        term.decider.change(self._source.things.values())
        for key, attached in self._here.attached.items():
            term.decider.attached(key, attached)
        term.keeper.compare_all()
        term.keeper.look_again()
        if self.cuts is not None:
            self.cuts.everything()
        return term

    def _identify(self, told: Collection[Thing]) -> None:
        for key, attached in self._here.identified(told, self._source.things.values()):
            if self.term is not None:
                self._decided(self.term, self.term.decider.attached(key, attached))

    def attach(self, key: str, attached: Attached) -> None:
        self._here.attached[key] = attached

    def detach(self, key: str) -> None:
        self._here.detach(key)
        if self.term is not None:
            self._decided(self.term, self.term.decider.detached(key))

    def connections(self) -> Connections | None:
        """A judge of open connections; None until packets are led by what was decided."""
        term = self.term
        led = term is not None and term.holds and term.keeper.is_idle
        return term.decider.connections(own_addresses) if term is not None and led else None

    def _decided(self, term: Term, keys: set[Key], since: float | None = None) -> None:
        term.keeper.decided(keys, since)
        if self.cuts is not None:
            self.cuts.concern(concerned(keys, term.decider.wanted, denies=term.decider.denies))

    def _take(self, found: Change | ConfigError) -> None:
        if isinstance(found, ConfigError) or not found.current:
            self._unread_since = self._clock() if self._unread_since is None else self._unread_since
        else:
            self._unread_since = None
        if isinstance(found, ConfigError):
            self._unread = found.problems[0]
            log.error("policies stay as they were: %s", found)
            return
        for problem in found.problems:
            if problem not in self._known:
                log.error("%s", problem)
        self._known = frozenset(found.problems)
        self._unread = found.problems[0] if found.problems else None
        self._written = found.written
        self._effects.take(found)
        if not self._read.is_set() or any(isinstance(each, Policy | ClusterPolicy) for each in found.put):
            kinds = Counter(name[0] for name in self._source.things)
            policies, pods = kinds["policy"] + kinds["clusterpolicy"], counted(kinds["pod"], "pod")
            log.info("policies: %d read, and %s", policies, pods)
        if self.term is not None:
            began = self._clock()
            self._decided(self.term, self.term.decider.change(found.put, found.gone), began)
            self._identify(found.put)
        self._read.set()
        self._warn()

    def _unknown(self) -> Problem | None:
        if self.term is None:
            return None
        return self._here.unready(self.term.decider.ready, self._mode, self._source.advice)

    def _warn(self) -> None:
        """Of attachments whose pods are unknown: once for each set of them."""
        unknown = self._unknown()
        if unknown is not None and unknown != self._warned:
            log.warning("%s", unknown)
        self._warned = unknown
