"""`make mutants`: changes the source in many small ways, one at a time, and counts how many a test notices.

    python -m tests.mutants [--sample 300] [--part 1/1] [--jobs 2] [--minutes M] [--floor 90] [PATH | PATH:LINE …]

A sample is drawn by lines, so that a line with many possible changes weighs no more than others; the seed is printed,
and WEFT_SEED repeats the sample, of which `--part 2/5` is the second fifth. The client's changes are all in a full
sample, and in a smaller one in proportion. Of folders given by hand a sample is drawn, files and lines are tried whole.

killed        a test failed that passes without the change, or else the type checker complains
timed out     a test did not end: killed too, counted apart
alive         every test that could notice it passed, or the time for one group of them was over; or no test runs
              anything of its source, whatever the type checker says
not tried     a quarter of `--minutes` was over before that, or all of it
equivalent    listed in equivalent.toml with a reason; not counted
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Final

from tests.mutants import contexts, covering, csources, equivalent, operators, running
from tests.mutants.operators import Mutant
from tests.mutants.trial import Copy, sources
from tests.support.checkout import CHECKOUT

_CLIENT_SHARE: Final = len(csources.CHANGES) / 300
_SECONDS: Final = 240  # for one change in one group of tests
_CANARY: Final = ('"""', 'raise RuntimeError("canary")\n"""')
_CANARIES: Final = (  # in each place where the changed source must be what runs: file, old, new, tests that then fail
    ("src/weft/wire/frames.py", *_CANARY, "tests/pure/wire/test_frames.py"),
    ("src/weft/kernel/rtnetlink/rtnl.py", *_CANARY, "tests/kernel/test_rtnl.py"),
    (
        "src/weft/cni/client/main.c",
        "    open_standard_streams();\n",
        "    return 99;\n",
        "tests/kernel/test_cni_client.py",
    ),
    ("src/weft/cni/__main__.py", *_CANARY, "tests/kernel/test_cni_standin.py"),  # by an interpreter told to be isolated
    ("src/weft/daemon/main.py", *_CANARY, "tests/node/test_health.py"),
    ("src/weft/lab/inside/supervisor.py", *_CANARY, "tests/lab/test_lab_networks.py"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    mutant: Mutant
    verdict: str  # "killed", "timed out", "alive", "not tried"
    by: str = ""
    seconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.verdict:9} {self.seconds:5.1f} s  {self.mutant}{f'  by {self.by}' if self.by else ''}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("places", nargs="*", help="folders to draw from; or a file or a line, to try all its changes")
    parser.add_argument("--sample", type=int, default=300)
    parser.add_argument("--part", default="1/1", help="which part of the sample, of how many")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=600, help="what is not judged by then counts as not tried")
    parser.add_argument("--floor", type=float, default=90, help="percent that must be killed")
    options = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("needs root: it makes namespaces")
    _measure()
    part, parts = map(int, options.part.split("/"))
    tried, known = equivalent.split(_chosen(options.places, options.sample)[part - 1 :: parts])
    print(f"{len(tried)} changes to try, {options.jobs} at a time", flush=True)
    results = []
    with tempfile.TemporaryDirectory(prefix="weft-mutants-") as folder:
        ran = running.measured(Path(folder), options.jobs)
        until = time.monotonic() + options.minutes * 60
        trials = Trials(Path(folder), options.jobs, until, ran, one=options.minutes * 60 / 4)
        trials.prove()
        for result in trials.all(tried):
            print(result, flush=True)
            results.append(result)
    for path in trials.unrun:
        print(f"no test runs {path}")
    return _report(results, known, sorted(trials.flaky), options.floor)


def _measure() -> None:
    """Have the data of the pure tests' coverage, newer than what they cover."""
    newest = max(path.stat().st_mtime for top in ("src", "tests/pure") for path in (CHECKOUT / top).rglob("*.py"))
    if not covering.DATA.exists() or covering.DATA.stat().st_mtime < newest:
        print("measuring what the pure tests cover", flush=True)
        command = [".venv/bin/coverage", "run", f"--data-file={covering.DATA}", "-m", "pytest", "-q"]
        command += ["-p", contexts.__name__, "tests/pure"]
        covered = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
        if covered.returncode:
            raise SystemExit(f"mutants: the pure tests fail without any change:\n{covered.stdout[-2000:]}")


def _chosen(places: Sequence[str], size: int) -> list[Mutant]:
    everything = [mutant for path in sources() for mutant in operators.mutants(path, (CHECKOUT / path).read_text())]
    by_hand = csources.mutants()
    equivalent.check()
    if folders := tuple(f"{place.rstrip('/')}/" for place in places if (CHECKOUT / place).is_dir()):
        everything = [one for one in everything if one.path.startswith(folders)]
        by_hand = [one for one in by_hand if one.path.startswith(folders)]
    elif places:
        found = [one for one in [*everything, *by_hand] if one.path in places or f"{one.path}:{one.line}" in places]
        return found or sys.exit(f"mutants: nothing to change in {', '.join(places)}")
    seed = os.environ.get("WEFT_SEED") or str(random.randrange(1 << 32))
    print(f"WEFT_SEED={seed}")
    chance = random.Random(seed)
    of_client = min(len(by_hand), round(size * len(by_hand) / len(csources.CHANGES) * _CLIENT_SHARE))
    lines: dict[tuple[str, int], list[Mutant]] = {}
    for mutant in everything:
        lines.setdefault((mutant.path, mutant.line), []).append(mutant)
    drawn = [chance.choice(lines[line]) for line in chance.sample(sorted(lines), size - of_client)]
    drawn += chance.sample(by_hand, of_client)
    chance.shuffle(drawn)
    return drawn


