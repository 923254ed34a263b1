"""Reports NetworkPolicies that nobody enforces (POL-001): this weftd does not, and the API accepts them in silence.

Another program is known by its rules on this node. One that works without rules is not seen, so the message speaks of
rules alone.
"""

import asyncio
import logging
from pathlib import Path
from typing import Final

from weft.cluster.store import Settings
from weft.kernel.tools import ToolError, Tools
from weft.model.errors import ConfigError, Problem, Unavailable

log = logging.getLogger(__name__)

_FIRST_SECONDS: Final = 10.0  # after the start, in which a program beside us may start as well
_AGAIN_SECONDS: Final = 600.0
_LEGACY: Final = ("net/ip_tables_names", "net/ip6_tables_names")


class Policies:
    """Looks now and then. `problem` is what the last look found, None if all was well."""

    def __init__(self, settings: Settings, tools: Tools, proc: Path = Path("/proc/self")) -> None:
        self.problem: Problem | None = None
        self._settings = settings
        self._tools = tools
        self._proc = proc

    async def run(self) -> None:
        """Run for ever; ends where the store has no policies. The right to list them may come later."""
        await asyncio.sleep(_FIRST_SECONDS)
        while True:
            try:
                count = await self._settings.policies()
                if count is None:
                    return
                self._say(await self.judge(count))
            except (Unavailable, ConfigError, ToolError) as error:  # what is not seen is no problem of policies
                log.debug("no look at policies: %s", error)
            await asyncio.sleep(_AGAIN_SECONDS)

    async def judge(self, count: int) -> Problem | None:
        """Return what is wrong if there are so many policies. Raises `ToolError`."""
        from weft.diag.owners import enforcer_in  # diagnosis is not loaded at the start

        if not count or enforcer_in(await self._rules()):
            return None
        many = "1 NetworkPolicy" if count == 1 else f"{count} NetworkPolicies"
        return Problem(
            code="POL-001",
            where="NetworkPolicies",
            seen=f"the cluster has {many}, and no rules of a program that enforces them are on this node",
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
