"""CRI-O with Debian's conmon and runc, on a machine of a test's own.

podman puts the image into the storage that both share, as there is no registry. The settings are those that work
without CAP_SYS_RESOURCE and without systemd. A pod needs no pause container, because its namespaces are pinned.
"""

from pathlib import Path
from typing import Final

from tests.runtime import builtruntimes, containerstorage
from tests.runtime.criruntime import CriRuntime
from tests.runtime.machine import Machine
from tests.runtime.ociimage import IMAGE

_SOCKET: Final = "/run/crio/crio.sock"
_CONFIG: Final = """
[crio]
log_dir = "/run/crio/pods"
version_file = "/run/crio/version"
clean_shutdown_file = "/run/crio/clean.shutdown"
[crio.api]
listen = "{socket}"
[crio.runtime]
default_runtime = "runc"
cgroup_manager = "cgroupfs"
conmon_cgroup = "pod"
pinns_path = "{pinns}"
namespaces_dir = "/run"
container_exits_dir = "/run/crio/exits"
container_attach_socket_dir = "/run/crio"
default_capabilities = ["KILL", "NET_RAW", "SETGID", "SETUID"]
[crio.runtime.runtimes.runc]
monitor_cgroup = "pod"
[crio.image]
pause_image = "{image}"
[crio.network]
plugin_dirs = ["{bin_dir}"]
[crio.nri]
enable_nri = false
"""


class Crio(CriRuntime):
    """The daemon and its CRI; `bin_dir` are the plugins that it runs."""

    def __init__(self, machine: Machine, *, bin_dir: Path, image: Path) -> None:
        programs = builtruntimes.folder("crio")
        config = machine.folder / "crio.conf"
        config.write_text(_CONFIG.format(socket=_SOCKET, image=IMAGE, pinns=programs / "pinns", bin_dir=bin_dir))
        super().__init__(machine, _SOCKET, (str(programs / "crio"), "--config", str(config), "--config-dir", ""))
        containerstorage.load(machine, image)
