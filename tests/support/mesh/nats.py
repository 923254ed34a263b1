"""NATs in a simulated mesh, and its nodes' WireGuard: who meets whom, from where, and for how long that lasts."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from math import inf

from tests.support.mesh.nodes import Node
from tests.support.mesh.paths import BOTH, Paths
from weft.model.lease import WayKind
from weft.model.mesh import effects as do

ASKED, ANSWERED = 30.0, 120.0  # seconds that a NAT lets packets in after one that went out
AGAIN = 5.0  # seconds between two handshakes that WireGuard begins (REKEY_TIMEOUT)
RENEWED, DEAD = 120.0, 180.0  # age of a session (REKEY_AFTER_TIME, REJECT_AFTER_TIME)
KEEPALIVE = 25.0
DELAY = 0.02


class Nat:
    """What comes in is dropped unless something went to just there; `hard` takes another port for each target."""

    def __init__(self, host: str, *, hard: bool) -> None:
        self.host = host
        self.hard = hard
        self._numbers = count(4001)
        self._inner: dict[str, str] = {}  # by outer address
        self._outer: dict[tuple[str, str], str] = {}
        self._open: dict[tuple[str, str], float] = {}  # outer address and target: until when

    def out(self, inner: str, to: str, now: float) -> str:
        slot = (inner, to if self.hard else "")
        outer = self._outer.get(slot)
        if outer is None or (self.hard and self._open[outer, to] < now):
            outer = self._outer[slot] = f"{self.host}:{next(self._numbers)}"
            self._inner[outer] = inner
        self._open[outer, to] = max(self._open.get((outer, to), 0.0), now + ASKED)
        return outer

    def back(self, outer: str, source: str, now: float) -> str | None:
        if self._open.get((outer, source), -inf) < now:
            return None
        self._open[outer, source] = now + ANSWERED
        return self._inner[outer]

    def restart(self) -> None:
        """It forgets all, and takes other ports."""
        self._inner.clear()
        self._outer.clear()
        self._open.clear()


@dataclass
class Session:
    """With one peer, as a node has it."""

    endpoint: str = ""
    wanted: str = ""  # what the daemon has said last
    keepalive: bool = False
    met: float = -inf
    begun: float = -inf
    offered: float = -inf  # the peer has begun
    sent: float = -inf
    waiting: list[do.Probe] = field(default_factory=list)


class Nats(Paths):
    """`behind` says of nodes behind which NAT they are, by its name; a name that begins with `hard` is of that kind."""

    def __init__(self, count: int, behind: Mapping[str, str], *, seed: object = 1, kinds: tuple[WayKind, ...] = BOTH):
        names = sorted(set(behind.values()))
        self.nats = {name: Nat(f"192.0.2.{at}", hard=name.startswith("hard")) for at, name in enumerate(names, 1)}
        self.behind = dict(behind)
        self.sessions: dict[tuple[str, str], Session] = {}
        super().__init__(count, seed, kinds)
        for node in self.world.nodes.values():
            self._beat(node)

    def _add(self, name: str, peers: list[str], kinds: tuple[WayKind, ...]) -> None:
        super()._add(name, peers, kinds)
        if name in self.behind:
            del self.world.by_address[self.world.nodes[name].address]

    def move(self, name: str, nat: str) -> None:
        """Behind another NAT, with the addresses that it has."""
        self.behind[name] = nat

    # --- Packets

    def nat(self, name: str) -> Nat | None:
        return self.nats.get(self.behind.get(name, ""))

    def session(self, one: str, other: str) -> Session:
        return self.sessions.setdefault((one, other), Session())

    def alive(self, one: str, other: str) -> bool:
        return self.world.now < self.session(one, other).met + DEAD

    def passes(self, source: str, target: str, kind: WayKind, size: int = 0) -> bool:
        if kind == "direct":
            met = self.alive(source, target) and self.alive(target, source)
        else:
            met = self.nat(source) is self.nat(target)
        return met and super().passes(source, target, kind, size)

    def _deliver(self, node: Node, to: str, arrive: Callable[[Node, str], None]) -> None:
        """To whom an address leads, and from which it comes."""
        now, source, nat = self.world.now, node.address, self.nat(node.name)
        at = next((each for each in self.world.nodes.values() if each.address == to), None)
        if at is None or self.nat(at.name) is not nat:
            if nat is not None:
                source = nat.out(source, to, now)
            if at is None:
                there = next((each for each in self.nats.values() if to.startswith(f"{each.host}:")), None)
                inner = None if there is None or there is nat else there.back(to, source, now)
                at = next((each for each in self.world.nodes.values() if each.address == inner), None)
            elif self.nat(at.name):
                at = None
        if at is not None and (node.name, at.name, "direct") not in self.cut:
            self.world.at(now + DELAY, arrive, at, source)

    # --- WireGuard

    def _beat(self, node: Node) -> None:
        for (name, other), session in self.sessions.items():
            if name == node.name and session.keepalive:
                if not self.alive(name, other):
                    self._begin(node, other)
                elif self.world.now >= session.sent + KEEPALIVE:
                    self._send(node, other, None)
        self.world.at(self.world.now + 1, self._beat, node)

    def _begin(self, node: Node, other: str) -> None:
        session = self.session(node.name, other)
        if session.endpoint and self.world.now >= session.begun + AGAIN:
            session.begun = self.world.now
            self._deliver(node, session.endpoint, partial(self._offered, node.name))

    def _offered(self, by: str, node: Node, source: str) -> None:
        if self.world.nodes[by].key in node.leases:
            session = self.session(node.name, by)
            session.endpoint, session.offered = source, self.world.now
            self._deliver(node, source, partial(self._accepted, node.name))

    def _accepted(self, by: str, node: Node, source: str) -> None:
        session = self.session(node.name, by)
        session.endpoint, session.met = source, self.world.now
        for probe in (None, *session.waiting):
            self._send(node, by, probe)
        session.waiting.clear()

    def _send(self, node: Node, other: str, probe: do.Probe | None, *, answer: bool = False) -> None:
        session = self.session(node.name, other)
        session.sent = self.world.now
        if self.world.now >= session.met + RENEWED:
            self._begin(node, other)
        self._deliver(node, session.endpoint, partial(self._arrived, node.name, probe, answer))

    def _arrived(self, by: str, probe: do.Probe | None, answer: bool, node: Node, source: str) -> None:
        session = self.session(node.name, by)
        session.met = max(session.met, session.offered)
        if not self.alive(node.name, by):
            return
        session.endpoint = source
        if probe and answer:
            self._answered.setdefault(node.name, []).append(do.Answer(key=probe.key, kind="direct", size=probe.size))
        elif probe:
            self._send(node, by, probe, answer=True)

    # --- The daemon

    def _watch(self, node: Node, effect: do.Effect) -> None:
        if isinstance(effect, do.Probe) and effect.kind == "direct":
            other = self.named(effect.key)
            self.probes.append((node.name, other, effect.kind, effect.size))
            if self.alive(node.name, other):
                self._send(node, other, effect)
            else:
                self.session(node.name, other).waiting[:] = [effect]
                self._begin(node, other)
            return
        super()._watch(node, effect)
        if isinstance(effect, do.Hop):
            session = self.session(node.name, self.named(effect.key))
            session.keepalive = effect.keepalive
            if effect.endpoint and effect.endpoint != session.wanted:
                session.endpoint = effect.endpoint
            session.wanted = effect.endpoint

    def _tunnels(self, node: Node) -> tuple[do.TunnelSeen, ...]:
        return tuple(
            do.TunnelSeen(
                key=self.world.nodes[other].key,
                endpoint=session.endpoint,
                handshake=None if session.met == -inf else self.world.now - session.met,
            )
            for (name, other), session in self.sessions.items()
            if name == node.name
        )
