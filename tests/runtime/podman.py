"""podman with CNI, on a machine of a test's own.

The settings are those that work without CAP_SYS_RESOURCE, with cgroups of version 1, and without a registry: podman
makes the pause container's image itself, of Debian's catatonit.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.runtime import containerstorage, ociimage
from tests.runtime.machine import Machine

_CONTAINERS: Final = """
[containers]
default_capabilities = ["KILL", "NET_RAW", "SETGID", "SETUID"]
default_ulimits = ["nofile=1024:20000", "nproc=4096:8192"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "runc"
[network]
network_backend = "cni"
cni_plugin_dirs = ["{bin_dir}"]
network_config_dir = "/etc/cni/net.d"
default_network = "{network}"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod with one container in it. `ips` has its address in each network, `netns` is a path on the node."""

    name: str
    container: str
    ips: Mapping[str, str]
    netns: str


class Podman:
    """The command, set up to attach pods by the plugins of `bin_dir` to `network` unless told otherwise."""

    def __init__(self, machine: Machine, *, bin_dir: Path, network: Mapping[str, Any]) -> None:
        self.machine = machine
        settings = machine.path("/etc/containers")
        (settings / "containers.conf").write_text(_CONTAINERS.format(bin_dir=bin_dir, network=network["name"]))
        machine.path("/etc/cni/net.d/10-test.conflist").write_text(json.dumps(network))
        image = machine.folder / "busybox.tar"
        ociimage.write(image)
        containerstorage.load(machine, image)

    def __call__(self, *arguments: str) -> str:
        """Run `podman …`; returns what it printed."""
        return self.machine.run("podman", *arguments).strip()

    def pod(self, name: str, *options: str) -> Pod:
        """Make and start a pod, with more options of `podman pod create`."""
        self("pod", "create", "--name", name, "--cgroup-parent", self.machine.cgroup, *options)
        container = self("run", "--detach", "--pod", name, ociimage.IMAGE)
        infra = self("pod", "inspect", "--format", "{{.InfraContainerID}}", name)
        settings = json.loads(self("inspect", infra))[0]["NetworkSettings"]
        return Pod(
            name=name,
            container=container,
            ips={network: attached["IPAddress"] for network, attached in settings["Networks"].items()},
            netns=settings["SandboxKey"],
        )

    def exec(self, pod: Pod, *command: str) -> str:
        """Return what a command prints in a pod."""
        return self("exec", pod.container, *command)

    def remove(self, *pods: Pod) -> None:
        """Stop and remove pods."""
        self("pod", "rm", "--force", "--time", "0", *(pod.name for pod in pods))
