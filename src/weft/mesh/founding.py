"""How a ring begins: by command on one node, or by `--mesh-create` on all that are listed.

The listed peer with the lowest key creates, once all of them have said that they know no ring and have the same list.
Nobody concludes from silence that it is alone.
"""

from collections.abc import Callable, Iterable

from weft.mesh.estate import Estate
from weft.mesh.links import Link
from weft.mesh.state import State
from weft.model.errors import ConfigError, Problem
from weft.model.mesh.effects import Create
from weft.model.mesh.messages import Founders
from weft.model.mesh.records import RING_SIZE, SECRET_SIZE


class Founding:
    def __init__(self, state: State, estate: Estate) -> None:
        self._state = state
        self._estate = estate
        self._keys: dict[str, bytes] = {}  # of the addresses that are listed
        self._heard: dict[int, tuple[bytes, ...]] = {}  # by link: its list
        self._told: dict[int, Founders] = {}

    @property
    def wanted(self) -> bool:
        return self._state.options.founding is not None and self._state.ring is None

    def reached(self, address: str, key: bytes) -> None:
        if address in self._state.options.peers:
            self._keys[address] = key

    def heard(self, link: Link, message: Founders) -> None:
        self._heard[link.number] = message.keys

    def down(self, link: int) -> None:
        self._heard.pop(link, None)
        self._told.pop(link, None)

    def _list(self) -> tuple[bytes, ...]:
        return tuple(sorted({self._state.me, *self._keys.values()}))

    def _whole(self) -> bool:
        return all(address in self._keys for address in self._state.options.peers)

    def check(self) -> None:
        """Raises `ConfigError`."""
        state = self._state
        if state.ring is not None:
            raise _refused("this node", state.ring.id, "'weft mesh status' shows it.")
        for link in state.links:
            if link.ring:
                raise _refused(link.id, link.ring, f"'weft mesh adopt {link.ring[:4].hex()}' joins it.")

    def create(self, command: Create, now: float) -> None:
        self._estate.create(command.layout, command.ring, command.secret, now)

    def tell(self, now: float) -> None:
        """Tell all links our list, create what is ours to create now, and say why there is no ring."""
        state, layout = self._state, self._state.options.founding
        if (waits := self._waits()) != state.ringless:
            state.ringless = waits
            self._estate.soon()
        if not self.wanted or layout is None:
            return
        listed, whole = self._list(), self._whole()
        message = Founders(keys=listed, whole=whole)
        for link in state.links.of(None):
            if self._told.get(link.number) != message:
                self._told[link.number] = message
                state.send(link, message)
        if whole and min(listed) == state.me and not self._missing(listed):
            ring, secret = _drawn(state.chance, RING_SIZE), _drawn(state.chance, SECRET_SIZE)
            self._estate.create(layout, ring, secret, now)

    def _missing(self, listed: Iterable[bytes]) -> list[bytes]:
        return [key for key in listed if key != self._state.me and self._list_of(key) != listed]

    def _list_of(self, key: bytes) -> tuple[bytes, ...] | None:
        link = self._state.links.to(key)
        return self._heard.get(link.number) if link and link.ring is None else None

    def _waits(self) -> Problem | None:
        state = self._state
        if state.ring is not None:
            return None
        if not self.wanted:
            names = ", ".join(sorted(link.id for link in state.links))
            seen = f"no ring here, nor on {names}" if names else "no ring here, and no other node answers"
            hint = "Type 'weft mesh create' on one node."
            return Problem(code="MESH-001", where="the mesh", seen=seen, hint=hint)
        away = sorted(address for address in state.options.peers if address not in self._keys)
        missing = [link.id for link in state.links if link.key in self._missing(self._list())]
        seen = "the ring waits for " + ", ".join((*away, *sorted(missing)) or ("the peer with the lowest key",))
        hint = "All that are listed must be there, with the same list; 'weft mesh create' goes on without them."
        return Problem(code="MESH-001", where="--mesh-create", seen=seen, hint=hint)


def _refused(who: str, ring: bytes, hint: str) -> ConfigError:
    seen = f"{who} is of ring {ring[:4].hex()}"
    return ConfigError(Problem("MESH-001", "weft mesh create", seen, "no ring", hint))


def _drawn(chance: Callable[[], float], size: int) -> bytes:
    return bytes(int(chance() * 256) for _ in range(size))
