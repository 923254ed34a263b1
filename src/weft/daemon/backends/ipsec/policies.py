"""The plane of the kernel's IPsec policies. They stay when the daemon ends; all are looked at every ten seconds."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Self

from weft.beside.threads import beside
from weft.daemon.planes.contract import Place
from weft.daemon.planes.serving import failed
from weft.kernel.xfrm.policies import Policies
from weft.model.errors import Failure
from weft.model.kernel.ipsec import Policy
from weft.model.kernel.objects import Key, Object, Objects
from weft.plan.diff import Put, Step


class PoliciesPlane:
    """Policies of the form that upstream and we give them, in this namespace."""

    kinds = frozenset({"policy"})
    sweep = 10.0
    announces = False
    blind = False

    def __init__(self, policies: Policies | None) -> None:
        self.counts: Mapping[str, int] = {}
        self._policies = policies

    @classmethod
    @contextmanager
    def opened(cls, _place: Place) -> Iterator[Self]:
        """Leaves the policies as they are at the end: packets go on, encrypted."""
        policies = Policies.open()
        try:
            yield cls(policies)
        finally:
            if policies is not None:
                policies.close()

    async def look(self, _known: Objects, _only: Collection[Key] | None, /) -> dict[Key, Object]:
        """See all policies."""
        found = [] if self._policies is None else await beside(self._policies.list)
        self.counts = {"policies": len(found)}
        return {policy.key: policy for policy in found}

    async def apply(self, steps: Sequence[Step], /) -> list[Failure]:
        """Put and remove policies in one go."""
        return [] if self._policies is None else await beside(partial(_apply, self._policies, steps))


def _apply(policies: Policies, steps: Sequence[Step]) -> list[Failure]:
    of = {step.object: step for step in steps if isinstance(step.object, Policy)}
    put = [policy for policy, step in of.items() if isinstance(step, Put)]
    gone = [policy for policy, step in of.items() if not isinstance(step, Put)]
    try:
        refused = policies.change(put, gone)
    except OSError as error:
        return [failed(step, error) for step in steps]
    return [failed(of[policy], error) for policy, error in refused.items()]
