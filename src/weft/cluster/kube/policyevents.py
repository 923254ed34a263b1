"""Says at a policy what of it cannot be enforced as written (`kubectl describe networkpolicy`), once an hour."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final

from weft.cluster.kube.client import Client
from weft.model.errors import ConfigError, Problem, Unavailable
from weft.model.policy import Id
from weft.model.text import one_line
from weft.plan.announce import LONGEST
from weft.wire.kubepolicy import PolicyText, event_of_policy

log = logging.getLogger(__name__)

_AGAIN_SECONDS: Final = 3600.0
_LOOK_SECONDS: Final = 5.0


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
    ) -> None:
        self._client = client
        self._node = node
        self._wrong = wrong
        self._text = text
        self._now = now
        self._said: dict[tuple[Id, str], float] = {}  # by the policy and its UID

    async def run(self) -> None:
        """Look for ever; end without the right to make Events, which is said."""
        while True:
            for name, problems in list(self._wrong.items()):
                try:
                    await self._say(name, problems)
                except (Unavailable, ConfigError) as error:
                    if error.problems[0].code == "API-001":
                        log.warning("no Events of policies until weftd is started again: %s", error.problems[0])
                        return
                    log.debug("no Event of %s: %s", name, error)
            await asyncio.sleep(_LOOK_SECONDS)

    async def _say(self, name: Id, problems: tuple[Problem, ...]) -> None:
        text = self._text(name)
        if text is None:
            return
        key, now = (name, text.uid), self._now()
        self._said = {each: at for each, at in self._said.items() if now - at < _AGAIN_SECONDS}
        if key in self._said:
            return
        self._said[key] = now
        message = one_line("; ".join(f"{each.where}: {each.seen}, expected {each.expected}" for each in problems))
        namespace, body = event_of_policy(text, self._node, datetime.now(UTC), message[:LONGEST])
        try:
            await self._client.post(f"/api/v1/namespaces/{namespace}/events", body)
        finally:
            self._client.close()  # the next may be hours away
