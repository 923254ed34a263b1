"""Which functions each file of tests with a kernel or a store runs, in whichever of its processes.

Measured in a copy of the checkout whose `weft` notes each function when it is called first: plugins, daemons and
stand-ins start with an environment of their own, and many are killed, so neither an environment nor an end of a process
can be counted on. A file is measured once, and again when it or what helps it has changed, a source that it ran is
gone, or it failed.
"""

import ast
import hashlib
import json
import subprocess
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from typing import Final

from tests.mutants.trial import Copy
from tests.support.checkout import CHECKOUT

FOLDERS: Final = ("cluster", "kube", "kernel", "node", "lab")
KEPT: Final = CHECKOUT / "build" / "ran.json"
_NOTED: Final = "build/ran"
_SECONDS: Final = 900  # for one file; what it ran until then counts
_TEST_SECONDS: Final = 120
RECORDER: Final = f"""

def _note_what_runs() -> None:
    import os
    import sys
    import threading

    source = os.path.dirname(__file__)
    noted = os.path.join(source, "..", "..", {_NOTED!r})
    try:
        to = os.open(noted, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError:  # from here the checkout cannot be seen
        return
    seen = {{}}  # by identity: the hash of code is slow, and is not kept

    def note(frame, event, argument):
        code = frame.f_code
        if id(code) not in seen:
            seen[id(code)] = code
            if code.co_filename.startswith(source):
                os.write(to, f"{{code.co_filename[len(source) + 1 :]}} {{code.co_qualname}}\\n".encode())

    threading.settrace(note)
    sys.settrace(note)


_note_what_runs()
"""


class Ran:
    """What was measured: for each file of tests, the functions by path and name."""

    def __init__(self, by_test: Mapping[str, Iterable[str]]) -> None:
        self._by_test = {test: frozenset(ran) for test, ran in by_test.items()}

    def tests(self, path: str, line: int, *, most: int = 5) -> list[str]:
        """The files that ran the function of a line, those first that run little else than its module."""
        module = f"{path.removeprefix('src/weft/')} "
        name = enclosing(path, line)
        found = {test for test, ran in self._by_test.items() if module + name in ran} if name else set()
        if not found:  # it runs when the module is imported, or is new
            found = {test for test, ran in self._by_test.items() if any(each.startswith(module) for each in ran)}
        return sorted(found, key=lambda test: (-self._share(test, module), test))[:most]

    def runs(self, path: str) -> bool:
        """Tell whether a file ran a function of a source, or imports one that has no functions."""
        module = f"{path.removeprefix('src/weft/')} "
        functions = {module + name for *_, name in _functions(path)}
        return any(
            not functions.isdisjoint(ran) if functions else any(each.startswith(module) for each in ran)
            for ran in self._by_test.values()
        )

    def _share(self, test: str, module: str) -> float:
        ran = self._by_test[test]
        return sum(each.startswith(module) and not each.endswith(" <module>") for each in ran) / len(ran)


def measured(folder: Path, jobs: int) -> Ran:
    """Measure what is not known, on `jobs` copies below `folder`, and keep it."""
    known = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    tests = _tests(CHECKOUT)
    known = {test: one for test, one in known.items() if one["of"] == tests.get(test) and not _is_old(one["ran"])}
    if missing := [test for test in tests if test not in known]:
        print(f"measuring what {len(missing)} files of tests run", flush=True)
        in_part: set[str] = set()
        copies: SimpleQueue[Copy] = SimpleQueue()
        for number in range(jobs):
            copy = Copy(folder / f"measuring{number}")
            with (copy.root / "src/weft/__init__.py").open("a") as package:
                package.write(RECORDER)
            copies.put(copy)
        with ThreadPoolExecutor(jobs) as pool:
            for test, (status, ran) in zip(missing, pool.map(lambda test: _ran(copies, test), missing), strict=True):
                known[test] = {"of": tests[test], "ran": ran}
                if not _is_whole(status, ran):
                    print(f"{test}: measured in part, status {status}: it is measured again next time", flush=True)
                    in_part.add(test)
                KEPT.write_text(json.dumps({test: one for test, one in known.items() if test not in in_part}))
    return Ran({test: one["ran"] for test, one in known.items()})


def _tests(checkout: Path) -> dict[str, str]:
    """Each file of tests with a hash of it and of what helps it: the rest of its folder, and `tests/support`."""
    tests = checkout / "tests"
    shared = [tests / "conftest.py", *sorted((tests / "support").rglob("*.py"))]
    found = {}
    for name in FOLDERS:
        files = sorted((tests / name).rglob("*.py"))
        helpers = [path for path in files if not path.name.startswith("test_")]
        of_helpers = _hash((*shared, *helpers))
        found |= {str(path.relative_to(checkout)): of_helpers + _hash([path]) for path in files if path not in helpers}
    return found


def _hash(files: Iterable[Path]) -> str:
    found = hashlib.sha256()
    for path in files:
        found.update(f"{path}\0".encode())
        found.update(hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()


def _is_whole(status: int | None, ran: Iterable[str]) -> bool:
    """Tell whether all tests of a file passed and ran more than imports do; `status` is None at a time-out."""
    return status == 0 and any(_is_of_a_function(each) for each in ran)


def _is_of_a_function(noted: str) -> bool:
    path, _, name = noted.partition(" ")
    return any(name == each for *_, each in _functions(f"src/weft/{path}"))


def _is_old(ran: Iterable[str]) -> bool:
    return not all((CHECKOUT / "src/weft" / path).exists() for path in {each.partition(" ")[0] for each in ran})


def _ran(copies: "SimpleQueue[Copy]", test: str) -> tuple[int | None, list[str]]:
    """The status of pytest, None after a time-out, and what ran."""
    copy = copies.get()
    noted = copy.root / _NOTED
    try:
        noted.unlink(missing_ok=True)
        command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", f"--timeout={_TEST_SECONDS}", test]
        status = None
        with suppress(subprocess.TimeoutExpired):
            status = copy.execute([".venv/bin/python", *command], seconds=_SECONDS).returncode
        return status, sorted(set(noted.read_text().splitlines())) if noted.exists() else []
    finally:
        copies.put(copy)


def enclosing(path: str, line: int) -> str:
    """The innermost function around a line, by the interpreter's qualified name; empty if there is none."""
    around = [(first, name) for first, last, name in _functions(path) if first <= line <= last]
    return max(around)[1] if around else ""


def bodies(path: str) -> frozenset[int]:
    """The lines within functions of a source; an import runs the others."""
    nodes = ast.walk(ast.parse((CHECKOUT / path).read_text()))
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return frozenset(
        line for each in functions for line in range(each.body[0].lineno, (each.end_lineno or each.lineno) + 1)
    )


@cache
def _functions(path: str) -> list[tuple[int, int, str]]:
    """First line, with decorators, last line and name of all functions of a source."""
    found: list[tuple[int, int, str]] = []

    def walk(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            inner = prefix
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                first = min([child.lineno, *(each.lineno for each in child.decorator_list)])
                found.append((first, child.end_lineno or first, prefix + child.name))
                inner = f"{prefix}{child.name}.<locals>."
            elif isinstance(child, ast.ClassDef):
                inner = f"{prefix}{child.name}."
            walk(child, inner)

    walk(ast.parse((CHECKOUT / path).read_text()), "")
    return found
