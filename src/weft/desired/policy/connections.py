"""Judges connections that are open by the policies as they are now: those of this node's pods, which others cut.

A connection is known by the sender of its first packet and by the target that was chosen for it (behind DNAT), as hook
forward sees both. It is judged as its first packet would be now. Values alone: it may be asked in a thread.
"""

import re
from collections.abc import Callable, Collection, Iterable
from ipaddress import ip_address
from typing import Final

from weft.desired.policy.inputs import Attached, PolicySettings
from weft.desired.policy.judge import restricting, side_of
from weft.desired.policy.names import MAP, PROTOCOL_NAMES
from weft.desired.policy.verdict import Asked, End, World
from weft.model.kernel.objects import Key, Objects
from weft.model.kernel.policytable import INET
from weft.model.net import Ip
from weft.model.policy import DIRECTIONS, Direction, Id, Pod, Policy
from weft.model.value import replace

_ADDRESS_BYTES: Final = {"4": 4, "6": 16}
_MAPS: Final = "|".join(MAP.values())
_BY_ADDRESS: Final = re.compile(rf"(?:({_MAPS})|peers|ports)([46])(?:-|$)")


def concerned(touched: Iterable[Key], wanted: Objects, *, denies: bool) -> set[bytes]:
    """The addresses, packed, of which less may be allowed after a change that touched these keys.

    An element that is gone leaves a selector, and one in the map of verdicts leads to other policies. One that has come
    into a set allows more, unless a rule `denies` what is in it.
    """
    found = set[bytes]()
    for key in touched:
        match key:
            case ("polelement", str(table), str(name), bytes(element)) if table == INET:
                said = _BY_ADDRESS.match(name)
                if said and (said[1] or denies or key not in wanted):
                    found.add(element[: _ADDRESS_BYTES[said[2]]])
    return found


class Connections:
    """`attached` are this node's, `own` its own addresses: what it sends or gets itself is not asked about."""

    def __init__(
        self, world: World, attached: Iterable[Attached], settings: PolicySettings, own: Callable[[], Collection[Ip]]
    ) -> None:
        self._world = world
        self._subnets = settings.subnets
        self._look_at_own = own
        self._own: Collection[Ip] | None = None
        self._here = {ip: each for each in attached for ip in each.ips}
        self._pods: dict[Ip, list[Pod]] = {}
        for pod in world.pods:
            for ip in pod.ips:
                self._pods.setdefault(ip, []).append(pod)
        self._worlds: dict[tuple[Id, Direction], World] = {}
        self._by_namespace: dict[str, list[Policy]] = {}
        for policy in world.policies:
            self._by_namespace.setdefault(policy.namespace, []).append(policy)
        self._known: dict[tuple[bytes, bytes, int, int], bool] = {}

    def forbids(self, source: bytes, target: bytes, protocol: int, port: int) -> bool:
        """Addresses are packed, `protocol` is its number; `port` is the target's, 0 for what has none."""
        asked = source, target, protocol, port
        if asked not in self._known:
            self._known[asked] = self._forbids(ip_address(source), ip_address(target), protocol, port)
        return self._known[asked]

    def _forbids(self, source: Ip, target: Ip, protocol: int, port: int) -> bool:
        if self._own is None:
            self._own = self._look_at_own()
        if source in self._own or target in self._own:
            return False
        word = PROTOCOL_NAMES.get(protocol, str(protocol))  # of others all rules without ports hold
        ends = {"egress": (source, target), "ingress": (target, source)}
        return any(self._refuses(direction, *ends[direction], word, port) for direction in DIRECTIONS)

    def _refuses(self, direction: Direction, mine: Ip, other: Ip, protocol: str, port: int) -> bool:
        """Of several pods that are said to have one address, each counts, as in the sets of the kernel."""
        attached = self._here.get(mine)
        if attached is None:
            return any(mine in net for net in self._subnets)
        if not attached.pod:
            return False
        named = (each for each in self._pods.get(mine, ()) if str(each) == attached.pod and attached.is_of(each))
        pod = next(named, None)
        if pod is None or pod.namespace not in self._world.namespaces:
            return True
        end, world = End(pod=pod, ip=mine), self._world_of(pod, direction)
        for each in self._pods.get(other) or (None,):
            there = End(pod=each, ip=other)
            source, target = (end, there) if direction == "egress" else (there, end)
            asked = Asked(source=source, target=target, protocol=protocol, port=port)
            if side_of(asked, direction, world).allowed:
                return False
        return True

    def _world_of(self, pod: Pod, direction: Direction) -> World:
        """With the policies of the pod alone."""
        key = pod.id, direction
        if key not in self._worlds:
            found = restricting(pod, direction, self._by_namespace.get(pod.namespace, ()))
            self._worlds[key] = replace(self._world, pods=(), policies=found)
        return self._worlds[key]
