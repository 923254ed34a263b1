"""Every test says what must hold: by a word of its own, or by something of the tests' that it calls and that does."""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator

import pytest

from tests.support.checkout import CHECKOUT

Function = ast.FunctionDef | ast.AsyncFunctionDef

# Of pytest and hypothesis; a property may be that nothing is raised.
_ASSERTING = frozenset({"raises", "fail", "given"})


def functions(text: str) -> Iterator[tuple[str, bool, set[str]]]:
    """The functions of a module: each one's name, whether it says something itself, and the names that it uses."""
    for function in (node for node in ast.walk(ast.parse(text)) if isinstance(node, Function)):
        nodes = list(ast.walk(function))
        names = {node.id for node in nodes if isinstance(node, ast.Name)}
        names |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
        yield function.name, any(isinstance(node, ast.Assert | ast.Raise) or _is_checked(node) for node in nodes), names


def silent(texts: Iterable[str]) -> list[str]:
    """The tests that say nothing, by whatever they call. What has one name is taken for one."""
    used: defaultdict[str, set[str]] = defaultdict(set)
    speaking = set(_ASSERTING)
    for text in texts:
        for name, speaks, names in functions(text):
            used[name] |= names
            if speaks:
                speaking.add(name)
    while more := {name for name, names in used.items() if names & speaking} - speaking:
        speaking |= more
    return sorted(name for name in used if name.startswith("test_") and name not in speaking)


def _is_checked(node: ast.AST) -> bool:
    """Whether it runs a program that must succeed."""
    keywords = node.keywords if isinstance(node, ast.Call) else []
    return any(each.arg == "check" and ast.unparse(each.value) == "True" for each in keywords)


@pytest.mark.long
def test_no_test_says_nothing():
    assert silent(path.read_text() for path in (CHECKOUT / "tests").rglob("*.py")) == []


def test_what_says_nothing_is_found():
    speaking = "def helper():\n    assert x\ndef test_by_another():\n    helper()\ndef test_itself():\n    assert y\n"
    assert silent([speaking, "def test_nothing():\n    look()\ndef look(): ...\n"]) == ["test_nothing"]
