"""Nodes as Kubernetes would use them: a machine with weftd and a runtime, and pods as a kubelet makes them."""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.runtime.containerd import Containerd
from tests.runtime.cri import Port, Sandbox
from tests.runtime.crio import Crio
from tests.runtime.machine import Machine, inner_pid
from tests.runtime.ociimage import IMAGE
from tests.support.lab import WEFT
from tests.support.published import Answering
from tests.support.weftd import Daemon, Underlay, eventually


class MachineDaemon(Daemon):
    """A node on a machine of its own, whose weftd has the paths of an ordinary installation."""

    def __init__(self, underlay: Underlay, folder: Path, number: int, *, prefix: str) -> None:
        super().__init__(underlay, folder, number, prefix=prefix)
        self.machine = Machine(self.netns, folder, f"node{number}")
        self.subnet_file = self.machine.root / "run/flannel/subnet.env"
        self.state_dir = self.machine.root / "var/lib/weft"

    def command(self, *flags: str) -> list[str]:
        return super().command(
            "--subnet-file=/run/flannel/subnet.env",
            "--state-dir=/var/lib/weft",
            "--cni-socket=/run/weft/cni.sock",
            "--ip-masq",
            *flags,
        )

    def spawn(self, *flags: str, env: dict[str, str] | None = None, wrap: Sequence[str] = ()) -> "Daemon":
        return super().spawn(*flags, env=env, wrap=(*self.machine.enter, *wrap))

    @property
    def pid(self) -> int:
        assert self._process is not None, "not running"
        return inner_pid(self._process)

    def close(self) -> None:
        self.machine.close()
        super().close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A sandbox with one container in it."""

    sandbox: Sandbox
    container: str

    @property
    def id(self) -> str:
        return self.sandbox.id

    @property
    def ip(self) -> str:
        return self.sandbox.ips[0]


class Node:
    """One node. `daemon`, `machine`, `runtime` and `cri` are those of the present boot."""

    def __init__(
        self,
        underlay: Underlay,
        folder: Path,
        number: int,
        *,
        prefix: str,
        image: Path,
        runtime: type[Containerd | Crio] = Containerd,
    ) -> None:
        self.name = f"node{number}"
        self._underlay = underlay
        self._folder = folder
        self._number = number
        self._prefix = prefix
        self.bin_dir = folder / "bin"
        self._image = image
        self._runtime = runtime
        self.boot()

    def boot(self) -> None:
        """Make the machine and start its daemons, without waiting for anything."""
        self.daemon = MachineDaemon(self._underlay, self._folder, self._number, prefix=self._prefix)
        self.machine = self.daemon.machine
        try:
            self.daemon.spawn()
            self.runtime = self._runtime(self.machine, bin_dir=self.bin_dir, image=self._image)
            self.runtime.spawn()
        except BaseException:
            self.daemon.close()
            raise
        self.cri = self.runtime.cri

    def ready(self) -> "Node":
        """Install weft's plugins and network, and wait until pods can be made."""
        self.machine.run(WEFT, "cni", "install", "--bin-dir", str(self.bin_dir), "--wait")
        self.daemon.wait_ready()
        self.runtime.wait_ready()
        eventually(lambda: self.cri.conditions()["NetworkReady"])
        # A stand-in that the runtime asked before weftd served ends some seconds later, and is no trace of a test.
        eventually(lambda: not list((self.machine.root / "run/weft").glob("standin-*")), seconds=20)
        return self

    def cut_power(self) -> None:
        """End everything at once. What is on the disk stays, and `boot` finds it there under another boot id."""
        self.daemon.close()

    def revive(self) -> None:
        """Start what does not run."""
        if not self.runtime.running:
            self.runtime.start()
        if not self.daemon.running:
            self.daemon.start()

    def pod(self, name: str, *, ports: Sequence[Port] = (), attempt: int = 0) -> Pod:
        """Run a sandbox and a container in it that waits."""
        sandbox = self.cri.run(name, cgroup=self.machine.cgroup, ports=ports, attempt=attempt)
        return Pod(sandbox=sandbox, container=self.cri.container(sandbox, IMAGE))

    def answering(self, pod: Pod, name: str) -> Answering:
        """Return a server for a pod's published ports."""
        return Answering(self.machine.path(pod.sandbox.netns), name)

    def exec(self, pod: Pod, *command: str) -> str:
        """Return what a command prints in a pod."""
        return self.cri.exec(pod.container, *command)

    def remove(self, pod: str) -> None:
        """Stop and remove a sandbox with all that is in it."""
        self.cri.stop(pod)
        self.cri.remove(pod)

    def reserved(self) -> set[str]:
        """The addresses that host-local has given out."""
        store = self.machine.root / "var/lib/cni/networks/cbr0"
        names = {path.name for path in store.iterdir()} if store.exists() else set()
        return {name for name in names if not name.startswith(("lock", "last_reserved_ip."))}

    def run_all(self, *names: str) -> list[Pod]:
        """Run pods at once."""
        with ThreadPoolExecutor(len(names)) as threads:
            return list(threads.map(self.pod, names))

    def remove_all(self, pods: Iterable[str]) -> None:
        """Stop and remove sandboxes at once."""
        ids = list(pods)
        with ThreadPoolExecutor(max(1, len(ids))) as threads:
            list(threads.map(self.remove, ids))
