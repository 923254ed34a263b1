"""Patterns of RE2 mean in Python what they mean there, or are refused."""

import re
import time
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.bent import mostly
from tests.support.reach import reached, reaches
from weft.config.re2 import Pattern

pytestmark = pytest.mark.spec("flannel.md §7.2/regex-dialect")


@pytest.mark.parametrize(
    "pattern, text, matches",
    [
        (r"192\.168\.200\.\d+", "192.168.200.128", True),
        (r"^eth\d+$", "eth10", True),
        (r"\Aeth\z", "eth", True),
        (r"\Aeth\z", "eth0", False),
        (r"(?i)ETH", "eth0", True),
        (r"(?i:E)TH", "eTH", True),
        (r"(?i:E)TH", "eth", False),
        (r"(?P<n>e)th", "eth", True),
        (r"(?<n>e)th", "eth", True),
        (r"[[:digit:]]+\.[^[:alpha:]]", "10.1", True),
        (r"e{,5}", "e{,5}", True),
        (r"e{,5}", "eee", False),
        (r"^\d$", "٣", False),
        (r"\x65\x{74}h", "eth", True),
        (r"[]a]", "]", True),
        (r"[^]a]", "]", False),
        (r"^[--/]$", ".", True),
        (r"^[+--]$", ",", True),
        (r"^[a&&b]$", "&", True),
        (r"^[a[]$", "[", True),
        (r"^[\d\-]+$", "1-2", True),
        (r"a+?b??c{2,3}?", "abcc", True),
        (r"", "anything", True),
        (r"a(?i)B|c", "C", True),
        (r"a((?i)b)c", "aBC", False),
        (r"(?i)a(?-i)b", "AB", False),
        (r"(?i)[k-l]\w[^s]\W", "\u212a\u017fx!", True),
        (r"(?i)[^k]", "K\u212a", False),
        (r"(?i)\W", "\u212a", False),
        (r"(?i)å", "\u212b", True),
        (r"(?U)a+$", "a", True),
        (r"a$", "a\n", False),
        (r"(?m)^b$", "a\nb\nc", True),
        (r"^b", "a\nb", False),
        (r"a.b", "a\nb", False),
        (r"^.$", "\t", True),
        (r"^.$", "\v", True),
        (r"(?s)a.b", "a\nb", True),
        (r"\s", "\v", False),
        (r"[[:space:]]", "\v", True),
        (r"[[:^digit:]]", "1", False),
        (r"[[:x]", ":", True),
        (r"\101\060\0", "A0\0", True),
        (r"\a\f\v\t\_", "\a\f\v\t_", True),
        (r"\bth\b", "eth", False),
        (r"\Beth", "eth", False),
        (r"\B", "", True),
        (r"^*a", "a", True),
        (r"(?:a{2}|b)?c{0}$", "aab", True),
        (r"^(?:a{2}|b)?$", "aab", False),
        (r"^a{01}$", "a{01}", True),
        (r"^(?:a|b|){1,3}$", "abab", False),
        (r"^(?:|a)*$", "aaa", True),
        (r"^(?:a*)*$", "aab", False),
        (r"^(?:^a|b){2,}$", "abb", True),
        (r"^(?:^a|b){2,}$", "aab", False),
    ],
)
def test_a_pattern_means_what_it_means_in_re2(pattern, text, matches):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Pattern(pattern).search(text) is matches


@pytest.mark.parametrize(
    "pattern, reason",
    [
        (r"a(?=b)", "look-around"),
        (r"a(?!b)", "look-around"),
        (r"(?<=a)b", "look-around"),
        (r"(?<!a)b", "look-around"),
        (r"(a)\1", "back-references"),
        (r"(?P<a>x)(?P=a)", "back-references"),
        (r"(?>a)", "does not exist in RE2"),
        (r"(?#note)", "does not exist in RE2"),
        (r"(?(1)a|b)", "does not exist in RE2"),
        (r"(?x)a", "is not one of i, m, s, U"),
        (r"(?i-)a", "does not exist in RE2"),
        (r"(?P<a>x)(?P<a>y)", "two groups have the name a"),
        (r"a\Z", "does not exist in RE2"),
        (r"\u0041", "does not exist in RE2"),
        (r"\pL", "does not support"),
        (r"a++", "two repeat operators"),
        (r"a**", "two repeat operators"),
        (r"a{2}+", "two repeat operators"),
        (r"a{1001}", "at most 1000"),
        (r"[a", "missing closing"),
        (r"[[:nope:]]", "character class"),
        (r"[\b]", "does not exist in RE2"),
        (r"(a", "missing closing )"),
        (r"a)", "unexpected )"),
        (r"*a", "nothing for * to repeat"),
        (r"a|{2}", "nothing for { to repeat"),
        (r"[z-a]", "ends before it begins"),
        (r"a{3,2}", "at most 2 times, but at least 3"),
        (r"(?:a{100}){11}", "nested repeats multiplied"),
        ("a{" + "9" * 5000 + "}", "at most 1000"),
        (r"a{1000}" * 11, "more than 10000 parts"),
        (r"(?:){1000}" * 20, "more than 10000 parts"),
        ("(" * 51 + ")" * 51, "at most 50 groups within each other"),
        (r"[\d-a", "missing closing"),
        (r"[a-\d]", "does not exist in RE2"),
        ("a\\", "single backslash"),
        (r"\x{110000}", "10FFFF"),
        (r"\x4", "hexadecimal"),
    ],
)
def test_what_re2_lacks_is_refused_by_name(pattern, reason):
    with pytest.raises(ValueError, match=re.escape(reason)):
        Pattern(pattern)


