"""The reference pages of plugins are those of the parsers, and their examples are no strangers to them."""

import ast
import json
import sys
from pathlib import Path

import pytest

from scripts.docs import plugins
from weft.cni import registry
from weft.wire import cnilist

READERS = {"flag", "integer", "items", "member", "text", "value_of"}
# Objects on the way to keys, which every plugin has.
ON_THE_WAY = {"args", "cni", "ipam", "runtimeConfig", "name", "cniVersion", "type"}


def test_the_pages_are_those_of_the_source():
    written = {path.name: path.read_text() for path in plugins.DIRECTORY.iterdir()}
    assert written == plugins.pages(), "run `make docs`"


def test_every_plugin_has_a_page():
    assert sorted(plugins.PAGES) == sorted(registry.NAMES)


@pytest.mark.parametrize("page", plugins.PAGES.values(), ids=list(plugins.PAGES))
def test_parsers_read_by_keys_alone(page):
    """No key of a configuration is read but by a field, which the page has. What is `known` is a record."""
    if not page.conf:
        return
    for node in ast.walk(ast.parse(Path(sys.modules[page.conf.__module__].__file__).read_text())):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="cnijson"), attr=attr), args=[source, key, *_]):
                record = isinstance(source, ast.Name) and source.id == "known"
                if attr in READERS and isinstance(key, ast.Constant) and not record:
                    assert key.value in ON_THE_WAY, f"line {node.lineno}: {key.value}"


@pytest.mark.parametrize("page", plugins.PAGES.values(), ids=list(plugins.PAGES))
def test_keys_are_listed_once_and_examples_use_them(page):
    names = [(key.place, key.name) for key in plugins.keys_of(page)]
    assert len(names) == len(set(names))
    cnilist.parse_list(json.dumps(plugins.conflist(page)).encode())
