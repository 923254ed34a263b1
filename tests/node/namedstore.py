"""A store of a kind that weft has not: ids are node names, subnets are given, leases do not expire.

It is a folder, $NODES: `config`, and for each node a file of its name with its subnet, its age and what it publishes.
As a program: weftd with this store. This node's name is $NODE. While there is no folder, the store is away.
"""

# ruff: noqa: ARG002 - the protocol says what is given; this store needs less

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any, NoReturn

from weft.cluster.store import Store, StoreKind, Take
from weft.daemon import main
from weft.daemon.world import real
from weft.desired.allocate import Choice, Chooser
from weft.model.cluster import (
    Changed,
    Held,
    Listed,
    Lost,
    Malformed,
    OwnEvent,
    OwnLease,
    Revoked,
    Token,
)
from weft.model.errors import Problem, Unavailable
from weft.model.lease import Lease, LeaseAttrs
from weft.model.net import Addresses
from weft.model.value import Value, replace
from weft.plan.announce import Event
from weft.wire.etcd import decode_attrs, encode_attrs

CONFIG = "config"
LOOK = 0.02  # seconds between two looks


def put(folder: Path, name: str, subnet: str, attrs: LeaseAttrs | None = None, *, created: int = 1) -> None:
    """Write a node's file; without `attrs` as the cluster does that gives it its subnet."""
    text = json.dumps([subnet, created, None if attrs is None else encode_attrs(attrs).decode()])
    (folder / f".{name}").write_text(text)
    (folder / f".{name}").rename(folder / name)


class Names(Value):
    """What the folder holds."""

    leases: tuple[Lease, ...]
    malformed: tuple[Malformed, ...] = ()

    def choice(self, chooser: Chooser, recorded: OwnLease | None) -> Choice:
        raise AssertionError("no plan is made with this store")

    def unchanged(self, recorded: OwnLease | None) -> Lease | None:
        return next((lease for lease in self.leases if recorded and lease.id == recorded.lease.id), None)

    @property
    def mark(self) -> Token:
        return ("at", len(self.leases))

    @property
    def published(self) -> LeaseAttrs | None:
        return None


class NamedStore:
    """The settings, the tenure and the directory of one network, in one."""

    chooses = False
    is_mesh = False
    heard = None
    unpublished: Problem | None = None

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self.source = str(folder / CONFIG)

    def _read(self, name: str) -> str:
        try:
            return (self._folder / name).read_text()
        except FileNotFoundError:
            code = "STORE-002" if self._folder.exists() else "STORE-001"
            raise Unavailable(Problem(code=code, where=str(self._folder), seen=f"no {name}")) from None

    async def next_net_conf(self, known: str) -> str:
        while (text := await self.net_conf()) == known:  # noqa: ASYNC110 - a file gives no sign
            await asyncio.sleep(LOOK)
        return text

    async def net_conf(self) -> str:
        return self._read(CONFIG)

    async def addresses(self, recorded: OwnLease | None) -> Addresses:
        return Addresses()

    async def ready(self) -> None:
        pass

    async def list(self) -> Names:
        self._read(CONFIG)
        names = sorted(path.name for path in self._folder.iterdir() if path.name[0] != "." and path.name != CONFIG)
        leases = []
        for name in names:
            subnet, created, published = json.loads(self._read(name))
            if published is not None:
                attrs = decode_attrs(published.encode(), name)
                leases.append(Lease(id=name, v4=IPv4Network(subnet), v6=None, attrs=attrs, created=created))
        return Names(leases=tuple(leases))

    async def acquire(
        self, chooser: Chooser, *, recorded: OwnLease | None = None, listing: Names | None = None
    ) -> OwnLease:
        assert recorded is None or recorded.token == ("node", self._name, 1), "what we gave, read from the disk"
        subnet, created, _ = json.loads(self._read(self._name))
        lease = Lease(id=self._name, v4=IPv4Network(subnet), v6=None, attrs=chooser.attrs, created=created)
        return await self.publish(OwnLease(lease=lease, expires=None, token=("node", self._name, 1)), chooser.attrs)

    def hold(self, own: OwnLease) -> None:
        assert own.token == ("node", self._name, 1)

    async def publish(self, own: OwnLease, attrs: LeaseAttrs) -> OwnLease:
        put(self._folder, self._name, str(own.lease.v4), attrs, created=own.lease.created)
        return replace(own, lease=replace(own.lease, attrs=attrs))

    async def tell(self, event: Event) -> None:
        """There is no place for it."""

    async def policies(self) -> int | None:
        """There are none."""
        return None

    async def keep(self, own: OwnLease, *, margin: float) -> AsyncGenerator[OwnEvent, None]:
        yield Held(own=own)
        while not self._folder.exists() or (self._folder / self._name).exists():
            await asyncio.sleep(LOOK)
            with suppress(Unavailable):
                given = IPv4Network(json.loads(self._read(self._name))[0])
                if given != own.lease.v4:
                    own = replace(own, lease=replace(own.lease, v4=given))
                    yield Held(own=own)
        yield Revoked(reason=f"node {self._name} was deleted")

    async def watch(self, take: Take, listing: Names | None = None) -> NoReturn:
        known: dict[str, Lease] | None = None
        away = False
        while True:
            try:
                names = await self.list()
            except Unavailable as error:
                if not away:
                    await take(Lost(reason=str(error)))
                away = True
            else:
                there = {lease.id: lease for lease in names.leases if lease.id != self._name}
                mark: Token = ("at", len(there))
                if known is None:
                    own = tuple(lease for lease in names.leases if lease.id == self._name)
                    await take(Listed(leases=tuple(there.values()), own=own, mark=mark))
                elif away or there != known:
                    changed = tuple(lease for name, lease in there.items() if known.get(name) != lease)
                    await take(Changed(put=changed, gone=tuple(known.keys() - there.keys()), mark=mark))
                known, away = there, False
            await asyncio.sleep(LOOK)

    def continues(self, mark: Token, made: Mapping[str, int], listed: Listed) -> bool:
        return True


def opened(_options: Any, _means: Any) -> Store:
    named = NamedStore(Path(os.environ["NODES"]), os.environ["NODE"])
    return Store(settings=named, tenure=named, directory=named, tallies={}, close=lambda: None)


if __name__ == "__main__":
    kind = StoreKind(identity=lambda _: os.environ["NODES"], open=opened)
    sys.exit(main.run(sys.argv[1:], os.environ, replace(real(), store=kind)))
