"""How long, as people write it."""

import re
from typing import Final

_UNITS: Final = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_PART: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(min|m|s|h|d)\s*")


def seconds_in(text: str) -> float:
    """Read `90s`, `5min` (or `5m`), `2h` or `1d 12h`. Raises `ValueError`."""
    seconds, place = 0.0, 0
    while (part := _PART.match(text, place)) is not None:
        seconds += float(part[1]) * _UNITS[part[2]]
        place = part.end()
    if not text or place < len(text):
        raise ValueError(f"{text!r} is no time; expected for example 90s, 5min, 2h or 1d")
    return seconds
