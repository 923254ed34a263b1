"""What the API says, reduced to what decides about policies: only what pods of this node need is read."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from weft.desired.policy.interest import Interest
from weft.model.errors import Problem
from weft.model.policy import ClusterPolicy, Id, Namespace, Pod, Policy, Thing
from weft.wire.kubepolicy import PolicyText, policy_of
from weft.wire.policy import Unreadable

# Of a policy: each is logged on every node, and thousands of rules may be wrong.
_MOST_PROBLEMS: Final = 10


class Effective:
    """The functions give what is known now. `wrong` is what cannot be enforced as written, by policy.

    A policy is read while its namespace has a pod here. One that becomes unreadable stays as it was read.
    """

    def __init__(
        self,
        texts: Callable[[Id], PolicyText | None],
        namespaces: Callable[[Id], Namespace | None],
        own: Callable[[Id], Pod | None],
        peers: Callable[[Id], Pod | None],
    ) -> None:
        self.wrong: dict[Id, tuple[Problem, ...]] = {}
        self._texts = texts
        self._namespaces = namespaces
        self._own = own
        self._peers = peers
        self._read: dict[Id, tuple[PolicyText, Policy | ClusterPolicy, tuple[Problem, ...]]] = {}
        self._in: dict[str, set[Id]] = {}  # policies, by namespace
        self._pods: dict[Id, Pod] = {}  # of this node, that count
        self._here: Counter[str] = Counter()  # of these, by namespace
        self._interest = Interest()

    @property
    def meant(self) -> frozenset[str] | None:
        """The namespaces whose pods matter; None for all."""
        return self._interest.namespaces

    def settle(self, touched: Iterable[Id]) -> set[Id]:
        """Take what has changed; returns it, with the policies that are read now or no more."""
        ids = set(touched)
        for name in ids:
            if name[0] == "namespace":
                self._interest.set_namespace(name[2], self._namespaces(name))
        moved = {name[1] for name in ids if name[0] == "pod" and self._set_pod(name)}
        ids.update(name for namespace in moved for name in self._in.get(namespace, ()))
        for name in ids:
            if name[0] in ("policy", "clusterpolicy"):
                self._set_policy(name)
        return ids

    def thing(self, name: Id) -> Thing | None:
        if name[0] == "namespace":
            return self._namespaces(name)
        if name[0] == "pod":
            return self._own(name) or self._peers(name)
        read = self._read.get(name)
        return None if read is None else read[1]

    def _set_pod(self, name: Id) -> bool:
        """Return whether it is the first pod of its namespace here, or was the last."""
        before, now = self._pods.pop(name, None), self._own(name)
        now = now if now is not None and now.counts else None
        if now is not None:
            self._pods[name] = now
        if before != now:
            self._interest.set_pod(name, now)
        had = self._here[name[1]]
        has = had + (now is not None) - (before is not None)
        if has:
            self._here[name[1]] = has
        else:
            self._here.pop(name[1], None)
        return bool(had) != bool(has)

    def _set_policy(self, name: Id) -> None:
        text = self._texts(name)
        if text is not None:
            self._in.setdefault(name[1], set()).add(name)
        elif name in (there := self._in.get(name[1], set())):
            there.discard(name)
            if not there:
                del self._in[name[1]]
        if text is None or not (name[0] == "clusterpolicy" or self._here[name[1]]):
            self._note(name, ())
            if self._read.pop(name, None) is not None:
                self._interest.set_policy(name, None)
        elif name in self._read and self._read[name][0] == text:
            self._note(name, self._read[name][2])
        else:
            self._read_policy(name, text)

    def _read_policy(self, name: Id, text: PolicyText) -> None:
        try:
            policy, problems = policy_of(text)
        except Unreadable as error:
            self._note(name, (error.problem,))
            return
        problems = problems[:_MOST_PROBLEMS]
        self._note(name, problems)
        self._read[name] = text, policy, problems
        self._interest.set_policy(name, policy)

    def _note(self, name: Id, problems: tuple[Problem, ...]) -> None:
        if problems:
            self.wrong[name] = problems
        else:
            self.wrong.pop(name, None)
