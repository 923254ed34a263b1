"""The paths to one peer, by kind: which of them packets take, and whether any carries them.

A path is left only for one that is proved, and for a better one that is usable again.
"""

from collections.abc import Callable, Iterator

from weft.mesh.health import Path
from weft.model.lease import WayKind
from weft.model.mesh.records import Member


def permitted(one: Member, other: Member) -> tuple[WayKind, ...]:
    """Best first."""
    clear: tuple[WayKind, ...] = ("vxlan",) if one.clear and other.clear else ()
    return (*clear, "direct") if one.tunnels and other.tunnels else clear


class Paths:
    """`kind` is the path that packets take if the peer itself is their next hop; of `told` the caller makes use."""

    __slots__ = ("_by_kind", "_kind", "told")

    def __init__(self) -> None:
        self._by_kind: dict[WayKind, Path] = {}  # best first
        self._kind: WayKind | None = None
        self.told: tuple[WayKind, int] | None = None

    def __iter__(self) -> Iterator[tuple[WayKind, Path]]:
        return iter(self._by_kind.items())

    def get(self, kind: WayKind) -> Path | None:
        return self._by_kind.get(kind)

    @property
    def kind(self) -> WayKind:
        return self._kind or "vxlan"

    @property
    def best(self) -> WayKind | None:
        """Of those that are permitted."""
        return next(iter(self._by_kind), None)

    @property
    def mtu(self) -> int:
        """Of the path that is taken; 0 if all of pods' packets pass."""
        path = self._by_kind.get(self.kind)
        return path.sizes.mtu if path else 0

    def permit(self, kinds: tuple[WayKind, ...], make: Callable[[WayKind], Path]) -> None:
        if tuple(self._by_kind) != kinds:
            self._by_kind = {kind: self._by_kind.get(kind) or make(kind) for kind in kinds}

    def is_worse(self, kind: WayKind) -> bool:
        """Than the one that is taken."""
        kinds = list(self._by_kind)
        return self.kind in kinds and kinds.index(kind) > kinds.index(self.kind)

    def judge(self, does_carry: Callable[[WayKind, Path], bool]) -> bool:
        """Choose the kind; tell whether any carries packets."""
        carries: dict[WayKind, bool] = {kind: does_carry(kind, path) for kind, path in self._by_kind.items()}
        proved: WayKind | None = next((kind for kind, path in self._by_kind.items() if path.proved), None)
        if self._kind not in carries:
            first: WayKind | None = next((kind for kind, well in carries.items() if well), None)
            self._kind = first or self.best
        elif proved and (not carries[self._kind] or not self.is_worse(proved)):
            self._kind = proved
        return any(carries.values())
