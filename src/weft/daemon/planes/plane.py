"""One plane: the owner of some kinds of objects, and the loop that keeps them as wanted: look, compare, act.

A round costs what changed. Our own steps and notices keep up what is known to be there; a full look replaces it at the
start, after what no notice announces, and when there was none for a while.
"""

import asyncio
import errno
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import Final

from weft.beside.tasks import awaited
from weft.daemon.planes import repairs
from weft.daemon.planes.contract import Plane, Wanting
from weft.daemon.planes.present import Present, differences
from weft.daemon.planes.retries import FIRST_SECONDS, Retries
from weft.model.errors import Failure
from weft.model.kernel.links import Link
from weft.model.kernel.objects import Key, Object, Objects
from weft.model.node.history import History
from weft.model.value import Value, field
from weft.plan.diff import Delete, Step, diff

log = logging.getLogger(__name__)

_LINK_GONE: Final = (errno.ENODEV, errno.ENOENT)  # ENOENT: of a setting, whose file goes with the link


class Marks(Value, frozen=False):
    """What a round is about: a full look (`sweep` if it was due), a comparison of all, or single keys.

    Others changed `changed` and `unseen`: notices told what became of the former, nothing of the latter. `by` names who
    did. `since` is when the store reported the first of `decided`.
    """

    look: bool = False
    sweep: bool = False
    all: bool = False
    decided: set[Key] = field(default_factory=set)
    changed: set[Key] = field(default_factory=set)
    unseen: set[Key] = field(default_factory=set)
    by: dict[Key, str] = field(default_factory=dict)
    since: float | None = None


