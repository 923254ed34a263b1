"""What a run of all tests has to say: `python -m tests.run.report build/reports`.

Prints where the time went, what was skipped and why, and which specification ids are proved; of a run of pytest that
was ended early what failed, what was running and what did not run. Names each unsteady test: one that failed and then
passed when its stage ran it once more. Ends with a line of totals. Exits 1 on a failure, on a skip that
tests/allowed-skips.txt does not allow, on an unproved id, on more unsteady tests than a few.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

from tests.run import junit, progress
from tests.run.progress import Progress
from tests.spec import proved

ALLOWED_SKIPS = Path(__file__).parents[1] / "allowed-skips.txt"
SLOWEST = 10
UNSTEADY = 3  # tests; more have a cause that all of them share
AGAIN = "-again"  # ends the name of the report of a second run
GOOD = ("passed", "unsteady")
ONCE_MORE = ", once more"  # ends the name of its stage


def main(folder: Path) -> int:
    early = _ended_early(folder)
    ran = [test for path in sorted(folder.glob("*.xml")) for test in _read(path)]
    ran += [test for one in early.values() for test in one.ran]
    stages = [line.split("\t") for line in (folder / "stages.tsv").read_text().splitlines()]
    counts = Counter(test.outcome for test in ran)
    good = {name for name, _, code, _ in stages if code == "0"}
    broken = [name for name, *_ in stages if name not in good and name + ONCE_MORE not in good]
    refused = _refused(ran, proved.required(ALLOWED_SKIPS.read_text()))
    coverage = proved.compare(
        proved.required(proved.REQUIRED.read_text()),
        (name for test in ran if test.outcome in GOOD for name in test.spec),
        (name for test in ran if test.outcome not in GOOD for name in test.spec),
    )
    whole = max(float(end) for *_, end in stages) - min(float(end) - float(seconds) for _, seconds, _, end in stages)
    print(f"\nWhere the time went, {whole:.0f} s in all:")
    for name, seconds, code, _ in stages:
        print(f"  {float(seconds):7.1f} s  {name}{'' if code == '0' else '  FAILED'}")
    for test in sorted(ran, key=lambda test: -test.seconds)[:SLOWEST]:
        print(f"  {test.seconds:7.1f} s    {test.test}")
    for test in ran:
        if test.outcome == "skipped":
            print(f"skipped{' (not allowed)' if test in refused else ''}: {test.test}: {test.reason}")
        elif test.outcome == "unsteady":
            print(f"unsteady: {test.test}: it failed, as printed above, and passed when it was run once more")
    for name, one in early.items():
        _tell(name, one)
    print(coverage)
    for name in broken:
        print(f"failed: {name}")
    unsteady = f", {counts['unsteady']} unsteady" if counts["unsteady"] else ""
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped{unsteady}")
    wrong = broken or early or refused or counts["failed"] or counts["unsteady"] > UNSTEADY
    return int(bool(wrong or not counts["passed"] or not coverage.complete))


def _read(path: Path) -> Iterator[junit.Ran]:
    """The tests of a stage, each once. Its second run's are part of it."""
    if path.stem.endswith(AGAIN):
        return
    second = path.with_stem(path.stem + AGAIN)
    passed = {test.test for test in junit.read(second) if test.outcome == "passed"} if second.exists() else ()
    for test in junit.read(path):
        mended = test.outcome == "failed" and test.test in passed
        yield replace(test, outcome="unsteady") if mended else test


def _ended_early(folder: Path) -> dict[str, Progress]:
    """The runs of pytest that did not come to their end, by name, and how far they came."""
    runs = {path.stem: progress.read(path) for path in sorted(folder.glob(f"*{progress.END}"))}
    return {name: one for name, one in runs.items() if one.not_run or one.running}


def _tell(name: str, one: Progress) -> None:
    """Print what failed in a run that was ended early, whose own words are lost, what was running, what did not run."""
    print(f"\n{name}: ended early, after {len(one.ran)} of {len(one.planned)} tests")
    for test, text in one.failures.items():
        print(f"  failed: {test}\n{text}")
    for test in one.running:
        print(f"  was running: {test}")
    for test in one.not_run:
        if test not in one.running:
            print(f"  did not run: {test}")


def _refused(ran: Iterable[junit.Ran], allowed: list[str]) -> list[junit.Ran]:
    return [
        test
        for test in ran
        if test.outcome == "skipped"
        and not any(fnmatchcase(f"{test.test}: {test.reason}", pattern) for pattern in allowed)
    ]


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
