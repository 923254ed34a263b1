"""`weft lab quiz`: a fault drawn by lot, to be found. `lab.quiz` has the rules."""

import secrets
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, get_args

import click

from weft.diag.doctor import explain
from weft.lab import protocol, spec
from weft.lab import quiz as game
from weft.lab.commands import breaking
from weft.lab.commands.check import tried
from weft.lab.commands.choose import ask, find, hand_down, lab_and_output, nodes, within
from weft.lab.fault import Fault
from weft.lab.places import Place
from weft.lab.quiz import DRAWABLE, Game, Judgement, Level, Puzzle, Score
from weft.lab.report import LabReport
from weft.model.errors import ConfigError, Problem, Unavailable, WeftError
from weft.model.text import one_of
from weft.model.value import Value, replace
from weft.screen.documents import Progress, next_commands, show_report
from weft.screen.groups import Group

_NOTE: Final = "quiz"
_POD: Final = "visitor"  # is started on each node and removed, to see whether a new pod starts
_SEEDS: Final = 1_000_000  # a number that is quickly told to somebody
_NOTHING: Final = "nothing that a user would notice now; something failed a moment ago"
_WORDS: Final[dict[Judgement, str]] = {
    "no node": "The code is right. On which node? Say it behind the code",
    "wrong node": "The code is right, the node is not",
    "near": "That is near: the fault is of this family, and has another code",
    "wrong": "That is not it",
}


class _Play(Value):
    """An open puzzle, its lab, and the score before it."""

    place: Place
    report: LabReport
    score: Score
    now: Puzzle

    @property
    def fault(self) -> Fault:
        return DRAWABLE[self.now.fault][0]

    @property
    def area(self) -> game.Area:
        return DRAWABLE[self.now.fault][1]

    def mend(self) -> bool:
        """Whether that worked: not if a user has mended it already."""
        try:
            breaking.change(self.place, self.report, self.now.node, self.fault, mend=True, in_secret=True)
        except Unavailable:
            return False
        return True

    def go_on(self, **changes: int | list[str]) -> Puzzle:
        now = replace(self.now, **changes)
        self.place.keep(_NOTE, Game(score=self.score, now=now))
        return now


@click.group(cls=Group, invoke_without_command=True)
@lab_and_output
@click.pass_context
def quiz(ctx: click.Context, lab: str, output: str) -> None:
    """Find the fault: `weft lab break` puts one on a node, both chosen at random.

    It says what a user would notice; you answer with the code of the problem and the node. Alone, it shows the
    symptoms again, and the score.

    \b
      weft lab quiz start --level hard
      weft lab quiz hint
      weft lab quiz check ROUTE-001 node2
      weft lab quiz give-up
    """
    hand_down(ctx)
    if ctx.invoked_subcommand is None:
        place = find(lab)
        _show(place, place.note(_NOTE, Game) or Game(), output)


@quiz.command("start")
@click.option("--level", type=click.Choice(list(get_args(Level))), default="easy", show_default=True, help="How hard.")
@click.option("--seed", type=click.IntRange(0), help="Draw what this number means: for a class.")
@lab_and_output
def begin(level: Level, seed: int | None, lab: str, output: str) -> None:
    """Break something, and show what a user would notice.

    A fault of level easy makes something fail now; one of level hard perhaps nothing yet.
    """
    place = find(lab)
    before = place.note(_NOTE, Game) or Game()
    if before.now is not None:
        hint = f"'weft lab quiz{within(place)}' shows it; 'weft lab quiz give-up{within(place)}' ends it."
        raise ConfigError(Problem("LAB-002", "weft lab quiz", "a puzzle is open", hint=hint))
    report, seed = ask(place, protocol.Ps()), secrets.randbelow(_SEEDS) if seed is None else seed
    fault, node = game.draw(fitting(report, level), [each.name for each in report.nodes], seed)
    play = _Play(
        place=place, report=report, score=before.score, now=Puzzle(level=level, seed=seed, fault=fault.name, node=node)
    )
    progress = Progress(output)
    try:
        progress("something breaks")
        play.go_on()  # before it is broken, so that give-up mends it if this is interrupted
        try:
            breaking.change(place, report, node, fault, mend=False, in_secret=True)
        except WeftError:
            play.mend()
            place.keep(_NOTE, before)
            raise
        progress("what would a user notice?")
        failing = [*game.noticed(tried(place, report)), *_started(place, report)]
        seen = failing or [play.area.complaint or _NOTHING]
        now = play.go_on(symptoms=seen)
    finally:
        progress.done()
    _show(place, Game(score=before.score, now=now), output)


@quiz.command()
@lab_and_output
def hint(lab: str, output: str) -> None:
    """Give one more hint, of three, for two points each."""
    play = _open(lab)
    known = game.hints(play.fault, play.area, play.now.node)
    given = min(play.now.hints + 1, len(known))
    play.go_on(hints=given)
    report = {"hint": known[given - 1], "number": given, "of": len(known)}
    show_report(output, report, f"Hint {given} of {len(known)}: {known[given - 1]}\n")
    next_commands(output, f"weft lab quiz check{within(play.place)} CODE NODE")


