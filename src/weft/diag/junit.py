"""JUnit's report of tests, as CI systems read it. Pure."""

from collections.abc import Iterable, Iterator
from xml.sax.saxutils import quoteattr

from weft.model.value import Value


class Case(Value):
    """A test case: it passed if it has no `failures` (kind and words) and was not `skipped`, for a reason."""

    group: str
    name: str
    failures: tuple[tuple[str, str], ...] = ()
    skipped: str = ""


def suite(name: str, cases: Iterable[Case]) -> str:
    """A suite of cases as XML, without a line end at its end."""
    everything = list(cases)
    failed, skipped = sum(bool(each.failures) for each in everything), sum(bool(each.skipped) for each in everything)
    counts = f'tests="{len(everything)}" failures="{failed}" skipped="{skipped}" errors="0"'
    lines = "".join(f"  {line}\n" for case in everything for line in _lines(case))
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuite name={quoteattr(name)} {counts}>\n{lines}</testsuite>\n'


def _lines(case: Case) -> Iterator[str]:
    yield f"<testcase classname={quoteattr(case.group)} name={quoteattr(case.name)}>"
    if case.skipped:
        yield f"  <skipped message={quoteattr(case.skipped)}/>"
    for kind, words in case.failures:
        yield f"  <failure type={quoteattr(kind)} message={quoteattr(words)}/>"
    yield "</testcase>"
