"""What must hold after every step, at the cost of what the step has changed.

C1: no block is two peers' in the union of all disks, also of those that are stopped or cut off; not of the removed.
C2: the tokens on a disk are in order, do not overlap and are blocks of the ring.
C3: versions rise, of a node's own record and of each block.
C7: what a node has served is gone for it only when that has left, was removed, or has another home block.
"""

from collections.abc import Iterable

from tests.support.mesh.nodes import Node
from weft.model.mesh.effects import Kept


class Broken(AssertionError):
    pass


class Checks:
    def __init__(self) -> None:
        self._held: dict[bytes, frozenset[int]] = {}  # by key
        self._owners: dict[tuple[bytes, int], bytes] = {}  # by ring and block
        self._old: set[bytes] = set()
        self.copies: set[bytes] = set()
        self.removed: set[bytes] = set()
        self._versions: dict[bytes, tuple[int, dict[int, int]]] = {}

    def __call__(self, node: Node) -> None:
        """A disk has been written."""
        kept = node.disk
        if node.key in self.copies:
            return
        self._remove(kept)
        self._covers(node, kept)
        self._rise(node, kept)
        self._own(node, kept)

    def _remove(self, kept: Kept) -> None:
        for removal in kept.removals:
            if removal.key not in self.removed:
                self.removed.add(removal.key)
                self._drop(removal.key)

    def _drop(self, key: bytes) -> None:
        held = self._held.pop(key, frozenset())
        for place in [place for place, owner in self._owners.items() if owner == key and place[1] in held]:
            del self._owners[place]

    def _covers(self, node: Node, kept: Kept) -> None:
        if kept.ring is None:
            return
        at = kept.ring.layout.first
        for token in kept.tokens:
            if not at <= token.start < token.stop <= kept.ring.layout.blocks:
                raise Broken(f"C2: {node.name} has {token} behind {at}")
            at = token.stop

    def _rise(self, node: Node, kept: Kept) -> None:
        ring = kept.ring.id if kept.ring else b""
        blocks = {block: token.version for token in kept.tokens for block in range(token.start, token.stop)}
        place = node.key + ring
        version, before = self._versions.get(place, (0, {}))
        if kept.version < version:
            raise Broken(f"C3: {node.name}'s own version fell from {version} to {kept.version}")
        for block, was in before.items():
            if blocks.get(block, 0) < was:
                raise Broken(f"C3: {node.name} had version {was} of block {block}, and has {blocks.get(block, 0)}")
        self._versions[place] = kept.version, blocks

    def _own(self, node: Node, kept: Kept) -> None:
        if node.key in self.removed:
            return
        self._drop(node.key)
        if not kept.settled or kept.ring is None:
            return
        if node.key in self._old:
            if node.core and node.core.agreed:
                self._old.discard(node.key)
            else:  # it uses nothing else before it has heard of what it has forgotten
                self._held[node.key] = frozenset({kept.home} - {None})
                return
        mine = (token for token in kept.tokens if token.owner == node.key)
        held = {block for token in mine for block in range(token.start, token.stop)}
        for block in held:
            other = self._owners.setdefault((kept.ring.id, block), node.key)
            if other != node.key:
                raise Broken(f"C1: block {block} is {node.name}'s ({node.key.hex()[:8]}) and {other.hex()[:8]}'s")
        self._held[node.key] = frozenset(held)

    def listed(self, node: Node, nodes: Iterable[Node]) -> None:
        """What is missing among its leases now is gone in its kernel."""
        ring = node.disk.ring
        if ring is None or not self.copies.isdisjoint((node.key, *node.served)) or self._old:
            return
        homes = {each.key: each.disk.home for each in nodes}
        for key, member in node.served.items():
            home = member.home
            if key not in node.leases and self._owners.get((ring.id, home)) == key and homes.get(key) == home:
                raise Broken(f"C7: {node.name} has served {member.name}, and takes it for gone")

    def copied(self, key: bytes) -> None:
        """Two nodes have this key from now on: nothing holds for it until one of them has given it up."""
        self.copies.add(key)
        self._drop(key)

    def back(self, node: Node) -> None:
        """The node's disk goes back in time."""
        self._old.add(node.key)
        self._drop(node.key)
        for place in [place for place in self._versions if place.startswith(node.key)]:
            del self._versions[place]
