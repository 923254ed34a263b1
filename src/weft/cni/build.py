"""Builds the programs in C from their sources beside this file: `python -m weft.cni.build`.

The CNI client; what starts weft's copy on a node that has no Python; and the first process of a container.
"""

import sys
from pathlib import Path
from typing import Final

from weft.kernel.built import Program

_HERE: Final = Path(__file__).parent
_MODULE: Final = f"{__package__}.build"
PROGRAM: Final = Program(source=_HERE / "client", path=_HERE / "bin" / "weft-cni", what="CNI client", module=_MODULE)
LAUNCHER: Final = Program(
    source=_HERE / "launch", path=_HERE / "bin" / "weft-launch", what="launcher of the node part", module=_MODULE
)
INIT: Final = Program(
    source=_HERE / "launch", path=_HERE / "bin" / "weft-init", what="first process of a container", module=_MODULE
)

if __name__ == "__main__":
    sys.exit(max(program.main() for program in (PROGRAM, LAUNCHER, INIT)))
