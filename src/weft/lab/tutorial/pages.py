"""What the tutorial says to a learner, as text. Pure."""

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice
from typing import Final

from weft.lab.tutorial.demands import Demand
from weft.lab.tutorial.drawing import drawing
from weft.lab.tutorial.lesson import Lesson, Typed, paragraphs
from weft.lab.tutorial.lessons import LESSONS
from weft.lab.tutorial.progress import Progress, position
from weft.lab.tutorial.seen import Seen
from weft.model.text import table
from weft.wire.packet import Layer

_WIDTH: Final = 100


def overview(progress: Progress | None) -> str:
    """List the lessons, and which of them are done."""
    rows = (
        (
            "→" if progress is not None and lesson.name == progress.lesson else "",
            "✓" if progress is not None and lesson.name in progress.done else "",
            lesson.name,
            lesson.question,
        )
        for lesson in LESSONS
    )
    return table(("", "", "LESSON", "QUESTION"), rows)


def page(lesson: Lesson, seen: Seen, shell: str) -> str:
    """Return the page of a lesson: the question, what there is, what to type, and the task.

    `shell` is the command that opens a shell on a node, with `%s` in the node's place.
    """
    parts = [
        f"Lesson {position(lesson.name) + 1} of {len(LESSONS)}: {lesson.title}\n{lesson.question}",
        *map(wrapped, paragraphs(lesson.why)),
        f"What there is now:\n\n{_indented(drawing(seen))}",
        *typed(lesson.typed, shell),
        wrapped(f"Your task: {lesson.task}"),
    ]
    return "\n\n".join(parts) + "\n"


def typed(commands: Iterable[Typed], shell: str) -> Iterator[str]:
    """Return commands, by the node whose shell they are for."""
    for node, group in groupby(commands, key=lambda typed: typed.node):
        yield "\n".join([f"On {node} ('{shell % node}' is a shell there):", "", *map(_typed, group)])


def _typed(command: Typed) -> str:
    """Return a command and what it shows. One of several lines stands as it is, so that it can be pasted.

    The word that ends a here-document counts only at the start of a line, and Python's lines keep their indent.
    """
    text = f"  $ {command.command}"
    if "\n" in command.command:
        text = f"\n{command.command}\n"
    return "\n".join([text, *([_indented(wrapped(command.look, 8), 8)] if command.look else [])])


def verdict(lesson: Lesson, demands: Sequence[Demand], seen: Seen) -> str:
    """Return what a check has found; when all is right, what it has shown."""
    lines = [f"✗ {each.what}: {each.problem}" if each.problem else f"✓ {each.what}" for each in demands]
    if demands[-1].problem:
        return "\n".join(lines) + "\n"
    parts = ["\n".join(lines), f"What there is now:\n\n{_indented(drawing(seen))}", *crossing(seen)]
    return "\n\n".join([*parts, f"{lesson.question}", *map(wrapped, paragraphs(lesson.answer))]) + "\n"


def crossing(seen: Seen) -> list[str]:
    """Return the first packet on the wire that carries another, layer by layer; nothing where there is none."""
    frames = (frame for frame in seen.frames if any(layer.name == "VXLAN" for layer in frame))
    return ["The packet between the nodes:\n\n" + "\n".join(_layers(frame)) for frame in islice(frames, 1)]


def _layers(frame: Iterable[Layer]) -> Iterator[str]:
    for depth, layer in enumerate(frame, 1):
        yield f"{'  ' * depth}{layer.name}  {layer.text}"


def hints(lesson: Lesson, shell: str) -> list[str]:
    """Return the hints of a lesson, the last of which is its solution."""
    return [*map(wrapped, paragraphs(lesson.hints)), "\n\n".join(typed(lesson.rest, shell))]


def wrapped(text: str, indent: int = 0) -> str:
    """Return a paragraph in lines that fit a terminal."""
    return textwrap.fill(text, _WIDTH - indent, break_on_hyphens=False, break_long_words=False)


def _indented(text: str, indent: int = 2) -> str:
    return textwrap.indent(text, " " * indent)
