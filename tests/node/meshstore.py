"""A store that is the daemon itself: nodes that tell each other of their leases by datagrams, and no server.

As a program: weftd with this store. This node's name is $NODE; $MESH is a JSON object: `config`, the network
configuration, and `nodes`, the address of each node by name. A node's block is what its file `home` says, in the
directory that the store was given: it is there before anybody is answered, and may be changed.

With back end mesh each lease has a way, to its node's address in $MESH; via another node, if the file `via`
beside `home` has one: a JSON object, by the names of peers. With IPv6 a block has the subnet
fd05:0:0:N::/64 of its third byte, and the way goes to the public address as well.
"""

# ruff: noqa: ARG002 - the protocol says what is given; this store needs less

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Network, IPv6Network
from pathlib import Path
from typing import Any, NoReturn

from tests.node.namedstore import Names
from weft.cluster.store import Means, Store, StoreKind, Take
from weft.daemon import main
from weft.daemon.world import real
from weft.desired.allocate import Chooser
from weft.model.cluster import Changed, Held, Listed, Lost, OwnEvent, OwnLease, Token
from weft.model.errors import Problem
from weft.model.lease import Lease, LeaseAttrs, Way
from weft.model.net import Addresses
from weft.model.value import replace
from weft.plan.announce import Event
from weft.wire.etcd import decode_attrs, encode_attrs

PORT = 7777
TURN = 0.05  # seconds between two rounds of telling
SILENT = 1.0  # seconds without a word from a node after which it is lost


