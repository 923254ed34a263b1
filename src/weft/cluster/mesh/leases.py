"""Peers as leases: their names, subnets, ways and what they say. The core's words are written here; the store reads."""

from base64 import b64encode
from collections import Counter
from contextlib import suppress
from typing import Final

from weft.config.blocks import layout_of, subnets_of
from weft.config.netconf import NetConf, parse_netconf
from weft.desired.backends import BACKENDS
from weft.model.cluster import Malformed, OwnLease, Token, Word
from weft.model.errors import ConfigError, PeerError
from weft.model.lease import Lease, LeaseAttrs, Tunnel, Way
from weft.model.mesh.effects import Hop, Leases
from weft.model.mesh.records import Layout, Member, Ring, peer_id
from weft.model.net import Endpoint
from weft.wire.etcd import decode_attrs

SOURCE: Final = "the mesh's network configuration"


class Leasebook:
    """`members` are those of others that have a lease, `hops` where packets for some of them go."""

    def __init__(self) -> None:
        self.members: dict[bytes, Member] = {}
        self.hops: dict[bytes, Hop] = {}
        self.moves: Counter[str] = Counter()  # changes of ways, by the kind of the new one
        self._ring: Ring | None = None
        self._netconf: NetConf | None = None
        self._new: dict[bytes, None] = {}  # keys, in the order in which their leases have changed
        self._told: dict[bytes, str] = {}  # ids of the leases that were told, by their keys

    # --- what is written

    @property
    def ring(self) -> Ring | None:
        return self._ring

    @ring.setter
    def ring(self, ring: Ring | None) -> None:
        if ring is not self._ring:
            text = None if ring is None else ring.layout.net_conf
            self._netconf = None if text is None else parse_netconf(text, SOURCE, backends=BACKENDS)
        self._ring = ring

    def clear(self) -> None:
        self.members.clear()
        self.hops.clear()
        self._new.clear()

    def take(self, leases: Leases) -> None:
        self.members |= {member.key: member for member in leases.changed}
        for key in leases.gone:
            self.members.pop(key, None)
            self.hops.pop(key, None)
        self._new |= dict.fromkeys([*(member.key for member in leases.changed), *leases.gone])

    def go(self, hop: Hop) -> None:
        before = self.hops.get(hop.key)
        if before is not None and (before.next.key, before.kind) != (hop.next.key, hop.kind):
            self.moves[way_kind(hop)] += 1
        self.hops[hop.key] = hop
        if hop.key in self.members:
            self._new[hop.key] = None

    # --- what is read

    @property
    def mark(self) -> Token | None:
        return None if self._ring is None else (self._ring.id.hex(),)

    def words(self) -> list[Word]:
        return [self._word(member)[1] for member in self.members.values()]

    def news(self) -> list[tuple[str, Word]]:
        """What others' leases have under each id that has changed since this was asked last."""
        found: list[tuple[str, Word]] = []
        for key in self._new:
            member, before = self.members.get(key), self._told.pop(key, None)
            now = None if member is None else self._word(member)
            if before is not None and (now is None or now[0] != before):  # it has gone, or has another name now
                found.append((before, None))
            if now is not None:
                found.append(now)
                self._told[key] = now[0]
        self._new.clear()
        return found

    def lease(self, key: bytes) -> Lease | None:
        """Of a peer, if it can be used."""
        member = self.members.get(key)
        word = None if member is None else self._word(member)[1]
        return word if isinstance(word, Lease) else None

    def is_of_pods(self, text: str) -> bool:
        """Whether that is an endpoint at an address of the network, which leads into WireGuard itself again."""
        with suppress(ValueError):
            ip = Endpoint.parse(text).ip
            return self._netconf is not None and any(ip in network for network in self._netconf.networks)
        return False

    def own(self, name: str, home: int, attrs: LeaseAttrs) -> OwnLease:
        v4, v6 = (None, None) if self._netconf is None else subnets_of(self._netconf, home)
        return OwnLease(lease=Lease(id=name, v4=v4, v6=v6, attrs=attrs), expires=None, token=self.mark or ())

    def subnets(self, home: int | None) -> tuple[str, ...]:
        """Of a block, for people."""
        if home is None or self._netconf is None:
            return ()
        return tuple(str(net) for net in subnets_of(self._netconf, home) if net is not None)

    def _word(self, member: Member) -> tuple[str, Word]:
        name, netconf = peer_id(member.name, member.key), self._netconf
        if member.home is None or not member.attrs or netconf is None:  # it has a block, and says nothing of it yet
            return name, None
        v4, v6 = subnets_of(netconf, member.home)
        try:
            attrs = decode_attrs(member.attrs, name)
        except PeerError as error:
            return name, Malformed(id=name, problem=error.problems[0])
        return name, Lease(id=name, v4=v4, v6=v6, attrs=attrs, way=self._way(member, attrs, netconf))

    def hop(self, member: Member) -> Hop:
        return self.hops.get(member.key, Hop(key=member.key, next=member, kind="vxlan", reason=""))

    def _way(self, member: Member, attrs: LeaseAttrs, netconf: NetConf) -> Way:
        hop = self.hop(member)
        relay = hop.next
        bases = () if relay.home is None else subnets_of(netconf, relay.home)
        return Way(
            kind=hop.kind,
            via=via(hop),
            bases=tuple(base.network_address for base in bases if base is not None),
            remotes=attrs.publics,
            hop_key=_text(relay.key) if relay.tunnels else "",
            tunnel=_tunnel(member, hop),
            mtu=hop.mtu,
            reason=hop.reason,
        )


def via(hop: Hop) -> str:
    """The id of the node that relays; empty on a straight way."""
    return "" if hop.next.key == hop.key else peer_id(hop.next.name, hop.next.key)


def way_kind(hop: Hop) -> str:
    return "via" if hop.next.key != hop.key else hop.kind


def _tunnel(member: Member, hop: Hop) -> Tunnel | None:
    """None if it has none. What is no address, as 300.0.0.1, is left out."""
    if not member.tunnels:
        return None
    endpoint = None
    with suppress(ValueError):
        endpoint = Endpoint.parse(hop.endpoint)
    return Tunnel(key=_text(member.key), endpoint=endpoint, keepalive=hop.keepalive)


def _text(key: bytes) -> str:
    return b64encode(key).decode()


def unfit(layout: Layout) -> str:
    """Why a ring of this layout cannot be used here; empty if it can."""
    try:
        of_network = layout_of(layout.net_conf, parse_netconf(layout.net_conf, SOURCE, backends=BACKENDS, mesh=True))
    except ConfigError as error:
        return str(error)
    return "" if of_network == layout else "it has other subnets than its network"
