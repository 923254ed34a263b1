"""Text for people cannot break a line or lead a terminal astray."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from weft.model.errors import WeftCommand
from weft.model.text import counted, one_line, one_of, some_of, typed_from, visible


@pytest.mark.parametrize(
    "text, line",
    [
        ("plain, ä and 漢", "plain, ä and 漢"),
        ("one\ntwo\r\n\n  three\n", "one; two; three"),
        ("\x1b[31mred\x07", r"\x1b[31mred\x07"),
        ("left\u202eright \u2028next \x9b", r"left\u202eright \u2028next \x9b"),
        ("half a pair \ud800", r"half a pair \ud800"),
        ("\n", ""),
    ],
)
def test_lines_are_joined_and_the_rest_is_escaped(text, line):
    assert one_line(text) == line


@given(st.text())
@example("a\nb")
@example("\x1b]0;title\x07")
def test_nothing_unprintable_is_left_and_nothing_printable_changes(text):
    line = one_line(text)
    assert line.isprintable()
    if text.isprintable():
        assert line == text


@pytest.mark.parametrize("count, words", [(0, "0 peers"), (1, "1 peer"), (2, "2 peers")])
def test_one_is_no_plural(count, words):
    assert counted(count, "peer") == words


@pytest.mark.parametrize(
    "known, wanted, said",
    [
        (["a", "b"], "c", "one of a, b"),
        ([], "c", "a name, but there is none"),
        ([f"node{n}" for n in range(1, 31)], "nodee12", "perhaps node12 or node2 or node1, of 30 names"),
        ([f"node{n}" for n in range(1, 31)], "xyz", "one of 30 names, such as node1, node2, node3"),
    ],
)
def test_names_that_there_are(known, wanted, said):
    assert one_of(known, wanted) == said


@pytest.mark.parametrize(
    "text, shown",
    [
        ("two\n\tlines, ä and 漢\n", "two\n\tlines, ä and 漢\n"),
        ("\x1b]0;title\x07\r\x9b31m", r"\x1b]0;title\x07\r\x9b31m"),
        ("left\u202eright\u2028\ufeff", r"left\u202eright\u2028\ufeff"),
    ],
)
def test_what_a_terminal_obeys_is_shown(text: str, shown: str):
    assert visible(text) == shown


@given(st.text())
def test_nothing_that_is_shown_is_obeyed(text: str):
    shown = visible(text)
    assert all(each.isprintable() or each in "\n\t" for each in shown if ord(each) < 0xA0)
    assert visible(shown) == shown


POD = {"POD_NAME": "kube-flannel-ds-x1", "POD_NAMESPACE": "nets"}


@pytest.mark.parametrize(
    "command, typed",
    [
        ("plan", "kubectl -n nets exec kube-flannel-ds-x1 -- weft plan"),
        ("doctor -v", "kubectl -n nets exec kube-flannel-ds-x1 -- weft doctor -v"),
        ("cni install", "kubectl -n nets delete pod kube-flannel-ds-x1"),
        ("cni install --check", "kubectl -n nets exec kube-flannel-ds-x1 -- weft cni install --check"),
        ("lab up", "weft lab up"),
    ],
)
def test_a_command_is_typed_where_its_reader_is(command, typed):
    assert typed_from(POD)(WeftCommand(command)) == typed
    for environ in ({}, {"POD_NAME": "alone"}):
        assert typed_from(environ)(WeftCommand(command)) == f"weft {command}"


def test_of_many_names_some_are_listed_and_the_rest_is_counted():
    assert [some_of(["a", "b", "c"][:count], 2) for count in range(4)] == ["", "a", "a, b", "a, b and 1 more"]
