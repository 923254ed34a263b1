"""A check summed up: what was tried, what failed and its causes, as a value, as text and as JUnit's report. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from weft.diag import junit
from weft.diag.check.causes import Cause, Place, PlaceKind
from weft.diag.check.evidence import Evidence, reason
from weft.diag.check.judging import described
from weft.diag.check.scenarios import BY_NAME, CONCERNS, DEMANDS, Scenario
from weft.diag.check.trial import Fault, Tried
from weft.model.text import counted, one_line, some_of, table
from weft.model.value import Value

# What happens to a packet that fails so, what has happened to one, and to several.
_SAID: Final[dict[Fault, tuple[str, str, str]]] = {
    "lost": ("is lost", "was lost", "were lost"),
    "narrow": ("is refused with a smaller MTU", "was refused with a smaller MTU", "were refused with a smaller MTU"),
    "unseen": (
        "is answered by another than its target",
        "was answered by another than its target",
        "were answered by others than their targets",
    ),
    "translated": (
        "arrives from another address than its sender's",
        "arrived from another address than its sender's",
        "arrived from other addresses than their senders'",
    ),
    "shared": (
        "is to an address that another pod has, too",
        "was to an address that another pod has, too",
        "were to addresses that other pods have, too",
    ),
    "unrefused": ("vanishes", "vanished", "vanished"),
    "forbidden": (
        "arrives though policies forbid it",
        "arrived though policies forbid it",
        "arrived though policies forbid them",
    ),
}
_PLACES: Final[dict[PlaceKind, str]] = {
    "anywhere": "",
    "pair": " between {} and {}",
    "direction": " from {} to {}",
    "node": " from or to {}",
    "others": " between {} and others",
    "to": " from others to {}",
    "from": " from {} to others",
    "some": " to or from {}",
}
_SOME: Final = 3  # of several nodes: so many have their names in a sentence
_WAYS: Final = {
    "inside": " inside a node",
    "overlay": " through the pod network",
    "underlay": " between addresses of nodes",
    "service": " through Services",
    "host-port": " to ports of pods' nodes",
}

_WIDEST: Final = 8  # nodes that have a column
_SHOWN: Final = 3  # failed trials of each scenario in words


def conclusion(
    tried: Sequence[Tried],
    causes: Sequence[Cause],
    evidence: Sequence[Evidence],
    untried: Sequence[str] = (),
    here: str = "",
) -> str:
    """Each cause is there with its reason."""
    if not causes and untried:
        more = f", and {len(untried) - 1} more" if len(untried) > 1 else ""
        return one_line(f"{counted(len(tried), 'trial')}, and none failed; not tried: {untried[0]}{more}")
    if not causes:
        policed = any(each.trial.forbidden for each in tried)
        allowed = " that policies allow, and nothing else" if policed else ""
        return f"everything reaches everything{allowed}: {counted(len(tried), 'trial')}, and none failed"
    alone = len(causes) == 1
    return one_line("; ".join(_cause(cause, reason(cause, evidence, here), alone=alone) for cause in causes))


def _cause(cause: Cause, why: Evidence | None, *, alone: bool) -> str:
    said = sentence(cause, alone=alone)
    if why is None:
        return said
    where = "" if cause.place.nodes == (why.node,) else f"on {why.node}, "
    return f"{said}: {why.problem.code} {where}{why.problem.where}: {why.problem.seen}"


def sentence(cause: Cause, *, alone: bool) -> str:
    now, once, several = _SAID[cause.fault]
    where = _PLACES[cause.place.kind].format(*_named(cause.place))
    if cause.fault == "unrefused":
        return f"packets that are too large{where} {_too_large(cause)}"
    if cause.partly:
        return f"some {_packets(cause, 'packets')}{where} {several}, others like them were not"
    if not cause.passed:
        return f"every {_packets(cause, 'packet')}{where} {now}"
    if not alone or not (where or cause.traits):
        count = f"{cause.failed} {_packets(cause, 'packet' if cause.failed == 1 else 'packets')}"
        said = f"{count}{where} {once if cause.failed == 1 else several}"
        return f"{said}, with no node in common" if alone and not where else said
    which = "every lost packet" if cause.fault == "lost" else f"every packet that {now}"
    kind = f" one of the {_packets(cause, 'packets')}" if cause.traits else ""
    return f"{which} is{kind}{where}"


def _too_large(cause: Cause) -> str:
    outcomes = [each.outcome for each in cause.examples]
    told = sorted({each.refused for each in outcomes if each.refused})
    if told:
        return f"are refused with an MTU of {' or '.join(map(str, told))}, which is not that of pods"
    if any(each.answered for each in outcomes):
        return "arrive, though pods' MTU is smaller"
    return 'vanish: no "fragmentation needed" comes back'


def _named(place: Place) -> tuple[str, ...]:
    return (some_of(place.nodes, _SOME),) if place.kind == "some" else place.nodes


def _packets(cause: Cause, noun: str) -> str:
    """`IPv6 UDP packets of 1450 bytes through the pod network`: as much as the cause says."""
    traits = dict(cause.traits)
    family = f"IPv{traits['family']} " if "family" in traits else ""
    protocol = f"{traits['protocol'].upper()} " if "protocol" in traits else ""
    size = f" {_sizes(cause)}" if "size" in traits else ""
    return f"{family}{protocol}{noun}{size}{_WAYS[traits['way']] if 'way' in traits else ''}"


def _sizes(cause: Cause) -> str:
    if cause.limit:
        return f"larger than {cause.limit} bytes"
    return f"of {' or '.join(map(str, sorted({each.trial.size for each in cause.examples})))} bytes"


class Share(Value):
    """How many of the trials of one kind were `tried`, and how many `failed`."""

    name: str
    about: str
    tried: int
    failed: int


class Explained(Value):
    """A cause in words, with its nodes, and the code, node and words of the evidence for it."""

    sentence: str
    nodes: tuple[str, ...]
    failed: int
    passed: int
    code: str = ""
    node: str = ""
    seen: str = ""


class CheckReport(Value):
    """What `weft check` and `weft lab check` answer; `conclusion` is all of it on one line."""

    conclusion: str
    tried: int
    failed: int
    causes: list[Explained]
    demands: list[Share]
    concerns: list[Share]
    scenarios: list[Share]
    evidence: list[Evidence]
    untried: list[str]
    trials: list[Tried]


def summed_up(
    scenarios: Iterable[Scenario],
    tried: Sequence[Tried],
    causes: Sequence[Cause],
    evidence: Sequence[Evidence],
    *,
    untried: Sequence[str] = (),
    here: str = "",
) -> CheckReport:
    """All places are on node `here`, if it is given."""
    return CheckReport(
        conclusion=conclusion(tried, causes, evidence, untried, here),
        tried=len(tried),
        failed=sum(bool(each.fault) for each in tried),
        causes=[_explained(cause, reason(cause, evidence, here), alone=len(causes) == 1) for cause in causes],
        demands=[
            _share(name, about, [each for each in tried if name in BY_NAME[each.trial.scenario].demands])
            for name, about in DEMANDS.items()
        ],
        concerns=[
            _share(name, about, [each for each in tried if name == BY_NAME[each.trial.scenario].concern])
            for name, about in CONCERNS.items()
        ],
        scenarios=[
            _share(each.name, each.about, [one for one in tried if one.trial.scenario == each.name])
            for each in scenarios
        ],
        evidence=list(evidence),
        untried=list(untried),
        trials=list(tried),
    )


def _explained(cause: Cause, why: Evidence | None, *, alone: bool) -> Explained:
    known = {} if why is None else {"code": why.problem.code, "node": why.node, "seen": str(why.problem)}
    return Explained(
        sentence=sentence(cause, alone=alone),
        nodes=cause.place.nodes,
        failed=cause.failed,
        passed=cause.passed,
        **known,
    )


def _share(name: str, about: str, tried: Sequence[Tried]) -> Share:
    return Share(name=name, about=about, tried=len(tried), failed=sum(bool(each.fault) for each in tried))


def as_text(report: CheckReport) -> Iterator[str]:
    """The conclusion comes first; what failed comes last."""
    yield f"{report.conclusion}\n"
    if report.failed:
        yield f"{report.failed} of {report.tried} trials failed\n"
    yield f"\n{_matrix(report)}"
    yield f"\n{_shares('DEMAND OF THE NETWORK MODEL', report.demands)}"
    yield f"\n{_shares('PROBLEM OF THE NETWORK MODEL', report.concerns)}"
    if report.evidence or report.untried:
        yield "\n"
    yield from (f"not tried: {each}\n" for each in report.untried)
    for each in report.evidence:
        yield f"{one_line(f'{each.node}, by {each.by}: {each.problem}')}\n"
    for scenario in report.scenarios:
        failed = [each for each in report.trials if each.fault and each.trial.scenario == scenario.name]
        if failed:
            yield f"\n{scenario.name}: {scenario.failed} of {scenario.tried} failed\n"
        yield from (f"  {one_line(described(each))}\n" for each in failed[:_SHOWN])
        if len(failed) > _SHOWN:
            yield f"  and {len(failed) - _SHOWN} more; -o json has all\n"


def _matrix(report: CheckReport) -> str:
    """One column for all nodes where they are many."""
    nodes = list(dict.fromkeys(each.trial.from_node for each in report.trials))
    columns = nodes if len(nodes) <= _WIDEST else ["ALL"]
    rows = []
    for scenario in report.scenarios:
        own = [each for each in report.trials if each.trial.scenario == scenario.name]
        parts = (
            [[each for each in own if each.trial.from_node == node] for node in nodes] if columns == nodes else [own]
        )
        rows.append((scenario.name, *map(_passed, parts), scenario.about))
    return table(("TRIALS PASSED, FROM", *columns, "WHAT"), rows)


def _passed(tried: Sequence[Tried]) -> str:
    """`6` if all of six passed, `2 of 6` if not, `-` if there were none."""
    passed = sum(not each.fault for each in tried)
    if not tried:
        return "-"
    return str(passed) if passed == len(tried) else f"{passed} of {len(tried)}"


def _shares(heading: str, shares: Iterable[Share]) -> str:
    return table(
        (heading, "TRIED", "FAILED"),
        ((each.about, str(each.tried), str(each.failed)) if each.tried else (each.about, "-", "-") for each in shares),
    )


def as_junit(command: str, report: CheckReport) -> str:
    """Each trial is a test case, and each kind that could not be made."""
    group = f"{command.replace(' ', '.')}.untried"
    left = (junit.Case(group=group, name=each.partition(":")[0], skipped=each) for each in report.untried)
    return junit.suite(command, (*(_case(command, each) for each in report.trials), *left))


def _case(command: str, tried: Tried) -> junit.Case:
    trial = tried.trial
    size = f" {trial.size} bytes" if trial.size else ""
    name = f"{trial.source} to {trial.target} {trial.protocol}{size} IPv{trial.family}"
    failures = ((tried.fault, described(tried)),) if tried.fault else ()
    return junit.Case(group=f"{command.replace(' ', '.')}.{trial.scenario}", name=name, failures=failures)
