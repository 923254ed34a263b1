"""The loop: look, decide, act. The one owner of this node's links, routes, neighbours and FDB entries.

A round costs what changed. The kept picture of the kernel (`picture`) moves forward by our own steps and by
notices; a full look replaces it at the start, after anything that notices do not announce, and when there was
none for a minute: then a difference that no notice announced is counted and logged.
"""

import asyncio
import errno
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, Protocol

from weft.daemon import repairs
from weft.daemon.dirty import Dirty, Wake
from weft.daemon.picture import Picture, differences
from weft.daemon.retries import FIRST_SECONDS, Retries
from weft.desired.inputs import Backend, Inputs
from weft.desired.node import SHARED, Wanted, realm, shared
from weft.desired.roster import Roster
from weft.model.errors import Failure, PeerError, Problem
from weft.model.objects import Address, Key, Link, Object, Objects
from weft.model.value import Value, field
from weft.plan.diff import Delete, Put, Step, diff

log = logging.getLogger(__name__)

SWEEP_SECONDS: Final = 60.0
_LINK_GONE: Final = (errno.ENODEV, errno.ENOENT)  # ENOENT: of a setting, whose file goes with the link
_PEERS_A_SLICE: Final = 128  # decided before the event loop gets a turn: about 3 ms


class Kernel(Protocol):
    """What the loop needs of the kernel."""

    async def look(self, known: Objects, /) -> Objects:
        """See everything that is ours; of what is as in `known` no second copy is made."""
        ...

    async def apply(self, steps: Sequence[Step]) -> list[Failure]:
        """Carry out `steps` in order; a step that fails stops no other."""
        ...


class Tally(Value, frozen=False):
    """What the loop has done, for health, logs and metrics."""

    rounds: int = 0
    repairs: Counter[str] = field(default_factory=Counter)
    unannounced: int = 0
    failing: dict[Key, str] = field(default_factory=dict)
    unusable: dict[str, Problem] = field(default_factory=dict)


