"""What policies say of a flow, for people: whether it is allowed, by which rule, and why each other does not fit."""

from collections.abc import Iterator
from typing import Final

import click

from weft.desired.policy.judge import judged
from weft.desired.policy.preview import Pair, Preview
from weft.desired.policy.question import Question, flows, question
from weft.desired.policy.verdict import PolicyVerdict, ServiceVerdict, Verdict, World
from weft.model.net import with_port
from weft.model.node.nodestate import PolicyEffect
from weft.model.policy import Action
from weft.model.value import replace
from weft.screen.documents import show_report
from weft.screen.ineffect import in_effect

_ENDS: Final[dict[Action, str]] = {"Accept": "allows it", "Deny": "denies it", "Pass": "ends the tier"}


def asked_about(source: str, target: str) -> Question:
    """Raises `BadParameter` for text that names no pod, Service or address."""
    try:
        return question(source, target)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="A or B") from None


def show_verdict(asked: Question, world: World, output: str, effect: PolicyEffect | None = None) -> int:
    """Returns the exit status of `explain`. Of this node's weftd `effect` says what is in effect."""
    try:
        service, found = flows(asked, world)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="A or B") from None
    verdicts = tuple(judged(each, world) for each in found)
    allowed = all(each.allowed for each in verdicts)
    if service is None:
        one = replace(verdicts[0], effect=effect)
        show_report(output, one, _text(_explained(one)) + _here(effect))
    else:
        report = ServiceVerdict(service=str(service), allowed=allowed, verdicts=verdicts, effect=effect)
        show_report(output, report, _text(_of_service(report)) + _here(effect))
    return 0 if allowed else 1


def show_preview(found: Preview, output: str) -> None:
    show_report(output, found, _text(_previewed(found)))


def _text(lines: Iterator[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _here(effect: PolicyEffect | None) -> str:
    return "" if effect is None else "\n" + _text(f"On this node: {line}" for line in in_effect(effect))


def _of_service(found: ServiceVerdict) -> Iterator[str]:
    """The verdict for each pod, and the reasons for one: a refused one if there is any."""
    yield f"Service {found.service} leads to:"
    yield from (_head(each) for each in found.verdicts)
    yield ""
    yield from _explained(min(found.verdicts, key=lambda each: each.allowed))


def _head(verdict: Verdict) -> str:
    where = with_port(verdict.target, verdict.port)
    return f"{verdict.source} → {where} {verdict.protocol}: {'allowed' if verdict.allowed else 'refused'}"


def _explained(verdict: Verdict) -> Iterator[str]:
    yield _head(verdict)
    for side in verdict.sides:
        yield ""
        yield f"{side.direction} of {side.pod}: {'allowed' if side.allowed else 'refused'}: {side.reason}"
        for each in side.policies:
            yield from _rules(each)
        if side.change:
            yield f"  to allow it: {side.change}"


def _rules(found: PolicyVerdict) -> Iterator[str]:
    yield f"  {found.policy}{f' ({found.tier})' if found.tier else ''}{'' if found.rules else ': no rules'}"
    for rule in found.rules:
        yield f"    {rule.path} {_ENDS[rule.action] if rule.fits else 'does not fit'}"
        yield from (f"      {why}" for why in rule.why)


def _previewed(found: Preview) -> Iterator[str]:
    for each in found.restricted:
        yield f"{each.pod}: its {each.direction} becomes restricted"
    for each in found.freed:
        yield f"{each.pod}: its {each.direction} is restricted no more"
    for pair in found.pairs:
        yield from _pair(pair)
    if not (found.restricted or found.freed or found.pairs):
        yield "Nothing changes between these pods."


def _pair(pair: Pair) -> Iterator[str]:
    for words, ports in (("no more", pair.closed), ("now", pair.opened)):
        if ports:
            yield f"{pair.source} → {pair.target}: {words} {', '.join(ports)}"
