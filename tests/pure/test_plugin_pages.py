"""The reference pages of plugins are those of the parsers, and their examples are no strangers to them."""

import ast
import json
from pathlib import Path

import pytest

from tests.support import pluginsdoc
from weft.wire import cnilist

WIRE = Path(__file__).parents[2] / "src" / "weft" / "wire"
READERS = {"flag", "integer", "items", "maybe_integer", "member", "text", "value_of"}
# Objects on the way to keys, which every plugin has.
ON_THE_WAY = {"args", "cni", "ipam", "runtimeConfig", "name", "cniVersion", "type"}


def test_the_pages_are_those_of_the_source():
    written = {path.name: path.read_text() for path in pluginsdoc.DIRECTORY.iterdir()}
    assert written == pluginsdoc.pages(), "run `make docs`"


@pytest.mark.parametrize("page", pluginsdoc.PAGES.values(), ids=list(pluginsdoc.PAGES))
def test_parsers_read_by_keys_alone(page):
    """No key is read that the page does not have."""
    if not page.conf:
        return
    for node in ast.walk(ast.parse((WIRE / f"{page.conf}.py").read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in READERS:
            owner = node.func.value
            if isinstance(owner, ast.Name) and owner.id == "cnijson":
                key = node.args[1]
                assert isinstance(key, ast.Constant), f"line {node.lineno}: which key?"
                assert key.value in ON_THE_WAY, f"line {node.lineno}: {key.value}"


@pytest.mark.parametrize("page", pluginsdoc.PAGES.values(), ids=list(pluginsdoc.PAGES))
def test_keys_are_listed_once_and_examples_use_them(page):
    names = [(key.place, key.name) for key in pluginsdoc.keys_of(page)]
    assert len(names) == len(set(names))
    cnilist.parse_list(json.dumps(pluginsdoc.conflist(page)).encode())
