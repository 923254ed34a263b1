"""The loop over the firewall: the same look, decide, act as for routes, at the pace of `nft` and `iptables`.

Kept apart from the loop over routes, because a program takes milliseconds and a lease must not wait for it.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import Final

from weft.daemon.dirty import Dirty, Wake
from weft.daemon.retries import Retries
from weft.kernel.netfilter.firewall import Firewall
from weft.kernel.netfilter.monitor import Monitor, Resync
from weft.model.errors import Problem
from weft.model.objects import KernelState, Key, Objects
from weft.model.rulesets import RuleSet
from weft.plan.diff import Delete, Put, Step

log = logging.getLogger(__name__)

REPAIR_CODE: Final = "NFT-002"
_RETRY_SECONDS: Final = 10.0


class RuleKeeper:
    """Keeps the rule sets as wanted: `want` says what that is, `install` makes it so, `run` keeps it so.

    What is left of the other kind under our names goes when `run` begins: it delays no pod.
    """

    def __init__(self, firewall: Firewall, *, clock: Callable[[], float]) -> None:
        self.repairs: Counter[str] = Counter()
        self.failing: dict[Key, str] = {}
        self._held: dict[Key, str] = {}  # what others keep changing, and is not as wanted until its time comes
        self._firewall = firewall
        self._want: Objects = {}
        self._wake = Wake()
        self._retries = Retries(self._wake.keys, clock=clock)

    def want(self, state: KernelState) -> None:
        """Replace what is wanted. Other rule sets with our names are leftovers of the other kind."""
        self._want = {thing.key: thing for thing in state}
        self._wake.inputs()

    def problem(self) -> Problem | None:
        """What is wrong with the rules now: refused by the tool, or changed by others so often that they must wait."""
        hint = "Trying again every few seconds; pods may reach less than they should until then"
        for key in self._want:
            if key in self.failing:
                seen = f"cannot be written: {self.failing[key]}"
                return Problem(code="NFT-001", where="firewall rules", seen=seen, hint=hint)
            if key in self._held:
                seen = f"another program keeps changing {self._held[key]}"
                return Problem(code=REPAIR_CODE, where="firewall rules", seen=seen, hint=f"Find it. {hint}")
        return None

    def look_again(self) -> None:
        """Have everything looked at and made as wanted, as if nothing was known."""
        self._wake.inputs()
        self._wake.everything()

    async def install(self) -> None:
        """Make the kernel hold what is wanted, where it does not yet: `apply` looks first."""
        self._wake.take()
        for wanted in list(self._want.values()):
            await self._act(Put(wanted))

    async def run(self, monitor: Monitor | None, *, sweep: float) -> None:
        """Put back what others change: at once when a notice says so, if any are given, and every `sweep` seconds."""
        async with asyncio.TaskGroup() as tasks:
            if monitor is not None:
                tasks.create_task(self._listen(monitor))
            await self._remove_leftovers()
            while True:
                dirty = await self._wake.next(at_most=sweep)
                if dirty.inputs:
                    await self.install()
                    await self._remove_leftovers()
                else:
                    await self._repair(dirty)

    async def _remove_leftovers(self) -> None:
        """Remove every rule set under our names that is not wanted, whoever left it there."""
        for key, leftover in (await self._firewall.present()).items():
            if key not in self._want:
                await self._act(Delete(leftover))

    async def _listen(self, monitor: Monitor) -> None:
        async for wake in monitor.wakes():
            if isinstance(wake, Resync):
                self._wake.everything()
            else:
                self._wake.keys(wake.keys)

    async def _repair(self, dirty: Dirty) -> None:
        for key in self._want.keys() | dirty.keys if dirty.everything else dirty.keys:
            wanted = self._want.get(key)
            if isinstance(wanted, RuleSet) and await self._firewall.matches(wanted):
                self._settle(key)
                continue
            step = self._step(key, None if wanted else (await self._firewall.present({key})).get(key))
            if step is None:
                continue
            # What was refused before is nobody's doing.
            if not (key in self.failing or self._retries.may_repair(step.object, REPAIR_CODE)):
                self._held[key] = str(step.object)
                continue
            if await self._act(step):
                self.repairs[REPAIR_CODE] += 1
                verb = "put back" if isinstance(step, Put) else "removed"
                log.warning("%s: %s %s", REPAIR_CODE, verb, step.object)

    def _step(self, key: Key, present: RuleSet | None) -> Step | None:
        wanted = self._want.get(key)
        if wanted is not None:
            return Put(wanted) if wanted != present else None
        return Delete(present) if present is not None else None

    async def _act(self, step: Step) -> bool:
        """Carry out a step; False if that was refused, which is tried again."""
        key = step.object.key
        failure = await self._firewall.apply(step)
        if failure is None:
            self._settle(key)
            return True
        if self.failing.get(key) != failure.message:
            log.error("%s not possible: %s", step.object, failure.message)
        self.failing[key] = failure.message
        self._retries.later(_RETRY_SECONDS, key)
        return False

    def _settle(self, key: Key) -> None:
        """Forget what was wrong: the rules are as wanted."""
        self.failing.pop(key, None)
        self._held.pop(key, None)
        self._retries.settled(key)
