"""Whose pods a node has to know: those of namespaces that a peer of a policy in effect here can mean."""

from collections import Counter
from collections.abc import Iterable

from weft.desired.policy.names import subject_of
from weft.desired.policy.selections import Move, Selections
from weft.desired.policy.text import namespaces_of
from weft.model.policy import ClusterPolicy, Id, Namespace, Pod, PodPeer, Policy


class Interest:
    """It hears of policies that may select pods here, of all namespaces, and of the pods here that count."""

    def __init__(self) -> None:
        self._selecting = Selections()
        self._policies: dict[Id, Policy | ClusterPolicy] = {}
        self._subjects: dict[PodPeer, set[Id]] = {}
        self._selected: Counter[PodPeer] = Counter()  # pods here
        self._meant: dict[Id, set[str] | None] = {}  # by policies in effect
        self._counts: Counter[str] = Counter()
        self._wide = 0  # policies that mean all pods there are

    @property
    def namespaces(self) -> frozenset[str] | None:
        """None for all that there are."""
        return None if self._wide else frozenset(self._counts)

    def set_pod(self, pod: Id, now: Pod | None) -> None:
        """None for one that is not here, or does not count."""
        if now is not None or self._selecting.pod(pod) is not None:
            self._moved(self._selecting.set_pod(pod, now))

    def set_policy(self, name: Id, policy: Policy | ClusterPolicy | None) -> None:
        before = self._policies.pop(name, None)
        if before is not None:
            self._ends(name)
            subject = subject_of(before)
            self._subjects[subject].discard(name)
            if not self._subjects[subject]:
                del self._subjects[subject]
                self._moved(self._selecting.leave(subject))
        if policy is not None:
            subject = subject_of(policy)
            self._policies[name] = policy
            if subject in self._subjects:
                self._subjects[subject].add(name)
                if self._selected[subject]:
                    self._begins(name)
            else:
                self._subjects[subject] = {name}
                self._moved(self._selecting.use(subject))

    def set_namespace(self, name: str, namespace: Namespace | None) -> None:
        for policy, meant in self._meant.items():
            if meant is None:
                continue
            means = bool(namespace and namespaces_of(self._policies[policy], (namespace,)))
            if means and name not in meant:
                meant.add(name)
                self._counts[name] += 1
            elif not means and name in meant:
                meant.discard(name)
                self._uncount((name,))
        self._moved(self._selecting.set_namespace(name, namespace))

    def _moved(self, moves: list[Move]) -> None:
        """A pod that changes leaves and joins: what it is selected by is asked of both at once."""
        before = {subject: self._selected[subject] for subject, _, _ in moves}
        for subject, _, joined in moves:
            self._selected[subject] += 1 if joined else -1
        for subject, count in before.items():
            now = self._selected[subject]
            if bool(now) != bool(count):
                for name in self._subjects.get(subject, ()):
                    (self._begins if now else self._ends)(name)
            if not now:
                del self._selected[subject]

    def _begins(self, name: Id) -> None:
        found = namespaces_of(self._policies[name], self._selecting.namespaces.values())
        self._meant[name] = None if found is None else set(found)
        self._wide += found is None
        self._counts.update(found or ())

    def _ends(self, name: Id) -> None:
        if name in self._meant:
            meant = self._meant.pop(name)
            self._wide -= meant is None
            self._uncount(meant or ())

    def _uncount(self, names: Iterable[str]) -> None:
        for each in names:
            self._counts[each] -= 1
            if not self._counts[each]:
                del self._counts[each]
