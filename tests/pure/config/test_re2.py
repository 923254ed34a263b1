"""Patterns mean what they mean in Go's RE2, or are refused."""

import re
import time
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pure.bent import mostly
from tests.pure.reach import reached, reaches
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
        (r"^\pL\\C$", "é\\C", True),
        (r"^\Qa.\C\E$", r"ax\C", False),
        (r"^\Qa.\C\E$", r"a.\C", True),
        (r"^\Q\C", r"\C", True),
        ("^.\N{REPLACEMENT CHARACTER}$", "e\udcff", True),
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
        (r"a(?=b)", "invalid perl operator: (?="),
        (r"(?<!a)b", "invalid perl operator: (?<!"),
        (r"(a)\1", r"invalid escape sequence: \1"),
        (r"(?P<a>x)(?P=a)", "invalid perl operator: (?P"),
        (r"(?>a)", "invalid perl operator: (?>"),
        (r"(?x)a", "invalid perl operator: (?x"),
        (r"a\Z", r"invalid escape sequence: \Z"),
        (r"a++", "bad repetition operator: ++"),
        (r"a{1001}", "invalid repetition size: {1001}"),
        (r"(?:a{100}){11}", "invalid repetition size: {11}"),
        (r"[a", "missing ]"),
        (r"[[:nope:]]", "invalid character class range"),
        (r"[z-a]", "invalid character class range: z-a"),
        ("(é", "missing ): (é"),
        (r"*a", "no argument for repetition operator"),
        (r"a{1000}" * 2000, "pattern too large"),
        ("\ud800", "invalid UTF-8"),
        ("eth\udcff", "invalid UTF-8"),
        (r"\C", r"invalid escape sequence: \C"),
        (r"a\\\C", r"invalid escape sequence: \C"),
        (r"\Q\C\E\C", r"invalid escape sequence: \C"),
    ],
)
def test_what_re2_lacks_is_refused_by_name(pattern, reason):
    with pytest.raises(ValueError, match=re.escape(reason)):
        Pattern(pattern)


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
    for text in texts:
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


def test_patterns_are_compared_by_what_was_written():
    assert Pattern("a") == Pattern("a")
    assert len({Pattern("a"), Pattern("a"), Pattern("b")}) == 2
    assert Pattern("a") != "a"
