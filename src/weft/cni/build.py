"""Builds the CNI client from its source beside this file: `python -m weft.cni.build`. Without it, no plugins."""

import sys
from pathlib import Path
from typing import Final

from weft.kernel.built import Program

_HERE: Final = Path(__file__).parent
PROGRAM: Final = Program(
    source=_HERE / "client",
    path=_HERE / "bin" / "weft-cni",
    what="CNI client",
    module=f"{__package__}.build",
)

if __name__ == "__main__":
    sys.exit(PROGRAM.main())