class Reconciler:
    """Keeps the kernel as `desired` wants it. Sources call the methods that mark; `run` does the work."""

    def __init__(
        self, kernel: Kernel, backend: Backend, *, inputs: Inputs, roster: Roster, clock: Callable[[], float]
    ) -> None:
        self.wake = Wake()
        self.roster = roster
        self._inputs = inputs
        self._realm = realm(backend, inputs)
        self.tally = Tally()
        self.complete = False  # until the first full list of leases nothing is removed
        self._kernel = kernel
        self._backend = backend
        self._wanted = Wanted()
        self._picture = Picture(self._wanted.objects)
        self._retries = Retries(self.wake.keys, clock=clock)
        self._ignored: list[str] = []  # of this round, not logged yet
        self._started = False

    @property
    def inputs(self) -> Inputs:
        """What decides."""
        return self._inputs

    def decide_from(self, inputs: Inputs, *, peers: bool = True) -> None:
        """Decide from other inputs from the next round on; without `peers` about what the node needs once alone."""
        self._inputs = inputs
        self._realm = realm(self._backend, inputs)
        if peers:
            self.wake.inputs()
        else:
            self.wake.shared()

    @property
    def wanted(self) -> Objects:
        """What the kernel should hold now."""
        return self._wanted.objects

    def seen(self, key: Key, thing: Object | None) -> None:
        """Take a notice: someone else changed the object of `key` to `thing`, or removed it."""
        wanted = self._wanted.objects.get(key)
        ours = thing is not None and (thing == wanted or thing.is_within(self._realm))
        self._picture.notice(key, thing if ours else None)
        if self._picture.objects.get(key) != wanted:
            self.wake.keys([key])
            if thing is not None and thing.took_others_along():
                self.wake.everything()

    def is_as_wanted(self, key: Key) -> bool:
        """Tell whether the object of `key` is as it should be, as far as is known."""
        return self._picture.objects.get(key) == self._wanted.objects.get(key)

    def try_again(self) -> None:
        """Do now what the kernel refused: something has changed that may have been the reason."""
        if self.tally.failing:
            self.wake.keys(self.tally.failing)

    def own_failures(self) -> dict[Key, str]:
        """What the kernel refuses of this node's own device and its addresses, without which no peer is reached."""
        own = (thing for thing in self._wanted.part(SHARED) if isinstance(thing, Link | Address))
        # The device first: without it nothing that sits on it can be.
        keys = [thing.key for thing in sorted(own, key=lambda thing: isinstance(thing, Address))]
        return {key: self.tally.failing[key] for key in keys if key in self.tally.failing}

    def failing_peers(self) -> int:
        """How many believed peers are not served, or not whole: their data are no use, or the kernel refuses objects.

        Looks at every peer while anything fails: for those who ask, not for the event path.
        """
        peers = self._wanted.parts - {SHARED} if self.tally.failing else ()
        broken = (any(thing.key in self.tally.failing for thing in self._wanted.part(peer)) for peer in peers)
        return len(self.tally.unusable) + sum(broken)

    async def run(self) -> None:
        """Reconcile until cancelled, whatever the kernel answers, or fails to."""
        while True:
            await self.surely(await self.wake.next(at_most=SWEEP_SECONDS))

    def look_again(self) -> None:
        """Have everything looked at and decided anew, as if nothing was known."""
        self.wake.inputs()
        self.wake.everything()

    async def surely(self, dirty: Dirty) -> None:
        """One round that is made again, with everything, until the kernel has answered."""
        while True:
            try:
                await self.round(dirty)
            except OSError as error:  # lists that never held still, or answers that were lost
                log.error("the kernel could not be asked: %s; trying again", error)  # noqa: TRY400 - it says all
                await asyncio.sleep(FIRST_SECONDS)
                dirty = Dirty(everything=True, inputs=True)
            else:
                return

    async def round(self, dirty: Dirty) -> None:
        """Look at what is dirty, decide, act: while the kernel works on one slice, the next is decided.

        What is to be removed waits for the end of the round, so that adding comes before removing.
        """
        self.tally.rounds += 1
        if dirty.everything:
            await self._look(None if not dirty.sweep else dirty.keys)
        decided: set[Key] = set()
        mended: list[repairs.Repair] = []
        removals: list[Step] = []
        acting: asyncio.Task[None] | None = None
        try:
            for keys in self._decide(dirty, decided):
                steps = diff(self._wanted.objects, self._picture.objects, keys=keys, prune=self.complete)
                self._settle(keys & self.tally.failing.keys() - {step.object.key for step in steps})
                if self._started:
                    steps = self._allowed(steps, decided)
                    mended += [(self._code(step), step) for step in steps if step.object.key not in decided]
                removals += [step for step in steps if isinstance(step, Delete)]
                if acting is not None:
                    await acting
                acting = asyncio.create_task(self._act([step for step in steps if isinstance(step, Put)]))
                await asyncio.sleep(0)
        finally:  # also where deciding fails: what is on its way to the kernel is this round's
            if acting is not None:
                await acting
        await self._act(removals)
        repairs.say_some(log.warning, self._ignored)
        self._ignored.clear()
        done = [(code, step) for code, step in mended if step.object.key not in self.tally.failing]
        repairs.report(done)
        self.tally.repairs.update(code for code, _ in done)
        self._started = True

    def _decide(self, dirty: Dirty, decided: set[Key]) -> Iterator[set[Key]]:
        """Decide part by part; yields the keys to compare and adds those whose wanted state was computed to `decided`.

        The parts that were asked for come first; what is left are objects that someone else has changed. But for the
        links: without them the kernel refuses the rest.
        """
        peers: Iterable[str] = dirty.peers
        links: set[Key] = set()
        if dirty.inputs or dirty.shared:
            touched = self._wanted.set(SHARED, shared(self._backend, self.inputs))
            decided |= touched
            yield touched
        if dirty.inputs:
            peers = (self._wanted.parts - {SHARED}) | self.roster.believed.keys()
        elif dirty.everything:
            links = {key for key in self._wanted.objects if key[0] == "link"}
            yield links
        waiting = iter(peers)
        while some := list(islice(waiting, _PEERS_A_SLICE)):
            touched = set[Key]().union(*(self._decide_peer(lease_id) for lease_id in some))
            decided |= touched
            yield touched
        if dirty.everything or dirty.inputs:
            yield (self._wanted.objects.keys() | self._picture.objects.keys()) - decided - links
        elif dirty.keys:
            yield dirty.keys - decided

    def _decide_peer(self, lease_id: str) -> set[Key]:
        lease = self.roster.believed.get(lease_id)
        before = self.tally.unusable.pop(lease_id, None)
        if lease is None:
            return self._wanted.set(lease_id, frozenset())
        try:
            state = self._backend.peer(self.inputs, lease)
        except PeerError as error:
            problem = self.tally.unusable[lease_id] = error.problems[0]
            if problem != before:
                self._ignored.append(f"peer ignored: {problem}")
            state = frozenset()
        return self._wanted.set(lease_id, state)

    async def _look(self, announced: set[Key] | None) -> None:
        """See everything; in a sweep, count what differs from the kept picture and was not `announced`."""
        with self._picture.meanwhile() as newer:
            seen = await self._kernel.look(self._picture.objects)
        held = ((key, thing) for key, thing in seen.items() if thing.is_within(self._realm))
        before = self._picture.replace(held, but=newer)
        if announced is None:
            return
        changed = differences(self._picture.objects, before)
        unannounced = [thing for key, thing in changed.items() if key not in announced]
        self.tally.unannounced += len(unannounced)
        for thing in sorted(unannounced, key=lambda thing: repr(thing.key))[: repairs.NAMED]:
            log.warning("no notice announced that %s changed", thing)

    def _code(self, step: Step) -> str:
        key = step.object.key
        if key not in self._wanted.objects:
            return repairs.NOT_WANTED
        return step.object.code if key in self._picture.objects else step.object.code_if_gone

    def _allowed(self, steps: Sequence[Step], decided: set[Key]) -> list[Step]:
        """Leave out the repairs that have to wait.

        What the kernel refused waits for its own time, which has come: that it is not there is nobody's doing.
        """

        def is_free(step: Step) -> bool:
            return step.object.key in decided or step.object.key in self.tally.failing

        return [step for step in steps if is_free(step) or self._retries.may_repair(step.object, self._code(step))]

    async def _act(self, steps: Sequence[Step]) -> None:
        if not steps:
            return
        with self._picture.meanwhile() as newer:
            failures = {id(failure.step): failure for failure in await self._kernel.apply(steps)}
        refused: list[str] = []
        for step in steps:
            key = step.object.key
            failure = failures.get(id(step))
            if failure is not None:
                refused += self._failed(step, failure)
                continue
            if key in self.tally.failing:
                self._settle([key])
                if isinstance(step.object, Link):
                    self.try_again()  # what sits on it was refused as well
            if key not in newer:  # else a notice is newer than our step
                self._picture.did(step)
        repairs.say_some(log.error, refused)

    def _failed(self, step: Step, failure: Failure) -> list[str]:
        """See to it that a step is tried again; returns what there is to say that has not been said."""
        key = step.object.key
        said = self.tally.failing.get(key)
        gone = failure.errno in _LINK_GONE and ("link", step.object.link) in self._wanted.objects
        self.tally.failing[key] = failure.message
        first = self._retries.refused(key, urgent=isinstance(step.object, Link))
        if gone and first:
            self.wake.everything()  # the link went while we were at work, whether or not we have heard of it
            return []
        if failure.message == said:
            return []
        return [f"kernel refused {step.object}: {failure.message}; trying again"]

    def _settle(self, keys: Iterable[Key]) -> None:
        """Forget refusals: what was refused is there now, or nobody wants it any more."""
        for key in keys:
            del self.tally.failing[key]
            self._retries.settled(key)
