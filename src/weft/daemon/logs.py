"""The log: one line per event on stderr, time in UTC, nothing a peer sent can break a line."""

import logging
import sys
import time

from weft.model.text import one_line


class LineFormatter(logging.Formatter):
    """`2026-01-02T03:04:05.678Z WARN reconcile: text`, nothing unprintable in it."""

    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def format(self, record: logging.LogRecord) -> str:
        """One record as one line; a traceback follows on lines of its own, which no record begins like."""
        text = one_line(record.getMessage())
        level = "WARN" if record.levelno == logging.WARNING else record.levelname
        line = f"{self.formatTime(record)} {level} {record.name.rpartition('.')[2]}: {text}"
        trace = self.formatException(record.exc_info).split("\n") if record.exc_info else ()
        return "\n".join((line, *(f"  {one_line(each)}" for each in trace)))


def set_up(verbosity: int) -> None:
    """Send the log to stderr: from INFO up, with `verbosity` above 0 from DEBUG up."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter())
    logging.basicConfig(level=logging.DEBUG if verbosity > 0 else logging.INFO, handlers=[handler], force=True)
    for noisy in ("asyncio", "h2", "hpack"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def quiet() -> None:
    """Only errors, for commands that print their findings themselves."""
    logging.basicConfig(level=logging.ERROR, handlers=[logging.StreamHandler(sys.stderr)], force=True)
