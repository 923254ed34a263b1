"""The simulator notices what it is for, and says how to see it again."""

import pytest

from tests.support.mesh import play as played
from tests.support.mesh.checks import Broken
from tests.support.mesh.play import failing, history, main, play
from weft.mesh.known import Known


def test_a_history_is_the_same_each_time():
    assert history(1, 50) == history(1, 50)
    assert history(1, 50) != history(2, 50)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
def test_s5_a_few_histories(seed):
    play(seed, 5000)


@pytest.mark.long
def test_what_breaks_is_told_with_a_command_and_a_short_history(monkeypatch, capsys):
    monkeypatch.setattr(played, "HEALED", 10.0)
    monkeypatch.setattr(Known, "answer", lambda *_: iter(()))  # nobody compares what is known
    seed = next(seed for seed in range(20) if failing(seed, 2000))
    assert main([str(seed), "--ops", "2000"]) == 1
    told = capsys.readouterr().out
    assert "C4" in told
    assert f"python -m tests.support.mesh.play {seed} --ops 2000" in told
    size, whole = (int(word) for word in told.splitlines()[2].split() if word.isdecimal())
    assert size < whole


def test_a_history_can_be_watched(capsys):
    assert main(["3", "--ops", "500", "--trace"]) == 0
    assert "nothing breaks" in capsys.readouterr().out


def test_a_broken_rule_is_an_assertion():
    assert issubclass(Broken, AssertionError)
