"""The plane of rules, on a firewall made of a dictionary."""

from collections.abc import Collection
from types import SimpleNamespace

from weft.daemon.planes.plane import Keeper
from weft.daemon.planes.rules import RulesPlane
from weft.model.errors import Failure
from weft.model.kernel.objects import Chain, Key, Ownership, RuleSet
from weft.plan.backoff import BURST, PAUSE
from weft.plan.diff import Put, Step

RULES = RuleSet(kind="nft", family=4, chains=(Chain(name="postrtg", rules=("return",)),))


class FakeFirewall:
    """Holds rule sets, and refuses all steps when it is told to."""

    def __init__(self) -> None:
        self.state: dict[Key, RuleSet] = {}
        self.refuses = False
        self.tries = self.looks = 0
        self.asked: Collection[Key] | None = ()

    async def present(self, only: Collection[Key] | None = None) -> dict[Key, RuleSet]:
        self.looks += 1
        self.asked = only
        return {key: thing for key, thing in self.state.items() if only is None or key in only}

    async def apply(self, step: Step) -> Failure | None:
        self.tries += 1
        if self.refuses:
            return Failure(step=step, errno=5, message="refused")
        if isinstance(step, Put):
            self.state[step.object.key] = step.object
        else:
            self.state.pop(step.object.key, None)
        return None


class Rules:
    """The loop over a firewall that is none, as a network with one rule set has it."""

    def __init__(self) -> None:
        self.firewall = FakeFirewall()
        self.now = 0.0
        self.decider = SimpleNamespace(wanted={RULES.key: RULES}, ownership=Ownership(devices=frozenset(), networks=()))
        self.keeper = Keeper(
            RulesPlane(self.firewall, sweep=60.0, announces=True),
            self.decider,
            may_remove=lambda: True,
            clock=lambda: self.now,
        )

    async def start(self) -> "Rules":
        self.keeper.decided({RULES.key})
        await self.settle()
        return self

    async def settle(self) -> None:
        while self.keeper._marked.is_set():
            await self.keeper.round(self.keeper._take())

    async def flushed(self) -> None:
        """Someone else removes the rules, and a notice says which."""
        self.firewall.state.clear()
        self.keeper.unseen([RULES.key], {RULES.key: "nft (pid 7)"})
        await self.settle()


async def test_the_first_round_puts_without_a_look_and_the_second_removes_what_is_left():
    rules = Rules()
    left = RuleSet(kind="iptables", family=4, chains=RULES.chains)
    rules.firewall.state[left.key] = left
    rules.keeper.decided({RULES.key})
    await rules.keeper.round(rules.keeper._take())
    assert rules.firewall.state.keys() == {RULES.key, left.key}
    assert rules.firewall.looks == 0
    await rules.settle()
    assert rules.firewall.state.keys() == {RULES.key}
    assert not rules.keeper.tally.repairs


async def test_what_others_change_is_looked_at_alone_and_put_back(caplog):
    rules = await Rules().start()
    rules.firewall.looks = 0
    await rules.flushed()
    assert rules.firewall.state == {RULES.key: RULES}
    assert (rules.firewall.looks, rules.firewall.asked) == (1, {RULES.key})
    assert rules.keeper.tally.repairs == {"NFT-002": 1}
    assert "NFT-002: put back ruleset nft IPv4: postrtg (1); removed by nft (pid 7)" in caplog.text


async def test_a_refused_repair_is_no_repair_and_comes_about_at_the_first_chance(caplog):
    rules = await Rules().start()
    rules.firewall.refuses = True
    await rules.flushed()
    for _ in range(30):
        rules.keeper.try_again()
        await rules.settle()
    assert rules.firewall.tries > 30
    assert "put back" not in caplog.text
    assert "someone keeps changing" not in caplog.text
    assert caplog.text.count("cannot put ruleset nft IPv4: postrtg (1): refused") == 1
    assert rules.keeper.tally.failing == {RULES.key: "refused"}
    rules.firewall.refuses = False
    rules.keeper.try_again()
    await rules.settle()
    assert rules.firewall.state
    assert not rules.keeper.tally.failing


async def test_rules_that_somebody_keeps_changing_have_to_wait():
    rules = await Rules().start()
    for _ in range(BURST):
        await rules.flushed()
        assert rules.firewall.state
    assert not rules.keeper.is_held(RULES.key)
    await rules.flushed()
    assert not rules.firewall.state
    assert rules.keeper.is_held(RULES.key)
    rules.now = PAUSE
    await rules.flushed()
    assert rules.firewall.state
    assert not rules.keeper.is_held(RULES.key)


async def test_rules_that_come_back_by_themselves_are_refused_no_more():
    rules = Rules()
    rules.firewall.refuses = True
    await rules.start()
    assert rules.keeper.tally.failing
    rules.firewall.state[RULES.key] = RULES
    rules.keeper.unseen([RULES.key])
    await rules.settle()
    assert not rules.keeper.tally.failing
