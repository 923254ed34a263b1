"""Which leases are believed: leases are data from strangers (decisions.md §7).

A lease is refused, by id and with a reason, when it could do harm: a subnet outside the cluster's network or
on top of what this node needs, a public address or MAC that is ours or nobody's. Of peers that claim the
same subnet, address or MAC the oldest is believed, because the newer one is the copy. A refusal costs that
peer alone.

The roster is changed by what the store says and computes nothing but the leases touched by it: all leases
that share a claim, found through an index, never by walking over everybody.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network
from typing import Any

from weft.model.errors import Problem
from weft.model.lease import Lease
from weft.model.net import Ip, Mac, Net

_Claim = tuple[str, Ip | Mac]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ours:
    """What a peer's lease must keep clear of.

    `networks` are the cluster's networks, `subnets` our own leases, `addresses` every address of this node,
    `prefixes` what the node reaches without a gateway, and `macs` our VTEPs'.
    """

    networks: tuple[Net, ...]
    subnets: tuple[Net, ...] = ()
    addresses: frozenset[Ip] = frozenset()
    prefixes: tuple[Net, ...] = ()
    macs: frozenset[Mac] = frozenset()


class Roster:
    """The peers' leases and which of them are believed. `own_ids` are never peers."""

    def __init__(self, ours: Ours, own_ids: Iterable[str] = ()) -> None:
        self._ours = ours
        self._own_ids = frozenset(own_ids)
        self._leases: dict[str, Lease] = {}
        self._believed: dict[str, Lease] = {}
        self._refused: dict[str, Problem] = {}
        self._claims: defaultdict[_Claim, set[str]] = defaultdict(set)
        self._bases: defaultdict[tuple[int, int, int], set[str]] = defaultdict(set)
        self._lengths: Counter[tuple[int, int]] = Counter()

    @property
    def believed(self) -> Mapping[str, Lease]:
        """The leases to serve, by id."""
        return self._believed

    @property
    def refused(self) -> Mapping[str, Problem]:
        """Why each other lease is not served, by id."""
        return self._refused

    def listed(self, leases: Iterable[Lease]) -> set[str]:
        """Take a complete list; leases that are not in it are gone. Returns the ids whose service changes."""
        new = {lease.id: lease for lease in leases}
        return self.changed(put=new.values(), gone=self._leases.keys() - new.keys())

    def changed(self, *, put: Iterable[Lease] = (), gone: Iterable[str] = ()) -> set[str]:
        """Take single changes. Returns the ids whose service changes: served, served otherwise or no more."""
        touched: set[str] = set()
        for gone_id in set(gone) & self._leases.keys():
            touched |= self._component(gone_id)
            self._forget(gone_id)
        for lease in put:
            if lease.id in self._own_ids or self._leases.get(lease.id) == lease:
                continue
            if lease.id in self._leases:
                touched |= self._component(lease.id)
                self._forget(lease.id)
            self._learn(lease)
            touched |= self._component(lease.id)
        return self._judge(touched)

    def _judge(self, ids: set[str]) -> set[str]:
        """Judge `ids` anew, oldest first. They hold, with each lease, all those it shares a claim with."""
        before = {lease_id: self._believed.pop(lease_id, None) for lease_id in ids}
        for lease_id in ids:
            self._refused.pop(lease_id, None)
        present = [self._leases[lease_id] for lease_id in ids if lease_id in self._leases]
        for lease in sorted(present, key=lambda lease: (lease.created, lease.id)):
            problem = harm(lease, self._ours) or self._older_claim(lease)
            if problem is None:
                self._believed[lease.id] = lease
            else:
                self._refused[lease.id] = problem
        return {lease_id for lease_id in ids if self._believed.get(lease_id) != before[lease_id]}

    def _older_claim(self, lease: Lease) -> Problem | None:
        for rival_id in sorted(self._rivals(lease)):
            rival = self._believed.get(rival_id)
            if rival is not None:
                shared = sorted(str(what) for _, what in set(_claims(lease)) & set(_claims(rival)))
                seen = f"claims {', '.join(shared) or lease.id} like the older lease {rival_id}"
                return Problem(code="ADDR-002", where=f"lease {lease.id}", seen=seen, hint="One of the two is a copy")
        return None

    def _component(self, lease_id: str) -> set[str]:
        """The lease and all that are connected with it by shared claims."""
        found, new = {lease_id}, [lease_id]
        while new:
            for rival in self._rivals(self._leases[new.pop()]) - found:
                found.add(rival)
                new.append(rival)
        return found

    def _rivals(self, lease: Lease) -> set[str]:
        rivals: set[str] = set()
        for claim in _claims(lease):
            rivals |= self._claims[claim]
        for net in lease.subnets:
            rivals |= set(self._overlapping(net))
        rivals.discard(lease.id)
        return rivals

    def _overlapping(self, net: Net) -> Iterator[str]:
        base, bits = int(net.network_address), net.max_prefixlen
        for family, length in list(self._lengths):
            if family != net.version:
                continue
            if length <= net.prefixlen:
                shift = bits - length
                yield from self._bases.get((family, length, base >> shift << shift), ())
            else:  # narrower subnets inside a wide one: rare, so searched rather than indexed
                shift = bits - net.prefixlen
                for (other_family, other_length, other), ids in self._bases.items():
                    if (other_family, other_length) == (family, length) and other >> shift << shift == base:
                        yield from ids

    def _learn(self, lease: Lease) -> None:
        self._leases[lease.id] = lease
        for claim in _claims(lease):
            self._claims[claim].add(lease.id)
        for net in lease.subnets:
            self._bases[_base(net)].add(lease.id)
            self._lengths[net.version, net.prefixlen] += 1

    def _forget(self, lease_id: str) -> None:
        lease = self._leases.pop(lease_id)
        for claim in _claims(lease):
            self._claims[claim].discard(lease_id)
            if not self._claims[claim]:
                del self._claims[claim]
        for net in lease.subnets:
            self._bases[_base(net)].discard(lease_id)
            if not self._bases[_base(net)]:
                del self._bases[_base(net)]
            self._lengths[net.version, net.prefixlen] -= 1
            if not self._lengths[net.version, net.prefixlen]:
                del self._lengths[net.version, net.prefixlen]


