"""What operators have this node's mesh do: each change is said first, and done once it is confirmed."""

from collections.abc import Callable, Sequence
from typing import Literal

from weft.cluster.mesh.peer import Peer, unread
from weft.config.flagvalues import peer_address
from weft.model.errors import ConfigError, Problem, Unavailable
from weft.model.mesh.effects import Adopt, Command, Connect, Create, Forget, Leave, Remove, Withdraw
from weft.model.mesh.records import RING_SIZE, SECRET_SIZE, Layout
from weft.model.node.meshstate import MeshAsk, MeshPeer, MeshState
from weft.model.text import counted

Random = Callable[[int], bytes]


class Operator:
    """`layout` is that of a ring made here; `random(n)` gives n bytes."""

    def __init__(self, peer: Peer, look: Callable[[], MeshState | None], layout: Layout, random: Random) -> None:
        self._peer = peer
        self._look = look
        self._layout = layout
        self._random = random

    async def command(self, ask: MeshAsk) -> tuple[str, ...]:
        """What it does or would do, in lines. Raises `ConfigError` and `Unavailable`."""
        state = self._look()
        if state is None:
            raise Unavailable(unread())
        command, lines = self._meant(ask, state)
        self._peer.check(command)
        if ask.sure:
            self._peer.ask(command)
        return lines

    def _meant(self, ask: MeshAsk, state: MeshState) -> tuple[Command, tuple[str, ...]]:
        names = ask.names
        match ask.verb:
            case "create":
                return self._create(state)
            case "connect" | "forget":
                return _dials(names[0], ask.verb == "connect")
            case "leave":
                return _leave(state)
            case "rmpeer":
                return self._remove(state, names, force=ask.force)
            case "withdraw":
                gone = ", ".join(state.removing) or "peers"
                return Withdraw(), (f"gives up the removal of {gone}: their blocks stay theirs",)
            case "adopt":
                return self._adopt(state, names[0])

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
        found = state.named(name)
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


def _dials(name: str, more: bool) -> tuple[Command, tuple[str, ...]]:  # noqa: FBT001 - one of two commands
    address = _address(name)
    if more:
        return Connect(address=address), (f"dials {name} from now on",)
    return Forget(address=address), (f"dials {name} no more",)


def _address(text: str) -> str:
    try:
        return str(peer_address(text))
    except ValueError as error:
        hint = "A peer is dialled as 10.0.0.7 or node7.example:7000"
        raise ConfigError(Problem("FLAG-001", "ADDR", repr(text), str(error), hint=hint)) from None


def _refused(verb: Literal["adopt", "rmpeer"], seen: str, hint: str) -> Problem:
    code = "MESH-005" if verb == "rmpeer" else "MESH-001"
    return Problem(code=code, where=f"weft mesh {verb}", seen=seen, hint=hint)
