"""Runs inside a node of a lab: attaches containers with two sets of plugins, prints samples as JSON.

Milliseconds, but for `started`: processes and threads that one ADD started in the lab's pid namespace. Floors are
what nobody can do without: two programs that start, and one by one the kernel's own work too (`benchmarks.bare`).
"""

import json
import os
import select
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.bare import Bare
from benchmarks.calls import Call, Steps, together

WARM_UP, AT_ONCE, FEW, BURSTS = 3, 50, 30, 5
TURNS, A_TURN = 5, 10
CROWD, MANY, LAST = 200, 1000, 30
VERSION = "0.3.1"
FIRST_PORT = 20000
WITHOUT_DAEMON = 0.5  # seconds for which the control waits
SOCKET = Path("/run/weft/cni.sock")
PORTMAP = {"type": "portmap", "capabilities": {"portMappings": True}}
FLANNEL = {"type": "flannel", "delegate": {"hairpinMode": True, "isDefaultGateway": True}}
WIDE = Path("/run/weft/bench.env")

Samples = dict[str, list[float]]


def bridge(subnet: str) -> dict[str, Any]:
    """What flannel makes of its conflist (flannel.md §10.4), on a bridge and a subnet of its own."""
    return {
        "type": "bridge",
        "bridge": "cni1",
        "hairpinMode": True,
        "isDefaultGateway": True,
        "isGateway": True,
        "ipMasq": False,
        "mtu": 1450,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": subnet}]], "routes": [{"dst": "10.244.0.0/16"}]},
    }


class Chain:
    """A network configuration list and the directory of its plugins; container N maps host port 20000 + N."""

    def __init__(self, name: str, folder: str, interface: dict[str, Any], *, bridge: str) -> None:
        self.bridge = bridge
        self._name = name
        self._folder = folder
        self._interface = interface

    def add(self, numbers: Iterable[int], *, port: bool) -> float:
        """Attach them at once; returns milliseconds."""
        return together(*(self._adding(number, port=port) for number in numbers))

    def delete(self, numbers: Iterable[int], *, port: bool) -> float:
        """Detach them at once; returns milliseconds."""
        return together(*(self._deleting(number, port=port) for number in numbers))

    def start_only(self, numbers: Iterable[int]) -> float:
        """Have all programs say their versions, which they do by themselves; returns what their starts take, in ms."""
        return together(*(self._starting(number) for number in numbers))

    def _adding(self, number: int, *, port: bool) -> Steps:
        result = yield self._call("ADD", self._interface, number)
        yield self._call("ADD", {**PORTMAP, **self._mapping(number, port=port), "prevResult": result}, number)

    def _deleting(self, number: int, *, port: bool) -> Steps:
        yield self._call("DEL", {**PORTMAP, **self._mapping(number, port=port)}, number)
        yield self._call("DEL", self._interface, number)

    def _starting(self, number: int) -> Steps:
        yield self._call("VERSION", self._interface, number)
        yield self._call("VERSION", PORTMAP, number)

    def _mapping(self, number: int, *, port: bool) -> dict[str, Any]:
        mapping = {"hostPort": FIRST_PORT + number, "containerPort": 80, "protocol": "tcp"}
        return {"runtimeConfig": {"portMappings": [mapping]}} if port else {}

    def _call(self, command: str, plugin: dict[str, Any], number: int) -> Call:
        return Call(
            program=f"{self._folder}/{plugin['type']}",
            stdin=json.dumps({"cniVersion": VERSION, "name": self._name, **plugin}).encode(),
            env={
                "CNI_COMMAND": command,
                "CNI_CONTAINERID": container(number),
                "CNI_NETNS": f"/run/netns/{container(number)}",
                "CNI_IFNAME": "eth0",
                "CNI_PATH": self._folder,
                "PATH": os.environ["PATH"],
            },
        )


def container(number: int) -> str:
    return f"bench{number}"


@contextmanager
def containers(numbers: Sequence[int]) -> Iterator[None]:
    """The namespaces that are attached."""
    batch = "".join(f"netns add {container(number)}\n" for number in numbers)
    subprocess.run(["ip", "-batch", "-"], input=batch.encode(), check=True)
    try:
        yield
    finally:
        subprocess.run(["ip", "-batch", "-"], input=batch.replace("add", "del").encode(), check=True)


def veths() -> int:
    return sum(1 for line in Path("/proc/net/dev").open() if line.lstrip().startswith("veth"))


