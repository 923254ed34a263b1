"""What programs are asked for holds in the end, although other programs change the same tables."""

import errno
import os
import subprocess
from typing import NoReturn

import pytest

from weft.cni.host import programs
from weft.wire.cni import INTERNAL, CniError, failure


class Rules:
    """A table whose commits fail first, one error after the other."""

    def __init__(self, *errors: CniError) -> None:
        self.errors = list(errors)
        self.commits = 0

    def settle(self) -> None:
        programs.settle(lambda: ["-A"], self._commit)

    def _commit(self, _: object) -> None:
        self.commits += 1
        if self.errors:
            raise self.errors.pop(0)


def test_what_is_needed_as_before_is_tried_again():
    rules = Rules(*[programs.Refused(INTERNAL, "Resource temporarily unavailable")] * 4)
    rules.settle()
    assert rules.commits == 5


def test_what_is_refused_for_good_is_given_up():
    rules = Rules(*[programs.Refused(INTERNAL, "no such target")] * 9)
    with pytest.raises(CniError, match="no such target"):
        rules.settle()
    assert rules.commits == 5


def test_a_program_that_does_not_answer_is_not_asked_again():
    rules = Rules(failure("iptables: no answer within 25 s"))
    with pytest.raises(CniError, match="no answer"):
        rules.settle()
    assert rules.commits == 1


def test_a_program_that_fails_has_refused():
    with pytest.raises(programs.Refused, match=r"running ls /nowhere: .*/nowhere") as refused:
        programs.run("ls", "/nowhere")
    assert refused.value.within("in its place: ").msg.startswith("in its place: running ls /nowhere")


@pytest.mark.parametrize(
    "script, limit, said",
    [
        ("exec yes", {"MOST": 1 << 16}, "tool: it prints more than 65536 bytes"),
        ("exec sleep 600", {"_TIMEOUT_SECONDS": 0.2}, "tool: no answer within 0.2 s"),
    ],
)
def test_a_program_that_has_no_end_is_ended(tmp_path, monkeypatch, script, limit, said):
    tool = tmp_path / "tool"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setattr(programs, "find", lambda *_: str(tool))
    for name, value in limit.items():
        monkeypatch.setattr(programs, name, value)
    with pytest.raises(CniError) as raised:
        programs.run("tool")
    assert raised.value.msg == said
    assert not isinstance(raised.value, programs.Refused)


def test_what_a_program_prints_may_be_anything(tmp_path, monkeypatch):
    monkeypatch.setattr(programs, "find", lambda *_: "/bin/cat")
    assert programs.run("cat", stdin="\udcff text") == "\udcff text"


def test_a_program_that_cannot_be_started_is_no_lock_that_another_one_keeps(monkeypatch):
    def refuse(*_: object, **__: object) -> NoReturn:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(subprocess, "Popen", refuse)
    with pytest.raises(CniError) as raised:
        programs.run("ls")
    assert raised.value.msg == "ls: cannot be started: Resource temporarily unavailable"


def test_a_program_has_the_environment_of_this_process(monkeypatch):
    """As those that weftd runs: by two lock files (XTABLES_LOCKFILE) both could change a table at once."""
    monkeypatch.setenv("XTABLES_LOCKFILE", "/run/other.lock")
    assert "XTABLES_LOCKFILE=/run/other.lock" in programs.run("env").splitlines()
