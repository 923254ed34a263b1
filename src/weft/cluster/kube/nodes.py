"""Lists the nodes of a cluster in pages, of which one at a time is in memory, and keeps of each its lease."""

import asyncio
from typing import Final

from weft.cluster.kube.client import Client
from weft.cluster.kube.problems import ExpiredError, reading, silent
from weft.config.netconf import NetConf
from weft.desired.allocate import Choice, Chooser
from weft.desired.podcidr import Census, usable
from weft.model.cluster import Malformed, OwnLease, Token
from weft.model.errors import PeerError, Problem, Unavailable
from weft.model.lease import Lease, LeaseAttrs
from weft.model.net import Subnets
from weft.model.value import Value, replace
from weft.wire.kube import Node, Page, attrs_of, lease_of, read_page, subnets_of

NODES: Final = "/api/v1/nodes"
# A node takes 10 KB and more, so a page makes a megabyte, which takes 5 ms to decode.
PAGE: Final = 100
_AGAIN: Final = 0.2  # seconds before a list that was forgotten is asked for again
_LISTS: Final = 5
_DIGITS: Final = 20  # of a number of 64 bits


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


def subnets_for(node: Node, netconf: NetConf, census: Census | None) -> Subnets:
    """In the families that are on. Raises `Unavailable`."""
    try:
        return usable(node.name, subnets_of(node), netconf, census)
    except PeerError as error:
        raise Unavailable(replace(error.problems[0], code="LEASE-002", where=f"node {node.name}")) from None


def is_older(version: str, other: str) -> bool:
    """Tell whether one resourceVersion is of a time before another; versions that are no numbers tell nothing.

    All that there are come from etcd's revision; the API lets clients compare them from 1.35 on.
    """
    return all(each.isdecimal() and len(each) <= _DIGITS for each in (version, other)) and int(version) < int(other)


async def list_nodes(client: Client, prefix: str, own: str) -> Listing:
    """Begins again when the API forgets the list between two pages. Raises `Unavailable`."""
    for _ in range(_LISTS):
        try:
            return await _pages(client, prefix, own)
        except ExpiredError:
            await asyncio.sleep(_AGAIN)
    raise silent(client.where, f"it has forgotten {_LISTS} lists of the nodes before their last page")


async def version_now(client: Client, prefix: str) -> str:
    return (await _page(client, prefix, limit="1")).version


async def _pages(client: Client, prefix: str, own: str) -> Listing:
    leases: list[Lease] = []
    malformed: list[Malformed] = []
    us: Node | None = None
    nodes = given = 0
    length: int | None = None
    version = rest = ""
    while True:
        page = await _page(client, prefix, limit=str(PAGE), **({"continue": rest} if rest else {}))
        version, rest = version or page.version, page.rest
        for node in page.nodes:
            if node.name == own:
                us = node
            else:
                nodes += 1
                given += bool(node.cidrs)
                length = length or _length(node)
            found = lease_of(node)
            if isinstance(found, Malformed):
                malformed.append(found)
            elif found is not None:
                leases.append(found)
        await asyncio.sleep(0)
        if not rest:
            census = Census(nodes=nodes, given=given, length=length)
            return Listing(version=version, leases=tuple(leases), malformed=tuple(malformed), own=us, census=census)


async def _page(client: Client, prefix: str, **query: str) -> Page:
    body = await client.get(NODES, **query)
    with reading(client.where):
        return read_page(body, prefix)


def _length(node: Node) -> int | None:
    try:
        v4, v6 = subnets_of(node)
    except PeerError:
        return None
    first = v4 or v6
    return None if first is None else first.prefixlen
