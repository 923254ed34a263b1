"""Our own lease, from the store or from memory, and what is remembered of the cluster.

Knows the store and the instance's directory; nothing of kernels. Losing the store never ends anything here: a
lease lives until it expires, and is taken again, the same subnet first, when the store is back.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from random import Random
from typing import Any, Final

from weft.cluster.store import Directory, Listing, Tenure
from weft.config.netconf import NetConf
from weft.daemon.disk import memory
from weft.daemon.disk.files import LAST_SECONDS
from weft.daemon.disk.memory import Memory
from weft.daemon.world import Moment
from weft.desired.allocate import Chooser
from weft.desired.leasecheck import unfit
from weft.model.cluster import Held, OwnLease
from weft.model.errors import ConfigError, Problem, Unavailable, WeftError
from weft.model.lease import Lease, LeaseAttrs
from weft.model.net import Subnets
from weft.model.value import replace

log = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 1.0
# What is known of the cluster is written this long after a change, so that a burst is one write.
_SAVE_SECONDS: Final = 5.0


class Leasing:
    """`acquire` first, then `keep` and `remember` until cancelled."""

    def __init__(
        self,
        tenure: Tenure[Any],
        leases: Directory[Any],
        directory: Path,
        *,
        netconf: NetConf,
        remembered: Memory,
        margin: float,
        moment: Callable[[], Moment],
        random: Callable[[int], bytes],
    ) -> None:
        self.own: OwnLease | None = None
        self.confirmed = False  # by the store, in this run
        self._refused: Problem | None = None  # what the store makes of our lease
        self._tenure = tenure
        self._leases = leases
        self._netconf = netconf
        self._chance = Random(int.from_bytes(random(8)))  # noqa: S311 - no secret
        self._memory = remembered
        self._margin = margin
        self._moment = moment
        self._listing: Listing | None = None
        self._changed = asyncio.Event()
        self._known: Callable[[Memory], Memory] = lambda memory: memory
        self._file = memory.file(directory, lambda: self._memory, moment)

    @property
    def remembered(self) -> Memory:
        """As it is on disk or soon will be."""
        return self._memory

    @property
    def lease(self) -> Lease:
        """Raises `RuntimeError` before `acquire` or `use_recorded`."""
        if self.own is None:
            raise RuntimeError("no lease yet")
        return self.own.lease

    @property
    def unpublished(self) -> Problem | None:
        """What the store shows in place of what we have published."""
        return self._refused or self._tenure.unpublished

    @property
    def left(self) -> float | None:
        """In seconds; None for a lease without an end."""
        expires = None if self.own is None else self.own.expires
        return None if expires is None else max(0.0, expires - self._moment().now)

    async def listing(self) -> Listing:
        """Kept for `acquire` and `watch`. Raises `Unavailable`."""
        self._listing = None
        listing: Listing = await self._leases.list()
        self._listing = listing
        return listing

    async def acquire(self, attrs: LeaseAttrs, previous: Subnets) -> OwnLease:
        """Raises `Unavailable`."""
        chooser = Chooser(netconf=self._netconf, attrs=attrs, previous=previous, pick=self._chance.randrange)
        try:
            own = await self._tenure.acquire(chooser, recorded=self._memory.own, listing=self._listing)
        except WeftError:
            self._listing = None  # the store may say something else by the next try
            raise
        await self._took(own)
        log.info("lease %s, public IP %s", own.lease.id, attrs.public_ip or attrs.public_ipv6)
        return own

    @property
    def recorded(self) -> Lease | None:
        return None if self._memory.own is None else self._memory.own.lease

    def disown(self) -> None:
        """Forget the recorded lease: it belongs to the node whose disk was copied."""
        self._memory = replace(self._memory, own=None)

    def use_recorded(self) -> bool:
        """Serve with the recorded lease while the store does not answer; False if there is none."""
        own = self._memory.own
        if own is None or (own.expires is not None and own.expires <= self._moment().now):
            return False
        self.own = own
        self._tenure.hold(own)
        return True

    def elders(self, listing: Listing) -> list[Lease]:
        """The leases in `listing` that were there before ours; all of them, unless ours is there still.

        Ours is what an earlier run took and no other node has changed since. A node that came later is the copy.
        """
        ours = listing.unchanged(self._memory.own)
        return [each for each in listing.leases if ours is None or each.created < ours.created]

    async def acquire_again(self, attrs: Callable[[], LeaseAttrs]) -> OwnLease:
        """Take a lease however long it takes; the subnet that we had is asked for first.

        `attrs` is asked at each try, because the uplink may change meanwhile.
        """
        self._listing = None
        previous = (None, None) if self.own is None else (self.own.lease.v4, self.own.lease.v6)
        said = ""
        while True:
            try:
                return await self.acquire(attrs(), previous)
            except (Unavailable, ConfigError) as error:
                if str(error) != said:
                    log.warning("no lease yet: %s", error)
                said = str(error)
                await asyncio.sleep(_RETRY_SECONDS)

    async def keep(self, moved: Callable[[], Awaitable[None]]) -> str:
        """Renew the lease; returns the reason when it is no longer ours.

        `moved` is called when the store has said something of it, which may be another subnet.
        """
        if self.own is None:
            raise RuntimeError("keep comes after acquire")
        async with aclosing(self._tenure.keep(self.own, margin=self._margin)) as events:
            async for event in events:
                if not isinstance(event, Held):
                    return event.reason
                try:
                    await self._took(event.own)
                except Unavailable as error:
                    log.warning("%s", error)
                    self._refused = error.problems[0]
                else:
                    await moved()
        raise RuntimeError("the keeper ended without a reason")

    async def publish(self, attrs: LeaseAttrs) -> None:
        """Change what our lease says; `keep` finds out if it is no longer ours. Raises `Unavailable`.

        What comes back may be another subnet, as of `keep`.
        """
        if self.own is not None:
            await self._took(await self._tenure.publish(self.own, attrs))

    def listed(self) -> Listing | None:
        """The last listing, for `watch` to begin with; once, since it grows old."""
        listing, self._listing = self._listing, None
        return listing

    def saw(self, known: Callable[[Memory], Memory]) -> None:
        """All leases of others are known; `known` puts them into what is written."""
        self._known = known
        self._changed.set()

    async def remember(self) -> None:
        """Write to disk what is to be remembered, some seconds after it changed; at once when cancelled.

        That ends in time on a disk that hangs, too: then what was seen last is lost.
        """
        self._changed.set()  # a fault may have kept an earlier run of this from writing
        try:
            while True:
                await self._changed.wait()
                await asyncio.sleep(_SAVE_SECONDS)
                self._gather()
                await self._write()
        finally:
            if self._changed.is_set():
                self._gather()
            if not await self._file.finish():
                why = f"the disk has not taken it in {LAST_SECONDS:g} s; a restart does not know what was seen last"
                log.warning("STATE-002 %s: %s", self._file.path, why)

    async def _took(self, own: OwnLease) -> None:
        """Raises `Unavailable` (LEASE-004) for a subnet that cannot be ours; all else of the lease counts."""
        if why := unfit(self._netconf, own.lease):
            if self.own is not None and self.own.lease.id == own.lease.id:
                self.own = replace(own, lease=replace(own.lease, v4=self.own.lease.v4, v6=self.own.lease.v6))
                await self._record(self.own)
            where, expected = f"lease {own.lease.id}", "a subnet within the network"
            hint = "Correct it in the store; the node stays with the subnet that it has"
            raise Unavailable(Problem(code="LEASE-004", where=where, seen=why, expected=expected, hint=hint))
        self.own, self.confirmed, self._refused = own, True, None
        await self._record(own)

    async def _record(self, own: OwnLease) -> None:
        if own != self._memory.own:
            self._memory = replace(self._memory, own=own)
            await self._write()

    async def _write(self) -> None:
        """If that fails, once more after the next pause: a node serves without the file."""
        if not await self._file.attempt():
            self._changed.set()

    def _gather(self) -> None:
        self._changed.clear()
        self._memory = self._known(self._memory)
