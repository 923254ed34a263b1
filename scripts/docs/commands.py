"""docs/reference/commands.md, made from the commands themselves."""

import inspect
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Final, Literal, Union

import click
import msgspec

from scripts.docs.jsonshapes import SHAPES
from weft import cli

PAGE: Final = Path(__file__).parents[2] / "docs" / "reference" / "commands.md"

HEAD: Final = """\
# Commands

<!-- Made by `make docs` from the commands' own help and from scripts/docs/jsonshapes.py: change that. -->

All commands of `weft`; the flags of `weftd` are [a page of their own](weftd-flags.md).

A command prints its report on standard output.
On standard error it says what is wrong, what goes on, and what to try next.
On a terminal reports have colour, and codes are links to their page.
Elsewhere, with `NO_COLOR` and with `TERM=dumb` they are plain.
`-o json` and `-o yaml` print the whole report, in the shape that stands with the command.
What is wrong is then an object a line: `code`, `where`, `seen`, `expected` and `hint`.
A report that goes on until Ctrl-C prints an object a line, or with `-o yaml` a document after each `---`.
`-h` and `--help` print a command's help.
`weft completion` has a shell complete commands, options, and names of labs, nodes and pods.

| Exit status | Meaning, where a command says nothing else |
|---|---|
| 0 | done, and all is well |
| 1 | it failed, or nothing answered: try again later |
| 2 | the command line, a file or a configuration is wrong: nothing was changed |
| 130, 143 | ended by Ctrl-C, by SIGTERM |
"""

SHAPES_HEAD: Final = """\
## Shapes

Objects that reports are made of.
A key whose value is not known may be left out by a daemon of another version, and a newer one may add keys.
"""

_WORDS: Final[dict[Any, str]] = {
    str: "text",
    int: "number",
    float: "number",
    bool: "true or false",
    NoneType: "null",
    msgspec.Raw: "any JSON",
    Any: "any JSON",
}


def commands() -> Iterator[tuple[str, click.Command]]:
    """All commands, by how they are called."""
    yield from _below(cli.weft, "weft")


def _below(group: click.Group, called: str) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from _below(command, f"{called} {name}")
        else:
            yield f"{called} {name}", command


def has_documents(command: click.Command) -> bool:
    """Tell whether a command prints JSON."""
    return any(isinstance(param.type, click.Choice) and "json" in param.type.choices for param in command.params)


def render() -> str:
    listed = list(commands())
    contents = "".join(_entry(called, command) for called, command in listed)
    seen: dict[str, type] = {}
    sections = [_section(called, command, seen) for called, command in listed]
    objects: dict[str, str] = {}
    while left := set(seen) - set(objects):  # the keys of one name others
        objects |= {name: _object(seen[name], seen) for name in left}
    return "\n".join([HEAD, contents, *sections, SHAPES_HEAD, *(objects[name] for name in sorted(objects))])


def _entry(called: str, command: click.Command) -> str:
    return f"- [`{called}`](#{called.replace(' ', '-')}): {_sentences(command.help or '')[0]}\n"


def _section(called: str, command: click.Command, seen: dict[str, type]) -> str:
    context = click.Context(command, info_name=called)
    usage = " ".join(command.collect_usage_pieces(context))
    text = f"## {called}\n\n```text\n{called} {usage}\n```\n\n{_help(command)}"
    records = [param.get_help_record(context) for param in command.params if isinstance(param, click.Option)]
    rows = [_row(*record) for record in records if record is not None]
    if rows:
        text += f"\n| Option | Default | Meaning |\n|---|---|---|\n{''.join(rows)}"
    if called in SHAPES:
        text += f"\nIn JSON: {_shape(SHAPES[called], seen)}.\n"
    return text


def _help(command: click.Command) -> str:
    """The help, its examples as they are and the rest a sentence a line."""
    parts = []
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        if paragraph.startswith("\b\n"):
            parts.append(f"```sh\n{inspect.cleandoc(paragraph[2:])}\n```")
        else:
            parts.append("\n".join(_sentences(paragraph)).replace("<", "&lt;"))
    return "\n\n".join(parts) + "\n" if parts else ""


def _sentences(text: str) -> list[str]:
    first = " ".join(text.split("\n\n", maxsplit=1)[0].split())
    return re.split(r"(?<=[.]) (?=[A-Z`-])", first)


def _row(names: str, meaning: str) -> str:
    default = ""
    if found := re.search(r"\s*\[(.*)\]$", meaning):
        meaning = meaning[: found.start()]
        notes = found[1].split("; ")
        default = ", ".join(note.removeprefix("default: ") for note in notes if note.startswith("default: "))
        meaning += "".join(f" ({note})" for note in notes if not note.startswith("default: "))
    cells = [f"`{names}`", f"`{default}`" if default else "", meaning]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _object(kind: type, seen: dict[str, type]) -> str:
    """A type of reports: what its docstring says, and its keys."""
    doc = inspect.cleandoc(kind.__doc__ or "")
    paragraphs = ["\n".join(_sentences(paragraph)) for paragraph in doc.split("\n\n")]
    hints = typing.get_type_hints(kind)
    names = [field.name for field in msgspec.structs.fields(kind)]
    rows = "".join(f"| `{name}` | {_shape(hints[name], seen)} |\n" for name in names)
    text = re.sub(r"\bNone\b", "null", "\n\n".join(paragraphs)).replace("<", "&lt;")
    return f"### {kind.__name__}\n\n{text}\n\n| Key | Value |\n|---|---|\n{rows}"


def _shape(shape: Any, seen: dict[str, type]) -> str:
    """What JSON of a shape is, in words; types with names are noted."""
    match shape:
        case dict():
            return "{" + ", ".join(f"`{key}`: {_shape(value, seen)}" for key, value in shape.items()) + "}"
        case tuple():
            return ", or ".join(_shape(each, seen) for each in shape)
        case [one]:
            return f"list of {_shape(one, seen)}"
        case str():
            return shape
    return _WORDS[shape] if shape in _WORDS else _type(shape, seen)


def _type(hint: Any, seen: dict[str, type]) -> str:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return " or ".join(f"`{each}`" for each in arguments)
    if origin in (Union, UnionType):
        return " or ".join(_shape(each, seen) for each in arguments)
    if origin is not None and issubclass(origin, typing.Mapping):
        return f"object, by name: {_shape(arguments[1], seen)}"
    if origin is not None:
        return f"list of {_shape(arguments[0], seen)}"
    if issubclass(hint, msgspec.Struct):
        assert seen.setdefault(hint.__name__, hint) is hint, f"two kinds of report are called {hint.__name__}"
        return f"[{hint.__name__}](#{hint.__name__.lower()})"
    return "text"  # addresses and networks


def write() -> None:
    PAGE.write_text(render())
