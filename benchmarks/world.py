"""A node to measure: a namespace with an uplink, a real etcd with as many leases as wanted, and a real weftd."""

import base64
import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support import upstream
from tests.support.netns import Netns

WEFTD = Path(sys.executable).with_name("weftd")
PREFIX = "/coreos.com/network"
OWN = IPv4Address("172.31.0.11")
_PORT = 2379
STORE = f"http://127.0.0.1:{_PORT}"
_LEASES_A_TXN = 100  # etcd takes 128 operations
_PATIENCE = 60.0
WITHOUT_DAEMON = 0.5  # seconds for which the control of a row waits


class Peer:
    """Peer number `index`: a /24 of 10.0.0.0/8 that no other has, a public address and a VTEP MAC."""

    def __init__(self, index: int, *, backend: str = "vxlan") -> None:
        # The far end of 10.0.0.0/8: the daemon takes its own subnet from the first hundred that are free.
        self.subnet = IPv4Network((int(IPv4Address("10.100.0.0")) + (index << 8), 24))
        self.public = IPv4Address("172.31.1.0") + index
        self.mac = ":".join(f"{byte:02x}" for byte in (2, 0, *index.to_bytes(4)))
        self._backend = backend

    @property
    def key(self) -> str:
        return f"{PREFIX}/subnets/{self.subnet.network_address}-{self.subnet.prefixlen}"

    @property
    def value(self) -> str:
        lease: dict[str, Any] = {"PublicIP": str(self.public), "PublicIPv6": None, "BackendType": self._backend}
        if self._backend == "vxlan":
            lease["BackendData"] = {"VNI": 1, "VtepMAC": self.mac}
        return json.dumps(lease, separators=(",", ":"))


