"""Builds the relay and the eBPF programs from their source: `python -m weft.forward.build`.

Without the relay there is no back end udp; without the programs the relay carries all packets.
"""

import sys
from pathlib import Path
from typing import Final

from weft.kernel.built import Program

_HERE: Final = Path(__file__).parent
PROGRAM: Final = Program(
    source=_HERE / "relay",
    path=_HERE / "bin" / "weft-relay",
    what="relay, and no back end udp",
    module=f"{__package__}.build",
)
PATH: Final = Program(
    source=_HERE / "bpf",
    path=_HERE / "bin" / "path.o",
    what="program for the kernel: back end udp relays in a process",
    module=f"{__package__}.build",
    compiler="clang",
    package="clang linux-libc-dev",
)

if __name__ == "__main__":
    sys.exit(PROGRAM.main() or PATH.main())
