"""docs/tutorial/build-a-pod-network.md, made from the tutorial's own lessons.

Its drawings are of what a lab looked like at the end of each lesson. `python -m scripts.docs.tutorial --record`
follows the lessons in a lab of its own, and keeps what it saw in `scripts/docs/lessons`, for these drawings and for the
tests of the judges.
"""

import os
import re
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import msgspec

from weft.lab import places
from weft.lab.commands.ending import down
from weft.lab.tutorial import pages, playground
from weft.lab.tutorial.lesson import Lesson, Typed, paragraphs
from weft.lab.tutorial.lessons import LESSONS
from weft.lab.tutorial.pages import drawing
from weft.lab.tutorial.seen import Seen

PAGE = Path(__file__).parents[2] / "docs" / "tutorial" / "build-a-pod-network.md"
RECORDS = Path(__file__).with_name("lessons")

HEAD = """\
# Build a pod network by hand

<!-- Made by `make docs` from src/weft/lab/tutorial/lessons: change those. -->

You build what a pod network is made of, with `ip`, `bridge` and `nft`, on two nodes that nothing else touches.
It takes an hour or so; nothing on your machine changes, and root is not needed where users may make user namespaces.
You need the checkout after `make setup`, with `.venv/bin` on your `PATH`.

```console
$ weft lab tutorial start
$ weft lab tutorial show
```

The first makes the nodes, in a lab named `tutorial`; `show` shows the lesson you are at, and what there is.
Then, for each lesson:

1. Read the question, and type the commands in shells of the two nodes: `weft lab exec --lab tutorial node1 -- bash`.
2. Do the task. `weft lab tutorial hint` helps, a little more each time.
3. `weft lab tutorial check` looks at the nodes themselves, and says what is missing.
4. `weft lab tutorial next` goes on, `weft lab tutorial reset` puts the lesson back to its beginning.

How far you are is kept with the lab: use as many terminals as you like.
This page has all of it to read, with the solutions.
"""

TAIL = """\
## The end

```console
$ weft lab down tutorial
```

## Next

- [Your first lab](first-lab.md): daemons make all these entries, and keep them so.
- [Practise finding faults](../howto/quiz.md): something is broken, and you find it.
- [A packet's way](../explanation/a-packets-way.md): one packet through all of them.
"""


def render() -> str:
    return "\n".join([HEAD, *map(_lesson, range(len(LESSONS))), TAIL])


def record_of(lesson: Lesson) -> Seen:
    """What was seen at the end of a lesson."""
    return msgspec.json.decode((RECORDS / f"{lesson.name}.json").read_bytes(), type=Seen)


def picture(seen: Seen) -> str:
    """A drawing without the random names that plugins give links."""
    return re.sub(r"veth[0-9a-f]{8}\b", "veth…", drawing(seen))


def follow(place: places.Place, lesson: Lesson) -> Seen:
    """Type all that a lesson says, and look."""
    for typed in (*lesson.typed, *lesson.rest):
        status, stdout, stderr = playground.typed(place, typed)
        assert bool(status) == typed.fails, f"{typed.node}: {typed.command}: {status}\n{stdout}{stderr}"
    return playground.look(place, lesson)


def _lesson(number: int) -> str:
    lesson = LESSONS[number]
    parts = [
        f"## {number + 1}. {lesson.title}",
        f"*{lesson.question}*",
        *paragraphs(lesson.why),
        *_commands(lesson.typed),
        f"**Your task.** {_lines(lesson.task)}",
        "<details><summary>A solution</summary>",
        *_commands(lesson.rest),
        "</details>",
        *paragraphs(lesson.answer),
    ]
    drawn = picture(record_of(lesson))
    if not number or drawn != picture(record_of(LESSONS[number - 1])):
        parts.append(f"```text\n{drawn}\n```")
    if crossing := "".join(pages.crossing(record_of(lesson))):
        parts.append(f"```text\n{crossing}\n```")
    return "\n\n".join(parts) + "\n"


def _commands(typed: tuple[Typed, ...]) -> Iterator[str]:
    """Commands node by node, in blocks that end where there is something to see."""
    for node, group in groupby(typed, key=lambda each: each.node):
        yield f"On {node}:"
        block: list[str] = []
        for each in group:
            block.append(each.command)
            if each.look:
                yield from (_block(block), _lines(each.look))
                block = []
        if block:
            yield _block(block)


def _block(commands: list[str]) -> str:
    return "```sh\n" + "\n".join(commands) + "\n```"


def _lines(text: str) -> str:
    """One sentence a line."""
    return re.sub(r"(?<=[.?]) (?=[A-Z`])", "\n", text)


def _record() -> None:
    place = playground.make("tutorial-record", places.home(os.environ), os.environ, note=print)
    try:
        RECORDS.mkdir(exist_ok=True)
        for number, lesson in enumerate(LESSONS):
            playground.lay_out(place, LESSONS[:number])
            seen = follow(place, lesson)
            (RECORDS / f"{lesson.name}.json").write_bytes(msgspec.json.encode(seen) + b"\n")
    finally:
        down(place)


def write() -> None:
    PAGE.write_text(render())


if __name__ == "__main__":
    if "--record" in sys.argv:
        _record()
    write()
