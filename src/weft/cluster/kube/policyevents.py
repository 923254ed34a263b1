"""Events at a policy that say what of it cannot be enforced (`kubectl describe networkpolicy`), once an hour.

All nodes would say the same, so they ask for the same Event at different moments: the API makes the first alone.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final, NoReturn

from weft.cluster.kube.client import Client
from weft.model.errors import ConfigError, Problem, Unavailable
from weft.model.policy import Id
from weft.model.text import one_line
from weft.plan.announce import LONGEST
from weft.wire.kubepolicy import PolicyText, event_of_policy

log = logging.getLogger(__name__)

_AGAIN_SECONDS: Final = 3600.0
_LOOK_SECONDS: Final = 30.0  # on average, so that 5,000 nodes do not come within a second


class PolicyEvents:
    """`wrong` are problems by policy, `text` gives a policy, `node` is this node's name."""

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
            self._said = {each: at for each, at in self._said.items() if now - at < _AGAIN_SECONDS}
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
