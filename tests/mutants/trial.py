"""Runs tests against a changed copy of the checkout, where nothing can reach the checkout or the machine.

A run has network, process and mount namespaces of its own. The copy is mounted in the checkout's place, so whatever
way the source is found, as the editable install, by a script's first line, or as the compiled client, it is the
changed one. `/run` and `/tmp` are empty, the rest of the machine cannot be written to, and all processes end with
the run.
"""

import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.mutants.operators import Mutant
from tests.support.checkout import CHECKOUT

HANGS: Final = 30  # seconds that one test may take; the slowest takes a few
_PYTHON: Final = ".venv/bin/python"
_MYPY: Final = ".venv/bin/mypy"
_TYPES_SECONDS: Final = 300  # the first time, without a cache
_ENTER: Final = """
set -e
mkdir -p "$1/.venv" "$1/build"
mount --bind "$2/.venv" "$1/.venv"
mount -t tmpfs tmpfs /run
mkdir /run/copy
mount --rbind "$1" /run/copy
mount -t tmpfs -o mode=1777 tmpfs /tmp # what was below it, the copy and perhaps the checkout, is hidden from here on
mkdir -p "$2"
mount --move /run/copy "$2"
rmdir /run/copy
mount -o remount,bind,ro /
ip link set lo up
cd "$2"
unset TMPDIR
shift 2
"$@" # this shell is init here, and ends whatever is left over when it goes
exit $?
"""
_APART: Final = (
    "setpriv",
    "--pdeathsig",
    "KILL",
    "unshare",
    "--net",
    "--mount",
    "--pid",
    "--fork",
    "--kill-child=KILL",
    "--mount-proc",
)
_FAILED: Final = re.compile(r"^(?:FAILED|ERROR) (\S+?\.py(?:::.*?)?)(?: - (.*))?$", re.MULTILINE)


_GENERATED: Final = ("_pb2.py", "_grpc.py")


def sources() -> list[str]:
    """The Python files that are changed, relative to the checkout."""
    found = sorted(path for path in (CHECKOUT / "src").rglob("*.py") if not path.name.endswith(_GENERATED))
    return [str(path.relative_to(CHECKOUT)) for path in found]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a run of tests ended. `failed` is the first test that failed, or the file that could not be read."""

    passed: bool
    failed: str = ""
    hung: bool = False
    output: str = ""


# The programs in C by the directory of their sources, or by the one file that each has: the module that builds each,
# and where it is put.
_PROGRAMS: Final = {
    "src/weft/cni/client": ("weft.cni.build", "src/weft/cni/bin/weft-cni"),
    "src/weft/cni/launch/init.c": ("weft.cni.build", "src/weft/cni/bin/weft-init"),
    "src/weft/cni/launch/launch.c": ("weft.cni.build", "src/weft/cni/bin/weft-launch"),
    "src/weft/forward/relay": ("weft.forward.build", "src/weft/forward/bin/weft-relay"),
    "src/weft/forward/bpf": ("weft.forward.build", "src/weft/forward/bin/path.o"),
}


class Copy:
    """A copy of the checkout below `directory`, to be changed."""

    def __init__(self, directory: Path) -> None:
        self.root = directory
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=CHECKOUT,
            capture_output=True,
            check=True,
        )
        for name in filter(None, listed.stdout.decode().split("\0")):
            if (CHECKOUT / name).is_file():
                (directory / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(CHECKOUT / name, directory / name)
        for module, program in _PROGRAMS.values():
            if self.execute([_PYTHON, "-m", module], seconds=120).returncode:
                raise SystemExit(f"mutants: {program} cannot be built")

    @contextmanager
    def changed(self, mutant: Mutant) -> Iterator[None]:
        """The copy with one change, until the end."""
        path = self.root / mutant.path
        text = path.read_text()
        self._write(path, mutant.apply(text))
        try:
            with self._rebuilt(mutant) if path.suffix == ".c" else nullcontext():
                yield
        finally:
            self._write(path, text)

    @contextmanager
    def _rebuilt(self, mutant: Mutant) -> Iterator[None]:
        """The program that a changed source belongs to, made of it until the end."""
        module, name = _PROGRAMS.get(mutant.path) or _PROGRAMS[str(Path(mutant.path).parent)]
        program = self.root / name
        built = program.with_suffix(".built")
        program.rename(built)  # never written to: what ran it may still be ending, and the kernel refuses meanwhile
        try:
            self._build(mutant, module)
            yield
        finally:
            built.rename(program)

    def _write(self, path: Path, text: str) -> None:
        # A compiled module is known by the second and the size of its source, and both may be the same.
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            compiled.unlink()
        path.write_text(text)

    def _build(self, mutant: Mutant, module: str) -> None:
        # A change may leave something unused, which is no error here.
        tolerant = ("env", "MAKEFLAGS=CFLAGS_EXTRA=-Wno-error")
        built = self.execute([*tolerant, _PYTHON, "-m", module], seconds=120)
        if built.returncode:
            raise SystemExit(f"mutants: {mutant} does not compile:\n{built.stderr}")

    def test(self, tests: Sequence[str], *, seconds: float, without: Sequence[str] = ()) -> Outcome:
        """Run tests until the first fails. A run that `seconds` end before that has passed."""
        arguments = self.root / "build" / "tests.txt"
        arguments.parent.mkdir(exist_ok=True)
        arguments.write_text("".join(f"{word}\n" for word in (*(f"--deselect={test}" for test in without), *tests)))
        shutil.rmtree(self.root / ".hypothesis", ignore_errors=True)
        options = ("-q", "-x", "--tb=line", "-p", "no:cacheprovider", f"--timeout={HANGS}")
        try:
            ran = self.execute([_PYTHON, "-m", "pytest", *options, "@build/tests.txt"], seconds=seconds)
        except subprocess.TimeoutExpired:
            return Outcome(passed=True)
        if "not found: " in ran.stderr + ran.stdout and ran.returncode == pytest.ExitCode.USAGE_ERROR:
            files = list(dict.fromkeys(test.partition("::")[0] for test in tests))
            if files == list(tests):
                raise SystemExit(f"mutants: tests that are not there:\n{ran.stderr}")
            # Cases are named by values, which the change may be one of.
            return self.test(files, seconds=seconds, without=without)
        failed = _FAILED.search(ran.stdout)
        if ran.returncode in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            return Outcome(passed=True)
        if failed is None:
            # pytest itself was ended by what was changed, or cannot even begin.
            return Outcome(passed=False, output=(ran.stdout + ran.stderr)[-2000:])
        return Outcome(passed=False, failed=failed[1], hung="Timeout" in (failed[2] or ""), output=ran.stdout[-2000:])

    def is_mistyped(self, mutant: Mutant) -> bool:
        """Tell whether the type checker complains of the source."""
        return mutant.path.endswith(".py") and self.execute([_MYPY], seconds=_TYPES_SECONDS).returncode == 1

    def execute(self, words: Sequence[str], *, seconds: float) -> subprocess.CompletedProcess[str]:
        """Run a program in the copy, in the checkout's place; `TimeoutExpired` when it takes longer."""
        command = [*_APART, "sh", "-c", _ENTER, "sh", str(self.root), str(CHECKOUT), *words]
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        with process:
            try:
                stdout, stderr = process.communicate(timeout=seconds)
            finally:
                process.kill()  # and with it, by the kernel, all that runs in its namespaces
        return subprocess.CompletedProcess(words, process.returncode, stdout, stderr)
