"""Lists the nodes of a cluster, and keeps of each its lease."""

from typing import Final

from weft.cluster.kube.client import Client
from weft.cluster.kube.collection import Collection, gathered
from weft.config.netconf import NetConf
from weft.desired.allocate import Choice, Chooser
from weft.desired.podcidr import Census, usable
from weft.model.cluster import Malformed, OwnLease, Token
from weft.model.errors import PeerError, Problem, Unavailable
from weft.model.lease import Lease, LeaseAttrs
from weft.model.net import Subnets
from weft.model.value import Value, replace
from weft.wire.kube import Node, attrs_of, lease_of, nodes, subnets_of
from weft.wire.kubelist import Page

NODES: Final = "/api/v1/nodes"
# A node takes 10 KB and more, so a page makes a megabyte, which takes 5 ms to decode.
_PAGE: Final = 100


class Listing(Value):
    """`own` is this node, None if it is not registered."""

    version: str
    leases: tuple[Lease, ...]
    malformed: tuple[Malformed, ...]
    own: Node | None
    census: Census

    @property
    def mark(self) -> Token:
        return (self.version,)

    def choice(self, chooser: Chooser, recorded: OwnLease | None) -> Choice:
        """This node's podCIDRs. Raises `Unavailable`."""
        if self.own is None:
            raise Unavailable(
                Problem(code="LEASE-002", where="this node", seen="not registered", hint="See `kubectl get nodes`")
            )
        v4, v6 = subnets_for(self.own, chooser.netconf, self.census)
        return Choice(v4=v4, v6=v6, reuse=self.unchanged(recorded))

    def unchanged(self, recorded: OwnLease | None) -> Lease | None:  # noqa: ARG002 - the protocol has it
        """Found by its name."""
        own = self.own
        return next((lease for lease in self.leases if own is not None and lease.id == own.name), None)

    @property
    def published(self) -> LeaseAttrs | None:
        """None if it cannot be read."""
        if self.own is None or not self.own.is_managed:
            return None
        try:
            return attrs_of(self.own)
        except PeerError:
            return None


def nodes_of(prefix: str) -> Collection[Node]:
    """`prefix` begins the names of our annotations."""
    return Collection(path=NODES, kind=nodes(prefix), page=_PAGE)


def subnets_for(node: Node, netconf: NetConf, census: Census | None) -> Subnets:
    """In the families that are on. Raises `Unavailable`."""
    try:
        return usable(node.name, subnets_of(node), netconf, census)
    except PeerError as error:
        raise Unavailable(replace(error.problems[0], code="LEASE-002", where=f"node {node.name}")) from None


async def list_nodes(client: Client, nodes: Collection[Node], own: str) -> Listing:
    """Raises `Unavailable`."""
    found, version = await gathered(client, nodes, lambda: _Gathered(own), _Gathered.take)
    census = Census(nodes=found.nodes, given=found.given, length=found.length)
    return Listing(
        version=version, leases=tuple(found.leases), malformed=tuple(found.malformed), own=found.own, census=census
    )


class _Gathered:
    """`name` is this node's."""

    def __init__(self, name: str) -> None:
        self.leases: list[Lease] = []
        self.malformed: list[Malformed] = []
        self.own: Node | None = None
        self.nodes = self.given = 0
        self.length: int | None = None
        self._name = name

    def take(self, page: Page[Node]) -> None:
        for node in page.items:
            if node.name == self._name:
                self.own = node
            else:
                self.nodes += 1
                self.given += bool(node.cidrs)
                self.length = self.length or _length(node)
            found = lease_of(node)
            if isinstance(found, Malformed):
                self.malformed.append(found)
            elif found is not None:
                self.leases.append(found)


def _length(node: Node) -> int | None:
    try:
        v4, v6 = subnets_of(node)
    except PeerError:
        return None
    first = v4 or v6
    return None if first is None else first.prefixlen
