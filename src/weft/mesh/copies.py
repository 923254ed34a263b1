"""Two peers of one key: a disk was copied. The one with the higher run gives way, with a new key.

It hears of the other from peers that are linked to that one and are asked for a second link. Where both have links,
its own record comes back, again and again beyond what it has written itself, and a peer goes on publishing a link to
this key that it does not have.
"""

from math import inf
from typing import Final

from weft.mesh.recent import Recent
from weft.mesh.state import State
from weft.model.errors import Problem
from weft.model.mesh.effects import Rekey
from weft.model.mesh.records import Member, short

PROOF: Final = 15.0  # seconds that a peer publishes a link which we do not have
PEERS: Final = 2  # that tell of a link to another: one alone may be wrong, unless we are linked to no other
TIMES: Final = 3  # that a sign is seen: once may be what a dead run has left behind


class Copies:
    def __init__(self, state: State) -> None:
        self._state = state
        self._since: dict[bytes, float] = {}  # by peer that publishes a link to us
        self._told = Recent[int, dict[bytes, int]]()  # by run: how often which peers had a link to it
        self._beyond = Recent[int, int]()  # by run: how often it went beyond our record
        self.due = inf

    def told(self, run: int, by: bytes) -> None:
        times = self._told.setdefault(run, {})
        if by in times or len(times) < PEERS:
            times[by] = times.get(by, 0) + 1
        state = self._state
        only = all(link.key == by for link in state.links)
        if (only or len(times) >= PEERS or state.options.moved) and self._lower({run: sum(times.values())}):
            self._give_way()

    def beyond(self, run: int) -> bool:
        """Whether this run did so for the first time."""
        self._beyond[run] = self._beyond.get(run, 0) + 1
        return self._beyond[run] == 1

    def look(self, member: Member, now: float) -> None:
        """A record of another peer is new."""
        if short(self._state.me) not in member.links or self._state.links.to(member.key):
            self._since.pop(member.key, None)
        elif member.key not in self._since:
            self._since[member.key] = now
            self.due = min(self.due, now + PROOF)

    def tick(self, now: float) -> None:
        state = self._state
        self.due = inf
        self._since = {key: since for key, since in self._since.items() if not state.links.to(key)}
        hops = state.routing.hops(state.known, now)
        lives = any(since + PROOF <= now and key in hops for key, since in self._since.items())
        if self._since:
            self.due = now + PROOF
        if lives and self._lower(self._beyond):
            self._give_way()

    def _lower(self, runs: dict[int, int]) -> bool:
        return any(times >= TIMES and run < self._state.options.run for run, times in runs.items())

    def _give_way(self) -> None:
        seen = "another machine runs with the same key"
        hint = "Its disk was copied to this one, or the reverse; this node joins as a new one."
        problem = Problem(code="MESH-004", where="mesh.json", seen=seen, hint=hint)
        self._state.out.append(Rekey(why=problem))
