"""Which case of a test claims which ids of the specification.

`@pytest.mark.spec(*ids)` on a test without parameters, or in a `pytest.param`, claims for that case. On a parametrised
test it claims for every case, and then for one id at most: what all rows of a table prove is one thing. With more,
each says which cases prove it: `@pytest.mark.spec(*ids, cases="v6-*")`, patterns (fnmatch) of the text that pytest
prints in brackets. "*" alone is refused, because it says nothing: name them.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

import pytest


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One mark at a function, its class or its module; `cases` are patterns, empty for all."""

    ids: tuple[str, ...]
    cases: tuple[str, ...] = ()

    @classmethod
    def of(cls, marker: pytest.Mark) -> "Claim":
        cases = marker.kwargs.get("cases", ())
        return cls(ids=marker.args, cases=(cases,) if isinstance(cases, str) else tuple(cases))

    def covers(self, case: str) -> bool:
        return not self.cases or any(fnmatchcase(case, pattern) for pattern in self.cases)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One collected test: `case` is the text in brackets, None without parameters; `own` are its pytest.param's ids."""

    test: str
    case: str | None
    claims: tuple[Claim, ...]
    own: tuple[str, ...] = ()

    @classmethod
    def of(cls, item: pytest.Item) -> "Case":
        spec = getattr(item, "callspec", None)
        own = [marker for marker in spec.marks if marker.name == "spec"] if spec else []
        return cls(
            test=item.nodeid.removesuffix(f"[{spec.id}]") if spec else item.nodeid,
            case=spec.id if spec else None,
            claims=tuple(Claim.of(marker) for marker in item.iter_markers("spec") if marker not in own),
            own=tuple(name for marker in own for name in marker.args),
        )

    @property
    def ids(self) -> tuple[str, ...]:
        covering = (claim.ids for claim in self.claims if self.case is None or claim.covers(self.case))
        return (*self.own, *(name for ids in covering for name in ids))


def faults(cases: Iterable[Case]) -> Iterator[tuple[str, str]]:
    """Yield each test that claims ids as it may not, and what is wrong."""
    for test, (first, *_) in _by_test(cases):
        if first.case is None:
            if any(claim.cases for claim in first.claims):
                yield test, "it has no cases, and claims ids for some"
            continue
        for_all = [name for claim in first.claims if not claim.cases for name in claim.ids]
        if len(for_all) > 1:
            yield test, f"claims {len(for_all)} ids for each case: say which cases prove which id ({__name__})"
        if any("*" in claim.cases for claim in first.claims):
            yield test, 'cases="*" says nothing: name the cases that prove the id'


def unmatched(cases: Iterable[Case]) -> Iterator[str]:
    """Yield patterns that no case of their test has; `cases` are all that there are."""
    for test, group in _by_test(cases):
        for pattern in (pattern for claim in group[0].claims for pattern in claim.cases):
            if not any(fnmatchcase(one.case or "", pattern) for one in group):
                yield f"{test}: no case is {pattern!r}"


def _by_test(cases: Iterable[Case]) -> Iterable[tuple[str, list[Case]]]:
    groups: dict[str, list[Case]] = {}
    for case in cases:
        groups.setdefault(case.test, []).append(case)
    return groups.items()
