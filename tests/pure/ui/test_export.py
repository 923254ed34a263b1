"""The page as one file: whole, and with a policy that lets nothing else in."""

import re
from pathlib import Path

import pytest

from tests.support.pages import MadeSource, lab
from weft.diag.sight.interfaces import InterfaceState
from weft.model.errors import ConfigError, Problem
from weft.ui import command, export
from weft.ui.app import STATIC

FILES = {path.name: path.read_text() for path in STATIC.iterdir()}


def test_all_modules_are_one_script_and_each_stands_once():
    script = export.bundled(FILES, "main.js")
    assert not re.search(r"^(import|export) ", script, re.MULTILINE)
    modules = [text for name, text in FILES.items() if name.endswith(".js")]
    for text in modules:
        first = text.partition("\n")[0]
        assert script.count(first) == 1, first


def test_no_two_modules_have_one_name_for_two_things():
    names = [
        name
        for text in FILES.values()
        for name in re.findall(r"^(?:export )?(?:async )?(?:function|const|let|class) (\w+)", text, re.MULTILINE)
    ]
    assert sorted(names) == sorted(set(names))


def test_what_it_shows_cannot_end_the_script_that_holds_it():
    text = export.page(FILES, {"put": {"a": "</script><script>alert(1)</script>"}})
    assert "alert(1)</script>" not in text
    assert text.count("<script") == 2
    assert "default-src 'none'; style-src 'sha256-" in text
    assert not re.search(r'(src|href)="(?!data:|#)', text)


async def test_what_cannot_be_looked_into_keeps_nothing_else_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    source = MadeSource(lab(2))
    inside = source.interfaces

    async def interfaces(where: str) -> list[InterfaceState]:
        if where == "node1":
            raise ConfigError(Problem(code="LAB-002", where=where, seen="it has just ended"))
        return await inside(where)

    monkeypatch.setattr(source, "interfaces", interfaces)
    await command._export(source, tmp_path / "it.html")
    text = (tmp_path / "it.html").read_text()
    assert '"of node2"' in text
    assert '"of node1"' not in text


def test_a_page_of_another_shape_is_a_mistake():
    with pytest.raises(ValueError, match=r"page\.html has not one <head>"):
        export.page({**FILES, "page.html": ""}, {})


def test_the_page_takes_nothing_from_elsewhere_and_has_no_script_of_its_own():
    for name, text in FILES.items():
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text), name
        assert "innerHTML" not in text, name
    assert not re.search(r"<script(?! type=\"module\" src=)|<style| on\w+=| style=", FILES["page.html"])
