"""The tunnels beside a simulated mesh's links: which packets pass, what nodes see of that, and where packets go."""

from collections.abc import Iterable, Iterator
from itertools import pairwise

from tests.support.mesh.nodes import Node
from tests.support.mesh.world import World
from weft.model.lease import WayKind
from weft.model.mesh import effects as do
from weft.model.mesh.records import Layout

LAYOUT = Layout(net_conf="{}", blocks=64, first=2)
EYE = 0.2  # seconds between two looks of a node at what has answered
POD = 1420  # bytes of the largest packet of a pod
BOTH: tuple[WayKind, ...] = ("vxlan", "direct")
Cut = tuple[str, str, WayKind]  # packets from whom to whom, by what, are lost


class Paths:
    """A mesh whose nodes know each other, and which hop each was told for each other one."""

    def __init__(self, count: int, seed: object = 1, kinds: tuple[WayKind, ...] = ("vxlan",)) -> None:
        self.world = World(f"ways {seed}")
        self.world.watchers.append(self._watch)
        self.cut: set[Cut] = set()
        self.largest: dict[Cut, int] = {}  # bytes of an IP packet
        self.hops: dict[str, dict[str, do.Hop]] = {}
        self.probes: list[tuple[str, str, WayKind, int]] = []
        self.idle: set[str] = set()  # nodes whose pods speak with nobody
        self.kinds: dict[str, tuple[WayKind, ...]] = {}
        self._answered: dict[str, list[do.Answer]] = {}
        self._names: dict[bytes, str] = {}
        names = [f"n{number}" for number in range(count)]
        for name in names:
            self._add(name, names[:1] if name != names[0] else [], kinds)
        self.world.create(names[0], LAYOUT)
        assert self.world.run(60, until=self.know_all)
        for node in self.world.nodes.values():
            self._look(node)

    def _add(self, name: str, peers: list[str], kinds: tuple[WayKind, ...]) -> None:
        self.world.add(name, peers, takes=kinds)

    def know_all(self) -> bool:
        return all(len(node.leases) == len(self.world.nodes) - 1 for node in self.world.nodes.values())

    # --- What is done to it

    def block(self, *pairs: tuple[str, str], kinds: tuple[WayKind, ...] = BOTH) -> None:
        """In both directions."""
        self.cut |= {(a, b, kind) for one, other in pairs for a, b in ((one, other), (other, one)) for kind in kinds}

    def limit(self, one: str, other: str, size: int, kinds: tuple[WayKind, ...] = BOTH) -> None:
        self.largest |= {(a, b, kind): size for a, b in ((one, other), (other, one)) for kind in kinds}

    # --- What nodes see

    def passes(self, source: str, target: str, kind: WayKind, size: int = 0) -> bool:
        """A packet of one pair of nodes."""
        path = (source, target, kind)
        return path not in self.cut and size <= self.largest.get(path, size)

    def _watch(self, node: Node, effect: do.Effect) -> None:
        if isinstance(effect, do.Hop):
            self.hops.setdefault(node.name, {})[self.named(effect.key)] = effect
        elif isinstance(effect, do.Probe):
            to, size = self.named(effect.key), min(effect.size, POD)
            self.probes.append((node.name, to, effect.kind, effect.size))
            if self.passes(node.name, to, effect.kind, size) and self.passes(to, node.name, effect.kind, size):
                answer = do.Answer(key=effect.key, kind=effect.kind, size=effect.size)
                self._answered.setdefault(node.name, []).append(answer)

    def named(self, key: bytes) -> str:
        """The node that has the key."""
        if key not in self._names:
            self._names = {node.key: node.name for node in self.world.nodes.values()}
        return self._names[key]

    def _look(self, node: Node) -> None:
        if node.core is not None:
            others = () if node.name in self.idle else node.leases
            answered = tuple(self._answered.pop(node.name, ()))
            sights = do.Sights(answered=answered, active=frozenset(others), tunnels=self._tunnels(node))
            self.world.call(node, lambda core, now: core.saw(sights, now))
        self.world.at(self.world.now + EYE, self._look, node)

    def _tunnels(self, node: Node) -> tuple[do.TunnelSeen, ...]:  # noqa: ARG002 - as if nothing were looked at
        return ()

    # --- Where packets go

    def relay(self, one: str, other: str) -> str:
        """Its name; empty without one."""
        hop = self.hops.get(one, {}).get(other)
        return "" if hop is None or hop.next.key == hop.key else hop.next.name

    def kind(self, one: str, other: str) -> WayKind:
        hop = self.hops.get(one, {}).get(other)
        return "vxlan" if hop is None else hop.kind

    def reason(self, one: str, other: str) -> str:
        hop = self.hops.get(one, {}).get(other)
        return "" if hop is None else hop.reason

    def walked(self, one: str, other: str) -> list[str]:
        """The nodes that a packet passes."""
        passed = [one]
        while passed[-1] != other:
            assert len(passed) <= len(self.world.nodes), f"a loop: {passed}"
            passed.append(self.relay(passed[-1], other) or other)
        return passed

    def arrives(self, one: str, other: str) -> bool:
        """A packet from a pod to a pod. WireGuard takes it from the peer alone by which it would send one back."""
        way = self.walked(one, other)
        for here, there in pairwise(way):
            kind = self.kind(here, other)
            back = self.relay(there, one) or one
            if not self.passes(here, there, kind) or (kind == "direct" and back != here):
                return False
        return True

    def until(self, seconds: float, pairs: Iterable[tuple[str, str]], relays: Iterable[str]) -> bool:
        wanted = set(relays)
        return self.world.run(seconds, until=lambda: all(self.relay(*pair) in wanted for pair in pairs))

    def linked(self, one: str, other: str) -> bool:
        """Whether packets could get there, over any nodes."""
        seen, todo = {one}, [one]
        while todo:
            new = set(self._near(todo.pop())) - seen
            seen |= new
            todo += new
        return other in seen

    def _near(self, name: str) -> Iterator[str]:
        for other, node in self.world.nodes.items():
            common = set(node.takes) & set(self.world.nodes[name].takes)
            if any(self.passes(name, other, kind) and self.passes(other, name, kind) for kind in common):
                yield other


def both(one: str, other: str) -> list[tuple[str, str]]:
    return [(one, other), (other, one)]
