"""What a client starts when no daemon answers: `python -I -m weft.cni SOCKET`, with that socket as descriptor 3."""

import asyncio
import os
import sys

from weft.cni.host import state
from weft.cni.serve.standin import stand_in

if __name__ == "__main__":
    there = {**os.environ, "WEFT_CNI_SOCKET": sys.argv[1]}  # what the daemon has published lies beside both sockets
    is_copy = os.path.exists(os.path.join(sys.prefix, state.COPY))
    asyncio.run(stand_in(sys.argv[1], state.chosen(there), daemon_comes=is_copy))
