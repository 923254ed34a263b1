"""`weft explain`: what a code means, from the page of problems that the package carries."""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final

import click
from click.shell_completion import CompletionItem

from weft.model.errors import ConfigError, Problem, as_typed
from weft.model.text import table
from weft.model.value import Value
from weft.screen.documents import output_option, show_report
from weft.screen.say import PAGE

_SECTION: Final = re.compile(r"^### ([A-Z][A-Z0-9]*-\d{3})\n(.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)
_LATER: Final = "*Not reported.*"
_SENTENCE: Final = re.compile(r"^.*?[.:](?=\s|$)")
_GUESSES: Final = 4
_ALIKE: Final = 0.6  # of 1: `ROUTE` is as like `ROUTE-001` as that


class Section(Value):
    """What the page says of a code; `about` is its first sentence. `later`: no message has it yet."""

    code: str
    about: str
    text: str
    later: bool


def sections(page: str) -> dict[str, Section]:
    return {code: _section(code, text.strip()) for code, text in _SECTION.findall(page)}


def nearest(word: str, known: Mapping[str, Section]) -> list[str]:
    """The likeliest first."""
    return get_close_matches(word.upper(), known, n=_GUESSES, cutoff=_ALIKE)


def _section(code: str, text: str) -> Section:
    later = text.startswith(_LATER)
    first = text.removeprefix(_LATER).lstrip().partition("\n")[0]
    found = _SENTENCE.match(first)
    about = first if found is None else found.group()
    return Section(code=code, about=f"{about[:-1]}." if about.endswith(":") else about, text=text, later=later)


def codes(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [
        CompletionItem(each.code, help=each.about)
        for each in _known().values()
        if each.code.startswith(incomplete.upper())
    ]


@click.command()
@output_option
@click.argument("code", required=False, shell_complete=codes)
def explain(output: str, code: str | None) -> int:
    """Say what CODE means, why it happens, what weft does by itself, and what you can do.

    Without CODE, list all codes with the first sentence of each. It needs no daemon, and not root.

    \b
      weft explain ROUTE-001
      weft explain
      weft explain -o json | jq -r '.[].code'
    """
    if code is None:
        known = list(_known().values())
        rows = ((each.code, f"(not reported) {each.about}" if each.later else each.about) for each in known)
        show_report(output, known, as_typed(table(("CODE", "WHAT IT MEANS"), rows)))
        return 0
    section = named(code, "weft explain")
    show_report(output, section, f"{section.code}\n\n{as_typed(section.text)}\n")
    return 0


def named(code: str, where: str) -> Section:
    """`code` is in any case. `ConfigError` names the command `where` it was given."""
    known = _known()
    section = known.get(code.upper())
    if section is None:
        near = nearest(code, known)
        hint = f"Did you mean {' or '.join(near)}?" if near else "`weft explain` lists all codes"
        raise ConfigError(Problem("FLAG-001", where, f"there is no code {code!r}", hint=hint))
    return section


def _known() -> dict[str, Section]:
    return sections(PAGE.read_text(encoding="utf-8"))
