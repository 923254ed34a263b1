"""What would change between pods if other policies were in effect."""

from collections.abc import Collection, Iterable, Iterator
from itertools import product

from weft.desired.policy.judge import judged, restricting
from weft.desired.policy.verdict import Asked, World, between
from weft.model.policy import (
    DIRECTIONS,
    LAST_PORT,
    PROTOCOLS,
    ClusterPolicy,
    Direction,
    Namespace,
    Pod,
    Policy,
    Protocol,
    Thing,
)
from weft.model.value import Value, replace


class Restricted(Value):
    pod: str
    direction: Direction


class Pair(Value):
    """What one pod can, or can no more, send another: ports as `80/tcp`; `other ports/tcp` are those no rule names."""

    source: str
    target: str
    closed: tuple[str, ...]
    opened: tuple[str, ...]


class Preview(Value):
    restricted: tuple[Restricted, ...]
    freed: tuple[Restricted, ...]
    pairs: tuple[Pair, ...]


class _Probe(Value):
    protocol: str
    port: int
    words: str


def applied(world: World, things: Iterable[Thing], assumed: Collection[str] = ()) -> World:
    """The world as it is with these things beside or instead of those of the same names.

    Namespaces that are only `assumed` take nobody's place.
    """
    before: tuple[Thing, ...] = (*world.namespaces.values(), *world.pods, *world.policies, *world.cluster)
    known = {each.id: each for each in before}
    known |= {each.id: each for each in things if not (each.id in known and _is_assumed(each, assumed))}
    return world_of(known.values(), world)


def _is_assumed(thing: Thing, assumed: Collection[str]) -> bool:
    return isinstance(thing, Namespace) and thing.name in assumed


def world_of(things: Iterable[Thing], like: World | None = None) -> World:
    """A world of these things; all else (networks, services) is as in `like`."""
    found = tuple(things)
    base = like or World(namespaces={}, pods=(), policies=())
    return replace(
        base,
        namespaces={each.name: each for each in found if isinstance(each, Namespace)},
        pods=tuple(each for each in found if isinstance(each, Pod)),
        policies=tuple(each for each in found if isinstance(each, Policy)),
        cluster=tuple(each for each in found if isinstance(each, ClusterPolicy)),
    )


def preview(before: World, after: World) -> Preview:
    """What `after` changes for the pods that `before` has."""
    pods = [pod for pod in before.pods if pod.counts]
    then, now = _restricted(pods, before), _restricted(pods, after)
    probes = tuple(_probes(before, after))
    pairs = (
        Pair(source=str(source), target=str(target), closed=closed, opened=opened)
        for source, target in product(pods, pods)
        if source is not target
        for closed, opened in (_changed(source, target, probes, (before, after)),)
        if closed or opened
    )
    return Preview(
        restricted=tuple(each for each in now if each not in then),
        freed=tuple(each for each in then if each not in now),
        pairs=tuple(pairs),
    )


def _restricted(pods: Iterable[Pod], world: World) -> tuple[Restricted, ...]:
    return tuple(
        Restricted(pod=str(pod), direction=direction)
        for pod, direction in product(pods, DIRECTIONS)
        if restricting(pod, direction, world.policies)
    )


def _changed(
    source: Pod, target: Pod, probes: Iterable[_Probe], worlds: tuple[World, World]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    first, second = between(source, target)
    closed, opened = list[str](), list[str]()
    for probe in probes:
        asked = Asked(source=first, target=second, protocol=probe.protocol, port=probe.port)
        then, now = (judged(asked, world).allowed for world in worlds)
        if then != now:
            (opened if now else closed).append(probe.words)
    return tuple(closed), tuple(opened)


def _probes(*worlds: World) -> Iterator[_Probe]:
    """A port of each kind that rules tell apart, and one that no rule names; ICMP for what has no ports."""
    for protocol in PROTOCOLS:
        named = set(_ports_of(protocol, worlds))
        for port in sorted(named):
            yield _Probe(protocol=protocol, port=port, words=f"{port}/{protocol}")
        other = next(port for port in range(1, LAST_PORT) if port not in named)
        words = f"other ports/{protocol}" if named else f"all ports/{protocol}"
        yield _Probe(protocol=protocol, port=other, words=words)
    yield _Probe(protocol="icmp", port=0, words="icmp")


def _ports_of(protocol: Protocol, worlds: Iterable[World]) -> Iterator[int]:
    for world in worlds:
        policies: tuple[Policy | ClusterPolicy, ...] = (*world.policies, *world.cluster)
        rules = (rule for policy in policies for direction in DIRECTIONS for rule in policy.rules(direction) or ())
        said = [port for rule in rules for port in rule.ports or () if port.protocol == protocol]
        for port in said:
            if port.first:
                yield from (port.first, port.last)
        names = {port.name for port in said if port.name}
        for pod in world.pods:
            yield from (each.number for each in pod.ports if each.protocol == protocol and each.name in names)
