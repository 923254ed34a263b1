"""Strategies that start from what is valid and bend it: inputs made of chance alone are refused at the door."""

from copy import deepcopy
from typing import Any

from hypothesis import strategies as st


@st.composite
def mostly(draw: st.DrawFn, likely: st.SearchStrategy[Any], other: st.SearchStrategy[Any]) -> Any:
    """Four of five times what is `likely`."""
    return draw(likely if draw(st.integers(0, 4)) else other)


@st.composite
def bent_bytes(draw: st.DrawFn, whole: st.SearchStrategy[bytes]) -> bytes:
    """Bytes of `whole`, as they are or with up to three of them changed, and perhaps cut or with others behind."""
    data = bytearray(draw(whole))
    for _ in range(draw(st.integers(0, 3)) if data else 0):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    kind = draw(st.sampled_from(["as it is", "as it is", "cut", "longer"]))
    if kind == "cut":
        return bytes(data[: draw(st.integers(0, len(data)))])
    return bytes(data) + (draw(st.binary(max_size=8)) if kind == "longer" else b"")


@st.composite
def bent_json(draw: st.DrawFn, good: st.SearchStrategy[Any], junk: st.SearchStrategy[Any]) -> Any:
    """A value of `good`, as it is or with up to two values in it replaced by `junk` or left out."""
    value = deepcopy(draw(good))
    for _ in range(draw(st.integers(0, 2))):
        places = list(_places(value))
        if not places:
            break
        holder, key = draw(st.sampled_from(places))
        if draw(st.booleans()):
            holder[key] = draw(junk)
        else:
            del holder[key]
    return value


def _places(value: Any) -> Any:
    """Every key and index in a value, with what holds it."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in inside:
        yield value, key
        yield from _places(inner)
