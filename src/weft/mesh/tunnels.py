"""Where the WireGuard of each peer is: of its addresses one after the other, until it has answered at one.

Who is behind a NAT has to begin, and to go on saying something, for the NAT to let the other's packets in. Two that
are behind different ones both do, each to where the other was seen from outside; what comes first is lost and opens
the way back. So such a pair counts as one that does not reach each other before it has met; and where a NAT takes
another port for each target, it never meets.
"""

from math import inf
from typing import Final

from weft.mesh.outside import Outside, reachable
from weft.mesh.state import State
from weft.model.lease import WayKind
from weft.model.mesh.effects import Reason, Sights, TunnelSeen
from weft.model.mesh.messages import Seen
from weft.model.mesh.records import MANY_PORTS, NO_NAT, Member
from weft.model.net import Endpoint

SESSION: Final = 180.0  # seconds after a handshake that its keys are good for (REJECT_AFTER_TIME)
TURN: Final = 6.0  # seconds for an address to answer: WireGuard asks again after 5 and a third at most
OFTEN: Final = 20  # turns, after which two that may never meet try more seldom
SELDOM: Final = 60.0  # seconds between two turns then
SILENT: Final = 15.0  # seconds in which all echoes are lost, after which a session counts for nothing


class _Tunnel:
    """To one peer. `near` is one behind the same NAT."""

    __slots__ = ("asked", "choices", "endpoint", "met", "nat", "near", "turned", "turns")

    def __init__(self) -> None:
        self.choices: tuple[Endpoint, ...] = ()
        self.endpoint: Endpoint | None = None
        self.nat = NO_NAT
        self.near = False
        self.met = -inf  # when the last handshake was
        self.turned = -inf  # since when `endpoint` is tried
        self.turns = 0  # in vain
        self.asked = inf  # since when echoes are sent and none has come back

    def alive(self, now: float) -> bool:
        return now < self.met + SESSION and now < self.asked + SILENT

    @property
    def turns_at(self) -> float:
        return self.turned + (TURN if self.turns < OFTEN else SELDOM)


