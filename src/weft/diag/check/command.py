"""`weft check`: what a node's pods reach, as far as it can try that alone, and what failures have in common."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from ipaddress import ip_address
from typing import Any, Final

import click

from weft.diag.check import node_trials, trying
from weft.diag.check.causes import Cause, causes
from weft.diag.check.evidence import Evidence
from weft.diag.check.judging import judged, made, measured, tried_again, untried
from weft.diag.check.node_trials import FROM_HERE
from weft.diag.check.proof import traced
from weft.diag.check.report import CheckReport, as_junit, as_text, summed_up
from weft.diag.check.scenarios import BY_NAME
from weft.diag.check.trial import FAULTS, Outcome, Trial, Tried
from weft.diag.checks import CHECKS
from weft.diag.checks.packets import is_unexplained
from weft.diag.finding import ask
from weft.diag.options import place_options, places_of
from weft.diag.rules.matching import ECHO, SOME_PORT, Packet
from weft.diag.sight.host import node_name
from weft.diag.sight.look import Places, ask_peers, look
from weft.diag.sight.node import Lost, Proof, Sight
from weft.diag.sight.peers import peers
from weft.diag.sight.pods import Pods, hidden_words, pods_of
from weft.model.errors import Problem, Unavailable
from weft.model.text import counted
from weft.model.value import replace
from weft.screen.documents import Progress, next_commands, output_with, show_report
from weft.screen.groups import need_root

_TRACED: Final = 4  # causes of which an example is traced

Note = Callable[[str], None]


@click.command("check")
@output_with("junit")
@place_options
def check(output: str, **where: Any) -> int:
    """Try what this node's pods reach, and say on one line what all failures have in common.

    Its pods and the node itself send to each other by ICMP, UDP and TCP, in both families, from sockets in the pods'
    network namespaces. Other nodes are asked for echoes, at their public IPs and through the pod network, with packets
    as large as a pod's may be. Where something fails, the doctor is asked and a packet traced, and the reason is named
    with its code. Nothing stays behind. What comes from other nodes' pods is tried there: run it on each node.

    \b
      weft check
      weft check -o junit >check.xml
      weft check -o json | jq -r .conclusion
      weft lab exec node1 weft check

    Exits 0 if every trial went as it should, 3 if one did not.
    """
    need_root("weft check")
    progress = Progress(output)
    try:
        report = examine(places_of(where), progress)
    finally:
        progress.done()
    show_report(output, report, "".join(as_text(report)), junit=partial(as_junit, "weft check", report))
    if not report.failed:
        return 0
    next_commands(output, "weft doctor", *_traces(report))
    return 3


def _traces(report: CheckReport) -> Iterator[str]:
    failed = next((each for each in report.trials if each.fault and _is_traceable(each)), None)
    if failed is not None:
        yield f"weft trace --explain {failed.outcome.own} {failed.trial.address}"


def examine(places: Places, note: Note) -> CheckReport:
    """Try everything, saying now and then how far it is. Raises `Unavailable` where there is nothing to try."""
    name, sight = node_name(), look(places)
    with pods_of(sight, name, "weft check") as pods:
        wanted = node_trials.trials(node_trials.ends(sight, name, pods.found), node_trials.most_pairs(sight))
        if not wanted:
            seen, hint = "a node that has no pods and knows no other nodes", "'weft doctor' says what the node lacks."
            raise Unavailable(Problem("INST-003", "weft check", seen, hint=hint))
        note(f"{counted(len(wanted), 'trial')} of {counted(len(pods.found), 'pod')}")
        attempt = partial(trying.at_once, pods.visit)
        wanted, outcomes = made(wanted, partial(attempt, note=note))
        found_out, beyond = node_trials.without(judged(wanted, outcomes), _ended(pods, wanted, outcomes))
        found_out, owners = node_trials.shared(found_out, node_trials.given(sight, pods.found))
        hidden = filter(None, [hidden_words(pods.hidden)])
        rest = [*node_trials.untried(sight, pods.found), *hidden, *untried(wanted, outcomes), *beyond]
        found = [cause for fault in FAULTS for cause in node_trials.placed(causes(found_out, fault), name, found_out)]
        if not found:
            return summed_up(FROM_HERE, found_out, (), (), untried=rest)
        note(f"{sum(bool(each.fault) for each in found_out)} failed: looking for the reason")
        exact = [measured(tried_again(cause, attempt), attempt) for cause in found]
        followed = (_traced(sight, each) for each in found[:_TRACED])
    proof = Proof(
        tried=len(found_out),
        arrived=sum(not each.fault for each in found_out),
        pods=len(pods.found),
        peers=len(peers(sight)),
        lost=tuple(each for each in followed if each is not None),
    )
    evidence = _evidence(replace(ask_peers(sight), proof=proof), name)
    return summed_up(FROM_HERE, found_out, exact, [*owners, *evidence], untried=rest, here=name)


def _ended(pods: Pods, wanted: Sequence[Trial], outcomes: Sequence[Outcome]) -> set[str]:
    failed = (trial for trial, outcome in zip(wanted, outcomes, strict=True) if outcome.answered < trial.flows)
    return pods.ended({name for trial in failed for name in (trial.source, trial.target)})


def _traced(sight: Sight, cause: Cause) -> Lost | None:
    """What loses an example of what a cause explains; None if probes like it arrive."""
    example = next(filter(_is_traceable, cause.examples), None)
    if example is None or cause.fault != "lost":
        return None
    packet = _packet(example.trial, example.outcome.own)
    ends = ((str(each.subnet), each.inner, each.public) for each in peers(sight))
    peer = next((name for name, *addresses in ends if packet.target in addresses), "")
    return traced(sight, packet, peer)


def _evidence(sight: Sight, name: str) -> list[Evidence]:
    """What traces have seen, and what the checks find beside that."""
    lost = () if sight.proof is None else sight.proof.lost
    seen = [each.cause for each in lost if each.cause is not None and not is_unexplained(each)]
    said = [Evidence(node=name, by="trace", problem=problem) for problem in dict.fromkeys(seen)]
    return said + [
        Evidence(node=name, by="doctor", problem=each.problem, weight=each.weight)
        for each in ask(CHECKS, sight).findings
        if each.problem not in seen
    ]


def _is_traceable(tried: Tried) -> bool:
    return bool(tried.outcome.own) and BY_NAME[tried.trial.scenario].between_ends


def _packet(trial: Trial, own: str) -> Packet:
    by_echo = trial.protocol == "icmp"
    port = 0 if by_echo else SOME_PORT
    return Packet(
        source=ip_address(own),
        target=ip_address(trial.address),
        protocol=ECHO[trial.family] if by_echo else trial.protocol,
        source_port=port,
        target_port=port,
    )
