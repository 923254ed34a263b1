"""The lease store on etcd (`weft.cluster.store`): one client, and the three that ask it. Clock and chance are given."""

import asyncio
from collections.abc import Callable
from random import Random

from weft.cluster.etcd.access import Access
from weft.cluster.etcd.client import Client, CompactedError
from weft.cluster.etcd.follow import OtherHistoryError, until_touched
from weft.cluster.etcd.keep import EtcdTenure
from weft.cluster.etcd.link import RANGE
from weft.cluster.etcd.listing import mark_of
from weft.cluster.etcd.rpc.etcd_pb2 import RangeRequest
from weft.cluster.etcd.values import Mark
from weft.cluster.etcd.watch import EtcdDirectory
from weft.cluster.store import Store
from weft.model.errors import Problem, Unavailable
from weft.wire.etcd import config_key, subnets_prefix


def open_etcd(access: Access, prefix: str, *, now: Callable[[], float], chance: Random) -> Store:
    """One network's leases in etcd, below `prefix`. `now` gives seconds of a clock that only goes forward.

    `chance` need not be secret. The client connects when something is asked.
    """
    client, below = Client(access), subnets_prefix(prefix)
    tenure = EtcdTenure(client, below, timing=access.timing, now=now, chance=chance)
    return Store(
        settings=EtcdSettings(client, config_key(prefix), access),
        tenure=tenure,
        directory=EtcdDirectory(client, below, tenure, timing=access.timing, now=now, jitter=chance.random),
        tallies=client.tallies,
        close=client.close,
    )


class EtcdSettings:
    chooses = True  # etcd holds what is taken
    is_mesh = False

    def __init__(self, client: Client, key: str, access: Access) -> None:
        self.source = f"etcd key {key}"
        self._client = client
        self._key = key
        self._timing = access.timing

    async def net_conf(self) -> str:
        text, _ = await self._config()
        return text

    async def next_net_conf(self, known: str) -> str:
        while True:
            text, mark = await self._config()
            if text != known:
                return text
            try:
                await until_touched(self._client, self._key.encode(), after=mark, timing=self._timing)
            except (CompactedError, OtherHistoryError):  # what happened meanwhile is not told: look
                await asyncio.sleep(self._timing.backoff_most)

    async def policies(self) -> None:
        """There are none in etcd."""

    async def _config(self) -> tuple[str, Mark]:
        request = RangeRequest(key=self._key.encode())
        reply = await self._client.call(RANGE, request)
        if not reply.kvs:
            example = """{"Network": "10.5.0.0/16", "Backend": {"Type": "vxlan"}}"""
            hint = f"Check --etcd-prefix, or put one: etcdctl put {self._key} '{example}'"
            expected = "a network configuration"
            problem = Problem(code="CONF-002", where=self.source, seen="no such key", expected=expected, hint=hint)
            raise Unavailable(problem)
        return reply.kvs[0].value.decode(errors="replace"), mark_of(reply.header)
