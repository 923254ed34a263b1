"""The daemon's one rtnetlink socket: who looks while many steps are on their way in a thread waits for his turn."""

import asyncio
from ipaddress import ip_address, ip_network

from tests.support.netns import Netns
from tests.support.waiting import HANGS
from weft.daemon.planes.kernel import NodeKernel
from weft.model.kernel.marks import PROTOCOL
from weft.model.kernel.objects import Route
from weft.plan.diff import Put

STEPS = [
    Put(Route(dst=ip_network((0x0A050000 + (number << 8), 24)), via=ip_address("10.0.0.9"), dev="eth0"))
    for number in range(2000)
]


async def test_looks_and_questions_while_a_thread_is_at_work(netns: Netns) -> None:
    netns.bridge("eth0", "10.0.0.1/16")
    kernel = NodeKernel(netns.rtnl)
    work = asyncio.create_task(kernel.apply(STEPS))
    looks = 0
    async with asyncio.timeout(HANGS):
        while not work.done():
            assert len((await kernel.snapshot()).addresses) >= 2
            await kernel.route_to(ip_address("10.0.0.7"))
            await asyncio.sleep(0)
            looks += 1
    assert await work == []
    assert looks
    assert len(netns.rtnl.routes(protocol=PROTOCOL)) == len(STEPS)
