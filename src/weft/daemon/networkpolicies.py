"""Reports NetworkPolicies that nobody enforces here (POL-001): this weftd does not.

That there are some says the API, which accepts them in silence, or other nodes, whose leases say that they enforce.
Another program is known by its rules on this node. One that works without rules is not seen, so the message speaks of
rules alone.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

from weft.cluster.store import Settings
from weft.kernel.tools import ToolError, Tools
from weft.model.errors import ConfigError, Problem, Unavailable
from weft.model.text import counted, some_of

log = logging.getLogger(__name__)

_FIRST_SECONDS: Final = 10.0  # after the start, in which a program beside us may start as well
_AGAIN_SECONDS: Final = 600.0
_LOOK_SECONDS: Final = 5.0  # between two looks at leases
_NAMED: Final = 5
_LEGACY: Final = ("net/ip_tables_names", "net/ip6_tables_names")


class Policies:
    """Looks now and then. `problem` is what the last look found, None if all was well."""

    def __init__(
        self,
        settings: Settings,
        tools: Tools,
        enforcing: Callable[[], Sequence[str]] = tuple,
        proc: Path = Path("/proc/self"),
    ) -> None:
        """`enforcing` names the other nodes that say that they enforce."""
        self.problem: Problem | None = None
        self._settings = settings
        self._tools = tools
        self._enforcing = enforcing
        self._proc = proc

    async def run(self) -> NoReturn:
        """The right to list policies may come later; a store that has none counts none."""
        await asyncio.sleep(_FIRST_SECONDS)
        while True:
            others = bool(self._enforcing())
            try:
                self._say(await self.judge(await self._settings.policies() or 0))
            except (Unavailable, ConfigError, ToolError) as error:  # what is not seen is no problem of policies
                log.debug("no look at policies: %s", error)
            await self._rest(others=others)

    async def _rest(self, *, others: bool) -> None:
        """Until the next look is due, or until other nodes begin to enforce, or end."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_AGAIN_SECONDS):
                while bool(self._enforcing()) == others:  # noqa: ASYNC110 - leases tell nobody here
                    await asyncio.sleep(_LOOK_SECONDS)

    async def judge(self, count: int) -> Problem | None:
        """Return what is wrong if the API has so many policies. Raises `ToolError`."""
        from weft.diag.owners import enforcer_in  # diagnosis is not loaded at the start

        others = self._enforcing()
        if not (count or others) or enforcer_in(await self._rules()):
            return None
        if count:
            seen = f"the cluster has {'1 NetworkPolicy' if count == 1 else f'{count} NetworkPolicies'}"
        else:
            nodes = f"{counted(len(others), 'other node')} ({some_of(others, _NAMED)})"
            seen = f"{nodes} {'says' if len(others) == 1 else 'say'} that policies are enforced there"
        return Problem(
            code="POL-001",
            where="NetworkPolicies",
            seen=f"{seen}, and no rules of a program that enforces them are on this node",
            hint=(
                "So the pods that they select are open. Have weftd enforce them (--network-policy=audit first),"
                " run another program that does, or remove the policies"
            ),
        )

    async def _rules(self) -> str:
        """Return all chains of nft, and the rules in the tables of iptables-legacy."""
        rules = await self._tools.run("nft", ["list", "chains"]) if self._tools.has("nft") else ""
        for name, file in zip(("iptables-legacy-save", "ip6tables-legacy-save"), _LEGACY, strict=True):
            if self._tools.has(name) and _text(self._proc / file):
                rules += await self._tools.run(name, [])
        return rules

    def _say(self, problem: Problem | None) -> None:
        if (problem is None) != (self.problem is None):
            if problem is None:
                log.info("POL-001 is over: there are no NetworkPolicies, or rules of a program that enforces them")
            else:
                log.warning("%s", problem)
        self.problem = problem


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""
