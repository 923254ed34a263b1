"""A YAML file: every mistake is named at once, each with its line.

msgspec checks values. It stops at the first mistake and knows no lines, so the walk over YAML nodes is ours.
"""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import Final, Literal, TypeVar, get_args, get_origin

import msgspec
import yaml

from weft.lab import spec
from weft.model.errors import ConfigError, Problem

T = TypeVar("T")

_EXPECTED: Final[dict[object, str]] = {
    int: "a whole number",
    str: "text, in quotes if it looks like something else",
    bool: "true or false",
    list[str]: "a list of names",
}
_TEXT: Final = "tag:yaml.org,2002:str"
_NULL: Final = "tag:yaml.org,2002:null"
_MOST_VALUES: Final = 100_000  # of 1,000 nodes with all their pods it is a tenth
_BITS: Final = 64
_HINT: Final = "docs/reference/lab-file.md describes the file."


def compose(text: str, where: str, what: str) -> yaml.Node:
    """`ConfigError` for an empty file, and for one that is not YAML, with the line."""
    try:
        root: yaml.Node | None = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError(Problem("LAB-001", f"{where}:{line}", str(error.problem), expected="YAML")) from None
    except yaml.YAMLError as error:
        raise ConfigError(Problem("LAB-001", f"{where}:1", str(error), expected="YAML")) from None
    except RecursionError:
        raise ConfigError(Problem("LAB-001", f"{where}:1", "nested too deeply", expected=what)) from None
    if root is None or root.tag == _NULL:
        expected, hint = "keys such as name, nodes and network", "Options alone describe a lab, too."
        raise ConfigError(Problem("LAB-001", where, "the file is empty", expected=expected, hint=hint))
    if _size(root, {}) > _MOST_VALUES:
        seen = f"its aliases multiply to more than {_MOST_VALUES} values"
        raise ConfigError(Problem("LAB-001", where, seen, expected=what, hint="Write them out"))
    return root


def _size(node: yaml.Node, known: dict[int, int]) -> int:
    """The number of values, with aliases written out."""
    if id(node) not in known:
        known[id(node)] = 1  # until it is known: an alias of what is being counted leads back to it
        children = node.value if isinstance(node, yaml.CollectionNode) else []
        parts = chain.from_iterable(children) if isinstance(node, yaml.MappingNode) else children
        known[id(node)] = 1 + sum(_size(each, known) for each in parts)
    return known[id(node)]


def _shape(node: yaml.Node) -> str:
    if isinstance(node, yaml.ScalarNode):
        return repr(node.value) if node.tag == _TEXT else node.value or "empty"
    return "a list" if isinstance(node, yaml.SequenceNode) else "a mapping"


def _expected(kind: object) -> str:
    if get_origin(kind) is Literal:
        return f"one of {', '.join(map(str, get_args(kind)))}"
    return _EXPECTED.get(kind, "a mapping, {key: value}")


