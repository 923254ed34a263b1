"""Stores on real etcd servers. `server` is shared by tests that leave it running, and comes in both versions."""

import asyncio
import itertools
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import etcd as support
from tests.support.etcd import Certs, Etcd, Proxy
from tests.support.store import QUICK
from weft.cluster.etcd.access import Access
from weft.cluster.etcd.store import open_etcd
from weft.cluster.store import Store

_numbers = itertools.count()


@pytest.fixture(scope="session", params=support.VERSIONS)
def server(request, tmp_path_factory) -> Iterator[Etcd]:
    """A running etcd of either version, which must stay running."""
    etcd = Etcd(tmp_path_factory.mktemp("etcd"), getattr(support, request.param)()).start()
    yield etcd
    etcd.stop()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Etcd]:
    """A running etcd for this test alone, to be stopped, restarted and worse."""
    etcd = Etcd(tmp_path / "etcd", support.wheel()).start()
    yield etcd
    etcd.stop()


@pytest.fixture(scope="session")
def certs(tmp_path_factory) -> Certs:
    return support.make_certs(tmp_path_factory.mktemp("certs"))


@pytest.fixture
def prefix() -> str:
    """A network of this test's own in a shared server."""
    return f"/test/{next(_numbers)}"


@pytest.fixture
async def make_store(prefix: str) -> AsyncIterator[Callable[..., Store]]:
    """Makes stores that are closed after the test: `make_store(url, …)`, with Access's fields."""
    stores = []

    def make(*urls: str, now: Callable[[], float] = time.time, at: str = prefix, **access: Any) -> Store:
        how = Access(endpoints=urls, **{"timing": QUICK, **access})
        store = open_etcd(how, at, now=now, chance=random.Random())
        stores.append(store)
        return store

    yield make
    for store in stores:
        store.close()
    await asyncio.sleep(0.01)  # lets the loop close the sockets; TLS says goodbye first


@pytest.fixture
async def make_proxy() -> AsyncIterator[Callable[[Etcd], Awaitable[Proxy]]]:
    proxies = []

    async def make(etcd: Etcd) -> Proxy:
        proxy = Proxy(etcd.port)
        await proxy.open()
        proxies.append(proxy)
        return proxy

    yield make
    for proxy in proxies:
        proxy.thaw()
        await proxy.cut()
