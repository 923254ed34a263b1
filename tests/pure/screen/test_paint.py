"""Colour changes no text and no column, and means the same everywhere."""

import re

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.screen import say
from weft.screen.say import painted, title

ESCAPES = re.compile(r"\033\]8;;[^\033]*\033\\|\033\[[0-9;]*m")
STYLES = {"1": "heading", "31": "bad", "32": "good", "33": "notable", "2": "faint"}


def marked(text: str) -> list[tuple[str, str]]:
    """What is painted, and how."""
    shown = painted(text, lambda code: f"page#{code}")
    return [(STYLES[style], words) for style, words in re.findall(r"\033\[(\d+)m(.*?)\033\[0m", shown)]


@pytest.mark.parametrize(
    "text, expected",
    [
        (
            "LAB  STATE  PID\nup   up     0\nx    dead   0",
            [("heading", "LAB  STATE  PID"), ("good", "up"), ("bad", "dead")],
        ),
        ("NODE   POD SUBNET   MTU\n", [("heading", "NODE   POD SUBNET   MTU")]),
        ("weftd      1.0, ready, up 3 s, instance net", [("good", "ready")]),
        ("weftd      1.0, not ready, up 3 s", [("bad", "not ready")]),
        ("node1  exited -9", [("bad", "exited -9")]),
        ("! store: STORE-001 no answer", [("bad", "!"), ("heading", "STORE-001")]),
        ("2026-11-24 22:14:09  repaired        VTEP-003 link", [("notable", "repaired"), ("heading", "VTEP-003")]),
        ("2026-11-24 22:14:09  joined          10.5.50.0-24: subnets", [("good", "joined")]),
        ("10.5.2.0/24  vxlan  lacks route: refused", [("bad", "lacks")]),
        ("fault    HOST-001 x\nwarning  HOST-003 y\nok       links: z", None),
        ("   1 ✓ route  x\n   2 ✗ rule   y", [("good", "✓"), ("bad", "✗")]),
        ("     dropped: ROUTE-002 x", [("bad", "dropped"), ("heading", "ROUTE-002")]),
        ("\nNext: weft lab up", [("faint", "Next:")]),
        ("not seen links: no netlink", [("faint", "not seen")]),
        ("a pod named ready is not up to it", []),
        ("ready-to-go  upper  refusedness", []),
    ],
)
def test_what_is_painted(text, expected):
    if expected is None:
        kinds = ["bad", "heading", "notable", "heading", "good"]
        assert [kind for kind, _ in marked(text)] == kinds
    else:
        assert marked(text) == expected


def test_a_code_is_a_link_to_its_page():
    shown = painted("see MTU-001.", lambda code: f"file:///page#{code.lower()}")
    assert shown == "see \033]8;;file:///page#mtu-001\033\\\033[1mMTU-001\033[0m\033]8;;\033\\."


WORDS = ["ready", "up", "not ready", "LAB", "STATE", "MTU-001", "  ", " ", "\n", "!", "fault", "x", ", ", ":", "Next:"]


@given(st.lists(st.sampled_from(WORDS)).map("".join))
def test_without_what_is_added_it_is_the_text(text):
    assert ESCAPES.sub("", painted(text, lambda code: f"page#{code}")) == text


@pytest.mark.parametrize("colour", [True, False])
def test_a_heading_and_a_code_on_a_terminal_and_elsewhere(monkeypatch, colour):
    printed: list[str] = []
    monkeypatch.setattr(say, "shows_colour", lambda _: colour)
    monkeypatch.setattr(click, "echo", lambda text, **_: printed.append(text))
    title("One")
    say.say("MTU-001")
    heading, code = printed
    assert heading == ("\033[1mOne\033[0m" if colour else "One")
    assert ESCAPES.sub("", code) == "MTU-001"
    assert ("#mtu-001" in code) == colour
