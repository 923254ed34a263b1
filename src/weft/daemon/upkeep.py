"""What a running node keeps up besides its kernel objects: its lease, what it says and knows of itself, its memory."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from weft.config.options import Options
from weft.daemon import phases
from weft.daemon.leasing import Leasing
from weft.daemon.network import Network
from weft.daemon.planes.kernel import NodeKernel
from weft.daemon.process.supervise import Supervisor
from weft.daemon.start import answered
from weft.desired import changes
from weft.desired.facts import ailing
from weft.model.errors import ConfigError, Problem, Unavailable
from weft.model.kernel.objects import Snapshot
from weft.model.lease import LeaseAttrs
from weft.model.node.status import Status
from weft.model.value import Value, replace

log = logging.getLogger(__name__)

_SETTLE_SECONDS: Final = 0.2  # an uplink that changes does so in several notices
_RETRY_SECONDS: Final = 5.0
_TELL_REST: Final = 1.0  # between two changes of our lease; twice as long each time, while they go on
_TELL_REST_MOST: Final = 60.0


class Upkeep:
    def __init__(
        self,
        options: Options,
        network: Network,
        leasing: Leasing,
        kernel: NodeKernel,
        status: Status,
        *,
        prepare: Callable[[], Awaitable[Value | None]] | None = None,
        reconnect: Callable[[], None],
        now: Callable[[], float],
    ) -> None:
        self._options = options
        self._network = network
        self._leasing = leasing
        self._kernel = kernel
        self._status = status
        self._history = status.history
        self._prepare = prepare  # of a back end that does so for each lease
        self._reconnect = reconnect  # drops a connection to the store that may hang on an address that is gone
        self._now = now
        self._to_tell = asyncio.Event()
        self._untold: float | None = None  # the moment since which our lease does not say what is true
        self._why_untold = ""
        self._refused_uplink = ""  # why the uplink as it is now cannot be used
        self._ailing_since = now()  # of an uplink that cannot be used
        words = "" if leasing.confirmed else "of an earlier run, until the store answers"
        self._history.note("lease-taken", leasing.lease.id, words=words)  # here: the node is not up yet
        status.parts["published"] = self._publishing_problem

    def start(self, parts: Supervisor) -> None:
        parts.start("own lease", self._keep_lease)
        parts.start("expiry", self._watch_expiry)
        parts.start("uplink", self._follow_uplink, again=self._network.uplink_changed.set)
        parts.start("addresses", self._follow_addresses, again=self._network.addresses_changed.set)
        parts.start("lease's text", self._tell_peers, again=self._to_tell.set)
        parts.start("memory", self._leasing.remember)

    def _attrs(self) -> LeaseAttrs:
        return self._network.inputs.attrs

    async def _keep_lease(self) -> None:
        """One that is lost is taken again in place, the same subnet first."""
        while True:
            if self._leasing.confirmed:
                reason = await self._leasing.keep(self._moved)
                log.warning("LEASE-004 %s; taking a lease again", reason)
                self._history.note("lease-lost", self._leasing.lease.id, code="LEASE-004", words=reason)
            before = self._leasing.lease.id
            await self._leasing.acquire_again(self._attrs)
            self._history.note("lease-taken", self._leasing.lease.id, was=before, now=self._leasing.lease.id)
            if self._prepare is not None:
                prepared = await answered(self._prepare, "what the back end needs with this lease")
                self._network.set_inputs(replace(self._network.inputs, prepared=prepared))
            await self._moved()

    async def _moved(self) -> None:
        inputs, lease = self._network.inputs, self._leasing.lease
        if (inputs.v4, inputs.v6) != (lease.v4, lease.v6):
            before, now = (
                ", ".join(str(net) for net in nets if net) for nets in ((inputs.v4, inputs.v6), lease.subnets)
            )
            log.warning("LEASE-004 our subnet is now %s, it was %s; running pods keep their addresses", now, before)
            self._network.set_inputs(replace(inputs, v4=lease.v4, v6=lease.v6))
            self._network.subnet_file.renew()

    async def _watch_expiry(self) -> None:
        """Be ready only as long as the lease is ours for certain."""
        hint = "The kernel is left as it is; pods keep their network"
        expired = Problem(
            code="STORE-001", where="lease", seen="expired while the store was away", expected="a store", hint=hint
        )
        while True:
            own = self._leasing.own
            over = own is not None and own.expires is not None and own.expires < self._now()
            if own is not None and over and self._status.waiting is None:
                log.error("%s", expired)
                self._history.note("lease-lost", own.lease.id, code=expired.code, words=expired.seen)
                self._status.waiting = expired
            elif not over and self._status.waiting is expired:
                self._status.waiting = None
            await asyncio.sleep(_RETRY_SECONDS)

    async def _follow_uplink(self) -> None:
        """Notice a new name, address, MTU or segment of the uplink, and decide again (IFACE-002)."""
        while True:
            # What mends an uplink may be a link whose notices are not followed.
            broken = self._network.uplink_problem is not None
            with suppress(TimeoutError):
                async with asyncio.timeout(_RETRY_SECONDS if broken else None):
                    await self._network.uplink_changed.wait()
            await asyncio.sleep(_SETTLE_SECONDS)
            self._network.uplink_changed.clear()
            try:
                await self._look_again()
            except OSError as error:  # the kernel's lists never held still, or its answers were lost
                log.warning("IFACE-002 the uplink has changed, and its state cannot be read: %s; trying again", error)
                await asyncio.sleep(_RETRY_SECONDS)
                self._network.uplink_changed.set()

    async def _look_again(self) -> None:
        """Raises `OSError` if the kernel cannot be asked."""
        snapshot = await self._kernel.snapshot()
        refused: Problem | None = None
        try:
            await self._use(snapshot)
        except ConfigError as error:
            refused = error.problems[-1]
            if str(error) != self._refused_uplink:
                log.warning("IFACE-002 the uplink changed and cannot be used: %s; going on as before", error)
            self._refused_uplink = str(error)
        else:
            self._refused_uplink = ""
        before, uplink = self._network.uplink_problem, self._network.inputs.facts.uplink
        after = self._network.uplink_problem = ailing(uplink, snapshot) or refused
        if after is None and before is not None:
            seconds = self._now() - self._ailing_since
            log.info("IFACE-002 the uplink %s can be used again after %.0f s", uplink.name, seconds)
            self._history.note("uplink-back", uplink.name, code="IFACE-002")
        elif after is not None and after != before:
            self._ailing_since = self._now() if before is None else self._ailing_since
            self._history.note("uplink-lost", uplink.name, code=after.code, words=after.seen)
            if after != refused:  # which was said
                log.warning("%s", after)

    async def _use(self, snapshot: Snapshot) -> None:
        """An uplink that no longer fits the flags stays in use as long as it works."""
        netconf, uplink = self._network.inputs.netconf, self._network.inputs.facts.uplink
        facts, why = await phases.look_around(self._options, netconf, self._kernel, snapshot, in_use=uplink)
        inputs = self._network.inputs  # as they are now: our subnet may be another since
        if ailing(facts.uplink, snapshot) is not None:
            # The kernel has taken its routes along: they say nothing about where peers are.
            facts = replace(facts, onlink=inputs.facts.onlink)
        if facts == inputs.facts:
            self._network.links.try_again()
            return
        was, now = changes.of_uplink(inputs.facts, facts)
        name = facts.uplink.name
        words = why if name != inputs.facts.uplink.name else ""  # of the same link nobody asks why it was chosen
        log.info("IFACE-002 the uplink changed: was %s, now %s%s", was, now, words and f": {words}")
        self._history.note("uplink-changed", name, code="IFACE-002", words=words, was=was, now=now)
        changed = replace(inputs, facts=facts)
        inputs.backend.check(changed)
        self._network.set_inputs(changed, snapshot.ips)
        if (facts.uplink.v4, facts.uplink.v6) != (inputs.facts.uplink.v4, inputs.facts.uplink.v6):
            self._reconnect()
        self._to_tell.set()
        self._network.subnet_file.renew()

    async def _follow_addresses(self) -> None:
        """On whatever link: no peer may take them."""
        while True:
            await self._network.addresses_changed.wait()
            await asyncio.sleep(_SETTLE_SECONDS)
            self._network.addresses_changed.clear()
            try:
                self._network.addresses_are(await self._kernel.addresses())
            except OSError as error:
                log.warning("this node's addresses cannot be listed: %s; trying again", error)
                await asyncio.sleep(_RETRY_SECONDS)
                self._network.addresses_changed.set()

    async def _tell_peers(self) -> None:
        """Have our lease say what is true now, however long that takes: the uplink is watched meanwhile.

        An address that comes and goes is published at a slowing pace: each time thousands of nodes hear of it.
        """
        rest, last = 0.0, self._now()
        while True:
            await self._to_tell.wait()
            self._untold = self._untold or self._now()
            await asyncio.sleep(last + rest - self._now())
            self._to_tell.clear()
            while (attrs := self._attrs()) != self._leasing.lease.attrs:
                try:
                    await self._leasing.publish(attrs)
                    await self._moved()
                except (Unavailable, ConfigError) as error:
                    if str(error) != self._why_untold:
                        log.warning("peers cannot be told yet: %s", error)
                    self._why_untold = str(error)
                    await asyncio.sleep(_RETRY_SECONDS)
            self._untold, self._why_untold = None, ""
            now = self._now()
            rest = min(max(_TELL_REST, rest * 2), _TELL_REST_MOST) if now - last < 2 * rest else _TELL_REST
            last = now

    def _publishing_problem(self) -> Problem | None:
        lease, attrs = self._leasing.lease, self._attrs()
        late = self._untold is not None and self._now() - self._untold > _RETRY_SECONDS
        if lease.attrs == attrs or not (late or self._why_untold or not self._leasing.confirmed):
            return self._leasing.unpublished
        was, now = changes.of_lease(lease, replace(lease, attrs=attrs))
        return Problem(
            code="LEASE-004",
            where=f"lease {lease.id}",
            seen=f"it tells peers {was}, and this node has {now}" + (f": {self._why_untold}" * bool(self._why_untold)),
            expected="a store that takes what changes",
            hint="Peers still send to the address in the lease; weftd tries again by itself",
        )
