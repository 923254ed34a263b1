"""What is wrong with a node, as its daemon says: in lines for people. Pure."""

from collections.abc import Iterator
from typing import Final

from weft.model.node.nodestate import NodeState, PeerState, RefusedState
from weft.model.text import shortly

_NAMED: Final = 10  # peers that lack something, and leases that are refused, one by one


def wrong(state: NodeState) -> Iterator[str]:
    """The worst first: readiness, the store, what pods lost, the node itself; peers and refused leases.

    A line may hold what a peer has said.
    """
    yield from (f"{name}: {problem}" for name, problem in state.parts.items() if problem is not None)
    if state.store is not None:
        yield f"store: {state.store}"
    yield from (f"{name}: {problem}" for name, problem in state.losses.items())
    yield from map(str, state.findings)
    lacking = [(f"peer {peer.id}{_for(peer)}", peer.trouble or "; ".join(peer.lacks)) for peer in not_whole(state)]
    yield from _some([f"{peer}: {words}" for peer, words in lacking])
    doubted = [f"peer {peer.id}, served by what it said before: {peer.doubt}" for peer in state.peers if peer.doubt]
    yield from _some(doubted)
    yield from _some([f"refused{_for(refused)}: {refused.trouble}" for refused in state.refused])


def not_whole(state: NodeState) -> list[PeerState]:
    return [peer for peer in state.peers if peer.lacks or peer.trouble]


def _for(peer: PeerState | RefusedState) -> str:
    return "" if peer.seconds is None else f" for {shortly(peer.seconds)}"


def _some(said: list[str]) -> Iterator[str]:
    yield from said[:_NAMED]
    if len(said) > _NAMED:
        yield f"and {len(said) - _NAMED} more like that; -o json names them all"
