"""What a node remembers survives being written, torn and partly unreadable."""

from ipaddress import IPv4Network
from pathlib import Path

import pytest

from tests.support import builders
from weft.cluster.etcd.values import OwnLease
from weft.daemon import identity, memory
from weft.daemon.memory import Memory
from weft.desired.backends import vxlan

OWN = OwnLease(lease=builders.lease(1, vxlan), etcd_lease=7, mod_revision=9, expires=12.5)
FULL = Memory(
    net_conf='{"Network": "10.5.0.0/16"}', own=OWN, leases=(builders.lease(2, vxlan), builders.lease(3, vxlan))
)


@pytest.mark.parametrize("known", [FULL, Memory(net_conf="{}")])
def test_what_is_saved_is_loaded(tmp_path: Path, known: Memory):
    memory.file(tmp_path, lambda: known).write_now()
    assert memory.load(tmp_path) == known


def test_nothing_is_remembered_where_nothing_was_written(tmp_path: Path):
    assert memory.load(tmp_path) is None
    assert identity.load(tmp_path) is None


def test_a_line_that_cannot_be_read_costs_one_peer(tmp_path: Path, caplog):
    memory.file(tmp_path, lambda: FULL).write_now()
    [path] = tmp_path.glob("*.jsonl")
    head, second, third = path.read_text().splitlines()
    path.write_text("\n".join([head, second[:-9], third]))
    loaded = memory.load(tmp_path)
    assert loaded is not None
    assert [lease.v4 for lease in loaded.leases] == [IPv4Network("10.5.3.0/24")]
    assert "line 2 cannot be read" in caplog.text


@pytest.mark.parametrize("text", ["", "{", "[]", '{"net_conf": "x"}', '{"net_conf": "x", "own": 5}', "\x00"])
def test_a_torn_head_costs_the_memory_and_not_the_start(tmp_path: Path, text: str, caplog):
    (tmp_path / "cluster.jsonl").write_text(text)
    (tmp_path / "identity.json").write_text(text)
    assert memory.load(tmp_path) is None
    assert identity.load(tmp_path) is None
    assert caplog.text.count("cannot be read") == 2


def test_a_file_that_is_none_is_survived(tmp_path: Path):
    (tmp_path / "cluster.jsonl").mkdir()
    (tmp_path / "identity.json").mkdir()
    assert memory.load(tmp_path) is None
    assert identity.load(tmp_path) is None
