"""What tests of lease stores say again and again: configurations, what a node publishes, waiting for events."""

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Any, TypeVar

from tests.support.waiting import HANGS
from weft.cluster.etcd.access import Timing
from weft.cluster.store import Listing, Store
from weft.config.netconf import NetConf, Pool
from weft.desired.allocate import Chooser
from weft.model.cluster import StoreEvent
from weft.model.lease import LeaseAttrs
from weft.model.net import Subnets
from weft.model.value import Value

T = TypeVar("T")
QUICK = Timing(connect=1.5, call=5.0, ping=0.3, pong=1.0, backoff=0.02, backoff_most=0.1, renew_retry=0.2)


def first(_: int) -> int:
    """Chance that always takes the first: every node wants the same subnet."""
    return 0


def chooser(
    network: NetConf,
    published: LeaseAttrs,
    *,
    previous: Subnets = (None, None),
    pick: Callable[[int], int] = random.randrange,
) -> Chooser:
    return Chooser(netconf=network, attrs=published, previous=previous, pick=pick)


def netconf(
    network: str | None = "10.3.0.0/16", first: str = "10.3.1.0", last: str = "10.3.25.0", *, v6: bool = False
) -> NetConf:
    """The configuration of flannel.md §11.5 unless said otherwise."""
    v4 = None
    if network is not None:
        v4 = Pool(network=IPv4Network(network), subnet_len=24, first=IPv4Address(first), last=IPv4Address(last))
    pool6 = Pool(
        network=IPv6Network("fc00::/48"),
        subnet_len=64,
        first=IPv6Address("fc00:0:0:1::"),
        last=IPv6Address("fc00:0:0:ffff::"),
    )
    return NetConf(v4=v4, v6=pool6 if v6 else None, nftables=False, backend="vxlan", options=Value())


def attrs(address: str = "1.2.3.4", *, mac: str = "", v6: str = "") -> LeaseAttrs:
    data = {"VNI": 1, "VtepMAC": mac} if mac else None
    public6 = IPv6Address(v6) if v6 else None
    public4 = IPv4Address(address) if address else None
    return LeaseAttrs(public_ip=public4, public_ipv6=public6, backend="vxlan" if mac else "", data=data)


def value(address: str) -> str:
    return f'{{"PublicIP":"{address}","PublicIPv6":null}}'


async def soon(awaitable: Awaitable[T], seconds: float = HANGS) -> T:
    """What arrives within some seconds; a test that waits longer has failed."""
    async with asyncio.timeout(seconds):
        return await awaitable


async def said(store: Store, listing: Listing | None = None) -> AsyncGenerator[StoreEvent, None]:
    """What the directory of a store says, for a consumer that has room for all of it."""
    told: asyncio.Queue[StoreEvent | None] = asyncio.Queue()
    watching = asyncio.ensure_future(store.directory.watch(told.put, listing))
    watching.add_done_callback(lambda _: told.put_nowait(None))
    try:
        while (event := await told.get()) is not None:
            yield event
        await watching
    finally:
        watching.cancel()
        await asyncio.wait((watching,))


async def until(events: AsyncGenerator[T, None], wanted: Callable[[T], bool], seconds: float = HANGS) -> list[T]:
    """The events up to the first that is wanted, it included."""
    seen: list[T] = []
    async with asyncio.timeout(seconds):
        async for event in events:
            seen.append(event)
            if wanted(event):
                break
    return seen


async def nothing(events: AsyncGenerator[Any, None], seconds: float = 0.3) -> asyncio.Task[Any]:
    """Nothing arrives for a while; returns the wait for the next event, which goes on."""
    pending = asyncio.ensure_future(anext(events))
    done, _ = await asyncio.wait((pending,), timeout=seconds)
    assert not done, pending.result()
    return pending


async def nothing_more(events: AsyncGenerator[Any, None], seconds: float = 0.3) -> None:
    """Nothing arrives for a while; `events` ends with that."""
    pending = await nothing(events, seconds)
    pending.cancel()
    await asyncio.gather(pending, return_exceptions=True)
