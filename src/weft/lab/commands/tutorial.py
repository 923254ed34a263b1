"""`weft lab tutorial`: a pod network by hand, step by step. What a lesson is and how it is judged is elsewhere."""

import os
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click
from click.shell_completion import CompletionItem

from weft.lab.commands.choose import VARIABLE, base, hand_down, labs, up_now
from weft.lab.places import Place
from weft.lab.tutorial import pages, playground
from weft.lab.tutorial.lesson import Lesson, judged, right
from weft.lab.tutorial.lessons import LESSONS
from weft.lab.tutorial.pages import Progress
from weft.model.errors import ConfigError, Problem
from weft.model.text import one_of
from weft.screen.documents import Progress as Clock
from weft.screen.documents import next_commands, output_option, show_report
from weft.screen.groups import Group

Command = TypeVar("Command", bound=Callable[..., Any])

_NAME: Final = "tutorial"  # of the lab, and of what is kept with it


def _options(command: Command) -> Command:
    about = f"The tutorial's lab: {_NAME} by default."
    lab = click.option(
        "-l", "--lab", default=_NAME, metavar="LAB", envvar=VARIABLE, show_envvar=True, shell_complete=labs, help=about
    )
    return lab(output_option(command))


@click.group(cls=Group, invoke_without_command=True)
@_options
@click.pass_context
def tutorial(ctx: click.Context, lab: str, output: str) -> None:
    """Build a pod network by hand, step by step, and see why it is so.

    Two nodes of a lab of their own are yours: nothing on them touches this machine. Each lesson asks a question, says
    what to type and what to look at, and leaves you a task. Alone, it lists the lessons and shows where you are.

    \b
      weft lab tutorial start      makes the nodes, and shows the first lesson
      weft lab tutorial show       the lesson again, with what there is now
      weft lab tutorial hint       one hint after another, at last the solution
      weft lab tutorial check      looks whether the task is done
      weft lab tutorial next       goes on to the next lesson
      weft lab tutorial reset      puts the nodes back to the lesson's beginning
      weft lab down tutorial       ends it
    """
    hand_down(ctx)
    if ctx.invoked_subcommand is not None:
        return
    there = up_now(base()).get(lab)
    at = None if there is None else there.note(_NAME, Progress)
    lessons = [
        {"name": lesson.name, "question": lesson.question, "done": at is not None and lesson.name in at.done}
        for lesson in LESSONS
    ]
    show_report(output, {"lesson": "" if at is None else at.lesson, "lessons": lessons}, pages.overview(at))
    next_commands(output, f"weft lab tutorial {'start' if at is None else 'show'}{_within(lab)}")


def _lesson_names(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(lesson.name) for lesson in LESSONS if lesson.name.startswith(incomplete)]


@tutorial.command("start")
@click.argument("lesson", default="", metavar="[LESSON]", shell_complete=_lesson_names)
@_options
def begin(lesson: str, lab: str, output: str) -> None:
    """Make the two nodes, and begin at the first lesson, or at LESSON with all before it done for you.

    Where the tutorial runs already, it goes to LESSON; what was built on the nodes is gone then.
    """
    wanted = _named(lesson) if lesson else LESSONS[0]
    place = up_now(base()).get(lab)
    at = None if place is None else _read(place)
    if place is None or at is None:
        clock = Clock(output)
        try:
            place = playground.make(lab, base(), os.environ, note=clock)
        finally:
            clock.done()
    elif not lesson:
        seen = f"it runs, and you are at lesson {at.lesson!r}"
        hint = f"'weft lab tutorial show{_within(lab)}' shows it; 'start LESSON' goes to another."
        raise ConfigError(Problem("LAB-002", "weft lab tutorial start", seen, hint=hint))
    playground.lay_out(place, pages.before(wanted))
    place.keep(_NAME, Progress(lesson=wanted.name, done=[] if at is None else at.done))
    _show(place, wanted, output)


@tutorial.command()
@_options
def show(lab: str, output: str) -> None:
    """Show the lesson you are at: what there is now, what to type, what to look at, and the task."""
    place, at = _current(lab)
    _show(place, _named(at.lesson), output)


@tutorial.command()
@_options
def check(lab: str, output: str) -> int:
    """Look at both nodes, and say whether the lesson's task is done, and if not, what is missing.

    It looks at what is there, not at what was typed. Exits 0 if all is right, 1 if something is missing.
    """
    place, at = _current(lab)
    return 0 if _check(place, at, output) else 1


