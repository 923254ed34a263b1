"""Builds the relay from its source beside this file: `python -m weft.forward.build`. Without it Python relays."""

import sys
from pathlib import Path
from typing import Final

from weft.kernel.built import Program

_HERE: Final = Path(__file__).parent
PROGRAM: Final = Program(
    source=_HERE / "relay",
    path=_HERE / "bin" / "weft-relay",
    what="relay in C: back end udp relays in Python, which is slower",
    module=f"{__package__}.build",
)

if __name__ == "__main__":
    sys.exit(PROGRAM.main())
