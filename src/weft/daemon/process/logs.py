"""The log: one line per event on stderr, as text or JSON, time in UTC; in systemd's journal with priorities.

Logging never waits: a thread writes what is in a bounded queue. Lines that nobody takes in time are dropped, and so are
those beyond what one place in the program may say; their number is said afterwards.
"""

import logging
import os
import re
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec

from weft.config.options import LogFormat
from weft.model.text import counted, one_line
from weft.model.value import Value

_ROOM: Final = 256 * 1024  # bytes that wait for a reader at most
_LAST_SECONDS: Final = 1.0  # what waits at the end has this long
_BURST: Final = 1000  # lines of one place in the program at once, and then
_PER_SECOND: Final = 2.0
# What codes begin with (docs/reference/problems.md): ciphers have such names, too.
_FAMILIES: Final = (
    "ADDR|API|BRIDGE|BUNDLE|CHECK|CLEAN|CMD|CNI|CONF|CSUM|CT|DROP|FDB|FLAG|FW|HEALTH|HOST|HOSTPORT|IFACE|INST|IPAM|KERN"
    "|LAB|LEASE|LOST|MESH|MTU|NAT|NEIGH|NFT|PERF|POL|PROG|QDISC|REACH|RES|ROUTE|SCALE|STATE|STORE|SVC|V6|VTEP|XFRM"
)
CODE: Final = re.compile(rf"\b(?:{_FAMILIES})-\d{{3}}\b")
# Of syslog(3), from which level up.
_PRIORITIES: Final = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6), (0, 7))


class LineFormatter(logging.Formatter):
    """`2026-01-02T03:04:05.678Z WARN reconcile: text`, without anything unprintable."""

    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def format(self, record: logging.LogRecord) -> str:
        """A traceback follows on lines of its own, which no record begins like."""
        line = f"{self.formatTime(record)} {_level(record)} {_part(record)}: {one_line(record.getMessage())}"
        return "\n".join((line, *(f"  {each}" for each in self.trace(record))))

    def trace(self, record: logging.LogRecord) -> list[str]:
        return [one_line(each) for each in self.formatException(record.exc_info).split("\n")] if record.exc_info else []


class JsonFormatter(LineFormatter):
    """`time`, `level`, `part`, `message`, and if there are any `code` and `trace`."""

    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage()
        code = CODE.search(message)
        said: dict[str, str | list[str]] = {
            "time": self.formatTime(record),
            "level": _level(record),
            "part": _part(record),
            **({"code": code.group()} if code else {}),
            "message": message,
            **({"trace": trace} if (trace := self.trace(record)) else {}),
        }
        return msgspec.json.encode(said).decode()


class JournalFormatter(logging.Formatter):
    """Each line of another formatter behind `<N>`, its priority (sd-daemon(3))."""

    def __init__(self, inner: logging.Formatter) -> None:
        super().__init__()
        self._inner = inner

    def format(self, record: logging.LogRecord) -> str:
        priority = next(number for level, number in _PRIORITIES if record.levelno >= level)
        return "\n".join(f"<{priority}>{line}" for line in self._inner.format(record).split("\n"))


def _level(record: logging.LogRecord) -> str:
    return "WARN" if record.levelno == logging.WARNING else record.levelname


def _part(record: logging.LogRecord) -> str:
    return record.name.rpartition(".")[2]


class _Flow(Value, frozen=False):
    """What one place may say: `tokens` lines at the time `last`; `kept` were left out."""

    tokens: float = _BURST
    last: float = 0.0
    kept: int = 0
    name: str = ""