def settle(links: int, *, pause: float = 0.05) -> None:
    """Wait until only so many links are left: what DEL leaves for later is not the next ADD's to pay for.

    A link goes from the list first; then the kernel works on its end, for some 10 ms in which others wait: a `pause`.
    """
    while veths() > links:
        time.sleep(0.001)
    time.sleep(pause)


def one_by_one(chain: Chain, *, port: bool, turns: int = TURNS) -> Samples:
    """Several ADDs, each as soon as the one before has ended, then as many DELs; and that in so many turns.

    `gone` is the time of a turn's DELs until the last link has gone, for each of them.
    """
    samples: Samples = {"add": [], "del": [], "gone": [], "add_floor": [], "del_floor": []}
    before = veths()
    for number in range(WARM_UP):
        chain.add([number], port=port)
        chain.delete([number], port=port)
    for _ in range(turns):
        settle(before)
        samples["add"] += [chain.add([number], port=port) for number in range(A_TURN)]
        start = time.perf_counter()
        samples["del"] += [chain.delete([number], port=port) for number in range(A_TURN)]
        while veths() > before:
            time.sleep(0.001)
        samples["gone"].append((time.perf_counter() - start) * 1e3 / A_TURN)
        settle(before)
        for number in range(A_TURN):
            started = chain.start_only([number])
            with Bare(chain.bridge, container(number)) as bare:
                samples["add_floor"].append(started + bare.attach())
                samples["del_floor"].append(started + bare.detach())
    return samples


def at_once(chain: Chain, *, port: bool) -> Samples:
    """Bursts of 50; `gone` is the time from the first DEL until the last link has gone and every address is free."""
    samples: Samples = {"add": [], "del": [], "gone": [], "add_floor": []}
    before = veths()
    for _ in range(BURSTS):
        samples["add"].append(chain.add(range(AT_ONCE), port=port))
        start = time.perf_counter()
        samples["del"].append(chain.delete(range(AT_ONCE), port=port))
        while veths() > before:
            time.sleep(0.001)
        samples["gone"].append((time.perf_counter() - start) * 1e3)
        samples["add_floor"].append(chain.start_only(range(AT_ONCE)))
    return samples | {"del_floor": samples["add_floor"]}


def started(chain: Chain) -> list[float]:
    """Read the pid namespace's own counter, before and after an ADD."""
    samples = []
    for index in range(WARM_UP, WARM_UP + 10):
        before = last_pid()
        chain.add([index], port=True)
        samples.append(float(last_pid() - before))
        chain.delete([index], port=True)
    return samples


def last_pid() -> int:
    return int(Path("/proc/sys/kernel/ns_last_pid").read_text())


