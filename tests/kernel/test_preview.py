"""`weft plan` where the store gives the configuration and no leases: what it says then."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support import builders
from tests.support.netns import Netns
from weft.cluster.store import StoreKind, no_keys
from weft.config.flags import parse_flags
from weft.daemon.commands.preview import of_start
from weft.daemon.disk.memory import Memory
from weft.daemon.world import real
from weft.desired.backends import hostgw
from weft.model.cluster import OwnLease
from weft.model.errors import Problem, Unavailable
from weft.model.node.nodestate import Plan
from weft.model.value import replace

ODD = '{"Network": "10.5.0.0/16", "Netwrok": 1, "Backend": {"Type": "host-gw"}}'
CONF = '{"Network": "10.5.0.0/16", "Backend": {"Type": "host-gw"}}'
TOO_LARGE = Problem(code="STORE-002", where="https://192.0.2.1:2379", seen="an answer of more than 4 MiB")


def store(*, chooses: bool, conf: str = CONF) -> Any:
    async def net_conf() -> str:
        return conf

    async def addresses(_own: object) -> tuple[None, None, tuple[str, str]]:
        return None, None, ("", "")

    async def listing() -> None:
        raise Unavailable(TOO_LARGE)

    return SimpleNamespace(
        settings=SimpleNamespace(source="net-conf", chooses=chooses, is_mesh=False, net_conf=net_conf),
        tenure=SimpleNamespace(addresses=addresses),
        directory=SimpleNamespace(list=listing),
        keys=no_keys,
    )


@pytest.mark.parametrize("remembered, chooses", [(None, True), (Memory(net_conf=CONF), False)], ids=["none", "no own"])
def test_without_leases_a_plan_that_has_nothing_to_rest_on_says_the_stores_reason(
    netns: Netns, tmp_path: Path, remembered: Memory | None, chooses: bool
):
    with pytest.raises(Unavailable) as raised:
        planned(netns, tmp_path, store(chooses=chooses), remembered)
    assert list(raised.value.problems) == [TOO_LARGE]


def planned(netns: Netns, directory: Path, store: Any, remembered: Memory | None) -> Plan:
    netns.run("ip link add eth0 type veth peer eth1; ip link set eth1 up; ip link set eth0 up")
    netns.run("ip address add 192.0.2.9/24 dev eth0")
    options = parse_flags([f"--state-dir={directory}", f"--subnet-file={directory}/subnet.env", "--iface=eth0"], {})
    world = replace(real(), store=StoreKind(identity=lambda _: "test", open=lambda *_, **__: None))
    plan: Plan = netns.call(lambda: asyncio.run(of_start(options, world, store, remembered)))
    return plan


def test_what_a_start_would_warn_of_is_a_note_and_nothing_is_logged(
    netns: Netns, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    own = OwnLease(lease=builders.lease(1, hostgw), expires=None, token=())
    shown = planned(netns, tmp_path, store(chooses=True, conf=ODD), Memory(net_conf=CONF, own=own))
    assert any(note.startswith("CONF-002 ") and "Netwrok" in note for note in shown.notes)
    assert not caplog.records
