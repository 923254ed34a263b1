"""docs/reference/files.md, made from the first sentence of each source file."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
SOURCE: Final = ROOT / "src" / "weft"
PAGE: Final = ROOT / "docs" / "reference" / "files.md"

HEAD: Final = """\
# Files of the source

<!-- Made by `make docs` from the first sentence of each file: change that. -->

Each file below `src/weft` and what it is for, in its own words.
[Architecture](../architecture.md) says how they work together.
"""

_KINDS: Final = (".py", ".c", ".h", ".js")
_COMMENT: Final = re.compile(r"\s*(?:/\*+|//)(.*?)(?:\*/|\n\s*\n|\n(?!\s*(?:\*|//)))", re.DOTALL)
_SENTENCE_END: Final = re.compile(r"(?<=[.?])\s+(?=[A-Z`(\"'0-9])|\n\n")


def render() -> str:
    parts, package = [HEAD], None
    for path, sentence in files():
        if path.parent != package:
            package = path.parent
            parts.append(f"## {package if package.name else 'weft'}\n\n| File | What it is for |\n|---|---|")
        parts.append(f"| `{path.name}` | {sentence} |")
    return re.sub(r"\n+## ", "\n\n## ", "\n".join(parts)) + "\n"


def files() -> Iterator[tuple[Path, str]]:
    """Give each file, relative to the source, with its first sentence; a package's own file only if it has code."""
    paths = sorted((path for path in SOURCE.rglob("*") if path.suffix in _KINDS), key=lambda path: path.parts)
    for path in sorted(paths, key=lambda path: (path.parent.parts, path.name)):
        sentence = first_sentence(path)
        if sentence and not (path.name == "__init__.py" and path.read_text().count("\n") <= sentence.count("\n") + 1):
            yield path.relative_to(SOURCE), sentence.replace("|", "\\|")


def first_sentence(path: Path) -> str:
    """Return what a file says of itself first, empty if it says nothing."""
    text = path.read_text()
    if path.suffix == ".py":
        said = ast.get_docstring(ast.parse(text)) or ""
    else:
        found = _COMMENT.match(text)
        lines = (line.strip(" */") for line in found[1].splitlines()) if found else ()
        said = " ".join(line for line in lines if not line.startswith("SPDX-"))
    return " ".join(_SENTENCE_END.split(said.strip(), maxsplit=1)[0].split())


def write() -> None:
    PAGE.write_text(render())
