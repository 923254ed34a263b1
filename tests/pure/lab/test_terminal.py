"""What a command of weft says on a node, as a value."""

from pathlib import Path
from typing import Any

import pytest

from weft.lab.commands import terminal
from weft.model.errors import Unavailable
from weft.model.value import Value


class Ended(Value):
    status: int


@pytest.mark.parametrize("said", ["", "{", '{"state": 0}', '{"status": "0"}'])
def test_an_answer_of_another_version_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: str):
    monkeypatch.setattr(terminal, "captured", lambda _start: (0, said, ""))
    place: Any = tmp_path
    with pytest.raises(Unavailable, match=r"^LAB-002 weft doctor on a: its answer is of another version of weft: "):
        terminal.answer(place, "a", ["doctor"], Ended)


def test_an_answer_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(terminal, "captured", lambda _start: (terminal.FOUND, '{"status": 7, "new": 1}', ""))
    place: Any = tmp_path
    assert terminal.answer(place, "a", ["doctor"], Ended) == Ended(status=7)
