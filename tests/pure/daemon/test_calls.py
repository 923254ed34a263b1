"""Counts of plugins' calls."""

from types import SimpleNamespace
from typing import Any

import pytest

from weft.daemon.calls import Calls
from weft.wire.cni import Ran


def request(plugin: str, command: str, waited: float = 0.0) -> Any:
    return SimpleNamespace(plugin=plugin, command=command, waited=waited)


def test_calls_are_counted_by_plugin_and_command():
    calls = Calls()
    answers = iter([Ran(exit=0), Ran(exit=1), Ran(exit=0)])
    run = calls.counting(lambda _request, _host: next(answers))
    for plugin, command in (("bridge", "ADD"), ("bridge", "ADD"), ("bridge", "DEL")):
        run(request(plugin, command), None)  # type: ignore[arg-type]
    seen = {kind: (count, failed) for kind, (count, failed, _) in calls.look().items()}
    assert seen == {"bridge ADD": (2, 1), "bridge DEL": (1, 0)}
    [_, _, seconds] = calls.look()["bridge ADD"]
    assert len(seconds) == 2
    assert 0 <= seconds[0] <= seconds[1] < 10


def test_what_pods_wait_for_is_measured():
    calls = Calls()
    run = calls.counting(lambda _request, _host: Ran(exit=0))
    for command, waited in (("ADD", 0.0), ("ADD", 3.0), ("DEL", 100.0), ("CHECK", 100.0), ("VERSION", 100.0)):
        run(request("flannel", command, waited), None)  # type: ignore[arg-type]
    assert {kind: sum(took.counts) for kind, took in calls.took.items()} == {"flannel ADD": 2, "flannel DEL": 1}
    assert calls.waited.total == 103.0
    assert calls.waited.counts[0] == calls.waited.counts[-1] == 1


def test_one_that_raises_has_failed():
    calls = Calls()

    def fails(*_: object) -> Ran:
        raise ValueError("so")

    with pytest.raises(ValueError, match="so"):
        calls.counting(fails)(request("ptp", "ADD"), None)  # type: ignore[arg-type]
    assert calls.look()["ptp ADD"][:2] == (1, 1)
