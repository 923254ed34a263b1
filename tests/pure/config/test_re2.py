"""Patterns of RE2 mean in Python what they mean there, or are refused."""

import re
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.bent import mostly
from tests.support.reach import reached, reaches
from weft.config.re2 import compile_re2

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
    ],
)
def test_a_pattern_means_what_it_means_in_re2(pattern, text, matches):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert bool(compile_re2(pattern).search(text)) is matches


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
        (r"(?x)a", "is not one of i, m, s"),
        (r"(?U)a", "is not one of i, m, s"),
        (r"a(?i)b", "only at the start"),
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
        (r"(a", "RE2"),
        (r"*a", "RE2"),
        ("a\\", "single backslash"),
        (r"\x{110000}", "10FFFF"),
        (r"\x4", "hexadecimal"),
    ],
)
def test_what_re2_lacks_is_refused_by_name(pattern, reason):
    with pytest.raises(ValueError, match=re.escape(reason)):
        compile_re2(pattern)


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
            compile_re2(pattern)
            reached("pattern")
        except ValueError:
            reached("refused")
