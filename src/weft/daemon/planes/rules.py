"""The plane of firewall rules, by the host's programs, which take milliseconds each."""

from collections.abc import Collection, Mapping, Sequence

from weft.kernel.netfilter.firewall import Firewall
from weft.model.errors import Failure
from weft.model.kernel.objects import Key, Object, Objects
from weft.plan.diff import Step


class RulesPlane:
    """Rules of the other kind (nft or iptables) that are left behind go after the first round."""

    kinds = frozenset({"ruleset"})
    blind = True  # a step looks by itself, and no pod waits for more
    counts: Mapping[str, int] = {}

    def __init__(self, firewall: Firewall, *, sweep: float, announces: bool) -> None:
        self.sweep = sweep
        self.announces = announces
        self._firewall = firewall

    async def look(self, _: Objects, only: Collection[Key] | None, /) -> dict[Key, Object]:
        return dict(await self._firewall.present(only))

    async def apply(self, steps: Sequence[Step], /) -> list[Failure]:
        failures = [await self._firewall.apply(step) for step in steps]
        return [failure for failure in failures if failure is not None]
