"""Changes that no test can notice, or that none should: `equivalent.toml`, each with its reason.

An entry names a file, the line's text, and the change as the tool prints it. When the line is no longer in the source
or the change no longer one of the line's, the entry has expired, which is an error: it is looked at again or removed.
"""

import tomllib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Final

from tests.mutants import csources, operators
from tests.mutants.operators import Mutant
from tests.support.checkout import CHECKOUT

LIST: Final = Path(__file__).with_name("equivalent.toml")


@cache
def _known() -> dict[tuple[str, str, str], str]:
    entries = tomllib.loads(LIST.read_text()).get("equivalent", [])
    return {(entry["file"], entry["line"], entry["change"]): entry["reason"] for entry in entries}


def reason(mutant: Mutant) -> str | None:
    """Why it cannot be noticed; None when that is not known."""
    return _known().get((mutant.path, mutant.source, mutant.change))


def split(mutants: Iterable[Mutant]) -> tuple[list[Mutant], list[Mutant]]:
    """Those to try, and those known to be equivalent."""
    tried: list[Mutant] = []
    known: list[Mutant] = []
    for mutant in mutants:
        (tried if reason(mutant) is None else known).append(mutant)
    return tried, known


def check() -> None:
    """Every entry stands for a change that can still be made; SystemExit otherwise."""
    possible = {
        (mutant.path, mutant.source, mutant.change)
        for path in {path for path, *_ in _known()}
        for mutant in (csources.mutants() if path.endswith(".c") else operators.mutants(path, _text(path)))
    }
    for entry in _known().keys() - possible:
        raise SystemExit(f"tests/mutants/equivalent.toml: expired: {' | '.join(entry)}")


def _text(path: str) -> str:
    source = CHECKOUT / path
    return source.read_text() if source.is_file() else ""
