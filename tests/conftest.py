"""For all tests: carries the ids of @pytest.mark.spec into the report, where tests.run.report reads them.

Where a file is named for it, what happens is written there as it happens: tests/run/progress.py.
With `--drawn=SEED` a run does some cases of parametrised tests: tests/run/draw.py.
Gives programs that tests start the usual signals, whatever the run itself was told to ignore.
Properties draw other examples each run, in CI too, and do not judge how fast the machine is: there is no deadline, and
no `too_slow` check, for both measure what other work on the machine does.
"""

import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.run import draw, progress
from tests.spec import claims

settings.register_profile(
    "weft",
    settings.get_profile("default"),
    deadline=None,
    derandomize=False,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("weft")

_FAULT = pytest.StashKey[str]()  # what is wrong with the claims of a test, which then fails


def pytest_addoption(parser: pytest.Parser) -> None:
    help_ = f"of each parametrised test one case in {draw.ONE_IN}, drawn by this seed"
    parser.addoption("--drawn", metavar="SEED", help=help_)


def pytest_configure(config: pytest.Config) -> None:
    file = os.environ.get(progress.VARIABLE)
    # Of several processes the one that gives out the tests; and not where they are only listed, as by `make lint`.
    if file and not hasattr(config, "workerinput") and not config.option.collectonly:
        config.pluginmanager.register(progress.Recorder(Path(file)))
    hand_on_the_usual_signals()


def hand_on_the_usual_signals() -> None:
    """Let programs that are started from here get the signals that this run was told to ignore.

    An ignored signal stays so in every program started from here: `nohup make test`, or a job of a script in the
    background. With a handler that does nothing the run itself stays as it was, and what it starts does not.
    """
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    cases = [claims.Case.of(item) for item in items]
    for item, case in zip(items, cases, strict=True):
        item.user_properties.extend(("spec", name) for name in case.ids)
    faults = dict(claims.faults(cases))
    for item, case in zip(items, cases, strict=True):
        item.stash[_FAULT] = faults.get(case.test, "")
    if seed := config.getoption("--drawn"):
        chosen = draw.drawn(cases, seed)
        done = [place in chosen or item.get_closest_marker("every") is not None for place, item in enumerate(items)]
        config.hook.pytest_deselected(items=[item for item, does in zip(items, done, strict=True) if not does])
        items[:] = [item for item, does in zip(items, done, strict=True) if does]


def pytest_runtest_setup(item: pytest.Item) -> None:
    if fault := item.stash[_FAULT]:
        pytest.fail(fault, pytrace=False)
