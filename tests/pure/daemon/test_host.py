"""What the daemon looks for on this machine: the bridge filter, and VTEPs whose MACs it takes over."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from weft.daemon import host
from weft.daemon.disk.identity import Identity
from weft.desired.inputs import Device
from weft.desired.tunnels.vxlan import VxlanLink
from weft.desired.tunnels.wireguard import WireguardLink
from weft.kernel.tools import ToolError
from weft.model.kernel.objects import Snapshot
from weft.model.kernel.reported import LinkInfo
from weft.model.net import Mac

OWN = Identity(mac_v4=Mac.parse("02:00:00:00:00:04"), mac_v6=Mac.parse("02:00:00:00:00:06"))
THERE = Mac.parse("02:00:00:00:00:aa")


class Modprobe:
    """A program that loads the filter of these families, or fails."""

    def __init__(self, filters: dict[int, Path], *loads: int, fails: str = "") -> None:
        self.calls: list[tuple[str, list[str]]] = []
        self._filters, self._loads, self._fails = filters, loads, fails

    async def run(self, program: str, arguments: list[str]) -> None:
        self.calls.append((program, arguments))
        for family in self._loads:
            self._filters[family].touch()
        if self._fails:
            raise ToolError(5, self._fails)


@pytest.fixture
def filters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[int, Path]:
    made = {4: tmp_path / "four", 6: tmp_path / "six"}
    monkeypatch.setattr(host, "_BRIDGE_FILTER", made)
    return made


def asked(modprobe: Any, *families: int) -> list[tuple[str, str, str]]:
    problems = asyncio.run(host.bridge_filter(modprobe, families))
    return [(problem.code, problem.where, problem.seen) for problem in problems]


def test_a_filter_that_is_there_needs_no_program(filters):
    filters[4].touch()
    modprobe = Modprobe(filters)
    assert asked(modprobe, 4) == modprobe.calls == []


def test_a_filter_that_can_be_loaded_is_loaded_once(filters):
    modprobe = Modprobe(filters, 4, 6)
    assert asked(modprobe, 4, 6) == []
    assert modprobe.calls == [("modprobe", ["br_netfilter"])]


def test_each_family_without_its_filter_is_told_with_the_reason(filters):
    assert asked(Modprobe(filters), 6) == [("KERN-001", str(filters[6]), "br_netfilter is not loaded")]
    told = asked(Modprobe(filters, 4, fails="no module"), 4, 6)
    assert told == [("KERN-001", str(filters[6]), "br_netfilter is not loaded and cannot be loaded (no module)")]


@pytest.mark.parametrize(
    "kind, mac, taken",
    [
        ("vxlan", THERE, True),
        ("bridge", THERE, False),
        ("vxlan", Mac.parse("03:00:00:00:00:aa"), False),
        ("vxlan", None, False),
    ],
)
@pytest.mark.parametrize("family", [4, 6])
def test_the_mac_of_a_vtep_that_is_there_is_taken_over(family: int, kind: str, mac: Mac | None, taken: bool):
    link = LinkInfo(index=7, name="flannel.1", kind=kind, mac=mac)
    snapshot = Snapshot(links=(link,), addresses=(), ours={})
    first = Device("flannel.1", VxlanLink, frozenset({family}))
    devices = (first, Device("flannel-v6.1", VxlanLink, frozenset({10 - family})))
    found = host.adopted(OWN, snapshot, devices)
    expected = {4: OWN.mac_v4, 6: OWN.mac_v6} | ({family: THERE} if taken else {})
    assert {4: found.mac_v4, 6: found.mac_v6} == expected
    assert host.adopted(OWN, snapshot, ()) == OWN


def test_of_several_devices_the_first_with_a_mac_has_the_nodes():
    tunnel = Device("flannel-wg", WireguardLink, frozenset({4, 6}))
    devices = (tunnel, *(Device(name, VxlanLink, frozenset({4})) for name in ("flannel.1", "flannel.2")))
    there = [LinkInfo(index=5, name="flannel-wg", kind="wireguard")]
    there += [LinkInfo(index=7, name="flannel.2", kind="vxlan", mac=Mac.parse("02:00:00:00:00:02"))]
    assert host.adopted(OWN, Snapshot(links=tuple(there)), devices).mac_v4 == there[1].mac
    there += [LinkInfo(index=8, name="flannel.1", kind="vxlan", mac=THERE)]
    assert host.adopted(OWN, Snapshot(links=tuple(there)), devices).mac_v4 == THERE
