"""What operators have this node's mesh do: each change is said first, and done once it is confirmed."""

from collections.abc import Callable, Sequence
from typing import Final

from weft.cluster.mesh.peer import Peer, unread
from weft.config.options import peer_address
from weft.model.errors import ConfigError, Problem, Unavailable
from weft.model.mesh.effects import Adopt, Command, Connect, Create, Forget, Leave, Remove
from weft.model.mesh.records import RING_SIZE, SECRET_SIZE, Layout
from weft.model.node.meshstate import MeshPeer, MeshState
from weft.model.text import counted

Random = Callable[[int], bytes]
YES: Final = "--yes"
FORCE: Final = "--force"
_CODES: Final = {"adopt": "MESH-001", "rmpeer": "MESH-005"}


class Operator:
    """`layout` is that of a ring made here; `random(n)` gives n bytes."""

    def __init__(self, peer: Peer, look: Callable[[], MeshState | None], layout: Layout, random: Random) -> None:
        self._peer = peer
        self._look = look
        self._layout = layout
        self._random = random

    async def command(self, verb: str, words: Sequence[str]) -> tuple[str, ...]:
        """Do it, or without `--yes` say what it would do, in lines. Raises `ConfigError` and `Unavailable`."""
        sure, force = YES in words, FORCE in words
        plain = [word for word in words if word not in (YES, FORCE)]
        state = self._look()
        if state is None:
            raise Unavailable(unread())
        command, lines = self._meant(verb, plain, state, force=force)
        self._peer.check(command)
        if sure:
            self._peer.ask(command)
        return lines

    def _meant(
        self, verb: str, words: Sequence[str], state: MeshState, *, force: bool
    ) -> tuple[Command, tuple[str, ...]]:
        if verb == "create":
            return self._create(state)
        if verb == "connect":
            return Connect(address=_address(words[0])), (f"dials {words[0]} from now on",)
        if verb == "forget":
            return Forget(address=_address(words[0])), (f"dials {words[0]} no more",)
        if verb == "leave":
            return _leave(state)
        if verb == "rmpeer":
            return self._remove(state, words, force=force)
        if verb == "adopt":
            return self._adopt(state, words[0])
        raise ConfigError(_refused(verb, "no command of a mesh", "'weft mesh --help' lists them"))

    def _create(self, state: MeshState) -> tuple[Command, tuple[str, ...]]:
        others = [*(id_ for ids in state.strangers.values() for id_ in ids), *(p.id for p in state.peers if not p.us)]
        layout = self._layout
        lines = (
            f"makes a ring of {counted(layout.blocks - layout.first, 'block')} for {layout.net_conf}",
            f"all blocks are this node's at first; others get theirs from it, and now {', '.join(others) or 'none'}",
        )
        return Create(layout=layout, ring=self._random(RING_SIZE), secret=self._random(SECRET_SIZE)), lines

    def _remove(self, state: MeshState, names: Sequence[str], *, force: bool) -> tuple[Command, tuple[str, ...]]:
        gone = [self._named(state, name) for name in names]
        blocks = sum(peer.blocks for peer in gone)
        left = [peer.id for peer in state.peers if not peer.us and peer not in gone]
        lines = (
            f"takes over {counted(blocks, 'block')} of {', '.join(peer.id for peer in gone)}, for ever",
            "their pods must be gone: two pods could have one address otherwise",
            "without waiting for those that are away, at your risk"
            if force
            else f"once all others have agreed: {', '.join(left) or 'there is none'}",
        )
        return Remove(keys=tuple(bytes.fromhex(peer.key) for peer in gone), force=force), lines

    def _named(self, state: MeshState, name: str) -> MeshPeer:
        """By name, by id, or by the beginning of its key."""
        found = [peer for peer in state.peers if name in (peer.name, peer.id)]
        found = found or [peer for peer in state.peers if len(name) >= 8 and peer.key.startswith(name)]
        if len(found) == 1:
            return found[0]
        there = ", ".join(peer.id for peer in found or state.peers)
        seen = f"{len(found)} peers are called {name}" if found else f"no peer is called {name}"
        raise ConfigError(_refused("rmpeer", seen, f"{'Say which by its id' if found else 'There are'}: {there}"))

    def _adopt(self, state: MeshState, ring: str) -> tuple[Command, tuple[str, ...]]:
        found = [id_ for id_ in state.strangers if id_ and id_.startswith(ring)]
        if len(found) != 1:
            there = ", ".join(id_[:8] for id_ in state.strangers if id_) or "none"
            raise ConfigError(_refused("adopt", f"no neighbour has a ring {ring}", f"They have: {there}."))
        now = "this node is in no ring now" if state.ring is None else f"drops ring {state.ring.id[:8]}"
        lines = (
            f"{now}, and joins {found[0][:8]}, of {', '.join(state.strangers[found[0]])}, once it answers again",
            "this node gets another block; pods that have an address of the old one must be started again",
        )
        return Adopt(ring=bytes.fromhex(found[0])), lines


def _leave(state: MeshState) -> tuple[Command, tuple[str, ...]]:
    us = next((peer for peer in state.peers if peer.us), None)
    what = () if us is None else (f"gives all {counted(us.blocks, 'block')} of {us.id}, {' '.join(us.subnets)} last",)
    return Leave(), (*what, "pods of this node lose their addresses then: end them first")


def _address(text: str) -> str:
    try:
        return str(peer_address(text))
    except ValueError as error:
        hint = "A peer is dialled as 10.0.0.7 or node7.example:7000"
        raise ConfigError(Problem("FLAG-001", "ADDR", repr(text), str(error), hint=hint)) from None


def _refused(verb: str, seen: str, hint: str) -> Problem:
    return Problem(code=_CODES.get(verb, "FLAG-001"), where=f"weft mesh {verb}", seen=seen, hint=hint)
