"""The flannel plugin called on a node of `tests.support.weftd`, as a runtime calls it."""

import json
import os
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.support.netns import Netns
from tests.support.weftd import Daemon

SECONDS = 20


class Runtime:
    """Calls the flannel plugin on a node. `wrap` is a command that runs plugins as this runtime does."""

    def __init__(self, node: Daemon, folder: Path, bin_dir: Path) -> None:
        self.wrap: tuple[str, ...] = ()
        self.node = node
        self.folder = folder
        self.bin_dir = bin_dir

    def call(self, command: str, name: str = "", pod: Netns | None = None, **ipam: Any) -> Any:
        """Return the decoded answer, None for none."""
        with self.start(command, name, pod, **ipam) as it:
            try:
                out, _ = it.communicate(timeout=SECONDS)
            except subprocess.TimeoutExpired:
                it.kill()
                raise
        return json.loads(out) if out else None

    def start(self, command: str, name: str = "", pod: Netns | None = None, **ipam: Any) -> "subprocess.Popen[bytes]":
        """Start a call that has its whole input; `ipam` adds to the delegate's IPAM configuration."""
        config = {
            "cniVersion": "1.1.0",
            "name": "cbr0",
            "type": "flannel",
            "subnetFile": str(self.node.subnet_file),
            "dataDir": str(self.folder / "flannel"),
            "delegate": {"isDefaultGateway": True},
            "ipam": {"dataDir": str(self.folder / "nets"), **ipam},
        }
        env = {
            "PATH": os.environ["PATH"],
            "CNI_COMMAND": command,
            "CNI_CONTAINERID": name,
            "CNI_NETNS": pod.path if pod else "",
            "CNI_IFNAME": "eth0" if name else "",
            "CNI_ARGS": f"IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME={name}" if name else "",
            "CNI_PATH": str(self.bin_dir),
            "WEFT_CNI_SOCKET": str(self.node.folder / "cni" / "cni.sock"),
        }
        pipe = subprocess.PIPE
        it = self.node.netns.popen(
            [*self.wrap, str(self.bin_dir / "flannel")], env=env, stdin=pipe, stdout=pipe, stderr=pipe
        )
        assert it.stdin is not None
        it.stdin.write(json.dumps(config).encode())
        it.stdin.close()
        it.stdin = None
        return it

    @property
    def owners(self) -> set[str]:
        found = set()
        for path in (self.folder / "nets" / "cbr0").glob("10.*"):
            with suppress(FileNotFoundError):  # freed since it was listed
                found.add(path.read_text().split()[0])
        return found
