"""What a code means, and which one somebody may have meant."""

import contextvars
import json
import re
from pathlib import Path

import pytest

from weft import cli
from weft.diag.doctor import explain

PAGE = """# Problems

### NONE
No code.

## One part

### ROUTE-001

A route was deleted.
weft puts it back.

### MTU-001

*Not reported.*
It says one thing (`a.b`): then another.

## Another part

### STORE-002
Without an end
"""


def test_each_section_ends_before_the_next_heading():
    found = explain.sections(PAGE)
    assert list(found) == ["ROUTE-001", "MTU-001", "STORE-002"]
    assert found["ROUTE-001"].text == "A route was deleted.\nweft puts it back."
    assert [each.about for each in found.values()] == [
        "A route was deleted.",
        "It says one thing (`a.b`).",
        "Without an end",
    ]
    assert [each.later for each in found.values()] == [False, True, False]


@pytest.mark.parametrize("word, first", [("rout-001", "ROUTE-001"), ("STORE", "STORE-002"), ("mtu01", "MTU-001")])
def test_the_nearest_codes_are_guessed(word: str, first: str):
    assert explain.nearest(word, explain.sections(PAGE))[0] == first


def test_nothing_is_guessed_from_what_is_like_none():
    assert explain.nearest("hello", explain.sections(PAGE)) == []


def test_the_page_of_the_package_is_that_of_the_docs():
    page = Path(__file__).parents[4] / "docs" / "reference" / "problems.md"
    assert explain.PAGE.resolve() == page
    headings = re.findall(r"^### (.+)$", page.read_text(), re.MULTILINE)
    assert list(explain.sections(page.read_text())) == headings


def test_a_code_is_explained_whatever_its_case(capsys):
    assert cli.run(["explain", "route-001"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("ROUTE-001\n\n")
    assert "###" not in out
    assert cli.run(["explain", "ROUTE-001", "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["text"] in out
    assert told["code"] == "ROUTE-001"


@pytest.mark.parametrize("code", ["CNI-001", "cni-001"])
def test_in_a_pod_people_read_commands_that_work_outside_of_it(monkeypatch, capsys, code):
    monkeypatch.setenv("POD_NAME", "x")
    monkeypatch.setenv("POD_NAMESPACE", "nets")
    page = "### CNI-001\nRun `weft doctor`, or\n`weft cni install`; or `weft lab`.\n"
    monkeypatch.setattr(explain, "_known", lambda: explain.sections(page))

    def told(*options: str) -> str:
        contextvars.copy_context().run(cli.run, ["explain", *options])
        return capsys.readouterr().out

    mended = "Run `kubectl -n nets exec x -- weft doctor`, or\n`kubectl -n nets delete pod x`; or `weft lab`."
    assert told(code) == f"CNI-001\n\n{mended}\n"
    assert mended.splitlines()[0] in told()
    assert json.loads(told(code, "-o", "json"))["text"] == page.partition("\n")[2].strip()


def test_all_codes_are_listed(capsys):
    assert cli.run(["explain"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["CODE", "WHAT", "IT", "MEANS"]
    assert cli.run(["explain", "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [line.split()[0] for line in lines[1:]] == [each["code"] for each in told]
    assert all(each["about"] for each in told)
    assert re.search(r"^SCALE-001 +\(not reported\) ", "\n".join(lines), re.MULTILINE)


def test_a_misspelt_code_is_answered_with_a_guess(capsys):
    assert cli.run(["explain", "ROUT-01"]) == 2
    assert "there is no code 'ROUT-01'. Did you mean ROUTE-001" in capsys.readouterr().err
    assert cli.run(["explain", "zzz"]) == 2
    assert "`weft explain` lists all codes" in capsys.readouterr().err
