"""The flannel plugin called on a node of `tests.support.weftd`, as a runtime calls it."""

from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.support.cni.call import Caller, Started
from tests.support.netns import Netns
from tests.support.weftd import Daemon


class Runtime(Caller):
    version = "1.1.0"  # of CNI

    def __init__(self, node: Daemon, folder: Path, bin_dir: Path) -> None:
        super().__init__(node.netns, bin_dir, socket=node.folder / "cni" / "cni.sock", state=None)
        self.node = node
        self.folder = folder

    def begin(self, command: str, name: str = "", pod: Netns | None = None, **ipam: Any) -> Started:
        """Start a call that has its whole input; `ipam` adds to the delegate's IPAM configuration."""
        config = {
            "cniVersion": self.version,
            "name": "cbr0",
            "type": "flannel",
            "subnetFile": str(self.node.subnet_file),
            "dataDir": str(self.folder / "flannel"),
            "delegate": {"isDefaultGateway": True},
            "ipam": {"dataDir": str(self.folder / "nets"), **ipam},
        }
        return self.start(
            command,
            config,
            plugin="flannel",
            container=name,
            CNI_NETNS=pod.path if pod else "",
            CNI_IFNAME="eth0" if name else "",
            CNI_ARGS=f"IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME={name}" if name else "",
        ).feed()

    def ask(self, command: str, name: str = "", pod: Netns | None = None, **ipam: Any) -> Any:
        """Return the decoded answer, None for none."""
        return self.begin(command, name, pod, **ipam).end().json

    @property
    def owners(self) -> set[str]:
        found = set()
        for path in (self.folder / "nets" / "cbr0").glob("10.*"):
            with suppress(FileNotFoundError):  # freed since it was listed
                found.add(path.read_text().split()[0])
        return found
