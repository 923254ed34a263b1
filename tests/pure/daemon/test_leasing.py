"""The own lease and the memory, on a store that is none: what is written, when, and by whom."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable
from ipaddress import ip_network
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support import builders
from tests.support.waiting import HANGS
from weft.daemon.disk import memory
from weft.daemon.disk.memory import Memory
from weft.daemon.leasing import Leasing
from weft.daemon.world import Moment
from weft.desired.backends import vxlan
from weft.model.cluster import Held, OwnEvent, OwnLease, Revoked
from weft.model.errors import Problem
from weft.model.value import replace

OWN = OwnLease(lease=builders.lease(1, vxlan), expires=None, token=(7, 9))
MOMENT = Moment(unix=1e9, now=100.0, boot="this")
PEERS = [builders.lease(2, vxlan), builders.lease(3, vxlan)]


@pytest.fixture
def leasing(tmp_path: Path) -> Leasing:
    async def acquire(*_: object, **__: object) -> OwnLease:
        return OWN

    return Leasing(
        SimpleNamespace(acquire=acquire),
        SimpleNamespace(),
        tmp_path,
        netconf=builders.netconf(),
        remembered=Memory(net_conf="{}"),
        margin=60.0,
        moment=lambda: MOMENT,
        random=bytes,
    )


@pytest.fixture
def writing(monkeypatch) -> Callable[[], int]:
    """The thread in which the memory was encoded last."""
    threads = [0]
    encode = memory.encode

    def watched(known: Memory, moment: Moment) -> bytes:
        threads.append(threading.get_ident())
        return encode(known, moment)

    monkeypatch.setattr(memory, "encode", watched)
    return lambda: threads[-1]


async def test_a_lease_that_is_taken_is_on_disk_and_the_event_loop_did_not_write_it(leasing, writing, tmp_path):
    await leasing.acquire(OWN.lease.attrs, (None, None))
    assert memory.load(tmp_path, MOMENT) == Memory(net_conf="{}", own=OWN)
    assert writing() not in (0, threading.get_ident())


async def test_a_stop_writes_what_was_seen_last(leasing, tmp_path):
    await leasing.acquire(OWN.lease.attrs, (None, None))
    leasing.saw(lambda known: replace(known, leases=tuple(PEERS)))
    task = asyncio.create_task(leasing.remember())
    await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert memory.load(tmp_path, MOMENT) == Memory(net_conf="{}", own=OWN, leases=tuple(PEERS))


async def test_what_a_fault_kept_from_the_disk_is_written_when_its_part_is_started_again(
    leasing, tmp_path, monkeypatch
):
    faults = [ZeroDivisionError("a fault of ours")]

    def known(before: Memory) -> Memory:
        if faults:
            raise faults.pop()
        return replace(before, leases=tuple(PEERS))

    monkeypatch.setattr("weft.daemon.leasing._SAVE_SECONDS", 0)
    leasing.saw(known)
    with pytest.raises(ZeroDivisionError):
        await leasing.remember()
    task = asyncio.create_task(leasing.remember())
    async with asyncio.timeout(HANGS):
        while memory.load(tmp_path, MOMENT).leases != tuple(PEERS):  # noqa: ASYNC110 - a file gives no sign
            await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_disk_that_takes_nothing_costs_no_lease(leasing, tmp_path, caplog):
    (tmp_path / "cluster.jsonl").mkdir()
    await leasing.acquire(OWN.lease.attrs, (None, None))
    assert leasing.lease == OWN.lease
    assert "STATE-002" in caplog.text


async def test_a_lease_that_moves_is_followed_and_one_that_cannot_be_ours_is_refused_until_it_can(
    leasing, tmp_path, caplog
):
    def held(subnet: str | None, v6: str | None = None) -> Held:
        v4, v6_net = subnet and ip_network(subnet), v6 and ip_network(v6)
        return Held(own=replace(OWN, lease=replace(OWN.lease, v4=v4, v6=v6_net)))

    said = [
        (held("10.5.7.0/24"), None),
        (held("192.0.2.0/24"), "its subnet 192.0.2.0/24 is not within 10.5.0.0/16"),
        (held(None), "it has no IPv4 subnet"),
        (held("10.5.8.0/24", "fd00:1::/64"), "it has the IPv6 subnet fd00:1::/64, and the network has no IPv6"),
        (held("10.5.9.0/24"), None),
    ]
    problems: list[Problem | None] = []
    moved: list[str] = []

    async def keep(_own: OwnLease, *, margin: float) -> AsyncGenerator[OwnEvent, None]:
        for event, _ in said:
            yield event
            problems.append(leasing.unpublished)
        yield Revoked(reason="deleted")

    async def follow() -> None:
        moved.append(str(leasing.lease.v4))

    leasing._tenure.keep, leasing._tenure.unpublished = keep, None
    await leasing.acquire(OWN.lease.attrs, (None, None))
    assert await leasing.keep(follow) == "deleted"
    assert [problem and problem.seen for problem in problems] == [why for _, why in said]
    assert moved == ["10.5.7.0/24", "10.5.9.0/24"]
    assert caplog.text.count("LEASE-004 lease 10.5.1.0-24: ") == 3
    assert memory.load(tmp_path, MOMENT).own == leasing.own


async def test_of_a_lease_whose_subnet_is_refused_the_rest_is_taken_over(leasing, tmp_path):
    new = replace(OWN.lease, v4=ip_network("192.0.2.0/24"), attrs=replace(OWN.lease.attrs, backend="host-gw"))

    async def keep(_own: OwnLease, *, margin: float) -> AsyncGenerator[OwnEvent, None]:
        yield Held(own=OwnLease(lease=new, expires=700.0, token=(7, 10)))
        assert leasing.unpublished is not None
        yield Revoked(reason="deleted")

    async def follow() -> None:
        raise AssertionError

    leasing._tenure.keep, leasing._tenure.unpublished = keep, None
    await leasing.acquire(OWN.lease.attrs, (None, None))
    await leasing.keep(follow)
    assert leasing.own == OwnLease(lease=replace(new, v4=OWN.lease.v4), expires=700.0, token=(7, 10))
    assert leasing.left == 600.0
    assert memory.load(tmp_path, MOMENT).own == leasing.own
