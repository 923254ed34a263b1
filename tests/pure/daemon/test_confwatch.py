"""What is said of a network configuration that changes while the daemon runs."""

import asyncio
from contextlib import suppress

import pytest

from weft.config.netconf import parse_netconf
from weft.daemon import confwatch
from weft.daemon.confwatch import ConfWatch
from weft.desired.backends import BACKENDS
from weft.model.errors import Problem, Unavailable

START = '{"Network": "10.5.0.0/16", "Backend": {"Type": "vxlan"}}'
GONE = Unavailable(Problem(code="CONF-002", where="the key", seen="no such key"))
AWAY = Unavailable(Problem(code="STORE-001", where="the store", seen="silent"))


class Texts:
    """A store that says one text, or why there is none, after another."""

    source = "the key"
    chooses = True
    is_mesh = False

    def __init__(self, *texts: str | Unavailable) -> None:
        self._texts = list(texts)
        self.asked: list[str] = []

    async def next_net_conf(self, known: str) -> str:
        self.asked.append(known)
        if not self._texts:
            await asyncio.Event().wait()
        text = self._texts.pop(0)
        if isinstance(text, Unavailable):
            raise text
        return text


async def after(monkeypatch, *texts):
    """What is said after these texts, and what the store was asked."""
    monkeypatch.setattr(confwatch, "_RETRY_SECONDS", 0)
    store = Texts(*texts)
    watch = ConfWatch(store, parse_netconf(START, backends=BACKENDS), START, BACKENDS)
    with suppress(TimeoutError):
        async with asyncio.timeout(0.05):
            await watch.run()
    assert len(store.asked) == len(texts) + 1
    return watch.problem, store.asked


@pytest.mark.parametrize(
    "text, keys",
    [
        (START.replace("10.5", "10.6"), "Network, or what belongs to it"),
        (START.replace('"vxlan"', '"host-gw"'), "Backend.Type; Backend"),
        (START.replace('"vxlan"', '"vxlan", "VNI": 2'), "Backend"),
        (START.replace('{"Net', '{"EnableNFTables": true, "Net'), "EnableNFTables"),
        (
            START.replace('{"Net', '{"EnableIPv6": true, "IPv6Network": "fd00::/48", "Net'),
            "IPv6Network, or what belongs to it",
        ),
    ],
)
async def test_the_keys_that_differ_are_named(monkeypatch, text, keys):
    problem, asked = await after(monkeypatch, text)
    assert problem is not None
    assert (problem.code, problem.where) == ("CONF-001", "the key")
    assert problem.seen == f"changed since the start: {keys}"
    assert asked == [START, text]


async def test_another_text_of_the_same_meaning_is_no_change(monkeypatch):
    assert (await after(monkeypatch, START.replace(" ", "\n").replace("}}", '}, "Unknown": 1}')))[0] is None


async def test_a_configuration_that_cannot_be_used_is_said_with_its_fault(monkeypatch):
    problem, _ = await after(monkeypatch, '{"Network": 5}')
    assert problem is not None
    assert problem.seen.startswith("changed, and cannot be used: CONF-002 the key: Network: 5")


async def test_one_that_is_gone_is_said_and_one_that_cannot_be_asked_for_is_not(monkeypatch):
    problem, _ = await after(monkeypatch, GONE)
    assert problem is not None
    assert problem.seen == "no such key"
    assert (await after(monkeypatch, AWAY))[0] is None


async def test_what_was_said_ends_with_the_old_configuration(monkeypatch, caplog):
    caplog.set_level("INFO")
    changed = START.replace("10.5", "10.6")
    problem, asked = await after(monkeypatch, changed, AWAY, changed + " ", GONE, START)
    assert problem is None
    assert asked == [START, changed, changed, changed + " ", changed + " ", START]
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING", "INFO"]


async def test_the_keys_that_differ_are_those_of_the_last_text_that_a_node_can_start_with(monkeypatch):
    monkeypatch.setattr(confwatch, "_RETRY_SECONDS", 0)
    changed = START.replace("10.5", "10.6")
    watch = ConfWatch(Texts(), parse_netconf(START, backends=BACKENDS), START, BACKENDS)
    said = ["Network, or what belongs to it"]
    for text, keys in [
        (changed, said),
        (AWAY, said),
        ("{", []),
        (changed, said),
        (GONE, []),
        (changed, said),
        (START, []),
    ]:
        watch._settings = Texts(text)
        with suppress(TimeoutError):
            async with asyncio.timeout(0.02):
                await watch.run()
        assert watch.differs == keys, text
