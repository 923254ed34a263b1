"""Which subnet this node takes (flannel.md §4.3).

In this order: the key that is ours already (recorded by us, else the one with our public address), the subnet we
had before, a random one of the first free. Pure: the leases are given, and so is chance. Who wins when two nodes
choose at once is the store's business.

Each family is looked at by itself. So a lease without IPv6 blocks nothing there (upstream crashes: Q-20), and
a node keeps its IPv4 subnet, and with it its pods' addresses, when IPv6 is switched on or off.
"""

from collections.abc import Callable, Iterable, Sequence
from ipaddress import IPv4Network, IPv6Network
from typing import Final

from weft.config.netconf import IpT, NetConf, NetT, Pool
from weft.model.errors import Problem, Unavailable
from weft.model.lease import Lease, LeaseAttrs
from weft.model.net import Net
from weft.model.text import counted
from weft.model.value import Value

# Upstream looks at the first hundred free subnets, which keeps clusters dense at the low end.
WINDOW: Final = 100


class Choice(Value):
    """`reuse` names a lease whose key stays as it is; `stale` are keys of ours that must go."""

    v4: IPv4Network | None
    v6: IPv6Network | None
    reuse: Lease | None = None
    stale: tuple[Lease, ...] = ()


class Present(Value):
    """What the store holds; `unreadable` are subnets whose values cannot be read."""

    leases: Sequence[Lease]
    reserved: frozenset[str] = frozenset()
    unreadable: tuple[Net, ...] = ()


class Chooser(Value):
    """What a node wants of a store: `attrs` published, and a subnet. The store has it chosen as often as it needs.

    Where the subnet is given, as a node's in Kubernetes, nothing is chosen. `previous` is what we had, `pick(n)` a
    number below n.
    """

    netconf: NetConf
    attrs: LeaseAttrs
    previous: tuple[IPv4Network | None, IPv6Network | None] = (None, None)
    pick: Callable[[int], int]

    def choose(self, present: Present, *, recorded: Lease | None = None, attempt: int = 0) -> Choice:
        """Choose by what the store holds; `recorded` is an earlier run's. Raises `Unavailable` (LEASE-003).

        Many nodes that start at once spread out from `attempt` to `attempt` instead of colliding again.
        """
        return choose(
            self.netconf,
            present,
            attrs=self.attrs,
            recorded=None if recorded is None else recorded.id,
            previous=self.previous,
            pick=self.pick,
            window=WINDOW << attempt,
        )

    def owned(self, leases: Iterable[Lease]) -> list[Lease]:
        return owned(self.netconf, leases, attrs=self.attrs)


def choose(
    netconf: NetConf,
    present: Present,
    *,
    attrs: LeaseAttrs,
    recorded: str | None = None,
    previous: tuple[IPv4Network | None, IPv6Network | None] = (None, None),
    pick: Callable[[int], int],
    window: int = WINDOW,
) -> Choice:
    """Choose this node's subnets.

    `recorded` is the id of a key known to be ours, `previous` what we had, `pick(n)` a number below n.
    Raises `Unavailable` (LEASE-003) when a family is full.
    """
    stale: list[Lease] = []
    for lease in owned(netconf, present.leases, attrs=attrs, recorded=recorded):
        if fits(netconf, lease):
            return Choice(v4=lease.v4, v6=lease.v6, reuse=lease, stale=tuple(stale))
        if lease.id not in present.reserved:  # what an operator reserved is not ours to delete
            stale.append(lease)
    gone = {lease.id for lease in stale}
    taken = [net for lease in present.leases if lease.id not in gone for net in lease.subnets]
    taken.extend(present.unreadable)
    v4 = v6 = None
    if netconf.v4 is not None:
        wanted = [*(lease.v4 for lease in stale), previous[0]]
        v4 = _subnet(netconf.v4, [net for net in taken if net.version == 4], wanted=wanted, pick=pick, window=window)
    if netconf.v6 is not None:
        wanted6 = [*(lease.v6 for lease in stale), previous[1]]
        v6 = _subnet(netconf.v6, [net for net in taken if net.version == 6], wanted=wanted6, pick=pick, window=window)
    return Choice(v4=v4, v6=v6, stale=tuple(stale))


