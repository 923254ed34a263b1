"""What a node tells its peers of itself: what is true, not too often, and a problem while it is not."""

import asyncio
from ipaddress import IPv4Address, IPv4Network
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from weft.daemon import upkeep
from weft.daemon.upkeep import Upkeep
from weft.model.errors import Problem, Unavailable
from weft.model.lease import Lease, LeaseAttrs
from weft.model.node.status import Status
from weft.model.value import replace

LEASE = Lease(id="n1", v4=IPv4Network("10.5.1.0/24"), v6=None, attrs=LeaseAttrs(public_ip=IPv4Address("192.0.2.1")))


class World:
    """A clock that goes on by sleeping alone, a lease, and what is true of the node."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.told: list[float] = []
        self.refuses = ""
        self.leasing = SimpleNamespace(lease=LEASE, confirmed=True, unpublished=None, publish=self.publish)
        self.status = Status()
        self.inputs = SimpleNamespace(attrs=LEASE.attrs, v4=LEASE.v4, v6=None)
        network = SimpleNamespace(inputs=self.inputs)
        anything: Any = SimpleNamespace
        self.upkeep = Upkeep(
            anything(),
            network,  # type: ignore[arg-type]
            self.leasing,  # type: ignore[arg-type]
            anything(),
            self.status,
            reconnect=lambda: None,
            now=lambda: self.now,
        )

    async def publish(self, attrs: LeaseAttrs) -> None:
        if self.refuses:
            raise Unavailable(Problem(code="STORE-002", where="etcd", seen=self.refuses))
        self.told.append(self.now)
        self.leasing.lease = replace(self.leasing.lease, attrs=attrs)

    def move(self, last: int) -> None:
        self.inputs.attrs = LeaseAttrs(public_ip=IPv4Address(f"192.0.2.{last}"))
        self.upkeep._to_tell.set()

    @property
    def problem(self) -> Problem | None:
        return self.status.look()["published"]


@pytest.fixture
async def world(monkeypatch):
    made = World()
    turn = asyncio.sleep

    async def sleep(seconds: float) -> None:
        made.now += max(0.0, seconds)
        await turn(0)

    monkeypatch.setattr(upkeep.asyncio, "sleep", sleep)
    task = asyncio.create_task(made.upkeep._tell_peers())
    yield made
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def turns(count: int = 8) -> None:
    for _ in range(count):
        await asyncio.get_running_loop().run_in_executor(None, int)


async def test_an_address_that_flaps_is_told_at_a_slowing_pace(world: World):
    for number in range(100):
        world.move(2 + number % 2)
        world.now += 0.25
        await turns(2)
    assert world.told[0] <= 1000.25
    assert [after - before for before, after in pairwise(world.told)][:8] == [1, 2, 4, 8, 16, 32, 60, 60]
    await turns()
    assert world.leasing.lease.attrs == world.inputs.attrs, "and the last word is told"
    world.now += 1000
    world.move(9)
    await turns()
    assert world.told[-1] == world.now, "after a rest a change is told at once"


async def test_what_the_store_does_not_take_is_a_problem_of_readiness_until_it_does(world: World):
    assert world.problem is None
    world.refuses = "no space"
    world.move(2)
    await turns()
    assert world.problem is not None
    said = str(world.problem)
    assert "it tells peers public IP 192.0.2.1, and this node has public IP 192.0.2.2: STORE-002 etcd: no space" in said
    assert not world.status.ready
    world.refuses = ""
    await turns()
    assert world.problem is None
    assert world.status.look()["published"] is None


async def test_a_lease_of_an_earlier_run_that_tells_something_else_is_a_problem(world: World):
    world.leasing.confirmed = False
    assert world.problem is None
    world.inputs.attrs = LeaseAttrs(public_ip=IPv4Address("192.0.2.7"))
    assert world.problem is not None
    assert world.problem.code == "LEASE-004"


async def test_what_the_store_says_of_itself_is_passed_on(world: World):
    world.leasing.unpublished = Problem(code="LEASE-004", where="node n1", seen="not put back")
    assert world.problem == world.leasing.unpublished
