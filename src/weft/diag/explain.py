"""`weft explain`: what a code means, from the page of problems that the package carries."""

from pathlib import Path
from typing import Final

import click
import msgspec

from weft.diag.codes import Section, nearest, sections
from weft.model.errors import ConfigError, Problem
from weft.model.table import table

_PAGE: Final = Path(__file__).with_name("problems.md")  # in a checkout a link to the page of the docs


@click.command()
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="How to print it.")
@click.argument("code", required=False)
def explain(output: str, code: str | None) -> int:
    """Say what CODE means, why it happens, what weft does by itself, and what you can do.

    Without CODE, list all codes with the first sentence of each. It needs no daemon, and not root.

    \b
      weft explain ROUTE-001
      weft explain
      weft explain -o json | jq -r '.[].code'
    """  # noqa: D301 - click's mark for a paragraph that stays as it is
    known = sections(_PAGE.read_text(encoding="utf-8"))
    if code is None:
        _list(list(known.values()), output)
        return 0
    section = known.get(code.upper())
    if section is None:
        near = nearest(code, known)
        hint = f"Did you mean {' or '.join(near)}?" if near else "`weft explain` lists all codes"
        raise ConfigError(Problem(code="FLAG-001", where="weft explain", seen=f"there is no code {code!r}", hint=hint))
    click.echo(_json(section) if output == "json" else f"{section.code}\n\n{section.text}")
    return 0


def _list(known: list[Section], output: str) -> None:
    if output == "json":
        click.echo(_json(known))
        return
    rows = ((each.code, f"(not in this build) {each.about}" if each.later else each.about) for each in known)
    click.echo(table(("CODE", "WHAT IT MEANS"), rows), nl=False)


def _json(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