def owned(netconf: NetConf, leases: Iterable[Lease], *, attrs: LeaseAttrs, recorded: str | None = None) -> list[Lease]:
    """The leases that are this node's: the recorded one, then those with our public address in key order."""
    ours = [lease for lease in leases if lease.id == recorded or same_node(netconf, lease.attrs, attrs)]
    return sorted(ours, key=lambda lease: (lease.id != recorded, lease.id))


def same_node(netconf: NetConf, one: LeaseAttrs, other: LeaseAttrs) -> bool:
    """By IPv4 address, or by IPv6 where there is no IPv4 (Q-19)."""
    if netconf.v4 is not None:
        return one.public_ip is not None and one.public_ip == other.public_ip
    return one.public_ipv6 is not None and one.public_ipv6 == other.public_ipv6


def fits(netconf: NetConf, lease: Lease) -> bool:
    """Each enabled family is in range, no other is present."""
    v4 = lease.v4 is None if netconf.v4 is None else _allowed(netconf.v4, lease.v4)
    v6 = lease.v6 is None if netconf.v6 is None else _allowed(netconf.v6, lease.v6)
    return v4 and v6


def room(pool: Pool[NetT, IpT], taken: Iterable[Net]) -> tuple[int, int]:
    """How many subnets of `pool` overlap nothing in `taken`, and how many there are at all."""
    return sum(count for _, count in _gaps(pool, taken)), _capacity(pool)


def _subnet(
    pool: Pool[NetT, IpT], taken: list[Net], *, wanted: Iterable[NetT | None], pick: Callable[[int], int], window: int
) -> NetT:
    gaps = _gaps(pool, taken)
    for net in wanted:
        if net is not None and _allowed(pool, net) and not any(_overlap(net, other) for other in taken):
            return net
    candidates = min(window, sum(count for _, count in gaps))
    if not candidates:
        raise Unavailable(_full(pool, taken))
    index = pick(candidates)
    for base, count in gaps:
        if index < count:
            return type(pool.network)((base + index * _size(pool), pool.subnet_len))
        index -= count
    raise IndexError(f"pick chose more than {candidates - 1}")


def _gaps(pool: Pool[NetT, IpT], taken: Iterable[Net]) -> list[tuple[int, int]]:
    """The free subnets as runs (first base, how many), in order: no walk over every subnet of a large network."""
    size, base, last = _size(pool), int(pool.first), int(pool.last)
    gaps = []
    for start, end in sorted(_span(net) for net in taken if net.version == pool.network.version):
        if end < base or base > last:
            continue
        free = min((start - base) // size, (last - base) // size + 1)
        if free > 0:
            gaps.append((base, free))
        base += ((end - base) // size + 1) * size
    if base <= last:
        gaps.append((base, (last - base) // size + 1))
    return gaps


def _allowed(pool: Pool[NetT, IpT], net: NetT | None) -> bool:
    if net is None or net.prefixlen != pool.subnet_len:
        return False
    return int(pool.first) <= int(net.network_address) <= int(pool.last)


def _overlap(one: Net, other: Net) -> bool:
    (start, end), (other_start, other_end) = _span(one), _span(other)
    return one.version == other.version and start <= other_end and other_start <= end


def _span(net: Net) -> tuple[int, int]:
    start = int(net.network_address)
    return start, start + (1 << net.max_prefixlen - net.prefixlen) - 1


def _size(pool: Pool[NetT, IpT]) -> int:
    return 1 << pool.network.max_prefixlen - pool.subnet_len


def _capacity(pool: Pool[NetT, IpT]) -> int:
    return max(0, (int(pool.last) - int(pool.first)) // _size(pool) + 1)


def _full(pool: Pool[NetT, IpT], taken: list[Net]) -> Problem:
    name = {4: "", 6: "IPv6"}[pool.network.version]
    total = _capacity(pool)
    holders = counted(len(taken), "lease")
    seen = f"all {total} subnets (/{pool.subnet_len}, {pool.first} to {pool.last}) are taken, by {holders}"
    if not total:
        seen = f"{name}SubnetMin {pool.first} lies above {name}SubnetMax {pool.last}, so there is no subnet to take"
    return Problem(
        code="LEASE-003",
        where=f"{name}Network {pool.network}",
        seen=seen,
        expected="a free subnet for this node",
        hint=f"Widen {name}Network, {name}SubnetMin or {name}SubnetMax, raise {name}SubnetLen, "
        "or delete the leases of nodes that are gone",
    )
