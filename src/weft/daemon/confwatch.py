"""Notices that the network configuration has changed since the start (CONF-001).

A running daemon takes nothing of it over: a node that changed its network at another moment than the others would leave
it. The difference is reported, and a restart takes it over.
"""

import asyncio
import json
import logging
from collections.abc import Mapping
from hashlib import sha256
from typing import Final

from weft.cluster.store import Settings
from weft.config.netconf import Backend, NetConf, parse_netconf
from weft.model.errors import ConfigError, Problem, Unavailable

log = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 5.0
# The keys of the configuration by what they become.
_KEYS: Final = {
    "v4": "Network, or what belongs to it",
    "v6": "IPv6Network, or what belongs to it",
    "nftables": "EnableNFTables",
    "backend": "Backend.Type",
    "options": "Backend",
}


def understood(text: str, settings: Settings, backends: Mapping[str, Backend]) -> NetConf:
    """Raises `ConfigError`."""
    etcd, mesh = settings.chooses, settings.is_mesh
    return parse_netconf(text, settings.source, backends=backends, etcd=etcd, mesh=mesh)


def digest(text: str) -> str:
    """Return a short text that is equal on nodes with the same configuration, however that is written."""
    try:
        text = json.dumps(json.loads(text), sort_keys=True)
    except (ValueError, RecursionError):  # weft reads it as flannel does, though it is not JSON
        text = text.strip()
    return sha256(text.encode(errors="replace")).hexdigest()[:12]


class ConfWatch:
    """Compares the configuration with `netconf`, which was made of `text`. `problem` is what there is to say now.

    `differs` names the keys in which the present configuration differs; none of one that no node can start with.
    """

    def __init__(self, settings: Settings, netconf: NetConf, text: str, backends: Mapping[str, Backend]) -> None:
        self.problem: Problem | None = None
        self.differs: list[str] = []
        self._settings = settings
        self._netconf = netconf
        self._text = text
        self._backends = backends

    async def run(self) -> None:
        """Look at each new text, until cancelled."""
        while True:
            try:
                self._text = await self._settings.next_net_conf(self._text)
            except (Unavailable, ConfigError) as error:
                first = error.problems[0]
                if first.code == "CONF-002":  # it is not there any more
                    self.differs = []
                    self._say(self._changed(first.seen, "Put it back: no node can start without it"))
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                self._say(self._judge())

    def _judge(self) -> Problem | None:
        """What is wrong with the present text, beside that of the start."""
        self.differs = []
        try:
            new = understood(self._text, self._settings, self._backends)
        except ConfigError as error:
            hint = "Correct it: this node goes on with the configuration of its start, and cannot start with this"
            return self._changed(f"changed, and cannot be used: {error.problems[0]}", hint)
        self.differs = [key for name, key in _KEYS.items() if getattr(new, name) != getattr(self._netconf, name)]
        if not self.differs:
            return None
        hint = "Restart weftd to take it over, on all nodes; `weft plan` shows what that changes here"
        return self._changed(f"changed since the start: {'; '.join(self.differs)}", hint)

    def _changed(self, seen: str, hint: str) -> Problem:
        expected = "the configuration of the start"
        return Problem(code="CONF-001", where=self._settings.source, seen=seen, expected=expected, hint=hint)

    def _say(self, problem: Problem | None) -> None:
        if problem != self.problem:
            if problem is None:
                log.info("the network configuration is that of the start again")
            else:
                log.warning("%s", problem)
        self.problem = problem
