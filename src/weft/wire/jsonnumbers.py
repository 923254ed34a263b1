"""Numbers that Python's JSON decoder takes and JSON has not: for its `parse_constant` and `parse_float`."""

from math import isinf
from typing import NoReturn


def no_constant(text: str) -> NoReturn:
    """Refuse `NaN` and `Infinity`, with `ValueError`."""
    raise ValueError(f"invalid value {text}")


def finite(text: str) -> float:
    """Read a number; `ValueError` for one that would become infinite, and could not be written as JSON again."""
    number = float(text)
    if isinf(number):
        raise ValueError(f"number {text[:20]} is too large")
    return number
