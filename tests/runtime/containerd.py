"""containerd and runc, Debian's, on a machine of a test's own.

The settings are those that work without CAP_SYS_RESOURCE and without a registry: `restrict_oom_score_adj`, and an
image that is imported. The snapshotter copies instead of mounting, so it works on every file system.
"""

from pathlib import Path
from typing import Final

from tests.runtime.criruntime import CriRuntime
from tests.runtime.machine import Machine
from tests.runtime.ociimage import IMAGE

_SOCKET: Final = "/run/containerd/containerd.sock"
_CONFIG: Final = """
version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{image}"
restrict_oom_score_adj = true
disable_apparmor = true
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "native"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{bin_dir}"
conf_dir = "/etc/cni/net.d"
"""


class Containerd(CriRuntime):
    """The daemon and its CRI; `bin_dir` are the plugins that it runs."""

    def __init__(self, machine: Machine, *, bin_dir: Path, image: Path) -> None:
        self._image = image
        config = machine.folder / "containerd.toml"
        config.write_text(_CONFIG.format(socket=_SOCKET, image=IMAGE, bin_dir=bin_dir))
        super().__init__(machine, _SOCKET, ("containerd", "--config", str(config), "--log-level", "info"))

    def wait_ready(self) -> None:
        """Wait until the CRI answers, and import the image if it has none."""
        super().wait_ready()
        if not self._ctr("images", "list", "-q"):
            self._ctr("images", "import", "--snapshotter", "native", str(self._image))

    def _ctr(self, *arguments: str) -> str:
        return self.machine.run("ctr", "--address", _SOCKET, "--namespace", "k8s.io", *arguments)
