"""Keeps the own lease: renews it in time, and notices when it is deleted or another node takes it (flannel.md §4.6).

The watch of all leases says when the key was touched. Errors of the store never end it: the data plane does not depend
on the store, and a lease that ran out meanwhile is reported when the store is back.
"""

import asyncio
import logging
import math
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Final

from weft.beside.tasks import awaited
from weft.cluster.etcd.own import OwnKey
from weft.cluster.etcd.rpc.etcd_pb2 import KeyValue
from weft.cluster.etcd.values import proof_in
from weft.cluster.pace import Pace
from weft.model.cluster import Held, OwnEvent, OwnLease, Revoked, TakenOver
from weft.model.errors import ConfigError, Problem, Unavailable
from weft.model.net import Addresses
from weft.model.value import replace
from weft.plan.announce import Event

log = logging.getLogger(__name__)

# The clock is looked at this often: it goes on while the machine sleeps, which the loop's own does not.
_LOOK: Final = 60.0


class EtcdTenure(OwnKey):
    """etcd has no place for a node's addresses, its readiness or its events."""

    unpublished: Problem | None = None  # who changes our key takes our lease, and weftd takes another one

    async def addresses(self, recorded: OwnLease | None) -> Addresses:  # noqa: ARG002 - the protocol has it
        return Addresses()

    def keep(self, own: OwnLease, *, margin: float) -> AsyncGenerator[OwnEvent, None]:
        """Close it (`contextlib.aclosing`) when done."""
        return _Keeper(self, own, margin).events()

    async def ready(self) -> None: ...

    async def tell(self, event: Event) -> None: ...


class _Keeper:
    """Keeps one lease from `own` on, renewed `margin` seconds before it expires."""

    def __init__(self, key: OwnKey, own: OwnLease, margin: float) -> None:
        self._key = key
        self._own = own
        self._margin = margin
        self._due = math.inf if own.expires is None else own.expires - margin
        self._rescheduled = asyncio.Event()
        self._told: asyncio.Queue[OwnEvent | None] = asyncio.Queue()
        key.hold(own)

    async def events(self) -> AsyncGenerator[OwnEvent, None]:
        tasks = (awaited(self._watch()), awaited(self._renew()))
        for task in tasks:
            task.add_done_callback(lambda _: self._told.put_nowait(None))
        try:
            while True:
                event = await self._told.get()
                if event is not None:
                    yield event
                if isinstance(event, Revoked | TakenOver):
                    return
                for task in tasks:
                    if task.done():
                        task.result()  # it ends only by a fault of ours, which must not stay hidden
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _watch(self) -> None:
        pace = Pace(self._key.timing.backoff, self._key.timing.backoff_most, self._key.chance.random)
        held = False
        while True:
            self._key.touched.clear()
            try:
                own = await self._judge(await self._key.read(self._own))
                if own is None:
                    return
                if own != self._own or not held:
                    self._hold(own)
                held, pace.failures = True, 0
                await self._key.touched.wait()
            except (Unavailable, ConfigError) as error:
                log.debug("looking at the own lease again: %s", error)
                await pace.wait()

    async def _judge(self, kv: KeyValue | None) -> OwnLease | None:
        """Returns None, with the reason told, when the lease is ours no more."""
        name = self._own.lease.id
        if kv is None:
            self._told.put_nowait(Revoked(reason=f"lease {name} was deleted, or expired"))
            return None
        if kv.mod_revision == proof_in(self._own).mod_revision:
            return self._own
        own = self._key.adopt(self._own, kv)
        if own is None:
            other = self._key.lost_to(name, kv)
            whose = (
                "somebody who cannot be read" if other is None else f"the node {other.attrs.public_ip or other.attrs}"
            )
            self._told.put_nowait(TakenOver(lease=other, reason=f"lease {name} was written by {whose}"))
            return None
        etcd_lease = proof_in(own).etcd_lease
        if not etcd_lease:
            return replace(await self._key.confirm(own), expires=None)
        if etcd_lease != proof_in(self._own).etcd_lease:
            return replace(own, expires=self._key.now() + await self._key.renew(etcd_lease))
        return own

    async def _renew(self) -> None:
        while True:
            while (left := self._due - self._key.now()) > 0:
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(left, _LOOK)):
                        await self._rescheduled.wait()
                self._rescheduled.clear()
            own, etcd_lease = self._own, proof_in(self._own).etcd_lease
            try:
                ttl = await self._key.renew(etcd_lease)
            except (Unavailable, ConfigError) as error:
                log.warning("LEASE-004 lease %s not renewed, trying again: %s", own.lease.id, error)
                await asyncio.sleep(self._key.timing.renew_retry)
                continue
            if etcd_lease != proof_in(self._own).etcd_lease:
                continue  # it hangs on another etcd lease by now
            if not ttl:
                self._told.put_nowait(Revoked(reason=f"lease {own.lease.id} expired before it could be renewed"))
                return
            self._hold(replace(self._own, expires=self._key.now() + ttl))

    def _renewal(self, own: OwnLease) -> float:
        if own.expires is None:
            return math.inf
        left = own.expires - self._key.now()
        # An operator's lease that is shorter than the margin is renewed after a third of it, not all the time.
        return own.expires - self._margin if left > self._margin else own.expires - left * 2 / 3

    def _hold(self, own: OwnLease) -> None:
        if own != self._own:
            self._own = own
            self._due = self._renewal(own)
            self._rescheduled.set()
        self._told.put_nowait(Held(own=own))
