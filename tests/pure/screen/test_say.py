"""What is printed where: escapes on a terminal that wants them, and nowhere else."""

import os
import pty
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import click
import pytest
import yaml

from weft import cli
from weft.model.errors import Problem, Unavailable
from weft.screen import documents
from weft.screen.documents import Progress, complain, next_commands, piece, show_report
from weft.screen.say import PAGE, say

WEFT = Path(sys.executable).with_name("weft")
WORDS = "NAME  STATE  CODE\na     ready  MTU-001\n"
SAY = f"from weft.screen.say import say, title; say({WORDS!r}, nl=False); title('Then')"


def printed(**environ: str) -> str:
    """What a terminal gets."""
    main, other = pty.openpty()
    base = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "TERM")}
    subprocess.run([sys.executable, "-c", SAY], env={**base, "TERM": "xterm", **environ}, stdout=other, check=True)
    os.close(other)
    try:
        return os.read(main, 1 << 16).decode().replace("\r\n", "\n")
    finally:
        os.close(main)


def test_a_terminal_gets_colour_and_links():
    host, page = os.uname().nodename, PAGE.resolve()
    link = f"\033]8;;file://{host}{page}#mtu-001\033\\\033[1mMTU-001\033[0m\033]8;;\033\\"
    assert page.is_file()
    assert printed() == f"\033[1mNAME  STATE  CODE\033[0m\na     \033[32mready\033[0m  {link}\n\033[1mThen\033[0m\n"


@pytest.mark.parametrize("environ", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_a_terminal_that_wants_none_gets_the_text(environ):
    assert printed(**environ) == f"{WORDS}Then\n"


def test_an_empty_no_color_is_none():
    assert printed(NO_COLOR="").startswith("\033[1m")


def test_no_terminal_gets_the_text(capsys):
    say(WORDS, nl=False)
    say(WORDS, err=True)
    assert capsys.readouterr() == (WORDS, f"{WORDS}\n")


VALUE = {"name": "é", "list": [], "of": [1, None]}


def test_a_report_is_text_or_a_document(capsys):
    for output in ("text", "wide", "json", "yaml"):
        show_report(output, VALUE, "text\n")
    json_text = '{\n  "name": "é",\n  "list": [],\n  "of": [\n    1,\n    null\n  ]\n}\n'
    yaml_text = "name: é\nlist: []\nof:\n- 1\n- null\n"
    assert capsys.readouterr().out == f"text\ntext\n{json_text}{yaml_text}"


def test_pieces_are_lines_or_documents_of_their_own():
    assert piece("json", VALUE) == '{"name":"é","list":[],"of":[1,null]}\n'
    assert list(yaml.safe_load_all(piece("yaml", VALUE) * 2)) == [VALUE, VALUE]


def test_a_problem_is_said_to_people_and_to_programs(capsys):
    problem = Problem(code="X-001", where="here", seen="it")
    complain(problem, programs=False)
    complain(problem, programs=True)
    said = '{"code":"X-001","where":"here","seen":"it","expected":"","hint":""}'
    assert capsys.readouterr() == ("", f"weft: X-001 here: it\n{said}\n")


@pytest.mark.parametrize("words", [["-o", "yaml"], ["-oyaml"], ["--output=json"]])
def test_what_is_wrong_is_a_document_where_one_was_asked_for(capsys, words):
    assert cli.run(["explain", "no-such-code", *words]) == 2
    out, err = capsys.readouterr()
    assert (out, yaml.safe_load(err)["code"]) == ("", "FLAG-001")


class Over(Exception):
    pass


def redrawn(output: str, *seen: str) -> None:
    """Draw one after the other; an empty one is a daemon that is away."""
    coming = iter(seen)

    def look() -> str:
        text = next(coming, None)
        if text is None:
            raise Over
        if not text:
            raise Unavailable(Problem(code="INST-003", where="weftd", seen="away"))
        return text

    with pytest.raises(Over):
        documents.redraw(output, look, lambda text: ({"text": text}, f"{text}\n"), sleep=lambda _: None)


def test_a_report_that_goes_on_is_shown_again_when_it_has_changed(capsys):
    redrawn("text", "one", "one", "", "", "two")
    said = "weft: INST-003 weftd: away; waiting for it\n"
    assert capsys.readouterr() == ("one\n\ntwo\n", said)
    redrawn("json", "one", "one", "two")
    assert capsys.readouterr().out == '{"text":"one"}\n{"text":"two"}\n'


def test_on_a_terminal_a_report_takes_the_place_of_the_one_before(capsys, monkeypatch):
    monkeypatch.setattr(documents, "is_screen", lambda _: True)
    monkeypatch.setattr(click, "echo", partial(click.echo, color=True))  # which it takes out elsewhere
    redrawn("text", "one", "two")
    assert capsys.readouterr().out == "\033[H\033[Jone\n\033[H\033[Jtwo\n"


def test_a_watch_of_what_was_never_there_fails():
    def look() -> str:
        raise Unavailable(Problem(code="INST-003", where="weftd", seen="away"))

    with pytest.raises(Unavailable):
        documents.redraw("text", look, lambda text: (text, text), sleep=lambda _: None)


@pytest.fixture
def unread():
    """The end of a pipe that nobody reads any more."""
    reads, writes = os.pipe()
    os.close(reads)
    yield writes
    os.close(writes)


def test_a_report_that_nobody_reads_ends_the_command_without_a_word(unread):
    ran = subprocess.run([WEFT, "version"], stdout=unread, stderr=subprocess.PIPE, check=False)
    assert (ran.returncode, ran.stderr) == (1, b"")  # as click ends it


def test_a_wait_ends_when_nobody_reads_any_more(unread, monkeypatch):
    with os.fdopen(os.dup(unread), "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        with pytest.raises(BrokenPipeError):
            documents.pause(3600)


def test_a_wait_lasts_while_somebody_may_read(tmp_path, monkeypatch):
    reads, writes = os.pipe()
    with os.fdopen(writes, "w") as pipe, (tmp_path / "file").open("w") as file:
        for stream in (pipe, file):
            monkeypatch.setattr(sys, "stdout", stream)
            start = time.monotonic()
            documents.pause(0.02)
            assert time.monotonic() - start >= 0.02
    os.close(reads)


def test_what_is_said_beside_a_report_ends_no_work(unread, monkeypatch):
    with os.fdopen(os.dup(unread), "w", 1) as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        Progress("text")("working")
        next_commands("text", "weft lab ps")
        monkeypatch.undo()
        with suppress(BrokenPipeError):
            stream.close()