class Mesh(asyncio.DatagramProtocol):
    """The settings, the tenure and the directory of one network, in one."""

    source = "$MESH"
    unpublished: Problem | None = None

    def __init__(self, directory: Path, *, name: str, config: Any, nodes: Mapping[str, str]) -> None:
        self.heard: float | None = None
        self._file, self._via = directory / "home", directory / "via"
        self._name, self._config, self._nodes = name, config, nodes
        self.is_mesh = config["Backend"]["Type"] == "mesh"
        self.chooses = self.is_mesh  # only then the length of subnets counts
        self._home: IPv4Network | None = None
        self._own: Lease | None = None
        self._known: dict[str, Lease] = {}
        self._relays: dict[str, str] = {}
        self._when: dict[str, float] = {}  # each node was heard last
        self._lost = frozenset[str]()
        self._news, self._moved, self._opened = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def run(self) -> None:
        """Tell of ourselves and hear of others, for as long as the node runs."""
        if not self._file.exists():
            self._file.parent.mkdir(parents=True)
            self._file.write_text(os.environ["HOME_BLOCK"])
        loop = asyncio.get_running_loop()
        address = (self._nodes[self._name], PORT)
        transport, _ = await loop.create_datagram_endpoint(lambda: self, local_addr=address)
        try:
            while True:
                self._read_home()
                self._read_ways()
                if self._own is not None:
                    for where in self._nodes.values():
                        transport.sendto(self._word(self._own), (where, PORT))
                lost = frozenset(name for name, when in self._when.items() if loop.time() - when > SILENT)
                if lost != self._lost:
                    self._lost = lost
                    self._news.set()
                await asyncio.sleep(TURN)
        finally:
            transport.close()

    def _read_home(self) -> None:
        with suppress(ValueError):  # half written
            home = IPv4Network(self._file.read_text())
            if home != self._home:
                self._home = home
                self._moved.set()
                self._opened.set()

    def _read_ways(self) -> None:
        with suppress(ValueError, FileNotFoundError):  # ValueError: half written
            relays = json.loads(self._via.read_text())
            if relays != self._relays:
                self._relays = relays
                self._news.set()

    def _all(self) -> dict[str, Lease]:
        """Those whose way is known: a relay has to be, too."""
        if not self.is_mesh:
            return dict(self._known)
        hops = {name: self._known.get(self._relays.get(name, name)) for name in self._known}
        return {name: self._with_way(self._known[name], hop) for name, hop in hops.items() if hop is not None}

    def _with_way(self, lease: Lease, hop: Lease) -> Lease:
        public = lease.attrs.public_ipv6
        remotes = (IPv4Address(self._nodes[lease.id]), *([] if public is None else [public]))
        bases = tuple(net.network_address for net in hop.subnets)
        way = Way(kind="vxlan", bases=bases, remotes=remotes)
        return replace(lease, way=way if hop is lease else replace(way, via=hop.id, reason="port-filtered"))

    def _word(self, own: Lease) -> bytes:
        return json.dumps([own.id, str(own.v4), encode_attrs(own.attrs).decode()]).encode()

    def _lease(self, name: str, block: IPv4Network | None, attrs: LeaseAttrs) -> Lease:
        of_ipv6 = block is not None and self._config.get("EnableIPv6", False)
        v6 = IPv6Network(f"fd05:0:0:{block.network_address.packed[2]}::/64") if block and of_ipv6 else None
        return Lease(id=name, v4=block, v6=v6, attrs=attrs, created=1)

    def datagram_received(self, data: bytes, addr: object) -> None:
        """A node tells of itself."""
        name, subnet, said = json.loads(data)
        if name == self._name:
            return
        lease = self._lease(name, IPv4Network(subnet), decode_attrs(said.encode(), name))
        self._when[name] = self.heard = asyncio.get_running_loop().time()
        if self._known.get(name) != lease:
            self._known[name] = lease
            self._news.set()

    # --- settings

    async def net_conf(self) -> str:
        return json.dumps(self._config)

    async def next_net_conf(self, known: str) -> str:
        return await asyncio.get_running_loop().create_future()

    async def policies(self) -> int | None:
        return None

    # --- tenure

    async def addresses(self, recorded: OwnLease | None) -> Addresses:
        return Addresses()

    def _holding(self, attrs: LeaseAttrs) -> OwnLease:
        self._own = self._lease(self._name, self._home, attrs)
        return OwnLease(lease=self._own, expires=None, token=(self._name,))

    async def acquire(
        self, chooser: Chooser, *, recorded: OwnLease | None = None, listing: Names | None = None
    ) -> OwnLease:
        await self._opened.wait()
        return self._holding(chooser.attrs)

    def hold(self, own: OwnLease) -> None:
        self._own = own.lease

    async def publish(self, own: OwnLease, attrs: LeaseAttrs) -> OwnLease:
        return self._holding(attrs)

    async def ready(self) -> None:
        pass

    async def tell(self, event: Event) -> None:
        pass

    async def keep(self, own: OwnLease, *, margin: float) -> AsyncGenerator[OwnEvent, None]:
        while True:
            self._moved.clear()
            own = replace(own, lease=self._lease(self._name, self._home, own.lease.attrs))
            yield Held(own=own)
            self._own = self._lease(self._name, self._home, (self._own or own.lease).attrs)
            await self._moved.wait()

    # --- directory

    async def list(self) -> Names:
        return Names(leases=(*self._all().values(), *([] if self._own is None else [self._own])))

    async def watch(self, take: Take, listing: Names | None = None) -> NoReturn:
        complete: bool | None = None
        told: dict[str, Lease] = {}
        lost = frozenset[str]()
        while True:
            self._news.clear()
            known = self._all()
            everybody = known.keys() >= self._nodes.keys() - {self._name}
            if everybody != complete:
                await take(Listed(leases=tuple(known.values()), complete=everybody))
            elif known != told:
                await take(Changed(put=tuple(lease for name, lease in known.items() if told.get(name) != lease)))
            if self._lost != lost:
                lost = self._lost
                await take(Lost(reason="not a word from them", ids=lost))
            complete, told = everybody, known
            await self._news.wait()

    def continues(self, mark: Token, made: Mapping[str, int], listed: Listed) -> bool:
        return True


def opened(_options: Any, means: Means) -> Store:
    mesh = Mesh(means.directory, name=os.environ["NODE"], **json.loads(os.environ["MESH"]))
    return Store(settings=mesh, tenure=mesh, directory=mesh, tallies={}, close=lambda: None, run=mesh.run)


if __name__ == "__main__":
    kind = StoreKind(identity=lambda _: "mesh", open=opened)
    sys.exit(main.run(sys.argv[1:], os.environ, replace(real(), store=kind)))
