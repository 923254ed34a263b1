"""helm-unittest, which tests the chart by deploy/chart/tests, built from its Go module into the user's cache, once.

`python -m tests.kube.helmunit` builds it, which takes a minute, and prints where it is.
"""

import os
import shutil
import subprocess
import sys
from fcntl import LOCK_EX, flock
from hashlib import sha256
from pathlib import Path
from typing import Final

from tests.support.upstream import cache

HINT: Final = "python -m tests.kube.helmunit"
_SOURCE: Final = Path(__file__).with_name("helmunittest")
_PROGRAM: Final = "github.com/helm-unittest/helm-unittest/cmd/helm-unittest"
_PATH: Final = f"{os.environ['PATH']}:/usr/local/go/bin"  # where Go's own archive puts it


def place() -> Path:
    """Where the program is kept: what decides how it turns out names the folder."""
    key = sha256(b"".join((_SOURCE / name).read_bytes() for name in ("go.mod", "go.sum"))).hexdigest()[:16]
    return cache() / "weft" / "helm-unittest" / key / "helm-unittest"


def build() -> Path:
    """Build the program if it is not there. `CalledProcessError` if that fails."""
    kept = place()
    kept.parent.mkdir(parents=True, exist_ok=True)
    with kept.with_name(".lock").open("w") as lock:
        flock(lock, LOCK_EX)  # another checkout may be building it
        if not kept.exists():
            new = kept.with_suffix(".new")
            command = ["go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", str(new), _PROGRAM]
            environment = {**os.environ, "PATH": _PATH, "CGO_ENABLED": "0", "GOWORK": "off"}
            subprocess.run(command, cwd=_SOURCE, env=environment, check=True)
            new.rename(kept)
    return kept


if __name__ == "__main__":
    if shutil.which("go", path=_PATH) is None:
        sys.exit("helm-unittest needs Go, to be built")
    print(build())
