"""Whether a machine is at an address: asked by an echo request, and by the kernel's neighbours."""

import asyncio
from collections.abc import Callable
from ipaddress import ip_address

import pytest

from tests.support.netns import Netns, wire
from tests.support.weftd import carrying
from weft.kernel.icmp import answers


@pytest.fixture
def here(make_netns: Callable[[], Netns]) -> Netns:
    """A node with a neighbour at 10.9.0.2 and fd09::2."""
    here, there = make_netns(), make_netns()
    wire(here, there)
    for number, netns in enumerate((here, there), 1):
        carrying(netns, "eth0")
        netns.run(f"ip address add 10.9.0.{number}/24 dev eth0; ip address add fd09::{number}/64 dev eth0 nodad")
    return here


@pytest.mark.parametrize("address, there", [("10.9.0.2", True), ("fd09::2", True), ("10.9.0.3", False)])
def test_a_machine_is_found_while_other_work_goes_on(here: Netns, address: str, there: bool):
    async def ask() -> tuple[bool, int]:
        asked = asyncio.ensure_future(answers(here.rtnl, ip_address(address), within=30 if there else 0.5))
        turns = 0
        while not asked.done():
            turns += 1
            await asyncio.sleep(0.001)
        return await asked, turns

    found, turns = here.call(lambda: asyncio.run(ask()))
    assert found == there
    assert there or turns > 2
