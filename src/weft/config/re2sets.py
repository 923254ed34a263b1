"""Sets of characters in RE2 patterns: ranges of code points, classes by name, and what differs in case only."""

from typing import Final

from weft.model.value import Value

Ranges = tuple[tuple[int, int], ...]
LAST: Final = 0x10FFFF


def ranges(text: str) -> Ranges:
    """The ranges of `text`, which says them in pairs: `azAZ`. Empty for an empty text."""
    points = [ord(letter) for letter in text]
    return tuple(zip(points[::2], points[1::2], strict=True))


def others(inside: Ranges) -> Ranges:
    """All characters that are not `inside`."""
    found, start = [], 0
    for first, last in (*sorted(inside), (LAST + 1, LAST + 1)):
        if first > start:
            found.append((start, first - 1))
        start = max(start, last + 1)
    return tuple(found)


_WORD: Final = ranges("09AZaz__")
# https://github.com/google/re2/wiki/Syntax: Perl's and POSIX's classes hold ASCII only.
POSIX: Final = {
    "alnum": ranges("09AZaz"),
    "alpha": ranges("AZaz"),
    "ascii": ranges("\x00\x7f"),
    "blank": ranges("\t\t  "),
    "cntrl": ranges("\x00\x1f\x7f\x7f"),
    "digit": ranges("09"),
    "graph": ranges("!~"),
    "lower": ranges("az"),
    "print": ranges(" ~"),
    "punct": ranges("!/:@[`{~"),
    "space": ranges("\t\r  "),
    "upper": ranges("AZ"),
    "word": _WORD,
    "xdigit": ranges("09AFaf"),
}
# \s is without \v, unlike [:space:]. A capital letter negates.
PERL: Final = {"d": POSIX["digit"], "s": ranges("\t\n\f\r  "), "w": _WORD}
# What `str.upper` and `str.lower` do not lead to from the letter itself: the signs of Kelvin and Angstrom, the long s.
_ALSO: Final = {"k": "\u212a", "s": "\u017f", "\u00e5": "\u212b"}


class Chars(Value):
    """One character: of `ranges`, or with `negated` none of them; with `fold` in upper or lower case."""

    ranges: Ranges
    negated: bool = False
    fold: bool = False

    def holds(self, letter: str) -> bool:
        """Tell whether `letter` is one of these characters."""
        points = [ord(each) for each in cases(letter)] if self.fold else [ord(letter)]
        inside = any(first <= point <= last for first, last in self.ranges for point in points)
        return inside is not self.negated


def cases(letter: str) -> frozenset[str]:
    """`letter` and the single characters that differ from it in case only."""
    upper, lower = letter.upper(), letter.lower()
    found = (letter, upper, lower, upper.lower(), lower.upper(), _ALSO.get(lower, ""), _ALSO.get(upper.lower(), ""))
    return frozenset(each for each in found if len(each) == 1)


def in_any_case(inside: Ranges) -> Ranges:
    """A small set with all that differs from it in case only."""
    points = (point for first, last in inside for point in range(first, last + 1))
    return tuple((ord(each), ord(each)) for point in points for each in cases(chr(point)))
