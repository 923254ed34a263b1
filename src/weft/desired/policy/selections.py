"""Which pods the selectors in use select, kept up by events at the cost of what they touch."""

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet

from weft.model.policy import Id, Namespace, Pod, PodPeer

# A pod that a selection has now, or has no more.
Move = tuple[PodPeer, Pod, bool]


class Selections:
    """Selectors in use, and the pods of each. A peer's namespaces have to be said, not to be None.

    A pod is only in a namespace that is known. Changes return what has moved; a pod that is changed and stays is taken
    out as it was and put in as it is.
    """

    def __init__(self) -> None:
        self.namespaces: dict[str, Namespace] = {}
        self._pods: dict[str, dict[str, Pod]] = {}  # by namespace and name; those that count
        self._peers: dict[PodPeer, None] = {}
        self._of: dict[str, dict[PodPeer, None]] = {}  # by namespace, those that mean it
        self._memberships: dict[Id, set[PodPeer]] = {}

    def pod(self, pod: Id) -> Pod | None:
        return self._pods.get(pod[1], {}).get(pod[2])

    @property
    def pods(self) -> Iterator[Pod]:
        return (pod for pods in self._pods.values() for pod in pods.values())

    def of(self, pod: Id) -> AbstractSet[PodPeer]:
        return self._memberships.get(pod, frozenset())

    def use(self, peer: PodPeer) -> list[Move]:
        """From now on; returns the pods that it has at once."""
        self._peers[peer] = None
        return [move for namespace in self.namespaces.values() for move in self._mean(namespace, peer)]

    def leave(self, peer: PodPeer) -> list[Move]:
        del self._peers[peer]
        return [
            move
            for namespace, meant in self._of.items()
            if peer in meant
            for move in self._mean_no_more(namespace, peer)
        ]

    def set_namespace(self, name: str, namespace: Namespace | None) -> list[Move]:
        before = self._of.get(name, {})
        now = [] if namespace is None else [peer for peer in self._peers if _means(peer, namespace)]
        moves = [move for peer in set(before).difference(now) for move in self._mean_no_more(name, peer)]
        if namespace is None:
            self.namespaces.pop(name, None)
            self._of.pop(name, None)
            return moves
        self.namespaces[name] = namespace
        return moves + [move for peer in now if peer not in before for move in self._mean(namespace, peer)]

    def set_pod(self, which: Id, pod: Pod | None) -> list[Move]:
        """`pod` counts (`Pod.counts`) or is None."""
        _, namespace, name = which
        pods = self._pods.setdefault(namespace, {})
        before = pods.pop(name, None)
        if pod is None and not pods:
            del self._pods[namespace]
        moves = []
        if before is not None:
            moves = [(peer, before, False) for peer in self._memberships.pop(which, ())]
        if pod is not None:
            pods[name] = pod
            moves += [move for peer in self._of.get(namespace, ()) for move in self._join(peer, (pod,))]
        return moves

    def _mean(self, namespace: Namespace, peer: PodPeer) -> list[Move]:
        if not _means(peer, namespace):
            return []
        self._of.setdefault(namespace.name, {})[peer] = None
        return self._join(peer, self._pods.get(namespace.name, {}).values())

    def _mean_no_more(self, namespace: str, peer: PodPeer) -> list[Move]:
        del self._of[namespace][peer]
        moves: list[Move] = []
        for pod in self._pods.get(namespace, {}).values():
            mine = self._memberships.get(pod.id, set())
            if peer in mine:
                mine.discard(peer)
                moves.append((peer, pod, False))
        return moves

    def _join(self, peer: PodPeer, pods: Iterable[Pod]) -> list[Move]:
        joining = [pod for pod in pods if peer.pods.selects(pod.labels)]
        for pod in joining:
            self._memberships.setdefault(pod.id, set()).add(peer)
        return [(peer, pod, True) for pod in joining]


def _means(peer: PodPeer, namespace: Namespace) -> bool:
    return peer.namespaces is not None and peer.namespaces.selects(namespace.labels)
