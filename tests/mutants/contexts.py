"""A plugin of pytest's: tells coverage which test runs, for `tests.mutants`, which asks which tests ran a line."""

from coverage import Coverage


def pytest_runtest_logstart(nodeid: str) -> None:
    measuring = Coverage.current()
    assert measuring is not None, "it is for `coverage run`"
    measuring.switch_context(nodeid)
