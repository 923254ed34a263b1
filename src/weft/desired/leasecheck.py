"""What harm a lease would do by itself, without a look at others (settled.md §7).

A subnet outside the cluster's network or on top of what this node needs; a public address that is ours or nobody's;
a claim that is ours. Of a lease with a way the addresses that count are the way's, whatever the node calls public.
Thousands of leases are judged at a start, so ranges are compared as numbers.
"""

from collections.abc import Collection, Iterable, Iterator
from ipaddress import ip_network
from typing import Final

from weft.config.netconf import NetConf
from weft.desired.claims import Claim, Key
from weft.desired.inputs import Inputs
from weft.model.errors import Problem
from weft.model.lease import Lease
from weft.model.net import Ip, Net
from weft.model.value import Value, replace


class Ours(Value):
    """What a peer's lease must keep clear of.

    `networks` are the cluster's networks, `subnets` our own leases, `addresses` every address of this node,
    `prefixes` what the node reaches without a gateway, and `claims` what our own lease's data claim. A prefix that
    holds a whole network (nodes in 10.0.0.0/8, pods in 10.244.0.0/16) is no obstacle: who chose the network gave it to
    the pods.
    """

    networks: tuple[Net, ...]
    subnets: tuple[Net, ...] = ()
    addresses: frozenset[Ip] = frozenset()
    prefixes: tuple[Net, ...] = ()
    claims: frozenset[Claim] = frozenset()


def ours(inputs: Inputs, addresses: Iterable[Ip]) -> Ours:
    """What the leases of others must keep clear of.

    Addresses inside our own subnets are covered by those. Link-local ones come with every pod, and no lease is there.
    """
    subnets = tuple(net for net in (inputs.v4, inputs.v6) if net is not None)
    own = inputs.backend.advertise(inputs)
    return Ours(
        networks=inputs.netconf.networks,
        subnets=subnets,
        addresses=frozenset(ip for ip in addresses if not (ip.is_link_local or any(ip in net for net in subnets))),
        prefixes=tuple(net for net in inputs.facts.onlink if net.prefixlen),
        # Our public addresses need not be this node's: behind a NAT others may have them, too.
        claims=frozenset(inputs.backend.claims(replace(own, public_ip=None, public_ipv6=None))),
    )


def unfit(netconf: NetConf, lease: Lease) -> str | None:
    """Why `lease` cannot be this node's own, in words. It needs a subnet of each family, within its network."""
    for family, pool, net in (("IPv4", netconf.v4, lease.v4), ("IPv6", netconf.v6, lease.v6)):
        if pool is not None and net is None:
            return f"it has no {family} subnet"
        if pool is None and net is not None:
            return f"it has the {family} subnet {net}, and the network has no {family}"
        if pool is not None and net is not None and not net.subnet_of(pool.network):  # type: ignore[arg-type]
            return f"its subnet {net} is not within {pool.network}"
    return None


# From this prefix length on an IPv4 network has no broadcast address (RFC 3021).
_NO_BROADCAST: Final = 31

# First and last address as numbers, the family, and what it is; that becomes text only for a message.
_Range = tuple[int, int, int, object]


def _range(net: Net, what: object) -> _Range:
    low = int(net.network_address)
    return low, low + (1 << net.max_prefixlen - net.prefixlen) - 1, net.version, what


# "This network" with the unspecified address, loopback, multicast and everybody's broadcast address.
_NOBODYS: Final = tuple(
    _range(ip_network(text), text)
    for text in ("0.0.0.0/8", "127.0.0.0/8", "224.0.0.0/4", "255.255.255.255/32", "::/127", "ff00::/8")
)


class Judge:
    def __init__(self, ours: Ours) -> None:
        self._ours = ours
        self._families = {net.version for net in ours.networks}
        self._networks = [_range(net, net) for net in ours.networks]
        self._subnets = [_range(net, f"our subnet {net}") for net in ours.subnets]
        obstacles = [
            *self._subnets,
            *(
                _range(net, f"a prefix on this node's link, {net}")
                for net in ours.prefixes
                if not any(_holds(net, network) for network in ours.networks)
            ),
            *((int(ip), int(ip), ip.version, f"this node's address {ip}") for ip in ours.addresses),
        ]
        # What a subnet outside of the networks overlaps need not be asked: a node may have thousands of addresses.
        self._obstacles = [each for each in obstacles if any(_meet(each, network) for network in self._networks)]
        self._broadcasts = frozenset(
            net.broadcast_address for net in ours.prefixes if net.version == 4 and net.prefixlen < _NO_BROADCAST
        )

    def harm(self, lease: Lease, claims: Collection[Key]) -> Problem | None:
        """Name the first harm `lease`, which claims `claims`, would do; None if it would do none."""
        seen = next(self._harms(lease, claims), None)
        hint = "See which node wrote this lease, and correct that node: 'weft explain ADDR-002' says how"
        return None if seen is None else Problem(code="ADDR-002", where=f"lease {lease.id}", seen=seen, hint=hint)

    def _harms(self, lease: Lease, claims: Collection[Key]) -> Iterator[str]:
        # Nothing is made of a family that is off here, whatever a lease says of it.
        subnets = [_range(net, net) for net in lease.subnets if net.version in self._families]
        for subnet in subnets:
            yield from self._subnet_harms(subnet)
        if not subnets:
            yield "no subnet of a family that is on"
        what = "public IP" if lease.way is None else "its way's address"
        for remote in lease.dialled:
            # With a way it may be so where the peer lives: at another site.
            if lease.way is None and remote in self._ours.addresses:
                yield f"{what} {remote} is an address of this node"
            yield from self._remote_harms(remote, what, subnets)
            if lease.way is not None and self.inside(remote):
                yield f"its way's address {remote} lies inside the cluster's network"
        for claim in claims:
            if claim in self._ours.claims:
                yield f"claims {claim!s}, which is this node's own: one of the two is a clone"

    def _subnet_harms(self, subnet: _Range) -> Iterator[str]:
        low, high, family, text = subnet
        within = [r for r in self._networks if r[2] == family and r[0] <= low and high <= r[1]]
        if not within:
            yield f"subnet {text} lies outside the cluster's network"
        elif within[0][:2] == (low, high):
            yield f"subnet {text} is the cluster's whole network"
        for other_low, other_high, other_family, what in self._obstacles:
            if other_family == family and other_low <= high and low <= other_high:
                yield f"subnet {text} overlaps {what}"

    def _remote_harms(self, remote: Ip, what: str, subnets: list[_Range]) -> Iterator[str]:
        if remote in self._broadcasts:
            yield f"{what} {remote} is the broadcast address of this node's link"
        number, version = int(remote), remote.version
        for low, high, family, _ in _NOBODYS:
            if family == version and low <= number <= high:
                yield f"{what} {remote} cannot be a node's"
        for low, high, family, _ in subnets:
            if family == version and low <= number <= high:
                yield f"{what} {remote} lies inside the lease's own subnet"
        for low, high, family, ours in self._subnets:
            if family == version and low <= number <= high:
                yield f"{what} {remote} lies inside {ours}"

    def inside(self, remote: Ip) -> bool:
        """A subnet might come to cover such an address."""
        number = int(remote)
        return any(family == remote.version and low <= number <= high for low, high, family, _ in self._networks)


def _meet(one: _Range, other: _Range) -> bool:
    return one[2] == other[2] and one[0] <= other[1] and other[0] <= one[1]


def _holds(outer: Net, inner: Net) -> bool:
    return outer.version == inner.version and outer.prefixlen < inner.prefixlen and inner.network_address in outer