class Keeper:
    """Keeps the objects of a plane as they are wanted: other parts mark, and `run` does the work.

    Nothing is removed before `may_remove`: until then not all that is wanted is known.
    """

    def __init__(
        self,
        plane: Plane,
        decider: Wanting,
        *,
        may_remove: Callable[[], bool],
        clock: Callable[[], float],
        history: History | None = None,
    ) -> None:
        self.tally = repairs.Tally()
        self.plane = plane
        self._on_links: list[Keeper] = []
        self._decider = decider
        self._may_remove = may_remove
        self._clock = clock
        self._present = Present(decider.wanted)
        self.retries = Retries(self.changed, clock=clock)
        self._marks = Marks()
        self._marked = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._looked: float | None = None
        self._held: set[Key] = set()  # what others keep changing, and is not as wanted until its time comes
        self._telling = repairs.Telling(history or History())
        self._started = False
        self._turn = asyncio.Lock()  # a plane is used by one at a time

    def tell_of_links(self, keepers: Iterable["Keeper"]) -> None:
        """Have these look again when a link is made or changed: their objects on the old one may be gone."""
        self._on_links += keepers

    def lately(self) -> dict[str, int]:
        return self.tally.lately(self._clock())

    def decided(self, keys: AbstractSet[Key], since: float | None = None) -> None:
        """`since` is when the store reported what has been decided."""
        mine = {key for key in keys if key[0] in self.plane.kinds}
        if mine:
            self._marks.decided |= mine
            self._marks.since = since if self._marks.since is None else self._marks.since
            self._mark()

    def changed(self, keys: Iterable[Key]) -> None:
        self._marks.changed.update(keys)
        self._mark()

    def unseen(self, keys: Iterable[Key], by: Mapping[Key, str] | None = None) -> None:
        """Have keys looked at that somebody has changed in an unknown way.

        `by` names who; keys of other planes are left out.
        """
        mine = {key for key in keys if key[0] in self.plane.kinds}
        if mine:
            self._marks.unseen |= mine
            self._marks.by |= by or {}
            self._mark()

    def seen(self, key: Key, thing: Object | None, by: str = "") -> None:
        """Take a notice: the program `by` changed the object of `key` to `thing`, or removed it."""
        wanted = self._decider.wanted.get(key)
        self._present.notice(key, self._if_ours(key, thing))
        if key[0] == "link":
            self._link_changed()
        if self._present.objects.get(key) != wanted:
            self.changed([key])
            if by:
                self._marks.by[key] = by
            if thing is not None and thing.took_others_along():
                self.look_again()

    def _if_ours(self, key: Key, thing: Object | None) -> Object | None:
        ours = thing is not None and (
            thing == self._decider.wanted.get(key) or thing.is_within(self._decider.ownership)
        )
        return thing if ours else None

    def _link_changed(self) -> None:
        for keeper in self._on_links:
            keeper.look_again()

    def compare_all(self) -> None:
        self._marks.all = True
        self._mark()

    def look_again(self) -> None:
        self._marks.look = True
        self._mark()

    def try_again(self) -> None:
        """Do now what was refused: the reason may be over."""
        if self.tally.failing:
            self.changed(self.tally.failing)

    def is_held(self, key: Key) -> bool:
        """Tell whether others keep changing the object of `key`, so that it has to wait."""
        return key in self._held and not self.is_as_wanted(key)

    def is_as_wanted(self, key: Key) -> bool:
        return self._present.objects.get(key) == self._decider.wanted.get(key)

    def is_otherwise(self, key: Key) -> bool:
        """Tell whether it is known to be there in another form than is wanted."""
        present = self._present.objects.get(key)
        return present is not None and present != self._decider.wanted.get(key)

    async def see(self) -> dict[Key, Object]:
        """See what is there and ours, between two rounds. Raises `OSError`."""
        await self._turn.acquire()
        # A plane may look in a thread, which goes on when the caller is cancelled: so does the turn.
        seen = await asyncio.shield(awaited(self._see()))
        return {key: thing for key, thing in seen.items() if thing.is_within(self._decider.ownership)}

    async def _see(self) -> Objects:
        try:
            return await self.plane.look(self._decider.wanted, None)
        finally:
            self._turn.release()

    def _mark(self) -> None:
        self._idle.clear()
        self._marked.set()

    @property
    def is_idle(self) -> bool:
        return self._idle.is_set()

    async def idle(self) -> None:
        await self._idle.wait()

    async def run(self) -> None:
        while True:
            await self._surely(await self._next())
            if not self._marked.is_set():
                self._idle.set()

    async def _next(self) -> Marks:
        """Wait for marks and take them all; a full look is marked when there was none for a while."""
        now = asyncio.get_running_loop().time
        due = (now() if self._looked is None else self._looked) + self.plane.sweep
        with suppress(TimeoutError):
            async with asyncio.timeout_at(due):
                await self._marked.wait()
        if now() >= due and not self._marks.look:
            self._marks.look = self._marks.sweep = True
        if self._marks.look or self._looked is None:
            self._looked = now()
        return self._take()

    def _take(self) -> Marks:
        marks, self._marks = self._marks, Marks()
        self._marked.clear()
        self._idle.clear()
        return marks

    async def _surely(self, marks: Marks) -> None:
        """After an `OSError`, make another round about everything."""
        while True:
            try:
                async with self._turn:
                    await self.round(marks)
            except OSError as error:  # lists that never held still, or answers that were lost
                log.error("the kernel could not be asked: %s; trying again", error)  # noqa: TRY400 - it says all
                await asyncio.sleep(FIRST_SECONDS)
                marks = Marks(look=True, decided=marks.decided | self._take().decided, since=marks.since)
            else:
                return

    async def round(self, marks: Marks) -> None:
        """Look at what is marked, compare, put what is missing, then delete."""
        self.tally.rounds += 1
        blind = self.plane.blind and self.tally.rounds == 1
        # What was refused may have been done by half, and is to go now.
        marks.unseen |= {key for key in marks.decided & self.tally.failing.keys() if key not in self._decider.wanted}
        if marks.look and not blind:
            await self._look(marks)
        elif marks.unseen:
            await self._look_at(marks.unseen)
        # What was decided during the look is wanted now, and was never there: to put it is no repair.
        marks.decided |= self._marks.decided
        wanted = self._decider.wanted
        keys = marks.decided | marks.changed | marks.unseen
        if marks.look or marks.all:
            keys.update(key for key in wanted if key[0] in self.plane.kinds)
            keys.update(self._present.objects)
        steps = diff(wanted, self._present.objects, keys=keys, prune=self._may_remove())
        # What sits on a link that is replaced may be another plane's.
        steps = [step for step in steps if step.object.key[0] in self.plane.kinds]
        self._settle(keys & self.tally.failing.keys() - {step.object.key for step in steps})
        mended: list[repairs.Repair] = []
        if self._started:
            steps = self._allowed(steps, marks)
            mended = [self._repair(step, marks) for step in steps if step.object.key not in marks.decided]
        await self._act(steps)
        done = [each for each in mended if each.step.object.key not in self.tally.failing]
        self._telling.repaired(done)
        self.tally.repaired((each.code for each in done), self._clock())
        if marks.since is not None:
            self.tally.took.note(self._clock() - marks.since)
        self._started = not blind
        if blind:
            self.look_again()  # what else is there may be wanted no more

    async def _look(self, marks: Marks) -> None:
        """See everything; a sweep counts what differs from what was known without a notice."""
        with self._present.meanwhile() as newer:
            seen = await self.plane.look(self._decider.wanted, None)
        for key in [key for key, thing in seen.items() if not thing.is_within(self._decider.ownership)]:
            del seen[key]
        before = self._present.replace(seen, but=newer)
        if not (marks.sweep and self.plane.announces):
            return
        changed = differences(self._present.objects, before)
        unannounced = [thing for key, thing in changed.items() if key not in marks.changed]
        self.tally.unannounced += len(unannounced)
        for thing in sorted(unannounced, key=lambda thing: repr(thing.key))[: repairs.NAMED]:
            log.warning("%s has changed, and the kernel has sent no notice of it", thing)

    async def _look_at(self, keys: Collection[Key]) -> None:
        with self._present.meanwhile() as newer:
            seen = await self.plane.look(self._decider.wanted, keys)
        for key in keys:
            if key not in newer:
                self._present.notice(key, self._if_ours(key, seen.get(key)))

    def _repair(self, step: Step, marks: Marks) -> repairs.Repair:
        by = marks.by.get(step.object.key, "")
        return repairs.repair(step, self._decider.wanted, self._present.objects, by=by)

    def _allowed(self, steps: Sequence[Step], marks: Marks) -> list[Step]:
        """Leave out the repairs that have to wait.

        What was refused has waited already, and no other program removed it.
        """

        def is_free(step: Step) -> bool:
            return step.object.key in marks.decided or step.object.key in self.tally.failing

        may = self.retries.may_repair
        allowed = [step for step in steps if is_free(step) or may(step.object, self._repair(step, marks).code)]
        free = {step.object.key for step in allowed}
        held = [step for step in steps if step.object.key not in free]
        self._telling.held([self._repair(step, marks) for step in held if step.object.key not in self._held])
        self._held = (self._held - free) | {step.object.key for step in held}
        return allowed

    async def _act(self, steps: Sequence[Step]) -> None:
        if not steps:
            return
        with self._present.meanwhile() as newer:
            failures = {id(failure.step): failure for failure in await self.plane.apply(steps)}
        refused: list[repairs.Refused] = []
        for step in steps:
            key = step.object.key
            failure = failures.get(id(step))
            if failure is not None:
                refused += self._failed(step, failure)
                continue
            if isinstance(step.object, Link):
                self._link_changed()
            if key in self.tally.failing:
                self._settle([key])
                if isinstance(step.object, Link):
                    self.try_again()  # what sits on it was refused as well
            if isinstance(step, Delete):
                self.retries.gone(key)
            if key not in newer:  # else a notice is newer than our step
                self._present.did(step)
        self._telling.refused(refused)

    def _failed(self, step: Step, failure: Failure) -> list[repairs.Refused]:
        """Plan another try; returns what has not been said of it yet."""
        key = step.object.key
        said = self.tally.failing.get(key)
        gone = failure.errno in _LINK_GONE and ("link", step.object.link) in self._decider.wanted
        self.tally.failing[key] = failure.message
        first = self.retries.refused(key, longest=step.object.patience)
        if gone and first:
            self.look_again()  # the link went while we were at work, whether or not we have heard of it
            return []
        if failure.message == said:
            return []
        return [(step, failure.message)]

    def _settle(self, keys: Iterable[Key]) -> None:
        """Forget refusals: the objects are there now, or no longer wanted."""
        for key in keys:
            del self.tally.failing[key]
            self.retries.settled(key)
            wanted = self._decider.wanted.get(key)
            self._telling.settled(key, wanted)
            if wanted is None:
                self.retries.gone(key)
