"""The union of what a node wants, and an index over it that costs what changed.

`Wanted` holds the objects of named parts: one for what the node needs once, one per peer. Setting a part
returns the keys that are touched, so that no caller iterates over peers when one changes.
"""

from weft.desired.inputs import Inputs
from weft.model.kernel.links import Link, NodeLink
from weft.model.kernel.marks import BRIDGE_ALIAS, BRIDGE_NETFILTER, FORWARDING, GATEWAY_ALIAS, POD_ALIAS
from weft.model.kernel.objects import KernelState, Key, Object, Objects, Ownership, Route, Snapshot, Sysctl
from weft.model.value import replace

SHARED = ""
# Behind every other route: it catches what the bridge's own route does not (flannel.md §1.8).
_BLACKHOLE_PRIORITY = 2**31 - 1

_PLAIN_PEERS = 1000
_SITE = 200  # RT_SCOPE_SITE: addresses, whose scope a route's must not be narrower than, have this or more, or 0


def devices_of(inputs: Inputs) -> dict[str, type[Link]]:
    return {device.name: device.kind for device in inputs.backend.devices(inputs)}


def device_of(thing: Object) -> str | None:
    """The device that an object is, or belongs to."""
    return thing.name if isinstance(thing, Link) else thing.link


def ownership(inputs: Inputs) -> Ownership:
    return Ownership(
        devices=frozenset(devices_of(inputs)),
        networks=(*inputs.netconf.networks, *inputs.former_networks),
        node_links=inputs.node_links,
    )


def shared(inputs: Inputs) -> KernelState:
    """What the node needs once, whatever the peers: the backend's part, forwarding, pods' links, blackhole routes.

    Forwarding is turned on by the first pod's plugin, not here: a machine without pods need not be a router.
    """
    state = inputs.backend.shared(inputs) | {Sysctl(name=FORWARDING[family], value="1") for family in forwarded(inputs)}
    state |= {NodeLink(name=name) for name in inputs.node_links}
    if inputs.policies:
        state |= {Sysctl(name=BRIDGE_NETFILTER[family], value="1") for family in inputs.netconf.families}
    if inputs.blackhole_route:
        own = (net for net in (inputs.v4, inputs.v6) if net is not None)
        state |= {Route(dst=net, blackhole=True, priority=_BLACKHOLE_PRIORITY) for net in own}
    return state


def forwarded(inputs: Inputs) -> frozenset[int]:
    """The families of pods in which this machine was seen to forward."""
    return inputs.forwarding.intersection(inputs.netconf.families)


def served(snapshot: Snapshot, inputs: Inputs) -> frozenset[int]:
    """The families in which pods have a gateway of our subnets on this machine: it must have been a router for them."""
    nets = tuple(net for net in (inputs.v4, inputs.v6) if net is not None)
    made = {link.index for link in snapshot.links if link.alias.startswith((BRIDGE_ALIAS, GATEWAY_ALIAS, POD_ALIAS))}
    gateways = (each.ip for each in snapshot.addresses if each.index in made)
    return frozenset(ip.version for ip in gateways if any(ip in net for net in nets))


class Wanted:
    """The objects wanted now, by key, and which part each belongs to.

    The routes of the first 1,000 peers have scope global, as flannel's. Those of further peers are spread over the
    scopes that mean the same: the kernel keeps the gateways of one scope in a list and walks it for every route.

    While a node moves to another subnet, its old lease and its new one want the same FDB entry: the part that
    was set last has it, and the other's end does not take it along.
    """

    def __init__(self) -> None:
        self._objects: dict[Key, Object] = {}
        self._parts: dict[str, tuple[Object, ...]] = {}
        self._plain: set[str] = set()  # parts whose routes have scope global

    @property
    def objects(self) -> Objects:
        return self._objects

    @property
    def parts(self) -> frozenset[str]:
        return frozenset(self._parts)

    def part(self, name: str) -> tuple[Object, ...]:
        return self._parts.get(name, ())

    def set(self, part: str, state: KernelState) -> set[Key]:
        """Returns the keys that the part held and holds."""
        former = self._parts.pop(part, ())
        for thing in former:
            if self._objects.get(thing.key) is thing:
                del self._objects[thing.key]
        new = tuple(state)
        if not new:
            self._plain.discard(part)
        elif part != SHARED and part not in self._plain:
            if len(self._plain) < _PLAIN_PEERS:
                self._plain.add(part)
            else:
                new = tuple(map(_spread, new))
        if new:
            self._parts[part] = new
            self._objects.update((thing.key, thing) for thing in new)
        return {thing.key for thing in (*former, *new)}


def _spread(thing: Object) -> Object:
    if not isinstance(thing, Route) or thing.via is None or thing.dst.version == 6:
        return thing
    number = int(thing.dst.network_address) >> thing.dst.max_prefixlen - thing.dst.prefixlen
    return replace(thing, scope=1 + number % (_SITE - 1))