@contextmanager
def stopped_daemon() -> Iterator[None]:
    """Keep the daemon of this node from doing anything (SIGSTOP) while the block runs."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.connect(str(SOCKET))
        (pid,) = struct.unpack("=i", probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 4))
    daemon = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(daemon, signal.SIGSTOP)
        yield
    finally:
        signal.pidfd_send_signal(daemon, signal.SIGCONT)
        os.close(daemon)


def control(chain: Chain) -> None:
    """Prove that it is the daemon that attaches: without it an ADD does not end. Raises `AssertionError`."""
    adding = threading.Thread(target=chain.add, args=([0],), kwargs={"port": True})
    with containers([0]):
        with stopped_daemon():
            adding.start()
            adding.join(WITHOUT_DAEMON)
            by_itself = not adding.is_alive()
        adding.join()
        chain.delete([0], port=True)
    if by_itself:
        raise AssertionError("an ADD ends although the daemon is stopped")


def measure(chain: Chain) -> dict[str, Any]:
    with containers(range(CROWD, CROWD + AT_ONCE)), containers(range(CROWD)):
        said: dict[str, Any] = {
            "plain": one_by_one(chain, port=False),
            "port": one_by_one(chain, port=True),
            "started": started(chain),
            "plain_at_once": at_once(chain, port=False),
            "at_once": at_once(chain, port=True),
        }
        crowd = range(AT_ONCE, AT_ONCE + CROWD)
        for number in crowd:
            chain.add([number], port=True)
        said["crowd"] = one_by_one(chain, port=True)
        for number in crowd:
            chain.delete([number], port=True)
    return said


@contextmanager
def hidden_daemon() -> Iterator[None]:
    """Let no client find the daemon, which could not help either, while the block runs."""
    hidden = SOCKET.with_suffix(".hidden")
    with stopped_daemon():
        SOCKET.rename(hidden)
        try:
            yield
        finally:
            end_stand_in()
            hidden.rename(SOCKET)


def end_stand_in() -> None:
    """End what stands in for the daemon, if it runs, so that the next call has to start one."""
    for name in SOCKET.parent.glob("standin-*"):
        with socket.socket(socket.AF_UNIX) as probe:
            probe.connect(str(name))
            (pid,) = struct.unpack("=i", probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 4))
        process = os.pidfd_open(pid)
        signal.pidfd_send_signal(process, signal.SIGTERM)
        select.select([process], [], [])
        os.close(process)


def without_daemon(chain: Chain) -> Samples:
    """Each chain is the first that finds no daemon, and starts a stand-in; `gone` is as in `one_by_one`."""
    samples: Samples = {"add": [], "del": [], "gone": []}
    before = veths()
    with hidden_daemon(), containers(range(A_TURN)):
        for number in range(A_TURN):
            end_stand_in()
            samples["add"].append(chain.add([number], port=True))
            end_stand_in()
            start = time.perf_counter()
            samples["del"].append(chain.delete([number], port=True))
            settle(before, pause=0)
            samples["gone"].append((time.perf_counter() - start) * 1e3)
            settle(before)
    return samples


def few_at_once(chains: Mapping[str, Chain]) -> dict[str, Samples]:
    """Bursts of 30 of each in turns, without a daemon, and without a stand-in when a burst begins."""
    said: dict[str, Samples] = {name: {"add": [], "del": []} for name in chains}
    before = veths()
    with hidden_daemon(), containers(range(FEW)):
        for _ in range(BURSTS):
            for name, chain in chains.items():
                for verb, work in (("add", chain.add), ("del", chain.delete)):
                    end_stand_in()
                    said[name][verb].append(work(range(FEW), port=True))
                settle(before)
    return said


def many() -> Samples:
    """A thousand attachments in a /21: what the first and the last of them take.

    The floor of the last is what the first takes, and what the kernel alone takes longer: it walks all ports of a
    bridge for a new one. The first is measured before and after the last, because machines change in the meantime.
    """
    WIDE.write_text(
        "FLANNEL_NETWORK=10.96.0.0/13\nFLANNEL_SUBNET=10.98.0.1/21\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n"
    )
    delegate = {"bridge": "cni2", "hairpinMode": True, "isDefaultGateway": True}
    wide = {"type": "flannel", "subnetFile": str(WIDE), "delegate": delegate}
    chain = Chain("wide", "/opt/cni/bin", wide, bridge="cni2")
    crowd, last = range(MANY - LAST), range(MANY - LAST, MANY)
    before = veths()
    with containers(range(MANY)):
        again(chain, range(WARM_UP), turns=1)
        first, kernels_first = again(chain, last), kernel_only(chain, last)
        for number in crowd:
            chain.add([number], port=True)
        samples, kernels_last = again(chain, last), kernel_only(chain, last)
        for number in crowd:
            chain.delete([number], port=True)
        settle(before)
        first, kernels_first = first + again(chain, last), kernels_first + kernel_only(chain, last)
    least = median(first) - median(kernels_first)
    return {"first": first, "last": samples, "floor": [least + kernels for kernels in kernels_last]}


def kernel_only(chain: Chain, numbers: Iterable[int]) -> list[float]:
    """What the kernel alone takes to attach each of them, in ms."""
    samples = []
    for number in numbers:
        with Bare(chain.bridge, container(number)) as bare:
            samples.append(bare.attach())
    return samples


def again(chain: Chain, numbers: Sequence[int], *, turns: int = TURNS) -> list[float]:
    """Attach them one by one and detach them, so many times; returns what each ADD took."""
    samples = []
    before = veths()
    for _ in range(turns):
        samples += [chain.add([number], port=True) for number in numbers]
        chain.delete(numbers, port=True)
        settle(before)
    return samples


def main() -> None:
    weft = Chain("cbr0", "/opt/cni/bin", FLANNEL, bridge="cni0")
    debian = Chain("debian", "/usr/lib/cni", bridge("10.99.0.0/22"), bridge="cni1")
    control(weft)
    said = {
        "weft": measure(weft),
        "debian": measure(debian),
        "alone": without_daemon(weft),
        "few": few_at_once({"weft": weft, "debian": debian}),
        "many": many(),
    }
    print(json.dumps(said))


if __name__ == "__main__":
    main()
