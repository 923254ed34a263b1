"""The leases of others: what the store says in, marks for the loop and words for people out.

Thousands may come at once, and all of them may clash. So they are judged in slices, between which the event loop gets
a turn, and of many that are refused together a few are named.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import Any, Final

from weft.cluster.store import Directory, Listing
from weft.daemon.disk.memory import Memory
from weft.daemon.planes.repairs import say_some
from weft.daemon.reconcile import Reconciler
from weft.desired import changes
from weft.desired.leasecheck import Ours
from weft.desired.roster import Roster
from weft.model.cluster import Listed, Lost, StoreEvent, Token
from weft.model.errors import Problem
from weft.model.lease import LEASE_TTL, Lease
from weft.model.node.status import Status
from weft.model.text import counted, some_of
from weft.model.value import replace

log = logging.getLogger(__name__)

_SLICE: Final = 128  # judged and decided at a stretch: about 6 ms
_EXPIRY_SECONDS: Final = 60.0
_SAY_SECONDS: Final = 0.1
_NAMED: Final = 100  # of those that are refused together
_SHOWN: Final = 5  # of the leases of which the store hears nothing

Continues = Callable[[Token, Mapping[str, int], Listed], bool]


class Peers:
    """`now` is a clock that cannot be set."""

    def __init__(
        self,
        roster: Roster,
        reconciler: Reconciler,
        status: Status,
        directory: Directory[Any],
        *,
        now: Callable[[], float],
    ) -> None:
        self._roster = roster
        self._reconciler = reconciler
        self._status = status
        self._history = status.history
        self._directory = directory
        self._now = now
        self.spoken = asyncio.Event()  # the store has said something
        self._mark: Token | None = None
        self._unheard = frozenset[str]()  # the ids of the leases of which the store hears nothing
        self._why_unheard = ""
        self._doubt = asyncio.Event()
        self._announced: dict[str, Lease] = {}  # those whose coming was said, or counted at the start, as they were
        self._unsaid: set[str] = set()  # the ids of those whose service has changed since

    async def recall(self, memory: Memory) -> None:
        """The store's first list corrects it."""
        self._mark = memory.mark
        self._roster.recall(memory.leases, memory.unproven)
        await self.settle()

    def known(self, memory: Memory) -> Memory:
        roster = self._roster
        return replace(memory, leases=tuple(roster.worth_keeping), mark=self._mark, unproven=dict(roster.unproven))

    async def follow(self, listed: Callable[[], Listing | None], known: Callable[[], None]) -> None:
        """`listed` gives the first list, if it was read already: to hold that is the store's, and not for long.

        `known` is called while all leases are known.
        """

        async def take(event: StoreEvent) -> None:
            await self.take(event)
            if self._reconciler.complete:
                known()
            self.spoken.set()

        try:
            await self._directory.watch(take, listed())
        finally:
            self.spoken.set()  # a start that waits goes on after a fault, which is said

    async def take(self, event: StoreEvent) -> None:
        if isinstance(event, Lost) and event.ids is None:
            self._lost(event)
            return
        # A list that is the first is no news of a node, as long as it may take.
        first = isinstance(event, Listed) and not self._reconciler.complete
        since = None if first else self._reconciler.clock()
        if self._status.store is not None:
            log.info("the store answers again")
            self._history.note("store-back", "store")
            self._status.store = None
        if isinstance(event, Lost):
            self._lost_some(event)
            return
        if isinstance(event, Listed):
            self._list(event)
            heard = self._unheard if event.complete else {lease.id for lease in event.leases}
        else:
            self._roster.note(put=event.put, gone=event.gone, malformed=event.malformed)
            self._mark = event.mark
            heard = {*event.gone, *(lease.id for lease in event.put)} if self._unheard else set()
        self._hears_nothing_of(self._unheard.difference(heard, (entry.id for entry in event.malformed)))
        self._say_refused({entry.id: entry.problem for entry in event.malformed})
        await self.settle(since)

    def judge_by(self, ours: Ours) -> None:
        self._roster.judge_by(ours)
        self._doubt.set()

    async def run(self) -> None:
        """Also lets go what was kept without proof when its time is over."""
        while True:
            self._doubt.clear()
            self._roster.expire(self._now())
            await self.settle()
            with suppress(TimeoutError):
                async with asyncio.timeout(_EXPIRY_SECONDS):
                    await self._doubt.wait()

    async def settle(self, since: float | None = None) -> None:
        """`since` is when the store said what is to be judged."""
        refused: dict[str, Problem] = {}
        served: set[str] = set()
        with self._reconciler.deciding():
            while True:
                touched = self._roster.judge(_SLICE, now=self._now())
                self._reconciler.peers(touched, since)
                served |= touched
                self._status.peers, self._status.peers_refused = len(self._roster.believed), self._roster.refusals
                refused |= self._roster.news()
                if self._roster.settled:
                    break
                await asyncio.sleep(0)
        self._say_refused(refused)
        self._note(served)
        say_some(log.info, [f"STORE-003 lease {name} is given up: {why}" for name, why in self._roster.superseded()])

    def _note(self, touched: AbstractSet[str]) -> None:
        """Log soon which of these leases have become peers, and which no longer are.

        Not at once: Python runs one thread at a time, and the kernel's messages come first.
        """
        if self._status.waiting is not None:  # at the start their number is enough
            self._announced = dict(self._roster.believed)
        elif touched:
            if not self._unsaid:
                asyncio.get_running_loop().call_later(_SAY_SECONDS, self._announce)
            self._unsaid |= touched

    def _announce(self) -> None:
        believed = self._roster.believed
        before = self._announced
        names = sorted(self._unsaid)
        came = [believed[name] for name in names if name in believed and name not in before]
        went = [name for name in names if name not in believed and name in before]
        other = [(before[name], believed[name]) for name in names if name in believed and name in before]
        self._unsaid.clear()
        for name in went:
            del before[name]
        before.update((lease.id, lease) for lease in (*came, *(lease for _, lease in other)))
        publics = ((lease.id, lease.attrs.public_ip or lease.attrs.public_ipv6) for lease in came)
        say_some(log.info, [f"peer {name} came, public IP {public}" for name, public in publics])
        say_some(log.info, [f"peer {name} went" for name in went])
        note = self._history.note
        self._history.note_some("joined", came, lambda lease: note("joined", lease.id, words=changes.reached(lease)))
        self._history.note_some("left", went, lambda name: note("left", name))
        told = [pair for pair in other if not changes.is_alike(*pair)]
        self._history.note_some("changed", told, self._note_changed)

    def _note_changed(self, leases: tuple[Lease, Lease]) -> None:
        was, now = changes.of_lease(*leases)
        self._history.note(
            "changed", leases[0].id, words="" if was else "it has a new lease that says the same", was=was, now=now
        )

    def _note_refused(self, problem: Problem) -> None:
        self._history.note("refused", problem.where, code=problem.code, words=problem.seen)

    def _list(self, event: Listed) -> None:
        before = len(self._roster.unproven)
        proved = take_list(self._roster, event, since=self._mark, continues=self._directory.continues, now=self._now())
        if not event.complete:
            return
        self._mark = event.mark
        if not proved:
            log.warning(
                "STORE-003 the store has lost what it held, or is another one. %d leases that it no longer has are"
                " served until another node claims their subnets, 24 hours at most: their nodes may be alive",
                len(self._roster.unproven) - before,
            )
        if not self._reconciler.complete:
            self._reconciler.complete = True
            self._reconciler.look_again()

    def _lost(self, lost: Lost) -> None:
        """Log it once, and again when silence turns into refusal or the reverse."""
        code, what = ("STORE-002", "refuses us") if lost.refused else ("STORE-001", "does not answer")
        before = self._status.store
        if before is None or before.code != code:
            log.warning("%s: the store %s (%s); the network stays as it is", code, what, lost.reason)
            self._history.note("store-lost", "store", code=code, words=f"{what} ({lost.reason})")
        hint = "Pods keep their network; new nodes are not seen, and our lease expires, unless the store is a mesh"
        self._status.store = Problem(code=code, where="store", seen=f"it {what} ({lost.reason})", hint=hint)

    def _lost_some(self, lost: Lost) -> None:
        before, self._why_unheard = self._unheard, lost.reason
        self._hears_nothing_of(frozenset(lost.ids or ()))
        problem = self.problem
        if problem is not None and self._unheard - before:
            log.warning("%s; their peers are served as before", problem)
            self._history.note("store-lost", "store", code=problem.code, words=problem.seen)

    def _hears_nothing_of(self, ids: frozenset[str]) -> None:
        if self._unheard and not ids:
            log.info("the store hears of all leases again")
            self._history.note("store-back", "store", words="it hears of all leases again")
        self._unheard = ids

    @property
    def problem(self) -> Problem | None:
        """The store hears nothing of some leases, and of others it does."""
        if not self._unheard:
            return None
        told = some_of(sorted(self._unheard), _SHOWN)
        return Problem(
            code="STORE-001",
            where="store",
            seen=f"it hears nothing of {counted(len(self._unheard), 'lease')}: {told} ({self._why_unheard})",
            hint="What was known of them is served on",
        )

    def _say_refused(self, refused: Mapping[str, Problem]) -> None:
        doubted = {name for name in refused if self._roster.doubt(name) is not None}
        words = {True: "it is served by what it said before", False: "the lease is ignored"}
        lines = list[str]()
        for name, why in refused.items():
            bare = str(replace(why, hint=""))
            lines.append(f"{bare}; {words[name in doubted]}{str(why).removeprefix(bare)}")
        say_some(log.warning, lines, named=_NAMED)
        self._history.note_some("refused", list(refused.values()), self._note_refused)


def take_list(roster: Roster, listed: Listed, *, since: Token | None, continues: Continues, now: float) -> bool:
    """Have a roster take a list without judging it; return whether leases that are missing in it are gone.

    They are not if the list is incomplete, or if the store has lost what was known at the mark `since` or is another.
    """
    if not listed.complete:
        roster.note(put=listed.leases, malformed=listed.malformed)
        return False
    proved = since is None or continues(since, roster.made, listed)
    until = None if proved else now + LEASE_TTL
    roster.note_list(listed.leases, malformed=listed.malformed, own=listed.own, keep_until=until)
    return proved
