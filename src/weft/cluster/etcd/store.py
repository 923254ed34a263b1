"""The lease store on etcd (`weft.cluster.store.Store`).

Holds no leases and knows nothing of kernels. Clock and chance are given.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from random import Random

from weft.cluster.etcd.access import Access
from weft.cluster.etcd.client import Client, CompactedError
from weft.cluster.etcd.follow import OtherHistoryError, until_touched
from weft.cluster.etcd.judge import continues
from weft.cluster.etcd.keep import Keeper
from weft.cluster.etcd.listing import list_leases, mark_of
from weft.cluster.etcd.own import OwnKey
from weft.cluster.etcd.rpc.etcd_pb2 import RangeRequest, RangeResponse
from weft.cluster.etcd.values import Listing, Mark
from weft.cluster.etcd.watch import Watcher
from weft.desired.allocate import Chooser
from weft.model.cluster import Listed, OwnEvent, OwnLease, StoreEvent, Tally, Token
from weft.model.errors import Problem, Unavailable
from weft.model.lease import LeaseAttrs
from weft.model.net import Addresses
from weft.plan.announce import Event
from weft.wire.etcd import config_key, subnets_prefix


class EtcdStore:
    """One network's leases in etcd, below `prefix`. `now` gives seconds of a clock that only goes forward.

    `chance` need not be secret.

    Every method may raise `Unavailable` (STORE-001: does not answer; STORE-002: answers with an error) and
    `ConfigError` (STORE-002: refuses us or speaks another protocol), but `watch` and `keep` outlive both.
    """

    def __init__(self, access: Access, prefix: str, *, now: Callable[[], float], chance: Random) -> None:
        self._client = Client(access)
        self._timing = access.timing
        self._config_key = config_key(prefix)
        self._prefix = subnets_prefix(prefix)
        self._now = now
        self._chance = chance
        self._heard: float | None = None
        self._key = OwnKey(self._client, self._prefix, now=now, pick=chance.randrange, call=access.timing.call)

    def close(self) -> None:
        """Drop the connection. The lease stays in the store."""
        self._client.close()

    @property
    def source(self) -> str:
        """Where the network configuration is, for people."""
        return f"etcd key {self._config_key}"

    @property
    def tallies(self) -> Mapping[str, Tally]:
        """What was asked so far, by verb and answer."""
        return self._client.tallies

    @property
    def chooses(self) -> bool:
        """Yes: etcd holds what is taken."""
        return True

    async def net_conf(self) -> str:
        """The network configuration's text, as the operator put it. `Unavailable` with CONF-002 while there is none."""
        text, _ = await self._config()
        return text

    async def next_net_conf(self, known: str) -> str:
        """Wait until the key holds another text than `known`, and give it."""
        while True:
            text, mark = await self._config()
            if text != known:
                return text
            try:
                await until_touched(self._client, self._config_key.encode(), after=mark, timing=self._timing)
            except (CompactedError, OtherHistoryError):  # what happened meanwhile is not told: look
                await asyncio.sleep(self._timing.backoff_most)

    async def _config(self) -> tuple[str, Mark]:
        request = RangeRequest(key=self._config_key.encode())
        reply: RangeResponse = await self._client.call(lambda link: link.kv.Range, request)
        if not reply.kvs:
            raise Unavailable(_no_config(self._config_key))
        return reply.kvs[0].value.decode(errors="replace"), mark_of(reply.header)

    async def addresses(self, recorded: OwnLease | None) -> Addresses:  # noqa: ARG002 - the protocol has it
        """None: etcd has no place for them."""
        return Addresses()

    async def list(self) -> Listing:
        """Everything the store holds now; may be given to `acquire` and `watch`, which then need not list."""
        return await list_leases(self._client, self._prefix)

    async def acquire(
        self, chooser: Chooser, *, recorded: OwnLease | None = None, listing: Listing | None = None
    ) -> OwnLease:
        """Take a subnet for this node and publish what it is there.

        `recorded` is the own lease of an earlier run: unchanged in the store, its key is taken over whatever our
        address is now, or deleted when the network has no place for it.
        """
        return await self._key.acquire(chooser, recorded=recorded, listing=listing)

    def hold(self, own: OwnLease) -> None:
        """Take `own`, of an earlier run, for ours before the store has confirmed it: `watch` does not show it."""
        self._key.hold(own)

    async def publish(self, own: OwnLease, attrs: LeaseAttrs) -> OwnLease:
        """Change what our lease says; `Unavailable` with LEASE-004 if another one has changed it meanwhile."""
        return await self._key.publish(own, attrs)

    @property
    def unpublished(self) -> Problem | None:
        """None: who changes our key takes our lease, and weftd takes another one."""
        return None

    async def ready(self) -> None:
        """Do nothing: etcd has no place for it."""

    async def tell(self, event: Event) -> None:
        """There is no place for it."""

    async def policies(self) -> int | None:
        """None: etcd has no NetworkPolicies."""
        return None

    def keep(self, own: OwnLease, *, margin: float) -> AsyncGenerator[OwnEvent, None]:
        """Renew the lease `margin` seconds before it expires, and tell what becomes of it.

        `Held` now and whenever the lease changes or is renewed; ends after `Revoked` or `TakenOver`. Close it
        (`contextlib.aclosing`) when done.
        """
        keeper = Keeper(
            self._client,
            self._key,
            own,
            margin=margin,
            timing=self._timing,
            now=self._now,
            jitter=self._chance.random,
        )
        return keeper.events()

    def watch(self, listing: Listing | None = None) -> AsyncGenerator[StoreEvent, None]:
        """All leases but our own: `Listed`, then `Changed`; `Lost` while the store does not answer. Never ends.

        After a `Lost`, the next `Listed` or `Changed` (without leases, if none changed) says that it is back.
        Close it (`contextlib.aclosing`) when done.
        """
        watcher = Watcher(
            self._client,
            self._prefix,
            timing=self._timing,
            jitter=self._chance.random,
            is_own=self._key.is_own,
            heard=self._hear,
        )
        return watcher.events(listing)

    @property
    def heard(self) -> float | None:
        """When etcd said anything last to `watch`, a sign of life included."""
        return self._heard

    def _hear(self) -> None:
        self._heard = self._now()

    def continues(self, mark: Token, made: Mapping[str, int], listed: Listed) -> bool:
        """Tell whether a list follows on what was known at `mark`, or the store has lost something, or is another."""
        return continues(mark, made, listed)


def _no_config(key: str) -> Problem:
    example = """{"Network": "10.5.0.0/16", "Backend": {"Type": "vxlan"}}"""
    return Problem(
        code="CONF-002",
        where=f"etcd key {key}",
        seen="no such key",
        expected="a network configuration",
        hint=f"Check --etcd-prefix, or put one: etcdctl put {key} '{example}'",
    )
