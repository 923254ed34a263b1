"""Upstream's own daemon, built from flannel's Go module, on a node beside ours.

`python -m tests.support.flanneld` builds it, which takes a minute.
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

from tests.support import upstream
from tests.support.weftd import Daemon

_NAME: Final = "flanneld"
HINT: Final = "python -m tests.support.flanneld"
# Not every place that has Go modules has this one's; it is one line of the program, and no test's business.
_LEFT_OUT: Final = "backend/tencentvpc"


def built() -> Path | None:
    """Return the program, None if it was not built."""
    place = upstream.place(_NAME)
    return place if place.exists() else None


def build() -> Path:
    """Build the program. `CalledProcessError` if that fails."""
    with tempfile.TemporaryDirectory() as directory:
        source = Path(directory, "source")
        shutil.copytree(upstream.source(), source, copy_function=shutil.copyfile)
        for path in (source, *source.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        main = source / "main.go"
        main.write_text("".join(line for line in main.read_text().splitlines(True) if _LEFT_OUT not in line))
        program = Path(directory, _NAME)
        subprocess.run(["go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, "."], cwd=source, check=True)
        return upstream.keep(program)


class Flanneld(Daemon):
    """A node with upstream's daemon, or, while it is `ours`, with weftd in its place."""

    ours = False

    def command(self, *flags: str) -> list[str]:
        """As ours, without what upstream's does not have."""
        if self.ours:
            return super().command(*flags)
        return [
            str(upstream.place(_NAME)),
            "--iface=eth0",
            *self.store_flags(),
            f"--subnet-file={self.subnet_file}",
            "--healthz-ip=127.0.0.1",
            f"--healthz-port={self.health_port}",
            *flags,
        ]

    def spawn(self, *flags: str, env: dict[str, str] | None = None, wrap: Sequence[str] = ()) -> Self:
        """Start it with a key of its own: nodes of tests have one /run/flannel."""
        key = {"WIREGUARD_KEY_FILE": str(self.folder / "wgkey")}
        super().spawn(*flags, env={**key, **(env or {})}, wrap=wrap)
        return self

    def wait_ready(self, seconds: float = 30.0) -> Daemon:
        """Upstream's says that it is well from the first moment on: wait for its word that it serves."""
        if self.ours:
            return super().wait_ready(seconds)
        self.says("Running backend", seconds=seconds)
        return self


if __name__ == "__main__":
    sys.exit(upstream.main("flanneld", built, build))