def test_groups_as_deep_as_they_may_be():
    assert Pattern("(" * 50 + "a" + ")" * 50).search("a")


PIECES = st.sampled_from(
    ["a", ".", r"\d", "[a-z]", "[^0-9]", "eth", "(ab|c)", "(?:x)", "(?i:y)", r"\.", "^", "$", "b+?"]
)
ODD = st.sampled_from(["(?=x)", "(", "[z-a]", r"\1", "*", "a**", r"\Z", "(?P=n)", "x{1001}"])
TEXT = st.text(alphabet=st.one_of(st.sampled_from(r"\()[]{}?*+|^$.:-&~,PQEz<=!i1xd"), st.characters()), max_size=20)


@reaches(pattern=0.25, refused=0.05)
@given(st.one_of(TEXT, st.lists(mostly(PIECES, st.one_of(ODD, TEXT)), max_size=6).map("".join)))
def test_any_text_is_a_pattern_or_a_value_error(pattern):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            Pattern(pattern)
            reached("pattern")
        except ValueError:
            reached("refused")


# What means the same in Python's `re`, which tries one way after the other; `$` is spelt otherwise there.
LEAVES = st.sampled_from(
    ["a", "b", "-", ".", "[ab]", "[^a]", r"\d", r"\W", r"\b", "^", "$", "(?i:B)", "(?m:^)", "(?s:.)"]
)


def larger(smaller: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    whole = smaller.map("(?:{})".format)
    return st.one_of(
        st.lists(smaller, max_size=4).map("".join),
        st.lists(smaller, min_size=2, max_size=3).map(lambda parts: f"(?:{'|'.join(parts)})"),
        st.builds("{}{}".format, whole, st.sampled_from(["*", "+", "?", "*?", "{2}", "{0,2}", "{1,}", "{0}"])),
    )


@reaches(matches=0.1, matches_not=0.1)
@given(st.recursive(LEAVES, larger, max_leaves=8), st.lists(st.text("aAbB1-\n", max_size=6), min_size=1, max_size=5))
def test_a_pattern_finds_what_pythons_finds(pattern: str, texts: list[str]):
    ours, theirs = Pattern(pattern), re.compile(pattern.replace("$", r"\Z"), re.ASCII)
    for text in texts * 2:  # the second time from what was learned
        found = ours.search(text)
        reached("matches" if found else "matches_not")
        assert found is bool(theirs.search(text)), text


@pytest.mark.parametrize(
    "pattern", ["(a*)*$", "(a|aa)+$", "a*" * 20 + "b", "^(?:a?){30}a{30}b", "(.*)*x", "(?:(?:a+)+)+-", r"(\w+\.?)*!"]
)
def test_no_pattern_takes_time_that_grows_with_the_ways_through_it(pattern):
    """Python's `re` takes years for each; the limit is for that alone."""
    before = time.process_time()
    for text in ("a" * 15, "a" * 200 + "\n", ":".join(["fd00"] * 8)):
        Pattern(pattern).search(text)
    assert time.process_time() - before < 10


def test_what_is_learned_of_texts_is_bounded():
    pattern = Pattern("(?:[a-p]{0,20}[b-o]){0,20}!")
    for number in range(3000):
        pattern.search(chr(97 + number % 16) * 3 + f"{number:x}" * 20)
    assert sum(1 + len(state.parts) for state in pattern._steps.values()) < 110_000


def test_patterns_are_compared_by_what_was_written():
    assert Pattern("a") == Pattern("a")
    assert len({Pattern("a"), Pattern("a"), Pattern("b")}) == 2
    assert Pattern("a") != "a"
