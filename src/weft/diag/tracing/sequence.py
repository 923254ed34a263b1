"""A packet's way as a sequence diagram in Mermaid's language, which GitHub and GitLab draw within Markdown. Pure."""

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Final

from weft.diag.tracing.hops import Hop, Way
from weft.model.text import one_line
from weft.model.value import Value, field

_MARKS: Final = {True: "✓", False: "✗", None: "?"}
_NOT_REACHED: Final = "·"
_ENTITIES: Final = {"#": "#35;", ";": "#59;", "<": "#lt;", ">": "#gt;"}


class Stage(Value):
    """A way at one place (a node, a pod, an address), there or `back`; `counted` are probes seen at its devices."""

    place: str
    way: Way
    back: bool = False
    counted: dict[str, int] = field(default_factory=dict)


def diagram(stages: Sequence[Stage]) -> str:
    """Return the diagram: a note for what is passed at each place, and an arrow from each to the next."""
    names = {place: f"p{number}" for number, place in enumerate(dict.fromkeys(stage.place for stage in stages))}
    lines = ["sequenceDiagram", *(f"  participant {name} as {_escaped(place)}" for place, name in names.items())]
    for stage, following in zip_longest(stages, stages[1:]):
        lines += _of(stage, following, names)
    return "\n".join(lines) + "\n"


def _of(stage: Stage, following: Stage | None, names: dict[str, str]) -> Iterator[str]:
    own, way = names[stage.place], stage.way
    if way.hops:
        yield f"  Note over {own}: {'<br/>'.join(_escaped(_hop(hop, stage)) for hop in way.hops)}"
    if way.end == "dropped":
        yield f"  {own}-x{own}: {_escaped(str(way.problem))}"
    elif way.end == "lost":
        yield f"  {own}-x{own}: lost"
    elif following is not None and following.place != stage.place:
        arrow = "-->>" if stage.back else "->>"
        yield f"  {own}{arrow}{names[following.place]}: {_escaped(way.carried or way.end)}"


def _hop(hop: Hop, stage: Stage) -> str:
    seen = stage.counted.get(hop.device)
    count = "" if seen is None else f"+{seen} " if seen else "0 "
    return f"{mark(hop)} {count}{hop.what}: {hop.seen}"


def mark(hop: Hop) -> str:
    """The sign before a step: it passes, does not, cannot be told, or none came to it."""
    return _MARKS[hop.passes] if hop.reached else _NOT_REACHED


def _escaped(text: str) -> str:
    """Text in which nothing means anything to Mermaid."""
    return "".join(_ENTITIES.get(each, each) for each in one_line(text))
