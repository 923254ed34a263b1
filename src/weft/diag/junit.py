"""JUnit's report of tests, as CI systems read it. Pure."""

from collections.abc import Iterable, Iterator

from weft.model.text import one_line
from weft.model.value import Value


class Case(Value):
    """A test case: it passed if it has no `failures` (kind and words) and was not `skipped`, for a reason."""

    group: str
    name: str
    failures: tuple[tuple[str, str], ...] = ()
    skipped: str = ""


def suite(name: str, cases: Iterable[Case]) -> str:
    everything = list(cases)
    failed, skipped = sum(bool(each.failures) for each in everything), sum(bool(each.skipped) for each in everything)
    counts = f'tests="{len(everything)}" failures="{failed}" skipped="{skipped}" errors="0"'
    lines = "".join(f"  {line}\n" for case in everything for line in _lines(case))
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuite name={_quoted(name)} {counts}>\n{lines}</testsuite>\n'


def _lines(case: Case) -> Iterator[str]:
    yield f"<testcase classname={_quoted(case.group)} name={_quoted(case.name)}>"
    if case.skipped:
        yield f"  <skipped message={_quoted(case.skipped)}/>"
    for kind, words in case.failures:
        yield f"  <failure type={_quoted(kind)} message={_quoted(words)}/>"
    yield "</testcase>"


def _quoted(text: str) -> str:
    """XML has no words for most control characters (XML 1.0, "Characters"): a pod may put one into a comment."""
    from xml.sax.saxutils import quoteattr  # late: it loads urllib.request, 25 ms that most diagnoses need not wait for

    return quoteattr(one_line(text))