@tutorial.command("next")
@_options
def go_on(lab: str, output: str) -> int:
    """Go on to the next lesson, if the task of this one is done. Exits 1 if it is not."""
    place, at = _current(lab)
    if at.lesson not in at.done and not _check(place, at, output):
        return 1
    here = pages.position(at.lesson)
    if here + 1 == len(LESSONS):
        show_report(output, {"done": True}, "That was the last lesson.\n")
        next_commands(output, f"weft lab down {place.name}", "weft lab up", "weft lab quiz start")
        return 0
    following = LESSONS[here + 1]
    done = [*at.done, *([] if at.lesson in at.done else [at.lesson])]
    place.keep(_NAME, Progress(lesson=following.name, done=done))
    _show(place, following, output)
    return 0


@tutorial.command()
@_options
def hint(lab: str, output: str) -> None:
    """Give one more hint to the lesson's task; the last one is the solution."""
    place, at = _current(lab)
    known = pages.hints(_named(at.lesson), _shell(place))
    given = min(at.hints + 1, len(known))
    place.keep(_NAME, Progress(lesson=at.lesson, hints=given, done=at.done))
    text = f"Hint {given} of {len(known)}{', the solution' * (given == len(known))}:\n\n{known[given - 1]}\n"
    show_report(output, {"lesson": at.lesson, "hint": known[given - 1], "number": given, "of": len(known)}, text)
    more = "check" if given == len(known) else "hint"
    next_commands(output, f"weft lab tutorial {more}{_within(place.name)}")


@tutorial.command()
@_options
def reset(lab: str, output: str) -> None:
    """Put both nodes back to the lesson's beginning, whatever was made on them."""
    place, at = _current(lab)
    lesson = _named(at.lesson)
    playground.lay_out(place, pages.before(lesson))
    place.keep(_NAME, Progress(lesson=at.lesson, done=[name for name in at.done if name != at.lesson]))
    show_report(output, {"reset": at.lesson}, f"Both nodes are as at the beginning of lesson {at.lesson!r}.\n")
    next_commands(output, f"weft lab tutorial show{_within(lab)}")


def _show(place: Place, lesson: Lesson, output: str) -> None:
    seen = playground.look(place, None)
    typed = [{"node": each.node, "command": each.command, "look": each.look} for each in lesson.typed]
    report = {
        "lesson": lesson.name,
        "question": lesson.question,
        "why": lesson.why,
        "typed": typed,
        "task": lesson.task,
    }
    show_report(output, report, pages.page(lesson, seen, _shell(place)))
    option = _within(place.name)
    next_commands(output, f"weft lab tutorial check{option}", f"weft lab tutorial hint{option}")


def _check(place: Place, at: Progress, output: str) -> bool:
    lesson = _named(at.lesson)
    seen = playground.look(place, lesson)
    demands = judged(lesson, seen)
    passed = right(demands)
    if passed and at.lesson not in at.done:
        place.keep(_NAME, Progress(lesson=at.lesson, hints=at.hints, done=[*at.done, at.lesson]))
    found = [{"what": each.what, "problem": each.problem} for each in demands]
    show_report(
        output, {"lesson": lesson.name, "right": passed, "demands": found}, pages.verdict(lesson, demands, seen)
    )
    next_commands(output, f"weft lab tutorial {'next' if passed else 'hint'}{_within(place.name)}")
    return passed


def _current(lab: str) -> tuple[Place, Progress]:
    """`ConfigError` if no tutorial runs."""
    place = up_now(base()).get(lab)
    if place is None:
        hint = f"'weft lab tutorial start{_within(lab)}' starts it."
        raise ConfigError(Problem("LAB-002", "weft lab tutorial", "it does not run", hint=hint))
    return place, _read(place)


def _read(place: Place) -> Progress:
    """`ConfigError` if it is a lab of another kind."""
    at = place.note(_NAME, Progress)
    if at is None:
        seen, expected = f"lab {place.name} is not the tutorial's", "another name by --lab"
        raise ConfigError(Problem("LAB-002", "weft lab tutorial", seen, expected=expected))
    return at


def _named(name: str) -> Lesson:
    """`ConfigError` names the lessons."""
    for lesson in LESSONS:
        if lesson.name == name:
            return lesson
    expected = one_of((lesson.name for lesson in LESSONS), name)
    raise ConfigError(Problem("FLAG-001", "weft lab tutorial", f"no lesson {name!r}", expected=expected))


def _within(lab: str) -> str:
    return "" if lab == (os.environ.get(VARIABLE) or _NAME) else f" --lab {lab}"


def _shell(place: Place) -> str:
    return f"weft lab exec --lab {place.name} %s -- bash"
