"""Whom we dial: addresses that we were given, neighbours in the order of keys, and members that no link leads to."""

from collections.abc import Iterator, Sequence
from math import inf
from typing import Final

from weft.mesh.dialling import ALONE, UNREACHED, Dialling
from weft.mesh.graph import FULL
from weft.mesh.links import Link
from weft.mesh.recent import Recent
from weft.mesh.state import State
from weft.model.errors import ConfigError, Problem
from weft.model.mesh.effects import Dial, Forget
from weft.model.mesh.records import MAX_REDIRECTS, Member

UNWANTED: Final = 10.0  # seconds, after which a link of ours that the order does not ask for is closed
QUIET: Final = 1.0  # seconds without a new member, before neighbours are dialled: else they are soon others
LONGEST: Final = 5.0  # but not longer than that


class Reach:
    def __init__(self, state: State) -> None:
        self._state = state
        self._dialling = Dialling(state.chance)
        self.addresses = dict.fromkeys(state.options.peers)  # for ever, or until they are forgotten
        self._keys = Recent[str, bytes]()  # who answered there
        self._advised: dict[str, None] = {}  # by one that has links enough
        self._members = 0
        self._began = self._grew = -inf  # since when members have come, and when the last one did
        self.due = 0.0

    def soon(self, now: float) -> None:
        self.due = min(self.due, now)

    def hasten(self, now: float) -> None:
        """Dial the addresses that we were given, whatever their pace."""
        self._dialling.ended(self.addresses, inf)
        self.soon(now)

    def connect(self, address: str) -> None:
        self.addresses[address] = None

    def check(self, command: Forget) -> None:
        """Raises `ConfigError`."""
        if command.address not in self.addresses:
            hint = f"It dials {', '.join(self.addresses) or 'no address that it was given'}"
            seen = f"this node was not told to dial {command.address}"
            raise ConfigError(Problem("FLAG-001", "weft mesh forget", seen, hint=hint))

    def forget(self, address: str) -> None:
        del self.addresses[address]

    def advised(self, addresses: Sequence[str]) -> None:
        self._advised.update(dict.fromkeys(addresses))

    def answered(self, address: str, key: bytes | None) -> None:
        self._dialling.answered(address)
        if key is not None:
            self._keys[address] = key

    def down(self, link: Link, now: float) -> None:
        if link.dialled is not None:
            self._dialling.ended((link.key, link.dialled), now - link.since)
        self.soon(now)

    def others(self, but: bytes) -> tuple[str, ...]:
        """Addresses for one that cannot have a link to us."""
        state = self._state
        members = [one for one in state.known.members.values() if one.key not in {but, state.me} and one.endpoints]
        size = min(MAX_REDIRECTS, len(members))
        first = int(state.chance() * len(members))
        return tuple(members[(first + step) % len(members)].endpoints[0] for step in range(size))

    def tick(self, now: float) -> None:
        state = self._state
        if state.known.removals.is_removed(state.me):  # we have left
            self.due = inf
            return
        self.due = inf
        calls, due = self._dialling.dial(self._wanted(now), now)
        self.due = min(self.due, due)
        alone = not len(state.links)
        if away := self._away(now):
            calls += self._dialling.unreached(away, now, alone=alone)
            self.due = min(self.due, now + (ALONE if alone else UNREACHED) / 2)
        else:
            self.due = min(self.due, now + UNREACHED)
        state.out.extend(Dial(address=address) for address in calls)
        self._leave_unwanted(now)

    def _wanted(self, now: float) -> Iterator[tuple[bytes | str, Sequence[str]]]:
        state = self._state
        for address in (*self.addresses, *self._advised):
            key = self._keys.get(address)
            if key is None or not (
                key == state.me or state.links.to(key) or key in state.routing.hops(state.known, now)
            ):
                yield address, (address,)
        self._advised.clear()
        if self._growing(now):
            self.due = min(self.due, now + QUIET)
            return
        for key in sorted(state.known.neighbours.wanted):
            if not state.links.to(key):
                yield key, self._endpoints(state.known.members[key])

    def _growing(self, now: float) -> bool:
        """Whether there are many members, and more by the moment."""
        count = len(self._state.known.members)
        if count > self._members:
            if now >= self._grew + QUIET:
                self._began = now
            self._grew = now
        self._members = count
        many = count > FULL + 1 and len(self._state.links) > 0
        return many and now < self._grew + QUIET and now < self._began + LONGEST

    def _away(self, now: float) -> list[tuple[bytes, Sequence[str]]]:
        state = self._state
        hops = state.routing.hops(state.known, now)
        members = state.known.members.values()
        away = ((one.key, self._endpoints(one)) for one in members if one.key not in hops and one.key != state.me)
        return [(key, endpoints) for key, endpoints in away if endpoints]

    def _endpoints(self, member: Member) -> Sequence[str]:
        """Where it may be: not where another peer has answered, to which we have a link."""
        last = ((address, self._keys.get(address)) for address in member.endpoints)
        return tuple(address for address, key in last if key in {None, member.key} or not self._linked(key))

    def _linked(self, key: bytes | None) -> bool:
        return key == self._state.me or (key is not None and self._state.links.to(key) is not None)

    def _leave_unwanted(self, now: float) -> None:
        state = self._state
        wanted = state.known.neighbours.wanted
        if not all(state.links.to(key) for key in wanted):
            return
        for link in list(state.links):
            old = link.dialled is not None and now - link.since >= UNWANTED
            if old and link.key not in wanted and link.key in state.known.members:
                state.links.close(link, "the order of keys does not ask for it")
