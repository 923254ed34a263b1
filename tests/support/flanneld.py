"""Upstream's own daemon, built from flannel's Go module, on a node beside ours, and its CNI plugin.

`python -m tests.support.flanneld` builds them, which takes a minute.
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

DAEMON: Final = "flanneld"
PLUGIN: Final = "flannel"
IMAGE: Final = "localhost/flannel:0.28.9"  # of tests/support/kubernetes/kube-flannel.yaml
_NEWER: Final = ("-mod=mod",)  # the sums of an old module do not name all that a newer Go wants to know
HINT: Final = "python -m tests.support.flanneld"
# Not every place that has Go modules has this one's; it is one line of the program, and no test's business.
_LEFT_OUT: Final = "backend/tencentvpc"


def built() -> Path | None:
    """Return the daemon, None if it and the plugin were not built."""
    return place(DAEMON) if all(place(name).exists() for name in (DAEMON, PLUGIN)) else None


def place(name: str) -> Path:
    """Where one of the two is kept."""
    return upstream.place(name)


def build() -> Path:
    """Build both. `CalledProcessError` if that fails."""
    with tempfile.TemporaryDirectory() as directory:
        source = _copy(upstream.source(), Path(directory, "daemon"))
        main = source / "main.go"
        main.write_text("".join(line for line in main.read_text().splitlines(True) if _LEFT_OUT not in line))
        daemon = _go_build(source, Path(directory, DAEMON), ".")
        # The last version of this module that has flannel's plugin; the plugin's own module is not everywhere.
        plugins = upstream.source("github.com/containernetworking/plugins", "v0.9.1")
        plugin = _go_build(
            _copy(plugins, Path(directory, "plugins")), Path(directory, PLUGIN), "./plugins/meta/flannel", *_NEWER
        )
        upstream.keep(plugin)
        return upstream.keep(daemon)


def _copy(source: Path, target: Path) -> Path:
    shutil.copytree(source, target, copy_function=shutil.copyfile)
    for path in (target, *target.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return target


def _go_build(source: Path, program: Path, package: str, *flags: str) -> Path:
    command = ["go", "build", *flags, "-trimpath", "-ldflags=-s -w", "-o", str(program), package]
    subprocess.run(command, cwd=source, check=True)
    return program


class Flanneld(Daemon):
    """A node with upstream's daemon, or, while it is `ours`, with weftd in its place."""

    ours = False

    def command(self, *flags: str) -> list[str]:
        """As ours, without what upstream's does not have."""
        if self.ours:
            return super().command(*flags)
        return [
            str(place(DAEMON)),
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