class Reader:
    def __init__(self, where: str) -> None:
        self._found: list[tuple[int, Problem]] = []
        self._where = where

    @property
    def problems(self) -> list[Problem]:
        """From the top of the file to its end."""
        return [problem for _, problem in sorted(self._found, key=lambda found: found[0])]

    def count(self, node: yaml.Node, what: str, *, least: int, most: int) -> int:
        """`least` if it is none."""
        value = self.value(node, int, what)
        if value is None:
            return least
        if not least <= value <= most:
            self.problem(node, f"{what}: {value}", expected=f"{least} to {most}")
            return least
        return value

    def value(self, node: yaml.Node, kind: type[T], what: str) -> T | None:
        """None if it is of another type."""
        try:
            made = yaml.constructor.SafeConstructor().construct_document(node)
            if isinstance(made, int) and made.bit_length() > _BITS:
                self.problem(node, f"{what}: a number of {made.bit_length()} bits", expected="a smaller one")
                return None
            return msgspec.convert(made, kind)
        except yaml.MarkedYAMLError as error:  # whose own text shows the line once more, below the problem itself
            self.problem(node, f"{what}: {error.problem}")
        except msgspec.ValidationError:
            self.problem(node, f"{what}: {_shape(node)}", expected=_expected(kind))
        except (ValueError, KeyError, AttributeError):  # of PyYAML, for what looks like a date, a number or a tag's own
            self.problem(
                node, f"{what}: {node.value!r} is no {node.tag.rpartition(':')[2]}", expected="a value, or quotes"
            )
        return None

    def mapping(
        self,
        node: yaml.Node,
        known: tuple[str, ...],
        what: str,
        *,
        needed: tuple[str, ...] = (),
        elsewhere: Mapping[str, str] = MappingProxyType({}),
    ) -> dict[str, yaml.Node]:
        """`elsewhere` are keys that a lab does not have, each with the reason."""
        if not isinstance(node, yaml.MappingNode):
            self.problem(node, f"the {what} is {_shape(node)}", expected=f"keys such as {', '.join(needed or known)}")
            return {}
        parts: dict[str, yaml.Node] = {}
        for key, value in node.value:
            name = str(key.value)
            if name in elsewhere:
                self.problem(
                    key, f"{name!r}, which a lab does not have: {elsewhere[name]}", expected="a file without it"
                )
            elif name == "<<":
                self.problem(key, "a merge key, '<<'", expected="each key written out")
            elif name not in known:
                self.problem(
                    key, f"unknown key {name!r}", expected=f"one of {', '.join(known)}", known=known, name=name
                )
            elif name in parts:
                self.problem(key, f"{name!r} a second time", expected="each key once")
            else:
                parts[name] = value
        for name in needed:
            if name not in parts:
                self.problem(node, f"a {what} without {name!r}", expected=f"a mapping with {', '.join(needed)}")
        return parts

    def constants(self, parts: Mapping[str, yaml.Node], **only: str) -> None:
        """Add a problem for each key with another value."""
        for key, value in only.items():
            if key in parts and (seen := self.value(parts[key], str, key)) not in (value, None):
                self.problem(parts[key], f"{key} is {seen!r}", expected=value)

    def lab_name(self, parts: Mapping[str, yaml.Node], given: str) -> str:
        """The name that a command has `given`, else the file's own, checked; or ""."""
        own = self.value(parts["name"], str, "name") if "name" in parts else None
        if own is not None:
            self.check_name(parts["name"], "a lab", own)
        return given or own or ""

    def check_name(self, node: yaml.Node | None, what: str, name: str) -> None:
        self.add(node, spec.name_problem(what, self.at(node), name))

    def at(self, node: yaml.Node | None) -> str:
        return self._where if node is None else f"{self._where}:{node.start_mark.line + 1}"

    def problem(
        self, node: yaml.Node | None, seen: str, *, expected: str = "", known: Iterable[str] = (), name: str = ""
    ) -> None:
        """`known` are words of which one may have been meant."""
        close = difflib.get_close_matches(name or seen.rpartition(" ")[2].strip("'"), list(known), n=1)
        hint = f"Did you mean {close[0]!r}?" if close else _HINT
        problem = Problem("LAB-001", self.at(node), seen, expected=expected, hint=hint)
        self.add(node, [problem])

    def add(self, node: yaml.Node | None, problems: Iterable[Problem]) -> None:
        line = 0 if node is None else node.start_mark.line
        self._found += [(line, problem) for problem in problems]

    def distinct_keys(self, node: yaml.Node) -> None:
        """Add a problem for each key that stands twice: YAML would take the last in silence."""
        children = node.value if isinstance(node, yaml.SequenceNode) else []
        if isinstance(node, yaml.MappingNode):
            seen: set[str] = set()
            for key, value in node.value:
                name = str(key.value).casefold()
                if name in seen:
                    self.problem(key, f"{key.value!r} a second time", expected="each key once")
                seen.add(name)
                children.append(value)
        for child in children:
            self.distinct_keys(child)


def key_of(node: yaml.Node, path: Sequence[str]) -> yaml.Node:
    """The node of this key, or of the nearest one above it."""
    entries = node.value if isinstance(node, yaml.MappingNode) else []
    for key, value in reversed(entries):  # of several, the last counts
        if str(key.value).casefold() == path[0].casefold():
            return key_of(value, path[1:]) if len(path) > 1 and isinstance(value, yaml.MappingNode) else key
    return node
