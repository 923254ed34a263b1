"""Each lesson of the tutorial, followed in a lab: what is typed, what is judged, and what a reset undoes."""

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

from scripts.docs import tutorial
from tests.support.lab import new_name, weft
from weft.lab import places
from weft.lab.commands.ending import down
from weft.lab.places import Place
from weft.lab.tutorial import playground
from weft.lab.tutorial.demands import Demand
from weft.lab.tutorial.lesson import Lesson, judged, right
from weft.lab.tutorial.lessons import LESSONS
from weft.lab.tutorial.pages import before


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    place = playground.make(new_name(), places.home(os.environ), os.environ, note=lambda _: None)
    try:
        yield place
    finally:
        down(place)


def look(place: Place, lesson: Lesson) -> list[Demand]:
    return judged(lesson, playground.look(place, lesson))


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.name)
def test_a_lesson(place: Place, lesson: Lesson):
    playground.lay_out(place, before(lesson))  # a reset
    assert not right(look(place, lesson))
    for typed in lesson.typed:
        status, stdout, stderr = playground.typed(place, typed)
        assert bool(status) == typed.fails, f"{typed.command}\n{stdout}{stderr}"
    assert not right(look(place, lesson)), "nothing is left to do"
    for typed in lesson.rest:
        status, stdout, stderr = playground.typed(place, typed)
        assert bool(status) == typed.fails, f"{typed.command}\n{stdout}{stderr}"
    seen = playground.look(place, lesson)
    assert right(judged(lesson, seen)), judged(lesson, seen)[-1]
    # The page's picture is what a lab looks like.
    assert tutorial.picture(seen) == tutorial.picture(tutorial.record_of(lesson))
    if lesson.wire:
        assert any("VXLAN" in {layer.name for layer in frame} for frame in seen.frames)


def test_the_commands():
    name, veth = new_name(), LESSONS[1]

    def tutorial(*words: str, check: bool = True) -> dict[str, Any]:
        ran = weft("lab", "tutorial", "--lab", name, "-o", "json", *words, check=check)
        said: dict[str, Any] = json.loads(ran.stdout)
        return said

    try:
        assert tutorial("start", "veth")["lesson"] == "veth"
        hints = [tutorial("hint") for _ in range(4)]
        assert [hint["number"] for hint in hints] == [1, 2, 3, 3]
        assert "ip link set vethred up" in hints[-1]["hint"]
        stays = weft("lab", "tutorial", "next", "--lab", name, check=False)
        assert stays.returncode == 1
        assert "✗ vethred of node1" in stays.stdout
        again = weft("lab", "tutorial", "start", "--lab", name, check=False)
        assert "LAB-002 weft lab tutorial start: it runs, and you are at lesson 'veth'" in again.stderr
        typed = " && ".join(each.command for each in veth.solution)
        weft("lab", "exec", "--lab", name, "node1", "--", "sh", "-c", typed)
        assert tutorial("check")["right"] is True
        assert tutorial("next")["lesson"] == "bridge"
        alone = weft("lab", "tutorial", "-o", "json", env=os.environ | {"WEFT_LAB": name})
        assert json.loads(alone.stdout)["lesson"] == "bridge"
        assert tutorial("reset")["reset"] == "bridge"
        assert tutorial("check", check=False)["right"] is False
        assert [lesson["done"] for lesson in tutorial()["lessons"]][:3] == [False, True, False]
        ps = weft("lab", "ps", "--lab", name)
        assert "node2  172.31.0.12  -           -    none" in ps.stdout
        assert "-- bash\n" in ps.stderr
        refused = weft("lab", "break", "node1", "uplink-down", "--lab", name, check=False)
        assert "a bare node, on which nothing runs" in refused.stderr
    finally:
        weft("lab", "down", name, check=False)
    # It was kept with the lab, and has ended with it.
    ended = weft("lab", "tutorial", "check", "--lab", name, check=False)
    assert ended.returncode == 2
    assert f"'weft lab tutorial start --lab {name}' starts it" in ended.stderr