class Trials:
    """Tries changes on `jobs` copies of the checkout below `folder`, until a time of the monotonic clock.

    One change takes `one` seconds at most, so that two with slow tests do not take the time of all others.
    """

    def __init__(self, folder: Path, jobs: int, until: float, ran: running.Ran, *, one: float) -> None:
        self._until = until
        self._one = one
        self._copies: SimpleQueue[Copy] = SimpleQueue()
        for number in range(jobs):
            self._copies.put(Copy(folder / str(number)))
        self._pool = ThreadPoolExecutor(jobs)
        self._pure = covering.Pure()
        self._ran = ran
        self.unrun = [path for path in sources() if not (self._pure.runs(path) or ran.runs(path))]
        self.flaky: set[str] = set()
        self._lock = threading.Lock()

    def prove(self) -> None:
        """Fail unless changed code is what runs, wherever it runs."""
        for (path, *_, test), dead in zip(_CANARIES, self._pool.map(self._dies, _CANARIES), strict=True):
            if not dead:
                raise SystemExit(f"mutants: {test} passes with a broken {path}: it runs another copy")

    def _dies(self, canary: tuple[str, str, str, str]) -> bool:
        path, old, new, test = canary
        start = (CHECKOUT / path).read_text().index(old)
        mutant = Mutant(
            path=path, line=1, start=start, end=start + len(old), old=old, new=new, operator="canary", source=""
        )
        copy = self._copies.get()
        try:
            with copy.changed(mutant):
                return not copy.test([test], seconds=_SECONDS).passed
        finally:
            self._copies.put(copy)

    def all(self, mutants: Iterable[Mutant]) -> Iterator[Result]:
        for ended in as_completed([self._pool.submit(self._try, mutant) for mutant in mutants]):
            yield ended.result()

    def _try(self, mutant: Mutant) -> Result:
        copy = self._copies.get()
        start = time.monotonic()
        try:
            verdict, by = self._judge(copy, mutant)
        finally:
            self._copies.put(copy)
        return Result(mutant=mutant, verdict=verdict, by=by, seconds=time.monotonic() - start)

    def _judge(self, copy: Copy, mutant: Mutant) -> tuple[str, str]:
        if mutant.path in self.unrun:
            return "alive", ""
        until = min(self._until, time.monotonic() + self._one)
        others = (
            csources.tests(mutant.path) if mutant.path.endswith(".c") else self._ran.tests(mutant.path, mutant.line)
        )
        for tests in (self._pure.tests(mutant), others):
            while tests:
                seconds = min(_SECONDS, until - time.monotonic())
                if seconds <= 0:
                    return "not tried", ""
                with copy.changed(mutant):
                    outcome = copy.test(tests, seconds=seconds, without=sorted(self.flaky))
                if outcome.passed:
                    break
                if not outcome.failed:
                    return "killed", f"the end of pytest: {' '.join(outcome.output.split())[-120:]}"
                # Pure tests were all run when their coverage was measured.
                if outcome.failed.startswith("tests/pure/") or copy.test([outcome.failed], seconds=_SECONDS).passed:
                    return "timed out" if outcome.hung else "killed", outcome.failed
                with self._lock:
                    self.flaky.add(outcome.failed)
                print(f"fails without any change too: {outcome.failed}", flush=True)
        if time.monotonic() >= until:
            return "not tried", ""
        with copy.changed(mutant):  # last, for it takes long: the type checker is a part of `make test`
            return ("killed", "mypy") if copy.is_mistyped(mutant) else ("alive", "")


def _report(results: Sequence[Result], known: Sequence[Mutant], flaky: Iterable[str], floor: float) -> int:
    counts = Counter(result.verdict for result in results)
    dead = counts["killed"] + counts["timed out"]
    tried = dead + counts["alive"]
    if not tried:
        raise SystemExit("mutants: none was tried")
    for result in results:
        if result.verdict == "alive":
            print(f"alive: {result.mutant}\n    {result.mutant.source}")
    for mutant in known:
        print(f"equivalent: {mutant}: {equivalent.reason(mutant)}")
    for test in flaky:
        print(f"not counted, because it fails without any change too: {test}")
    score = 100 * dead / tried
    print(
        f"{score:.1f} % killed: {counts['killed']} by a failed test, {counts['timed out']} by one that did not end, "
        f"{counts['alive']} alive, {len(known)} equivalent, {counts['not tried']} not tried"
    )
    if score >= floor:
        return 0
    print(f"less than {floor:.0f} %: CONTRIBUTING.md says how to go on")
    return 1


if __name__ == "__main__":
    sys.exit(main())
