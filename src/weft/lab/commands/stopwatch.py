"""Deletes a route in the namespace it runs in and measures how long the node is without it.

    python -m weft.lab.commands.stopwatch 10.244.2.0/24

Prints the milliseconds. The notice of the new route is heard on a socket that was open before the old one went.
"""

import asyncio
import sys
import time
from ipaddress import ip_network
from typing import Final

from weft.kernel.rtnetlink import route
from weft.kernel.rtnetlink.events import Monitor
from weft.kernel.rtnetlink.notices import ObjectChanged
from weft.kernel.rtnetlink.rtnl import Rtnl
from weft.model.kernel.objects import Route

_PATIENCE: Final = 10.0  # seconds


async def _measure(text: str) -> float:
    """Return the milliseconds from the request to delete the route until it is there again."""
    wanted = ip_network(text)
    with Rtnl.open() as rtnl:
        monitor = Monitor(rtnl, devices={}, uplinks=frozenset(), ports=frozenset())
        try:
            async with asyncio.timeout(_PATIENCE):
                start = time.perf_counter()
                rtnl.request(route.delete_route(wanted))
                async for notices in monitor:
                    for notice in notices:
                        if (
                            isinstance(notice, ObjectChanged)
                            and isinstance(notice.thing, Route)
                            and notice.thing.dst == wanted
                        ):
                            return (time.perf_counter() - start) * 1e3
        finally:
            monitor.close()
    raise TimeoutError(f"{text} did not come back")


if __name__ == "__main__":
    print(f"{asyncio.run(_measure(sys.argv[1])):.2f}")  # noqa: T201
