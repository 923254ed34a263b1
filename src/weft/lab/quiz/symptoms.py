"""What a user would notice of a fault, from what a check has tried: who does not reach whom, and with what. Pure."""

from collections.abc import Sequence

from weft.diag.checking.scenarios import BY_NAME
from weft.diag.checking.trial import Tried


def noticed(tried: Sequence[Tried]) -> list[str]:
    """Return a sentence for each place that does not reach others as it should."""
    usual = [each for each in tried if BY_NAME[each.trial.scenario].size != "more"]  # packets that are to be refused
    said: dict[tuple[str, str], list[str]] = {}
    for source, target in dict.fromkeys((each.trial.source, each.trial.target) for each in usual):
        pair = [each for each in usual if (each.trial.source, each.trial.target) == (source, target)]
        failed = [each for each in pair if each.fault in ("lost", "unseen")]
        if failed:
            others = said.setdefault((source, _how(failed, pair)), [])
            others.append("itself" if source == target else target)
    return [f"{source} does not reach {', '.join(targets)}{how}" for (source, how), targets in said.items()]


def _how(failed: Sequence[Tried], pair: Sequence[Tried]) -> str:
    """Return with which packets a target is not reached, "" if with none."""
    if len(failed) == len(pair):
        return ""
    if all(each.trial.size for each in failed):
        sizes = " or ".join(map(str, sorted({each.trial.size for each in failed})))
        return f" with packets of {sizes} bytes, and does with smaller ones"
    return f" by {' and '.join(sorted({each.trial.protocol.upper() for each in failed}))} each time"
