"""Every test says what must hold: by a word of its own, or by something of the tests' that it calls and that does."""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator

from tests.support.checkout import CHECKOUT

Function = ast.FunctionDef | ast.AsyncFunctionDef

# Of pytest and hypothesis; a property may be that nothing is raised.
_ASSERTING = frozenset({"raises", "fail", "given"})


def functions(texts: Iterable[str]) -> Iterator[Function]:
    for text in texts:
        yield from (node for node in ast.walk(ast.parse(text)) if isinstance(node, Function))


def silent(texts: Iterable[str]) -> list[str]:
    """The tests that say nothing, by whatever they call. What has one name is taken for one."""
    named: defaultdict[str, list[Function]] = defaultdict(list)
    for function in functions(texts):
        named[function.name].append(function)
    speaking = set(_ASSERTING) | {name for name, found in named.items() if any(map(_speaks, found))}
    used = {name: _used(found) for name, found in named.items() if name not in speaking}
    while more := {name for name, names in used.items() if names & speaking} - speaking:
        speaking |= more
    return sorted(name for name in named if name.startswith("test_") and name not in speaking)


def _speaks(function: Function) -> bool:
    return any(isinstance(node, ast.Assert | ast.Raise) or _is_checked(node) for node in ast.walk(function))


def _is_checked(node: ast.AST) -> bool:
    """Whether it runs a program that must succeed."""
    keywords = node.keywords if isinstance(node, ast.Call) else []
    return any(each.arg == "check" and ast.unparse(each.value) == "True" for each in keywords)


def _used(found: Iterable[Function]) -> set[str]:
    nodes = [node for function in found for node in ast.walk(function)]
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    return names | {node.attr for node in nodes if isinstance(node, ast.Attribute)}


def test_no_test_says_nothing():
    assert silent(path.read_text() for path in (CHECKOUT / "tests").rglob("*.py")) == []


def test_what_says_nothing_is_found():
    speaking = "def helper():\n    assert x\ndef test_by_another():\n    helper()\ndef test_itself():\n    assert y\n"
    assert silent([speaking, "def test_nothing():\n    look()\ndef look(): ...\n"]) == ["test_nothing"]