class Queue(logging.Handler):
    """Keeps lines for the thread that writes them to `descriptor`, which may block and have other writers."""

    def __init__(
        self, descriptor: int, *, lines: logging.Formatter, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self.setFormatter(lines)
        self._descriptor = descriptor
        self._clock = clock
        self._turn = threading.Condition()
        self._lines: deque[bytes] = deque()
        self._size = 0
        self._dropped = 0
        self._writing = False
        self._flows: dict[tuple[str, int, str, int], _Flow] = {}
        threading.Thread(target=self._run, name="log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        with self._turn:
            if record.levelno < logging.INFO or self._flows_on(record):
                self._put(self.format(record))

    def flush(self) -> None:
        """Wait a moment until all is written."""
        with self._turn:
            self._turn.wait_for(lambda: not (self._lines or self._writing), _LAST_SECONDS)

    def _put(self, line: str) -> None:
        data = line.encode("utf-8", "backslashreplace") + b"\n"
        if self._dropped or self._size + len(data) > _ROOM:
            self._dropped += 1
            return
        self._lines.append(data)
        self._size += len(data)
        self._turn.notify_all()

    def _flows_on(self, record: logging.LogRecord) -> bool:
        """Tell whether a place in the program may say one line more."""
        now = self._clock()
        place = (record.name, record.levelno, record.pathname, record.lineno)
        flow = self._flows.setdefault(place, _Flow(last=now, name=record.name))
        flow.tokens = min(_BURST, flow.tokens + (now - flow.last) * _PER_SECOND)
        flow.last = now
        if flow.tokens < 1:
            flow.kept += 1
            return False
        flow.tokens -= 1
        self._own_up(flow)
        return True

    def _own_up(self, flow: _Flow) -> None:
        if flow.kept:
            self._put(self._line(flow.name, f"and {flow.kept} more like that, left out"))
            flow.kept = 0

    def _line(self, name: str, text: str) -> str:
        return self.format(logging.LogRecord(name, logging.WARNING, "", 0, text, None, None))

    def _run(self) -> None:
        while True:
            with self._turn:
                self._writing = False
                self._turn.notify_all()
                silent = 1.0 if any(flow.kept for flow in self._flows.values()) else None
                self._turn.wait_for(lambda: self._lines or self._dropped, silent)
                for flow in self._flows.values():
                    if self._clock() - flow.last >= 1.0:
                        self._own_up(flow)
                batch, lost = b"".join(self._lines), self._dropped
                self._lines.clear()
                self._size = self._dropped = 0
                self._writing = True
            lines = batch.count(b"\n")
            if lost:
                said = f"{counted(lost, 'line')} of the log dropped here: nothing took them"
                batch += self._line(__name__, said).encode() + b"\n"
            if not self._write(batch):
                time.sleep(_LAST_SECONDS)
                with self._turn:
                    self._dropped += lost + lines

    def _write(self, data: bytes) -> bool:
        """Write all of it, however long that takes; False if that fails."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:  # another program has made the common descriptor non-blocking
                select.select((), (self._descriptor,), ())
            except OSError:
                return False
        return True


def set_up(verbosity: int, form: LogFormat, journal: str) -> None:
    """Log to stderr from INFO up, with `verbosity` above 0 from DEBUG up.

    `journal` is JOURNAL_STREAM, which names the stream that leads to the journal (systemd.exec(5)).
    """
    # A daemon that was started without a standard error logs nowhere.
    handler = logging.NullHandler() if sys.stderr is None else _to(sys.stderr.fileno(), form, journal)
    logging.basicConfig(level=logging.DEBUG if verbosity > 0 else logging.INFO, handlers=[handler], force=True)
    for noisy in ("asyncio", "h2", "hpack"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def _to(descriptor: int, form: LogFormat, journal: str) -> Queue:
    lines = JsonFormatter() if form == "json" else LineFormatter()
    stream = os.fstat(descriptor)
    # The variable is inherited by programs whose standard error is another.
    leads_there = journal == f"{stream.st_dev}:{stream.st_ino}"
    return Queue(descriptor, lines=JournalFormatter(lines) if leads_there else lines)


def quiet() -> None:
    """Log errors alone."""
    logging.basicConfig(level=logging.ERROR, handlers=[logging.StreamHandler(sys.stderr)], force=True)
