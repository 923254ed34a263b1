"""Back ends beside vxlan: one peer more with few and with many, and wireguard-go with and without weft around it."""

import asyncio
import os
import signal
import subprocess
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from ipaddress import IPv4Network
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from benchmarks.figures import Figure
from benchmarks.throughput import ADDRESS, CLIENT, ROUNDS, gbits, in_lab, served
from benchmarks.world import until
from tests.support import builders
from tests.support.netns import Netns
from weft.daemon.backends.extension.plane import CommandsPlane
from weft.daemon.backends.ipsec import process, talk
from weft.daemon.backends.ipsec.charon import CharonPlane
from weft.daemon.backends.ipsec.talk import Session
from weft.daemon.backends.udp.relay import RelayPlane
from weft.daemon.backends.wireguard import inprocess
from weft.daemon.backends.wireguard.plane import WireguardPlane
from weft.daemon.planes.contract import Place, Plane
from weft.daemon.planes.kernel import NodeKernel
from weft.desired.backends import BACKENDS
from weft.desired.backends.extension import Command
from weft.desired.backends.ipsec import Esp
from weft.desired.backends.ipsec.objects import Connection, SharedKey
from weft.desired.backends.wireguard import Keys
from weft.desired.inputs import Inputs
from weft.desired.node import shared
from weft.kernel.rtnetlink.rtnl import Rtnl
from weft.model.kernel.objects import KernelState
from weft.model.lease import Lease
from weft.model.value import Secret, replace
from weft.plan.diff import Put

FEW, MANY, MORE = 10, 1000, 50
STILL: Final = 0.5  # seconds
Work = Callable[[Path, KernelState], None]
OPTIONS: Final[dict[str, dict[str, Any]]] = {
    "extension": {"add": Command(words=("true",))},
    "ipsec": {"psk": Secret("0123456789abcdef" * 6)},
}
PLANES: Final = {"udp": RelayPlane, "wireguard": WireguardPlane, "extension": CommandsPlane, "ipsec": CharonPlane}


def measure() -> list[Figure]:
    figures = []
    for name in ("vxlan", "host-gw", "udp", "wireguard", "ipsec", "extension"):
        # charon takes longer, the more it knows.
        few, (many, floor) = adding(name, FEW)[0], adding(name, MANY, least=_tell if name == "ipsec" else None)
        figures.append(
            Figure(
                what=f"{name}: peer number {MANY}",
                unit="ms",
                ours=many,
                ratio=2,  # for a route the kernel walks the gateways of its scope (docs/decisions/0017)
                peer=f"number {FEW}",
                theirs=few,
                floor=floor,
            )
        )
    ours, theirs = [], []
    with in_lab("--backend", "wireguard") as in_ours, _by_hand() as in_theirs:
        for _ in range(ROUNDS):
            ours.append(gbits(in_ours))
            theirs.append(gbits(in_theirs))
    what = "pod to pod through wireguard-go"
    figures.append(
        Figure(
            what=what, unit="Gbit/s", ours=ours, ratio=0.9, more=True, peer="by hand", theirs=theirs, upstream="0.40"
        )
    )
    return figures


def adding(name: str, peers: int, least: Work | None = None) -> tuple[list[float], list[float]]:
    """Milliseconds that one peer more takes where there are so many: from the decision to its objects' being there.

    And those that `least` takes with what a peer needs, for every other peer, so that both see the machine as it is.
    """
    with Netns() as netns:
        netns.run(
            f"ip link add eth0 type veth peer name eth0p && ip link set eth0p up && ip link set eth0 up"
            f" && ip addr add {builders.public_v4(1)}/16 dev eth0"
        )
        return netns.call(lambda: asyncio.run(_adding(name, peers, least)))


