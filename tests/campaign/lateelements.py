"""weftd with a fault: ADD of pods `sN` goes on at once, and what judges their packets is planted later."""

import asyncio
import os
import sys
from typing import Final

from weft.daemon import main
from weft.daemon.policygate import PolicyGate
from weft.daemon.world import real

SECONDS: Final = 5.0  # a pod on a busy machine has sent its first packet by then

if __name__ == "__main__":
    admit = PolicyGate._admit

    async def later(gate, key, attached):
        if not attached.pod.startswith("default/s"):
            return await admit(gate, key, attached)

        async def plant():
            await asyncio.sleep(SECONDS)
            await admit(gate, key, attached)

        planted.append(asyncio.ensure_future(plant()))
        return ""

    planted = []
    PolicyGate._admit = later
    sys.exit(main.run(sys.argv[1:], os.environ, real()))
