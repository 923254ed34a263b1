"""Says what is wrong with what comes over the links of a mesh: counted each time, logged once an hour for each host."""

import logging
from collections import Counter
from collections.abc import Callable
from typing import Final

from weft.model.errors import Problem
from weft.wire.mesh import Hostile
from weft.wire.meshlink import OtherPassword

log = logging.getLogger(__name__)

_SILENT_SECONDS: Final = 3600.0
_HOSTS: Final = 64  # of which something is said within that time; more are counted alone
_CASES: Final = {
    "another": "it has another password",
    "only ours": "it has no password, and this node has one",
    "only theirs": "it has a password, and this node has none",
}


def problem(host: str, error: Hostile | OtherPassword) -> Problem:
    if isinstance(error, OtherPassword):
        hint = "Give all nodes the same --password-file. They try again in a minute"
        return Problem(code="MESH-002", where=f"mesh: {host}", seen=_CASES[error.case], hint=hint)
    hint = "Upgrade the older of the two" if error.kind == "version" else "Its link was closed; others do not notice"
    return Problem(code="MESH-006", where=f"mesh: {host}", seen=str(error), hint=hint)


class Complaints:
    """`counts` is by the kind of what is hostile, and "password"."""

    def __init__(self, now: Callable[[], float], counts: Counter[str]) -> None:
        self._counts = counts
        self._now = now
        self._said: dict[tuple[str, str], float] = {}

    def take(self, host: str, error: Hostile | OtherPassword) -> Problem:
        kind = "password" if isinstance(error, OtherPassword) else error.kind
        self._counts[kind] += 1
        found = problem(host, error)
        if self._is_new(host, kind):
            log.warning("%s", found)
        return found

    def _is_new(self, host: str, kind: str) -> bool:
        now = self._now()
        for each, when in list(self._said.items()):  # in the order in which they were said
            if now - when < _SILENT_SECONDS:
                break
            del self._said[each]
        if (host, kind) in self._said or len(self._said) >= _HOSTS:
            return False
        self._said[host, kind] = now
        return True
