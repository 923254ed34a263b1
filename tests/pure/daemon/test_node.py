"""What a node says of itself while its start waits."""

import asyncio
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.support.waiting import comes
from weft.cluster.store import StoreKind
from weft.config.flags import parse_flags
from weft.daemon.node import Node
from weft.daemon.world import real
from weft.model.value import replace


async def test_what_serves_pods_beside_the_daemon_is_known_while_the_start_waits_for_this_node(tmp_path: Path):
    """A stop then says that it goes on."""
    waits = asyncio.Event()

    async def net_conf() -> str:
        return '{"Network": "10.5.0.0/16", "Backend": {"Type": "udp"}}'

    async def addresses(_own: object) -> None:
        waits.set()
        await asyncio.Event().wait()

    settings: Any = SimpleNamespace(source="net-conf", chooses=True, is_mesh=False, net_conf=net_conf)
    store: Any = SimpleNamespace(settings=settings, tenure=SimpleNamespace(addresses=addresses))
    world = replace(real(), store=StoreKind(identity=lambda _: "test", open=lambda *_, **__: store))
    node = Node(parse_flags([f"--state-dir={tmp_path}"], {}), world)
    none: Any = None
    with ExitStack() as held:
        async with asyncio.TaskGroup() as tasks:
            start = tasks.create_task(node._start(store, none, tasks, none, held, tools=none, policies=None))
            await comes(lambda: waits.is_set() or start.done())
            assert "flannel0" in node.goes_on
            start.cancel()
