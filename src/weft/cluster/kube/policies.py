"""Policies from a Kubernetes API, and of other nodes' pods only those that a policy in effect here can mean.

Policies, namespaces and the pods of this node are watched. The pods of other nodes are watched by namespace, or by a
single watch where the namespaces are many. A change is passed on once everything it needs is known, so that a policy
never shuts out peers that have not been read yet.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final, NoReturn

from weft.cluster.kube.client import Client
from weft.cluster.kube.follow import Follower
from weft.cluster.kube.mirror import Mirror
from weft.cluster.kube.policywatches import PolicyWatches, stale
from weft.cluster.pace import Pace
from weft.cluster.policysource import TakeChange
from weft.model.errors import ConfigError, Problem, Unavailable
from weft.model.policy import Id, Thing
from weft.model.text import one_line
from weft.model.value import replace
from weft.plan.announce import LONGEST
from weft.wire.kubepolicy import PolicyText, event_of_policy
from weft.wire.policy import Unreadable

log = logging.getLogger(__name__)

# Seconds of silence, longer than between two bookmarks: of 5,000 nodes with some watches each, none asks at rest.
_QUIET: Final = 75.0
_EVENT_SECONDS: Final = 3600.0  # between two Events of one policy
_LOOK_SECONDS: Final = 30.0  # on average, so that 5,000 nodes do not come within a second


class KubePolicies:
    """`client` is only asked for others like it. `node` says the name of this node; it raises `Unavailable`."""

    files = ""
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

    @property
    def settled(self) -> bool:
        return self._watches is not None and self._watches.settled

    def form(self, name: Id) -> str:
        return "" if self._watches is None else self._watches.form(name)

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


class PolicyEvents:
    """Events at a policy that say what of it cannot be enforced (`kubectl describe networkpolicy`), once an hour.

    All nodes would say the same, so they ask for the same Event at different moments: the API makes the first alone.
    `wrong` are problems by policy, `text` gives a policy, `node` is this node's name.
    """

    def __init__(
        self,
        client: Client,
        node: str,
        wrong: Mapping[Id, tuple[Problem, ...]],
        text: Callable[[Id], PolicyText | None],
        *,
        now: Callable[[], float],
        jitter: Callable[[], float],
    ) -> None:
        self._client = client
        self._node = node
        self._wrong = wrong
        self._text = text
        self._now = now
        self._jitter = jitter
        self._warned = False
        self._said: dict[tuple[Id, str], float] = {}  # by the policy and its UID

    async def run(self) -> NoReturn:
        """Run for ever. A missing right to make Events is logged once."""
        while True:
            await asyncio.sleep(2 * self._jitter() * _LOOK_SECONDS)
            now = self._now()
            self._said = {each: at for each, at in self._said.items() if now - at < _EVENT_SECONDS}
            for name, problems in list(self._wrong.items()):
                try:
                    await self._say(name, problems)
                except (Unavailable, ConfigError) as error:
                    missing = error.problems[0].code == "API-001" and not self._warned
                    self._warned |= missing
                    log.log(logging.WARNING if missing else logging.DEBUG, "no Event of %s: %s", "/".join(name), error)

    async def _say(self, name: Id, problems: tuple[Problem, ...]) -> None:
        text = self._text(name)
        if text is None:
            return
        key = name, text.uid
        if key in self._said:
            return
        self._said[key] = self._now()
        message = one_line("; ".join(f"{each.where}: {each.seen}, expected {each.expected}" for each in problems))
        namespace, body = event_of_policy(text, self._node, datetime.now(UTC), message[:LONGEST])
        try:
            await self._client.post(f"/api/v1/namespaces/{namespace}/events", body)
        finally:
            self._client.close()  # the next may be hours away
