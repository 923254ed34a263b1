"""The loop over rule sets, on a firewall made of a dictionary."""

import asyncio
import logging
from collections.abc import Collection
from types import SimpleNamespace

import pytest

from tests.support.waiting import comes
from weft.daemon import rules
from weft.daemon.rules import RuleKeeper
from weft.model.errors import Failure
from weft.model.objects import Key
from weft.model.rulesets import Chain, RuleSet
from weft.plan.diff import Put, Step
from weft.plan.fuse import BURST, PAUSE

RULES = RuleSet(kind="nft", family=4, chains=(Chain(name="postrtg", rules=("return",)),))


class FakeFirewall:
    """Holds rule sets, and refuses all steps when it is told to."""

    def __init__(self) -> None:
        self.state: dict[Key, RuleSet] = {}
        self.refuses = False
        self.tries = 0

    async def present(self, only: Collection[Key] | None = None) -> dict[Key, RuleSet]:
        return {key: thing for key, thing in self.state.items() if only is None or key in only}

    async def matches(self, ruleset: RuleSet) -> bool:
        return self.state.get(ruleset.key) == ruleset

    async def apply(self, step: Step) -> Failure | None:
        self.tries += 1
        if self.refuses:
            return Failure(step=step, errno=5, message="refused")
        if isinstance(step, Put):
            self.state[step.object.key] = step.object
        else:
            self.state.pop(step.object.key, None)
        return None


async def nothing_to_hear():
    await asyncio.Event().wait()
    yield


async def test_a_refused_repair_is_no_repair_and_comes_about_at_the_first_chance(monkeypatch, caplog):
    monkeypatch.setattr(rules, "_RETRY_SECONDS", 0.001)
    firewall = FakeFirewall()
    keeper = RuleKeeper(firewall, clock=lambda: 0.0)
    keeper.want(frozenset({RULES}))
    await keeper.install()
    firewall.state.clear()
    firewall.refuses = True
    keeper._wake.keys([RULES.key])
    with caplog.at_level(logging.WARNING):
        task = asyncio.create_task(keeper.run(SimpleNamespace(wakes=nothing_to_hear), sweep=60))
        await asyncio.sleep(0.3)
        assert firewall.tries > 30
        assert "put back" not in caplog.text
        assert "someone keeps changing" not in caplog.text
        assert caplog.text.count("refused") == 1
        assert str(keeper.problem()).startswith("NFT-001 firewall rules: cannot be written: refused")
        firewall.refuses = False
        await asyncio.sleep(0.05)
        assert firewall.state
    assert caplog.text.count("put back") == 1
    assert not keeper.failing
    assert keeper.problem() is None
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_rules_that_somebody_keeps_changing_are_a_problem_while_they_have_to_wait(caplog):
    firewall, now = FakeFirewall(), 0.0
    keeper = RuleKeeper(firewall, clock=lambda: now)
    keeper.want(frozenset({RULES}))
    await keeper.install()
    task = asyncio.create_task(keeper.run(SimpleNamespace(wakes=nothing_to_hear), sweep=60))

    async def changed_until(true) -> None:
        firewall.state.clear()
        keeper._wake.keys([RULES.key])
        await comes(true)

    for _ in range(BURST):
        await changed_until(lambda: firewall.state)
    assert keeper.problem() is None
    await changed_until(keeper.problem)
    assert str(keeper.problem()).startswith(
        "NFT-002 firewall rules: another program keeps changing ruleset nft IPv4: postrtg (1). Find it."
    )
    now = PAUSE
    await changed_until(lambda: firewall.state)
    assert keeper.problem() is None
    task.cancel()
    await asyncio.wait((task,))


async def test_rules_that_come_back_by_themselves_are_no_problem_any_more():
    firewall = FakeFirewall()
    firewall.refuses = True
    keeper = RuleKeeper(firewall, clock=lambda: 0.0)
    keeper.want(frozenset({RULES}))
    await keeper.install()
    assert keeper.problem() is not None
    firewall.state[RULES.key] = RULES
    task = asyncio.create_task(keeper.run(SimpleNamespace(wakes=nothing_to_hear), sweep=60))
    keeper._wake.keys([RULES.key])
    await comes(lambda: keeper.problem() is None)
    task.cancel()
    await asyncio.wait((task,))


async def test_what_is_not_wanted_any_more_goes_when_the_inputs_change():
    """A family that the configuration gave up, say: its rules are of no use, and none of them is a repair."""
    other = RuleSet(kind="nft", family=6, chains=RULES.chains)
    firewall = FakeFirewall()
    keeper = RuleKeeper(firewall, clock=lambda: 0.0)
    keeper.want(frozenset({RULES, other}))
    await keeper.install()
    task = asyncio.create_task(keeper.run(SimpleNamespace(wakes=nothing_to_hear), sweep=60))
    await comes(lambda: not keeper._wake._dirty.inputs)
    assert set(firewall.state) == {RULES.key, other.key}
    keeper.want(frozenset({other}))
    await comes(lambda: set(firewall.state) == {other.key})
    keeper.want(frozenset({RULES}))
    await comes(lambda: set(firewall.state) == {RULES.key})
    assert not keeper.repairs
    task.cancel()
    await asyncio.wait((task,))
