"""What `weft ui` is tried with: a lab of any size that is there in memory alone, served as a real one is."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import msgspec
import uvicorn

from weft.diag.sight.interfaces import InterfaceState
from weft.diag.trace.probe_report import TraceReport
from weft.lab.report import LabReport, NodeReport, PodReport
from weft.model.errors import ConfigError, Problem
from weft.model.node.history import Event, EventsSince
from weft.model.node.nodestate import LeaseState, NetworkState, NodeState, PeerState, UplinkState
from weft.model.value import Value
from weft.ui.app import make
from weft.ui.measuring import Measured, Pair
from weft.ui.picture import View, of_lab
from weft.ui.watch import Watch


def subnet(number: int) -> str:
    return f"10.244.{number}.0/24"


def public(number: int) -> str:
    return f"172.31.0.{10 + number}"


def peer(number: int, **more: object) -> PeerState:
    known = {"id": f"10.244.{number}.0-24", "subnets": [subnet(number)], "public": [public(number)], "seconds": 61.0}
    return PeerState(**{"backend": "vxlan", **known, **more})


def state(number: int, count: int, **more: object) -> NodeState:
    """What the daemon of node `number` of `count` says of itself: all is well, but for what is given."""
    known = {
        "version": "1",
        "instance": "a",
        "pid": 7,
        "seconds": 100.0,
        "ready": True,
        "parts": {"lease": None},
        "losses": {},
        "store": None,
        "faults": 0,
        "network": NetworkState(networks=["10.244.0.0/16"], backend="vxlan", mtu=1450, devices=["flannel.1"]),
        "uplink": UplinkState(name="eth0", index=2, mtu=1500, addresses=[public(number)], why="--iface=eth0"),
        "lease": LeaseState(
            id=f"10.244.{number}.0-24", subnets=[subnet(number)], public=[public(number)], confirmed=True
        ),
        "peers": [peer(other) for other in range(1, count + 1) if other != number],
    }
    return NodeState(**{**known, **more})


class Seen(Value):
    """A lab, and what its daemons say."""

    lab: LabReport
    states: dict[str, NodeState | None]


def lab(count: int, *, pods: int = 2, states: Mapping[str, NodeState] | None = None) -> Seen:
    """A lab of so many nodes that are well, but for the states that are given."""
    numbers = range(1, count + 1)
    nodes = [
        NodeReport(
            name=f"node{n}", underlay=[public(n)], subnets=[subnet(n)], mtu=1450, daemon="ready", problems=[], pid=7
        )
        for n in numbers
    ]
    return Seen(
        lab=LabReport(
            name="made",
            backend="vxlan",
            families=[4],
            store="http://172.31.0.1:2379",
            store_state="ready",
            network=msgspec.Raw(b"{}"),
            nodes=nodes,
            pods=[
                PodReport(name=f"pod{n}-{p}", node=f"node{n}", addresses=[f"10.244.{n}.{p + 1}/24"], id="x", netns="/x")
                for n in numbers
                for p in range(1, pods + 1)
            ],
        ),
        states={**{f"node{n}": state(n, count) for n in numbers}, **(states or {})},
    )


class MadeSource:
    """A source of what the test says: `seen` is how all is, `happen` has something happen at a node."""

    def __init__(self, seen: Seen) -> None:
        self.seen = seen
        self.fails: Exception | None = None
        self.looks = 0
        self._unix = time.time()  # all is of this moment: what the states say of seconds stays
        self._events: dict[str, list[Event]] = {}

    def happen(self, node: str, kind: str, subject: str) -> None:
        there = self._events.setdefault(node, [])
        there.append(Event(number=len(there) + 1, time=time.time(), kind=kind, subject=subject))

    def forget(self, node: str) -> None:
        """Have the daemon of a node begin again, and read its history only then: as one that was killed."""
        self._events[node] = self._events[node][:1]

    async def look(self) -> View:
        self.looks += 1
        if self.fails is not None:
            raise self.fails
        return of_lab(self.seen.lab, self.seen.states, unix=self._unix)

    async def events(self, after: Mapping[str, int]) -> dict[str, EventsSince]:
        return {
            node: EventsSince(unix=0, last=len(events), events=events[known if known <= len(events) else 0 :])
            for node, events in self._events.items()
            for known in [after.get(node, 0)]
        }

    async def measure(self, view: View, measured: Mapping[Pair, Measured]) -> dict[Pair, Measured]:
        await asyncio.sleep(0.01)
        return {pair: Measured(probes=(0.08,), at=1) for pair in view.pairs if pair not in measured}

    async def interfaces(self, where: str) -> list[InterfaceState]:
        return [InterfaceState(index=2, name="eth0", kind="veth", state="up", mtu=1500, addresses=[f"of {where}"])]

    async def trace(self, source: str, target: str, size: int) -> TraceReport:
        raise ConfigError(
            Problem(code="LAB-002", where=f"{source} to {target}", seen=f"there are no packets of {size} bytes here")
        )


@contextmanager
def served(source: MadeSource, *, token: str = "") -> Iterator[str]:
    """The page of a source, by its URL, until the end."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        app = make(source, Watch(source, ending=lambda: server.should_exit), token=token)
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", access_log=False, lifespan="off"))
        serving = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        serving.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        finally:
            server.should_exit = True
            serving.join()
