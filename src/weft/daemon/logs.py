"""The log: one line per event on stderr, time in UTC, nothing a peer sent can break a line."""

import logging
import sys
import time
from typing import Final

_UNPRINTABLE: Final = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))}


class LineFormatter(logging.Formatter):
    """`2026-01-02T03:04:05.678Z WARN reconcile: text`, control characters escaped."""

    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def format(self, record: logging.LogRecord) -> str:
        """One record as one line; a traceback follows on lines of its own."""
        text = record.getMessage().translate(_UNPRINTABLE)
        level = "WARN" if record.levelno == logging.WARNING else record.levelname
        line = f"{self.formatTime(record)} {level} {record.name.rpartition('.')[2]}: {text}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


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
