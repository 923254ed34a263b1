"""A node's network on a kernel that is none: who is judged when, and what the status says."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from ipaddress import ip_address
from pathlib import Path

import pytest

from tests.support import builders
from weft.daemon import network as network_module
from weft.daemon.dirty import Dirty
from weft.daemon.network import Network
from weft.desired.backends import vxlan
from weft.desired.roster import Roster
from weft.kernel.notices import AddressMoved, Resync
from weft.model.cluster import Changed, Listed
from weft.model.errors import Failure
from weft.model.net import Net
from weft.model.objects import Objects
from weft.model.status import Status
from weft.plan.diff import Step

GATEWAY = ip_address("10.5.1.1")
UPLINK = ip_address("192.168.0.1")
OTHER = ip_address("10.5.2.9")


class NoKernel:
    """Shows nothing, and takes every step but routes to what is `refused`."""

    sysctls: tuple[str, ...] = ()
    refused: AbstractSet[Net] = frozenset()

    async def look(self) -> Objects:
        return {}

    async def apply(self, steps: Sequence[Step]) -> list[Failure]:
        refused = [step for step in steps if getattr(step.object, "dst", None) in self.refused]
        return [Failure(step=step, errno=1, message="refused") for step in refused]


@pytest.fixture
def rosters(monkeypatch) -> list[Roster]:
    """All that are made."""
    made: list[Roster] = []

    class Counted(Roster):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments)
            made.append(self)

    monkeypatch.setattr(network_module, "Roster", Counted)
    return made


@pytest.fixture
def network(rosters: list[Roster], tmp_path: Path) -> Network:
    made = Network(
        NoKernel(),
        vxlan,
        None,
        inputs=builders.inputs(),
        addresses={GATEWAY, UPLINK},
        subnet_file=tmp_path / "subnet.env",
        status=Status(),
        clock=lambda: 0.0,
    )
    made.take(Listed(leases=(builders.lease(2, vxlan), builders.lease(3, vxlan)), malformed=()))
    return made


def test_a_start_judges_by_one_roster(network: Network, rosters: list[Roster]):
    assert rosters == [network.loop.roster]


@pytest.mark.parametrize(
    "notice, matters",
    [
        (AddressMoved(OTHER, gone=False), True),
        (AddressMoved(UPLINK, gone=True), True),
        (Resync(), True),
        (AddressMoved(UPLINK, gone=False), False),  # its lifetime was renewed
        (AddressMoved(OTHER, gone=True), False),
        (AddressMoved(GATEWAY, gone=False), False),  # inside our own subnet
        (AddressMoved(ip_address("10.5.1.7"), gone=True), False),
    ],
)
def test_addresses_are_listed_when_one_came_or_went_that_a_lease_may_take(network: Network, notice, matters: bool):
    assert network.addresses_changed.is_set()  # between the first look and the first notice
    network.addresses_changed.clear()
    network.notice(notice)
    assert network.addresses_changed.is_set() is matters


def test_leases_are_judged_anew_when_an_address_really_changed(network: Network, rosters: list[Roster], caplog):
    network.loop.wake.take()
    network.addresses_are({GATEWAY, UPLINK, ip_address("10.5.1.77")})
    assert len(rosters) == 1
    network.addresses_are({GATEWAY, UPLINK, OTHER})
    assert len(rosters) == 2
    assert network.loop.wake.take().peers == {builders.lease(2, vxlan).id}
    assert (network._status.peers, network._status.peers_refused) == (1, 1)
    assert "overlaps this node's address 10.5.2.9" in caplog.text
    network.addresses_are({GATEWAY, UPLINK})
    assert network.loop.wake.take().peers == {builders.lease(2, vxlan).id}
    assert (network._status.peers, network._status.peers_refused) == (2, 0)


async def test_failing_peers_are_counted_as_they_are_now(network: Network):
    network.take(Changed(put=(builders.lease(4, vxlan, data={"VNI": 1, "VtepMAC": 7}),)))
    assert network._status.peers_failing == 0  # nothing was tried yet
    network._kernel.refused = {builders.subnet_v4(2)}
    await network.loop.round(Dirty(everything=True, inputs=True))
    assert (network._status.peers, network._status.peers_failing) == (3, 2)
    network._kernel.refused = set()
    network.loop.try_again()
    await network.loop.round(await network.loop.wake.next(at_most=1))
    assert network._status.peers_failing == 1
    network.take(Changed(gone=(builders.lease(4, vxlan).id,)))
    await network.loop.round(await network.loop.wake.next(at_most=1))
    assert (network._status.peers, network._status.peers_failing) == (2, 0)
