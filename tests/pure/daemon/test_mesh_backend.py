"""What a node of a mesh prepares: keys of WireGuard, if anything serves it."""

import logging
from pathlib import Path

import pytest

from tests.support.builders import key
from weft.cluster.store import TunnelKeys
from weft.config.flags import parse_flags
from weft.daemon.backends import wireguard
from weft.daemon.backends.backend import Ground
from weft.daemon.backends.mesh import MESH
from weft.desired.backends.mesh.sealed import Keys, Prepared
from weft.model.errors import ConfigError
from weft.model.value import Secret, Value

STORES = TunnelKeys(private=Secret(key(1)), psk=Secret(key(9)))


async def keys() -> TunnelKeys:
    return STORES


def ground(*flags: str) -> Ground:
    return Ground(options=parse_flags(["--mesh", *flags], {}), directory=Path("/nowhere"), keys=keys)


@pytest.mark.parametrize("password", [False, True])
@pytest.mark.parametrize("by", ["kernel", "process"])
async def test_the_keys_are_the_stores(monkeypatch, caplog, by: str, password: bool):
    monkeypatch.setattr(wireguard, "served_by", lambda: by)
    where = ground("--password-file=p") if password else ground()
    prepared = await MESH.prepare(Value(), where)
    assert prepared == Prepared(
        password=password, keys=Keys(private=STORES.private, psk=STORES.psk, in_process=by == "process")
    )
    assert ("at a fraction of the speed" in caplog.text) == (password and by == "process")
    caplog.clear()
    assert await MESH.prepare(Value(), where, look_only=True) == prepared
    assert caplog.text == ""


async def test_without_wireguard_a_mesh_runs_on_vxlan_and_one_with_a_password_not_at_all(monkeypatch, caplog):
    monkeypatch.setattr(wireguard, "served_by", lambda: "nothing")
    with caplog.at_level(logging.INFO):
        assert await MESH.prepare(Value(), ground()) == Prepared()
    assert "this node is reached by vxlan alone" in caplog.text
    with pytest.raises(ConfigError, match="VTEP-004 mesh: the kernel has no WireGuard, and wireguard-go is not"):
        await MESH.prepare(Value(), ground("--password-file=p"))


async def test_a_store_that_is_another_mesh_has_no_keys(monkeypatch):
    monkeypatch.setattr(wireguard, "served_by", lambda: "kernel")
    assert await MESH.prepare(Value(), Ground(options=ground().options, directory=Path("/nowhere"))) == Prepared()
