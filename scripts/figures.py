"""How large the source is, beside what it is to become: `python -m scripts.figures`.

They are counted from the tree. With `--traced`, as root, three more come from a run of a daemon (`scripts/traced.py`),
which counts each function that is called, a property and a check of one field, too. `make bench` prints what it
measures.
"""

import ast
import io
import json
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import grimp

ROOT: Final = Path(__file__).parents[1]
SOURCE: Final = ROOT / "src" / "weft"
WORKSHOP: Final = ("lab", "ui")  # packages that a node does without
_WORD: Final = re.compile(r"\S+")
_LOADED: Final = """
import contextlib, io, sys
from weft.cli import run
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    run(sys.argv[1:])
print(sum(name.partition(".")[0] == "weft" for name in sys.modules))
"""


class Row(NamedTuple):
    what: str
    now: float
    goal: float

    def __str__(self) -> str:
        mark = "" if self.now <= self.goal else "  above"
        return f"{self.what:48} {self.now:>8,} {self.goal:>8,}{mark}"


class Prose(NamedTuple):
    words: int  # of docstrings
    code: int  # lines with code, without docstrings and imports

    @property
    def ratio(self) -> float:
        return round(self.words / self.code, 2)


def rows() -> Iterator[Row]:
    files = sorted(SOURCE.rglob("*.py"))
    node = [file for file in files if file.relative_to(SOURCE).parts[0] not in WORKSHOP]
    modules = [file for file in files if file.name != "__init__.py"]
    yield Row("lines of Python in the node's part", lines(node), 36_000)
    yield Row("lines of Python in src", lines(files), 58_000)
    yield Row("modules", len(modules), 420)
    yield Row("modules with one importer", with_one_importer(modules), 110)
    yield Row(
        "folders of files that name the back end ipsec", len({file.parent for file in naming("ipsec|charon", files)}), 2
    )
    yield Row("modules loaded by `weft status`", loaded("status"), 25)
    yield Row("modules loaded by `weft lab ps`", loaded("lab", "ps"), 120)
    yield Row("words of docstrings a line of code", prose(file.read_text() for file in files).ratio, 1.4)
    yield Row("lines of tests/support", lines((ROOT / "tests" / "support").rglob("*.py")), 9_000)


def traced_rows() -> Iterator[Row]:
    command = [ROOT / "scripts" / "apart.sh", sys.executable, "-m", "scripts.traced"]
    ran = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True)
    (tasks, functions, _), (_, _, files) = json.loads(ran.stdout)
    yield Row("lease to netlink: tasks", tasks, 2)
    yield Row("lease to netlink: functions", functions, 50)
    yield Row("ADD with hostPort: Python files", files, 45)


def lines(files: Iterable[Path]) -> int:
    return sum(file.read_text().count("\n") for file in files)


def with_one_importer(modules: Iterable[Path]) -> int:
    graph = grimp.build_graph("weft")
    names = (".".join(("weft", *module.relative_to(SOURCE).with_suffix("").parts)) for module in modules)
    return sum(len(graph.find_modules_that_directly_import(name)) == 1 for name in names)


def naming(pattern: str, files: Iterable[Path]) -> list[Path]:
    """Return the files whose name or text has it."""
    return [file for file in files if re.search(pattern, f"{file.name} {file.read_text()}", re.IGNORECASE)]


def loaded(*command: str) -> int:
    """Count the modules and packages of weft that a command has loaded at its end, where no daemon and no lab runs."""
    ran = [sys.executable, "-c", _LOADED, *command]
    return int(subprocess.run(ran, capture_output=True, check=True, text=True).stdout)


def prose(texts: Iterable[str]) -> Prose:
    """Count the words of docstrings, and the lines of code that they explain."""
    words = code = 0
    for text in texts:
        tree = ast.parse(text)
        other: set[int] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                other |= _span(node)
            elif isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                said = ast.get_docstring(node)
                if said is not None:
                    words += len(_WORD.findall(said))
                    other |= _span(node.body[0])
        code += len(_lines_with_tokens(text) - other)
    return Prose(words, code)


def _span(node: ast.stmt) -> set[int]:
    return set(range(node.lineno, (node.end_lineno or node.lineno) + 1))


def _lines_with_tokens(text: str) -> set[int]:
    """Return the numbers of the lines that are neither blank nor a comment."""
    empty = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in empty:
            found |= set(range(token.start[0], token.end[0] + 1))
    return found


def main() -> None:
    print(f"{'':48} {'now':>8} {'goal':>8}")
    for row in rows():
        print(row)
    for row in traced_rows() if sys.argv[1:] == ["--traced"] else ():
        print(row)


if __name__ == "__main__":
    main()
