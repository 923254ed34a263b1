"""Which pure tests a change is tried with: those that ran the changed line, the most special one first.

By the coverage data of the last run of all pure tests. `tests.mutants.running` knows the files of all others.
"""

import ast
import re
from collections import Counter
from functools import cache
from typing import Final

from coverage import CoverageData

from tests.mutants.operators import Mutant
from tests.mutants.running import bodies
from tests.support.checkout import CHECKOUT

DATA: Final = CHECKOUT / "build" / "coverage-by-test"
_NOT_OF_CODE: Final = ("tests/pure/test_contracts.py", "tests/pure/test_mutants.py")


class Pure:
    """What each pure test ran."""

    def __init__(self) -> None:
        data = CoverageData(str(DATA))
        data.read()
        self._by_file: dict[str, dict[int, set[str]]] = {}
        ran: Counter[str] = Counter()
        for name in data.measured_files():
            path = name.removeprefix(f"{CHECKOUT}/")
            lines = {line: _tests(contexts) for line, contexts in data.contexts_by_lineno(name).items()}
            self._by_file[path] = lines
            for tests in lines.values():
                ran.update(tests)
        self._ran = ran

    def tests(self, mutant: Mutant) -> list[str]:
        """Node ids of the tests that ran what is changed."""
        lines = self._by_file.get(mutant.path, {})
        first, last, name = _statement(mutant.path, mutant.line)
        found = lines.get(mutant.line, set()) | lines.get(first, set())
        if not found and name:  # it runs when the module is imported; what uses the name runs later
            found = self._using(mutant.path, name)
        if not found:
            found = set().union(*(tests for line, tests in lines.items() if first <= line <= last))
        if not found:
            found = set().union(*lines.values())
        return sorted(found, key=lambda test: (self._ran[test], test))

    def runs(self, path: str) -> bool:
        """Tell whether a test ran within a function of a source, or one that has no functions is imported."""
        lines = self._by_file.get(path, {})
        within = bodies(path)
        return any(tests for line, tests in lines.items() if line in within) if within else bool(lines)

    def _using(self, path: str, name: str) -> set[str]:
        used = re.compile(rf"\b{re.escape(name)}\b")
        found: set[str] = set()
        for other, lines in self._by_file.items():
            if other == path or not name.startswith("_"):
                for number, text in enumerate(_text(other).splitlines(), start=1):
                    if used.search(text):
                        found |= lines.get(number, set())
        return found


def _tests(contexts: list[str]) -> set[str]:
    return {context for context in contexts if context and not context.startswith(_NOT_OF_CODE)}


@cache
def _text(path: str) -> str:
    return (CHECKOUT / path).read_text()


@cache
def _statements(path: str) -> list[ast.stmt]:
    return [node for node in ast.walk(ast.parse(_text(path))) if isinstance(node, ast.stmt)]


def _statement(path: str, line: int) -> tuple[int, int, str]:
    """First and last line of the innermost statement around a line, and the name that it binds, if any."""
    if not path.endswith(".py"):
        return line, line, ""
    around = [node for node in _statements(path) if node.lineno <= line <= (node.end_lineno or node.lineno)]
    inner = max(around, key=lambda node: (node.lineno, -(node.end_lineno or 0)))
    target = inner.targets[0] if isinstance(inner, ast.Assign) else getattr(inner, "target", None)
    name = target.id if isinstance(target, ast.Name) else getattr(inner, "name", "")
    return inner.lineno, inner.end_lineno or inner.lineno, name