class World:
    """One node's surroundings. Use as a context: everything in it ends with it."""

    def __init__(self, *, backend: str = "vxlan", peers: int = 0, nft: bool = False) -> None:
        self.netns = Netns()
        self.folder = Path(tempfile.mkdtemp(prefix="weft-bench-", dir="/dev/shm"))
        self.peers = [Peer(index, backend=backend) for index in range(peers)]
        self.variables: dict[str, str] = {}  # the daemon's, besides this process's
        self.config = {
            "Network": "10.0.0.0/8",
            "SubnetLen": 24,
            "EnableNFTables": nft,
            "Backend": {"Type": backend},
        }

    def __enter__(self) -> Self:
        uplink = "ip link add eth0 type veth peer name eth0p && ip link set eth0p up && ip link set eth0 up"
        self.netns.run(f"{uplink} && ip addr add {OWN}/16 dev eth0 && ip route add default via 172.31.0.1")
        self.netns.popen(
            [shutil.which("etcd", path="/usr/bin") or "etcd", f"--data-dir={self.folder}/etcd", "--logger=zap"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        until(self._healthy, "etcd")
        self.put({f"{PREFIX}/config": json.dumps(self.config)})
        self.put({peer.key: peer.value for peer in self.peers})
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if error is not None and (self.folder / "weftd.log").exists():
            print("".join((self.folder / "weftd.log").read_text().splitlines(keepends=True)[-20:]), file=sys.stderr)
        self.netns.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def put(self, pairs: dict[str, str]) -> None:
        """Write keys, as few requests as etcd allows."""
        items = list(pairs.items())
        for start in range(0, len(items), _LEASES_A_TXN):
            puts = [
                {"requestPut": {"key": b64(key), "value": b64(value)}}
                for key, value in items[start : start + _LEASES_A_TXN]
            ]
            self.post("/v3/kv/txn", {"success": puts})

    def delete(self, key: str) -> None:
        """Delete a key."""
        self.post("/v3/kv/deleterange", {"key": b64(key)})

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Ask etcd's JSON gateway."""

        def ask() -> dict[str, Any]:
            connection = http.client.HTTPConnection("127.0.0.1", _PORT, timeout=10)
            try:
                connection.request("POST", path, json.dumps(body))
                answer: dict[str, Any] = json.loads(connection.getresponse().read())
            finally:
                connection.close()
            return answer

        return self.netns.call(ask)

    @property
    def store_flags(self) -> list[str]:
        """How the daemon finds its store."""
        return [f"--etcd-endpoints={STORE}"]

    @property
    def subnet_file(self) -> Path:
        return self.folder / "subnet.env"

    def weftd(self, *flags: str) -> subprocess.Popen[bytes]:
        """Start the daemon; it is killed with the world, or by whoever wants it gone sooner."""
        own = (f"--state-dir={self.folder}/state", f"--cni-socket={self.folder}/cni/cni.sock")
        return self._start(WEFTD, *own, *flags)

    def flanneld(self) -> subprocess.Popen[bytes]:
        """Start upstream's daemon instead."""
        return self._start(upstream.place("flanneld"), "--iface=eth0")

    def _start(self, program: Path, *flags: str) -> subprocess.Popen[bytes]:
        self._daemon = self.netns.popen(
            [str(program), *self.store_flags, f"--subnet-file={self.subnet_file}", *flags],
            stdout=subprocess.DEVNULL,
            stderr=(self.folder / "weftd.log").open("ab"),
            env={**os.environ, **self.variables},
        )
        return self._daemon

    def ready(self) -> float:
        """Wait for subnet.env; returns when it came (perf_counter)."""
        came = until(lambda: self.subnet_file.exists() or self._daemon.poll() is not None, "subnet.env")
        if self._daemon.poll() is not None:
            raise RuntimeError(f"the daemon ended with {self._daemon.returncode}")
        return came

    def memory(self, what: str = "VmRSS") -> float:
        """Megabytes of the daemon: `VmRSS` now, `VmHWM` at most."""
        [kilobytes] = re.findall(rf"{what}:\s+(\d+) kB", Path(f"/proc/{self._daemon.pid}/status").read_text())
        return int(kilobytes) / 1000

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Keep the daemon from doing anything (SIGSTOP) while the block runs."""
        self._daemon.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._daemon.send_signal(signal.SIGCONT)

    def control(self, what: str, work: Callable[[], object], wait: Callable[[float], object]) -> None:
        """Prove that a row measures the daemon: after `work`, what `wait` waits for comes only while the daemon runs.

        `wait` gets seconds and raises `TimeoutError`; this raises `AssertionError` if it comes without the daemon.
        """
        with self.stopped():
            work()
            try:
                wait(WITHOUT_DAEMON)
            except TimeoutError:
                pass
            else:
                raise AssertionError(f"{what}: the row ends although the daemon is stopped")
        wait(_PATIENCE)

    def _healthy(self) -> bool:
        try:
            return bool(self.post("/v3/maintenance/status", {}))
        except (OSError, ValueError):
            return False


def until(true: Callable[[], bool], what: str, *, step: float = 0.001, seconds: float = _PATIENCE) -> float:
    """Look every `step` seconds until something is true; returns when it was (perf_counter). Raises `TimeoutError`."""
    end = time.perf_counter() + seconds
    while not true():
        if time.perf_counter() > end:
            raise TimeoutError(f"waited {seconds:g} s for {what}")
        time.sleep(step)
    return time.perf_counter()


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def batch_files(peers: list[Peer], folder: Path, *, backend: str) -> Iterator[list[str]]:
    """What `ip` and `bridge` need to make the same objects as the daemon: the floor. Yields command lines."""
    if backend == "vxlan":
        ip = [f"neigh replace {p.subnet[0]} lladdr {p.mac} dev flannel.1 nud permanent" for p in peers]
        ip += [f"route replace {p.subnet} via {p.subnet[0]} dev flannel.1 onlink" for p in peers]
        (folder / "fdb").write_text("\n".join(f"fdb replace {p.mac} dev flannel.1 dst {p.public}" for p in peers))
        yield ["bridge", "-batch", str(folder / "fdb")]
    else:
        ip = [f"route replace {p.subnet} via {p.public} dev eth0" for p in peers]
    (folder / "ip").write_text("\n".join(ip))
    yield ["ip", "-batch", str(folder / "ip")]