async def _adding(name: str, peers: int, least: Work | None) -> tuple[list[float], list[float]]:
    inputs = _inputs(name)
    taken: tuple[list[float], list[float]] = [], []
    with ExitStack() as held:
        folder = Path(held.enter_context(TemporaryDirectory()))
        kernel = NodeKernel(held.enter_context(Rtnl.open()))
        planes: list[Plane] = [kernel]
        if name in PLANES:
            planes.append(held.enter_context(closing(PLANES[name](Place(directory=folder, boot="")))))
        try:
            await _put(planes, shared(inputs))
            for number in range(2, peers + 1):
                await _put(planes, inputs.backend.peer(inputs, _lease(number, name)))
            for pid in process.running():  # it begins to agree with each peer, which takes its processors for long
                _rest(pid)
            for number in range(peers + 1, peers + 1 + MORE * (2 if least else 1)):
                lease, aside = _lease(number, name), number % 2 if least else 0
                start = time.perf_counter()
                if least is not None and aside:
                    least(folder, inputs.backend.peer(inputs, lease))
                else:
                    await _put(planes, inputs.backend.peer(inputs, lease))
                taken[aside].append((time.perf_counter() - start) * 1e3)
        finally:
            if pid := inprocess.InProcess().process("flannel-wg") if name == "wireguard" else 0:
                os.kill(pid, signal.SIGTERM)
            process.end_all()
    return taken


def _rest(pid: int) -> None:
    """Wait until a process takes next to nothing of a processor."""

    def busy() -> float:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")  # seconds, as proc(5) has them

    def is_still() -> bool:
        before = busy()
        time.sleep(STILL)
        return busy() - before < STILL / 20

    until(is_still, "charon to rest")


async def _put(planes: list[Plane], state: KernelState) -> None:
    things = sorted(state, key=lambda thing: thing.rank)
    for plane in planes:
        steps = [Put(thing) for thing in things if thing.key[0] in plane.kinds]
        failures = await plane.apply(steps) if steps else []
        if failures:
            raise RuntimeError(f"{failures[0].step}: {failures[0].message}")


def _tell(folder: Path, state: KernelState) -> None:
    """Tell charon of a peer, and do nothing else."""
    session = Session.to(folder / process.SOCKET)
    assert session is not None
    with session:
        for thing in sorted(state, key=lambda thing: thing.rank):
            if isinstance(thing, SharedKey):
                talk.load_key(session, thing)
            elif isinstance(thing, Connection):
                talk.load_connection(session, thing)


def _inputs(name: str) -> Inputs:
    inputs = builders.inputs(1, backend=name, **OPTIONS.get(name, {}))
    inputs = replace(inputs, facts=replace(inputs.facts, onlink=(IPv4Network("192.168.0.0/16"),)))
    if name == "wireguard":
        return replace(inputs, prepared=Keys(private=Secret(_key(1)), public=_key(0), in_process=True))
    if name == "ipsec":
        return replace(inputs, prepared=Esp(in_kernel=False))  # charon has its connections in both ways
    return inputs


def _lease(number: int, name: str) -> Lease:
    if name not in ("wireguard", "ipsec"):
        return builders.lease(number, BACKENDS[name])
    plain = builders.lease(number, BACKENDS["alloc"])
    data = {"PublicKey": _key(number), "Port": 51820} if name == "wireguard" else None
    return replace(plain, attrs=replace(plain.attrs, backend=name, data=data))


def _key(number: int) -> str:
    return b64encode(number.to_bytes(32, "little")).decode()


@contextmanager
def _by_hand() -> Iterator[partial[str]]:
    """Two nodes with wireguard-go and `wg`."""
    private = [subprocess.run(["wg", "genkey"], capture_output=True, text=True, check=True).stdout for _ in range(2)]
    public = [
        subprocess.run(["wg", "pubkey"], input=key, capture_output=True, text=True, check=True).stdout.strip()
        for key in private
    ]

    def connect(node: Netns, own: int, other: int) -> None:
        name = f"wghand{own}"
        # In a session of its own, as each of a lab's: the kernel shares processors out by sessions (sched_autogroup).
        node.popen(["setsid", "wireguard-go", "-f", name], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        node.closing.callback(node.run, f"ip link delete {name}")  # with which it ends: it is no child of ours
        until(lambda: name in node.run("wg show interfaces"), "wireguard-go")
        text = (
            f"wg set {name} listen-port 51820 private-key /dev/stdin <<<'{private[own - 1]}' && wg set {name}"
            f" peer {public[other - 1]} endpoint 172.31.0.{other}:51820 allowed-ips 10.9.{other}.0/24"
            f" && ip link set {name} mtu 1420 up && ip route add 10.9.{other}.0/24 dev {name}"
        )
        node.run(["bash", "-ec", text])

    with served(1420, connect) as pod:
        yield partial(pod.run, [*CLIENT, ADDRESS])