class Tunnels:
    def __init__(self, state: State, outside: Outside) -> None:
        self._state = state
        self._outside = outside
        self._tunnels: dict[bytes, _Tunnel] = {}
        self._wanted: dict[bytes, None] = {}  # peers that are to be met
        self._told: dict[bytes, tuple[int, str]] = {}  # to whom, by which link, where we see it
        self._now = -inf
        self.due = inf

    # --- What others ask

    def endpoint(self, key: bytes) -> str:
        """Empty if the peer has to begin, or has no WireGuard."""
        tunnel = self._tunnels.get(key)
        return str(tunnel.endpoint) if tunnel and tunnel.endpoint else ""

    def keepalive(self, key: bytes) -> bool:
        """Whether a NAT of ours is on the way to it."""
        tunnel = self._tunnels.get(key)
        if tunnel is None or tunnel.endpoint is None or self._outside.nat == NO_NAT:
            return False
        return not tunnel.near or tunnel.endpoint.ip in self._outside.hosts

    def crosses(self, key: bytes, kind: WayKind) -> bool:
        """Whether a NAT is on the path that stops packets of this kind, or that both ends have to open."""
        tunnel = self._tunnels.get(key)
        if tunnel is None or tunnel.near:
            return False
        behind = (self._outside.nat, tunnel.nat)
        return any(behind) if kind == "vxlan" else all(behind)

    def doubtful(self, key: bytes, kind: WayKind) -> bool:
        """Whether a path of which nothing is known is to be taken for one that carries nothing.

        WireGuard's is not before it was seen for the first time whom it has met: perhaps an earlier run's was good.
        """
        if not self.crosses(key, kind):
            return False
        return kind == "vxlan" or (self._now > -inf and not self._tunnels[key].alive(self._now))

    def reason(self, key: bytes) -> Reason:
        """Why two do not meet, if that is for their addresses."""
        tunnel = self._tunnels.get(key)
        if tunnel is None or not self._outside.tunnels or tunnel.alive(self._now):
            return ""
        if self.crosses(key, "direct"):
            return "nat-hard" if MANY_PORTS in {self._outside.nat, tunnel.nat} else "nat"
        return "" if tunnel.choices or tunnel.nat == MANY_PORTS else "no-endpoint"

    # --- What happens

    def put(self, key: bytes, member: Member | None, now: float) -> None:
        """The record of a peer with a lease is new, or ours is."""
        if member is None or not member.tunnels:
            self._tunnels.pop(key, None)
            self._wanted.pop(key, None)
            return
        tunnel = self._tunnels.setdefault(key, _Tunnel())
        theirs = reachable(member.tunnels)
        tunnel.nat = member.nat
        tunnel.near = any(each.ip in self._outside.hosts for each in theirs)
        before, tunnel.choices = tunnel.choices, self._choices(theirs, tunnel)
        if before != tunnel.choices:
            self._wanted.pop(key, None)
            if not tunnel.alive(now):
                tunnel.endpoint, tunnel.turned, tunnel.turns = next(iter(tunnel.choices), None), now, 0

    def forget(self) -> None:
        """Another ring."""
        self._tunnels.clear()
        self._wanted.clear()
        self._told.clear()

    def asked(self, key: bytes, now: float) -> None:
        """An echo goes to the peer by WireGuard, which has to meet it for that."""
        if tunnel := self._tunnels.get(key):
            tunnel.asked = min(tunnel.asked, now)
            if not tunnel.alive(now):
                self._want(key, tunnel, now)

    def saw(self, sights: Sights, now: float) -> list[bytes]:
        """Returns the peers that have met us now."""
        self._now = now
        met = []
        for answer in sights.answered:
            if answer.kind == "direct" and (tunnel := self._tunnels.get(answer.key)):
                tunnel.asked = inf
        for seen in sights.tunnels:
            if tunnel := self._tunnels.get(seen.key):
                if seen.handshake is not None and seen.handshake < SESSION:
                    if self._met(seen, tunnel, seen.handshake, now):
                        met.append(seen.key)
                elif self.keepalive(seen.key):
                    self._want(seen.key, tunnel, now)
        return met

    def tick(self, now: float) -> None:
        """Try the next address of each peer that has not answered at this one."""
        self.due = inf
        for key in list(self._wanted):
            tunnel = self._tunnels[key]
            if now >= tunnel.turns_at or tunnel.alive(now):
                if not tunnel.alive(now):
                    self._turn(tunnel, now)
                    self._state.mark(key)
                if tunnel.alive(now) or not self.keepalive(key):
                    del self._wanted[key]
                    continue
            self.due = min(self.due, tunnel.turns_at)

    # --- What follows

    def _choices(self, theirs: list[Endpoint], tunnel: _Tunnel) -> tuple[Endpoint, ...]:
        """Most likely first: as the peer has them, but IPv6 knows no NAT, and behind one NAT inner ones are nearer."""
        if tunnel.nat == MANY_PORTS and not tunnel.near:
            return ()
        families = {each.ip.version for each in reachable(self._outside.tunnels)}
        mine = [each for each in theirs if each.ip.version in families]
        return tuple(sorted(mine, key=lambda each: (each.ip.version != 6, each.ip in self._outside.hosts)))

    def _want(self, key: bytes, tunnel: _Tunnel, now: float) -> None:
        if key not in self._wanted and {*tunnel.choices} - {tunnel.endpoint}:
            self._wanted[key] = None
            tunnel.turned = now
            self.due = min(self.due, tunnel.turns_at)

    def _turn(self, tunnel: _Tunnel, now: float) -> None:
        places = tunnel.choices
        at = places.index(tunnel.endpoint) + 1 if tunnel.endpoint in places else 0
        tunnel.endpoint, tunnel.turned = places[at % len(places)], now
        tunnel.turns += 1

    def _met(self, seen: TunnelSeen, tunnel: _Tunnel, age: float, now: float) -> bool:
        """Tell whether that is new."""
        was, tunnel.met, tunnel.turns = tunnel.alive(now), now - age, 0
        alive = tunnel.alive(now)
        for endpoint in reachable((seen.endpoint,)):
            self._tell(seen.key, str(endpoint))
            if alive and endpoint != tunnel.endpoint:
                tunnel.endpoint = endpoint
                self._state.mark(seen.key)
        return alive and not was

    def _tell(self, key: bytes, endpoint: str) -> None:
        link = self._state.links.to(key)
        if link is None or link.ring != self._state.known.ring or self._told.get(key) == (link.number, endpoint):
            return
        self._told[key] = link.number, endpoint
        self._state.send(link, Seen(endpoint=endpoint))
