"""How a lab asks a daemon and etcd how they are: every answer, and none, has a word."""

import asyncio
from typing import Any

import msgspec
import pytest

from weft.kernel import daemons
from weft.lab.inside import control, etcd
from weft.lab.inside.control import Health
from weft.lab.report import serves
from weft.lab.spec import regular
from weft.model.errors import Problem, Unavailable
from weft.model.node.nodestate import HealthState

TAKEN = Problem(code="VTEP-002", where="link x\t\x1b[2J", seen="taken")
AWAY = Problem(code="STORE-001", where="etcd", seen="away")


class Inside:
    async def run(self, _room: object, work: Any) -> Any:
        return work()


def health(monkeypatch: pytest.MonkeyPatch, answer: bytes | None, *, living: int = 1, flannels: bool = False) -> Health:
    """The health of a daemon that gives this answer, or none, in a node with so many control sockets."""

    async def answered(_socket: object, address: str, question: bytes) -> bytes:
        assert (address, question) == (daemons.address("name0"), daemons.ASK_HEALTH)
        if answer is None:
            raise ConnectionRefusedError
        return answer

    monkeypatch.setattr(daemons, "living", lambda: [f"name{number}" for number in range(living)])
    monkeypatch.setattr(control, "_answer", answered)
    monkeypatch.setattr(control, "_is_served_by", lambda names: flannels and names == {"flanneld", "flanneld-0.27.1"})
    return asyncio.run(control.health(Inside(), "room", "/opt/flanneld-0.27.1"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "said, found",
    [
        (HealthState(ready=True, parts={"lease": None}, losses={}, store=None), Health(state="ready")),
        (
            HealthState(ready=True, parts={}, losses={"policies": AWAY}, store=AWAY),
            Health(state="ready", problems=("policies: STORE-001 etcd: away", "store: STORE-001 etcd: away")),
        ),
        (
            HealthState(ready=False, parts={"lease": None, "devices": TAKEN}, losses={}, store=None),
            Health(state="not ready", problems=("devices: VTEP-002 link x\\t\\x1b[2J: taken",)),
        ),
    ],
)
def test_a_daemon_says_what_is_wrong(monkeypatch, said: HealthState, found: Health):
    assert health(monkeypatch, msgspec.json.encode(said)) == found


@pytest.mark.parametrize("answer", [None, b"", b"{}"])
def test_a_daemon_that_does_not_answer_is_silent(monkeypatch, answer: bytes | None):
    assert health(monkeypatch, answer) == Health(state="silent")
    assert not serves("silent")


def test_none_and_two_are_not_asked(monkeypatch):
    assert health(monkeypatch, b"", living=0) == health(monkeypatch, b"", living=2) == Health(state="silent")


def test_flannels_daemon_is_named(monkeypatch):
    assert health(monkeypatch, None, living=0, flannels=True) == Health(state="flanneld")
    assert serves("flanneld")


@pytest.mark.parametrize("answer, word", [("{}", "ready"), (Unavailable(AWAY), "silent"), (None, "silent")])
def test_a_store_is_ready_or_silent(monkeypatch, answer: str | Unavailable | None, word: str):
    network = '{"Network": "10.244.0.0/16"}'
    store = etcd.EtcdStore(None, regular(name="x", network=network, families=(4,), nodes=1, pods=0))  # type: ignore[arg-type]

    async def configuration() -> str:
        if answer is None:
            await asyncio.sleep(60)
        if isinstance(answer, Unavailable):
            raise answer
        return str(answer)

    monkeypatch.setattr(store, "configuration", configuration)
    monkeypatch.setattr(etcd, "_ANSWER_SECONDS", 0.01)
    assert asyncio.run(store.state()) == word


@pytest.mark.parametrize(
    "families, url",
    [((4,), "http://172.31.0.1:2379"), ((4, 6), "http://172.31.0.1:2379"), ((6,), "http://[fd31::1]:2379")],
)
def test_where_the_store_is(families, url: str):
    assert etcd.url(families) == url
