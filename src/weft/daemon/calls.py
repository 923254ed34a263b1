"""How often plugins were called, how many calls failed, and how long they took."""

import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from weft.model.node.nodestate import Durations

if TYPE_CHECKING:  # else the network would wait for what plugins need
    from weft.cni.host.host import Host, Request
    from weft.cni.serve.session import Plugins
    from weft.wire.cni import Ran

_KEPT: Final = 256  # durations of a kind of call: the latest
_MEASURED: Final = ("ADD", "DEL")  # what a pod's start and end wait for


class Calls:
    """Counts by plugin and command (`bridge ADD`). Calls come in many threads.

    `took` and `waited` are those of ADD and DEL, for which pods wait, since the start of the daemon.
    """

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()
        self._seconds: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=_KEPT))
        self.took: dict[str, Durations] = {}
        self.waited = Durations()
        self._lock = threading.Lock()

    def counting(self, run: "Plugins") -> "Plugins":
        """`run`, counted; one that raises counts as failed."""

        def counted(request: "Request", host: "Host") -> "Ran":
            began, failed = time.monotonic(), True
            try:
                done = run(request, host)
                failed = done.exit != 0
            finally:
                self._note(request, time.monotonic() - began, failed=failed)
            return done

        return counted

    def _note(self, request: "Request", seconds: float, *, failed: bool) -> None:
        kind = f"{request.plugin} {request.command}"
        with self._lock:
            if request.command in _MEASURED:
                self.took.setdefault(kind, Durations()).note(seconds)
                self.waited.note(request.waited)
            self._counts[kind] += 1
            self._failed[kind] += failed
            self._seconds[kind].append(seconds)

    def look(self) -> Mapping[str, tuple[int, int, list[float]]]:
        """Of each kind how many there were, how many of those failed, and the latest's seconds, the shortest first."""
        with self._lock:
            return {
                kind: (count, self._failed[kind], sorted(self._seconds[kind])) for kind, count in self._counts.items()
            }
