"""containerd and runc, Debian's, on a machine of a test's own.

The settings are those that work without CAP_SYS_RESOURCE and without a registry: `restrict_oom_score_adj`, and images
that are imported. The snapshotter copies instead of mounting, so it works on every file system.
"""

import signal
from pathlib import Path
from typing import Final

from grpclib import GRPCError

from tests.support import ociimage
from tests.support.cri import Cri
from tests.support.machine import Machine, Program
from tests.support.weftd import eventually

IMAGE: Final = "localhost/busybox:1"
_PAUSE: Final = "localhost/pause:1"
_SOCKET: Final = "/run/containerd/containerd.sock"
_CONFIG: Final = """
version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{pause}"
restrict_oom_score_adj = true
disable_apparmor = true
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "native"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{bin_dir}"
conf_dir = "/etc/cni/net.d"
"""


def write_images(folder: Path) -> Path:
    """Write what `Containerd` imports: one image as a pause container's and as that of containers."""
    folder.mkdir(parents=True, exist_ok=True)
    ociimage.write(folder / "busybox.tar", IMAGE, ["sleep", "100000"])
    ociimage.write(
        folder / "pause.tar", _PAUSE, ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 100000 & wait; done"]
    )
    return folder


class Containerd:
    """The daemon and its CRI; `bin_dir` are the plugins that it runs."""

    def __init__(self, machine: Machine, *, bin_dir: Path, images: Path) -> None:
        self.machine = machine
        self.cri = Cri(machine.root / _SOCKET.removeprefix("/"))
        self._images = images
        self._program: Program | None = None
        config = machine.folder / "containerd.toml"
        config.write_text(_CONFIG.format(socket=_SOCKET, pause=_PAUSE, bin_dir=bin_dir))
        self._command = ("containerd", "--config", str(config), "--log-level", "info")

    def start(self) -> "Containerd":
        """Start it and wait until it is ready."""
        self.spawn()
        return self.wait_ready()

    def spawn(self) -> None:
        """Start it without waiting for anything."""
        self._program = self.machine.start("containerd", *self._command)

    def wait_ready(self) -> "Containerd":
        """Wait until the CRI answers, and import the images if it has none."""
        eventually(self._answers, seconds=20)
        if not self._ctr("images", "list", "-q"):
            for name in ("busybox", "pause"):
                self._ctr("images", "import", "--snapshotter", "native", str(self._images / f"{name}.tar"))
        return self

    def kill(self) -> None:
        """End it without warning; what it has started goes on."""
        assert self._program is not None, "not started"
        self._program.end(signal.SIGKILL)

    @property
    def running(self) -> bool:
        return self._program is not None and self._program.running

    @property
    def log(self) -> str:
        assert self._program is not None, "not started"
        return self._program.log.read_text()

    def _answers(self) -> bool:
        assert self._program is not None, "not started"
        assert self._program.running, self.log
        try:
            return self.cri.conditions().get("RuntimeReady", False)
        except (OSError, GRPCError):  # not there yet, not ready yet
            return False

    def _ctr(self, *arguments: str) -> str:
        return self.machine.run("ctr", "--address", _SOCKET, "--namespace", "k8s.io", *arguments)