def harm(lease: Lease, ours: Ours) -> Problem | None:
    """Say what harm `lease` would do by itself, None if none."""
    seen = next(_harms(lease, ours), None)
    return None if seen is None else Problem(code="ADDR-002", where=f"lease {lease.id}", seen=seen)


def _harms(lease: Lease, ours: Ours) -> Iterator[str]:
    for net in lease.subnets:
        yield from _subnet_harms(net, ours)
    for public in (lease.attrs.public_ip, lease.attrs.public_ipv6):
        if public is not None:
            yield from _public_harms(public, lease, ours)
    for mac in _macs(lease):
        if not mac.is_unicast:
            yield f"VTEP MAC {mac} is not a unicast address"
        if mac in ours.macs:
            yield f"VTEP MAC {mac} is this node's own: one of the two is a clone"


def _subnet_harms(net: Net, ours: Ours) -> Iterator[str]:
    if not any(_within(net, network) for network in ours.networks):
        yield f"subnet {net} lies outside the cluster's network"
    if net in ours.networks:
        yield f"subnet {net} is the cluster's whole network"
    for what, others in (("our subnet", ours.subnets), ("a prefix on this node's link,", ours.prefixes)):
        for other in others:
            if net.version == other.version and net.overlaps(other):
                yield f"subnet {net} overlaps {what} {other}"
    for address in ours.addresses:
        if address in net:
            yield f"subnet {net} covers this node's address {address}"


def _public_harms(public: Ip, lease: Lease, ours: Ours) -> Iterator[str]:
    if public in ours.addresses:
        yield f"public IP {public} is an address of this node"
    if public.is_loopback or public.is_unspecified or public.is_multicast:
        yield f"public IP {public} cannot be a node's"
    if any(public in net for net in lease.subnets):
        yield f"public IP {public} lies inside the lease's own subnet"


def _within(net: Net, network: Net) -> bool:
    return net.version == network.version and net.prefixlen >= network.prefixlen and net.network_address in network


def _claims(lease: Lease) -> list[_Claim]:
    """What only one node can have: its public addresses and its VTEPs' MACs."""
    public = (lease.attrs.public_ip, lease.attrs.public_ipv6)
    return [*(("IP", ip) for ip in public if ip is not None), *(("MAC", mac) for mac in _macs(lease))]


def _macs(lease: Lease) -> list[Mac]:
    """The VTEP MACs that can be read; what cannot be read is refused by the backend."""
    macs = []
    for data in (lease.attrs.data, lease.attrs.data_v6):
        mac = _mac(data)
        if mac is not None and mac not in macs:
            macs.append(mac)
    return macs


def _mac(data: Any) -> Mac | None:
    text = data.get("VtepMAC") if isinstance(data, dict) else None
    if not isinstance(text, str):
        return None
    try:
        return Mac.parse(text)
    except ValueError:
        return None


def _base(net: IPv4Network | IPv6Network) -> tuple[int, int, int]:
    return net.version, net.prefixlen, int(net.network_address)
