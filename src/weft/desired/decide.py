"""Deciding: from inputs and believed leases to the objects that are wanted, and what a change of them touches.

The daemon's rounds and `weft plan` ask the same `Decider`. It looks at nothing and does nothing.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

from weft.desired.firewall import rule_sets
from weft.desired.inputs import Inputs
from weft.desired.leasecheck import ours
from weft.desired.node import SHARED, Wanted, ownership, shared
from weft.desired.roster import Roster
from weft.model.errors import PeerError, Problem
from weft.model.kernel.objects import Key, Object, Objects, Ownership
from weft.model.lease import Lease
from weft.model.net import Ip

_PEERS_A_SLICE: Final = 128  # about 3 ms


class Decider:
    """What a node wants: part by part, one for what it needs once and one for each of the `believed` leases.

    `believed` may change; what has changed in it is named to `decide`.
    """

    def __init__(self, inputs: Inputs, believed: Mapping[str, Lease]) -> None:
        self._inputs = inputs
        self._ownership = ownership(inputs)
        self._believed = believed
        self._wanted = Wanted()
        self._unusable: dict[str, Problem] = {}
        self._news: list[Problem] = []

    @property
    def inputs(self) -> Inputs:
        """What decides; a change of it counts for what is decided after it."""
        return self._inputs

    @inputs.setter
    def inputs(self, inputs: Inputs) -> None:
        self._inputs = inputs
        self._ownership = ownership(inputs)

    @property
    def ownership(self) -> Ownership:
        return self._ownership

    @property
    def spare(self) -> frozenset[str]:
        """Devices for which nothing waits."""
        return frozenset(device.name for device in self._inputs.backend.devices(self._inputs) if not device.vital)

    @property
    def wanted(self) -> Objects:
        """The same mapping for ever."""
        return self._wanted.objects

    @property
    def peers(self) -> Iterable[str]:
        """Those that anything is wanted for."""
        return self._wanted.parts - {SHARED}

    def part(self, lease_id: str = SHARED) -> tuple[Object, ...]:
        return self._wanted.part(lease_id)

    @property
    def unusable(self) -> Mapping[str, Problem]:
        """Of believed leases, by id: the back end cannot use their data."""
        return self._unusable

    def trouble(self, lease: Lease) -> Problem | None:
        """What the back end cannot use of a lease's data."""
        try:
            self._inputs.backend.peer(self._inputs, lease)
        except PeerError as error:
            return error.problems[0]
        return None

    def news(self) -> list[Problem]:
        """What has become unusable, or for another reason, since the last call."""
        news, self._news = self._news, []
        return news

    def decide_everything(self) -> Iterator[set[Key]]:
        """Slice by slice. Yields the keys that were wanted before or are now."""
        yield self.decide_shared()
        waiting = iter({*self.peers, *self._believed})
        while some := list(islice(waiting, _PEERS_A_SLICE)):
            yield self.decide_peers(some)

    def decide_shared(self) -> set[Key]:
        """What is needed once. Returns the keys that were wanted before or are now."""
        return self._wanted.set(SHARED, shared(self._inputs) | rule_sets(self._inputs))

    def decide_peers(self, peers: Iterable[str]) -> set[Key]:
        """Returns keys as `decide_shared` does."""
        return set[Key]().union(*map(self._peer, peers))

    def _peer(self, lease_id: str) -> set[Key]:
        lease = self._believed.get(lease_id)
        before = self._unusable.pop(lease_id, None)
        if lease is None:
            return self._wanted.set(lease_id, frozenset())
        try:
            state = self._inputs.backend.peer(self._inputs, lease)
        except PeerError as error:
            problem = self._unusable[lease_id] = error.problems[0]
            if problem != before:
                self._news.append(problem)
            state = frozenset()
        return self._wanted.set(lease_id, state)


def deciding(inputs: Inputs, addresses: Collection[Ip], own_ids: Collection[str] = ()) -> tuple[Roster, Decider]:
    """What judges the leases of others, and what decides by those that it believes.

    `addresses` are all of this node's. Each asks the other: what a back end cannot use, the roster does not believe.
    """
    believed: dict[str, Lease] = {}
    decider = Decider(inputs, believed)
    claiming, usable = inputs.backend.claims, decider.trouble
    return Roster(ours(inputs, addresses), own_ids, claiming=claiming, usable=usable, believed=believed), decider
