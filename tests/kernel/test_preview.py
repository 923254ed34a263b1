"""`weft plan` where the store gives the configuration and no leases: what it says then."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.netns import Netns
from weft.cluster.store import StoreKind
from weft.config.flags import parse_flags
from weft.daemon.commands.preview import of_start
from weft.daemon.disk.memory import Memory
from weft.daemon.world import real
from weft.model.errors import Problem, Unavailable
from weft.model.value import replace

CONF = '{"Network": "10.5.0.0/16", "Backend": {"Type": "host-gw"}}'
TOO_LARGE = Problem(code="STORE-002", where="https://192.0.2.1:2379", seen="an answer of more than 4 MiB")


def store(*, chooses: bool) -> Any:
    async def net_conf() -> str:
        return CONF

    async def addresses(_own: object) -> tuple[None, None, tuple[str, str]]:
        return None, None, ("", "")

    async def listing() -> None:
        raise Unavailable(TOO_LARGE)

    return SimpleNamespace(
        settings=SimpleNamespace(source="net-conf", chooses=chooses, net_conf=net_conf),
        tenure=SimpleNamespace(addresses=addresses),
        directory=SimpleNamespace(list=listing),
    )


@pytest.mark.parametrize("remembered, chooses", [(None, True), (Memory(net_conf=CONF), False)], ids=["none", "no own"])
def test_without_leases_a_plan_that_has_nothing_to_rest_on_says_the_stores_reason(
    netns: Netns, tmp_path: Path, remembered: Memory | None, chooses: bool
):
    netns.run("ip link add eth0 type veth peer eth1; ip link set eth1 up; ip link set eth0 up")
    netns.run("ip address add 192.0.2.9/24 dev eth0")
    options = parse_flags([f"--state-dir={tmp_path}", f"--subnet-file={tmp_path}/subnet.env", "--iface=eth0"], {})
    world = replace(real(), store=StoreKind(identity=lambda _: "test", open=lambda *_, **__: None))
    with pytest.raises(Unavailable) as raised:
        netns.call(lambda: asyncio.run(of_start(options, world, store(chooses=chooses), remembered)))
    assert list(raised.value.problems) == [TOO_LARGE]