@quiz.command()
@click.argument("code", shell_complete=explain.codes)
@click.argument("node", default="", metavar="[NODE]", shell_complete=nodes)
@lab_and_output
def check(code: str, node: str, lab: str, output: str) -> int:
    """Answer with the CODE of the problem and the NODE. If that is right, the fault is mended.

    Exits 0 if it is right, 1 if it is not. A wrong answer costs a point.
    """
    play = _open(lab)
    # What is no answer at all is a slip, and costs nothing.
    answer = explain.named(code, "weft lab quiz check").code
    names = [each.name for each in play.report.nodes]
    if node and node not in names:
        raise ConfigError(Problem("LAB-002", "weft lab quiz check", f"no node {node!r}", expected=one_of(names, node)))
    found = game.judge(play.fault, play.now.node, answer, node)
    if found == "right":
        _close(play, output, found=True)
        return 0
    play.go_on(wrong=play.now.wrong + (found != "no node"))
    show_report(output, {"right": False, "judgement": found}, f"{_WORDS[found]}.\n")
    option = within(play.place)
    next_commands(output, f"weft lab quiz{option}", f"weft lab quiz hint{option}")
    return 1


@quiz.command("give-up")
@lab_and_output
def give_up(lab: str, output: str) -> None:
    """Tell what it is, and mend it."""
    _close(_open(lab), output, found=False)


def _close(play: _Play, output: str, *, found: bool) -> None:
    """Mend the fault, say what it was and what shows it, and count."""
    place, fault, now, option = play.place, play.fault, play.now, within(play.place)
    mended = play.mend()
    score = game.ended(play.score, now, found=found)
    place.keep(_NOTE, Game(score=score))
    told = {"right": found, "code": fault.code, "node": now.node, "fault": fault.name, "about": fault.about}
    won = f"Right, for {now.worth} points" if found else "It was"
    state = "It is mended." if mended else "Something has mended it before, or changed it."
    seen_from = breaking.witness(play.report, now.node, fault)
    text = (
        f"{won}: {fault.code} on {now.node}: {fault.about}. {state}\n{_words(score)}\n\n"
        f"What shows it: 'weft lab exec{option} {seen_from} weft doctor', by its code; and {play.area.look}\n"
    )
    show_report(output, told | {"mended": mended, "score": score}, text)
    next_commands(
        output,
        f"weft explain {fault.code}",
        f"weft lab break{option} {now.node} {fault.name}",
        f"weft lab quiz start{option} --level {now.level}",
    )


def _show(place: Place, so_far: Game, output: str) -> None:
    now, option = so_far.now, within(place)
    if now is None:
        show_report(output, {"score": so_far.score, "symptoms": []}, f"No puzzle is open.\n{_words(so_far.score)}\n")
        next_commands(output, f"weft lab quiz start{option}")
        return
    told = {"level": now.level, "seed": now.seed, "symptoms": now.symptoms, "worth": now.worth, "score": so_far.score}
    text = (
        f"One node is broken (level {now.level}, seed {now.seed}). What was noticed:\n\n"
        f"{''.join(f'  {line}{chr(10)}' for line in now.symptoms)}\n"
        f"What is it, and on which node? The right answer is worth {now.worth} points now.\n{_words(so_far.score)}\n"
    )
    show_report(output, told, text)
    next_commands(output, f"weft lab quiz check{option} CODE NODE", f"weft lab quiz hint{option}")


def _words(score: Score) -> str:
    return f"Score: {score.points} points, {score.found} found, {score.given_up} given up."


def _open(lab: str) -> _Play:
    """`ConfigError` if no puzzle is open."""
    place = find(lab)
    so_far = place.note(_NOTE, Game)
    if so_far is None or so_far.now is None:
        hint = f"'weft lab quiz start{within(place)}' begins one."
        raise ConfigError(Problem("LAB-002", "weft lab quiz", "no puzzle is open", hint=hint))
    return _Play(place=place, report=ask(place, protocol.Ps()), score=so_far.score, now=so_far.now)


def fitting(report: LabReport, level: Level) -> list[Fault]:
    """The faults that this lab can have. `ConfigError` says why it can have none."""
    fit, refused = [], []
    for fault in game.of_level(level):
        try:
            breaking.variables(report, report.nodes[0].name, fault)
            fit.append(fault)
        except ConfigError as error:
            refused.append(error)
    if not fit:
        raise refused[0]
    return fit


def _started(place: Place, report: LabReport) -> Iterator[str]:
    """Try to start a pod on each node. The plugins' words are left out: they may name the fault."""
    for node in report.nodes:
        try:
            pod = ask(place, protocol.Run(spec.Pod(name=_POD, node=node.name)))
        except WeftError:
            yield f"a new pod does not start on {node.name}"
            continue
        if not pod.addresses:
            yield f"a new pod on {node.name} gets no address"
        with suppress(WeftError):  # it is the lab's then, and ends with it
            ask(place, protocol.Remove(_POD))
