"""What a node's runtime in the lab says before it asks any plugin."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from weft.cni.runtime.library import Ran
from weft.lab.inside.runtime import NodeRuntime, Sandbox
from weft.model.errors import Unavailable

POD = Sandbox(id="c1", netns="/run/netns/pod1", name="pod1")


async def nothing(_program: str, _variables: Mapping[str, str], _stdin: bytes) -> Ran:
    raise AssertionError("no plugin is asked")


def attach(networks: Path) -> str:
    with pytest.raises(Unavailable) as caught:
        asyncio.run(NodeRuntime(nothing, networks=networks, cache=networks / "cache").attach(POD))
    return str(caught.value)


def test_a_directory_without_a_network_is_named(tmp_path: Path):
    assert f"{tmp_path}: no network is configured there" in attach(tmp_path)


def test_a_list_that_cannot_be_read_is_named_with_the_reason(tmp_path: Path):
    (tmp_path / "10-broken.conflist").write_text("{")
    said = attach(tmp_path)
    assert "10-broken.conflist" in said
    assert "no network is configured" not in said
