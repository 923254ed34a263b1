"""Policies from a Kubernetes API, and of other nodes' pods only those that a policy in effect here can mean.

Policies, namespaces and the pods of this node are watched. The pods of other nodes are watched by namespace, or by a
single watch where the namespaces are many. A change is passed on once everything it needs is known, so that a policy
never shuts out peers that have not been read yet.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, NoReturn

from weft.cluster.kube.client import Client
from weft.cluster.kube.follow import Follower
from weft.cluster.kube.mirror import Mirror
from weft.cluster.kube.policyevents import PolicyEvents
from weft.cluster.kube.policywatches import PolicyWatches, stale
from weft.cluster.pace import Pace
from weft.cluster.policysource import TakeChange
from weft.model.errors import ConfigError, Unavailable
from weft.model.policy import Id, Thing
from weft.model.value import replace
from weft.wire.policy import Unreadable

# Seconds of silence, longer than between two bookmarks: of 5,000 nodes with some watches each, none asks at rest.
_QUIET: Final = 75.0


class KubePolicies:
    """`client` is only asked for others like it. `node` says the name of this node; it raises `Unavailable`."""

    advice = "See what `kubectl get pods -o wide` says of it, and whether the API answers"

    def __init__(
        self,
        client: Client,
        node: Callable[[], Awaitable[str]],
        *,
        now: Callable[[], float],
        jitter: Callable[[], float],
    ) -> None:
        self.things: dict[Id, Thing] = {}
        self.node = ""
        self._client = client
        self._ask_node = node
        self._now = now
        self._jitter = jitter
        self._watches: PolicyWatches | None = None

    async def run(self, take: TakeChange) -> NoReturn:
        timing = replace(self._client.timing, quiet=_QUIET)
        client, events = self._client.another(), self._client.another()

        async def follow(mirror: Mirror[Any]) -> NoReturn:
            follower = Follower(client, mirror.what, timing=timing, now=self._now, jitter=self._jitter)
            await follower.run(mirror)

        try:
            self.node = name = await self._name(take)
            watches = self._watches = PolicyWatches(client, name, self.things, follow, self._pace())
            told = PolicyEvents(events, name, watches.effective.wrong, watches.text, now=self._now, jitter=self._jitter)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(told.run())
                await watches.run(take)
        finally:
            self._watches = None
            client.close()
            events.close()

    async def ask(self, pod: Id) -> None:
        """Read one that was not heard of yet. What fails is left to the watch."""
        if self._watches is not None:
            with suppress(Unavailable, Unreadable):
                await self._watches.ask(pod)

    async def _name(self, take: TakeChange) -> str:
        pace = self._pace()
        while True:
            try:
                return await self._ask_node()
            except Unavailable as error:
                take(ConfigError(stale(error.problems[0], known=bool(self.things))))
                await pace.wait()

    def _pace(self) -> Pace:
        timing = self._client.timing
        return Pace(timing.backoff, timing.backoff_most, self._jitter)
