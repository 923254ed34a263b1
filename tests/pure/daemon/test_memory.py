"""What a node remembers survives being written, torn and partly unreadable."""

import json
from ipaddress import IPv4Network, ip_address
from pathlib import Path

import pytest

from tests.support import builders
from weft.daemon.disk import identity, memory
from weft.daemon.disk.memory import Memory
from weft.daemon.world import Moment
from weft.desired.backends import vxlan
from weft.model.cluster import OwnLease
from weft.model.lease import Tunnel, Way
from weft.model.net import Endpoint
from weft.model.value import replace

OWN = OwnLease(lease=builders.lease(1, vxlan), expires=12.5, token=(7, 9))
MOMENT = Moment(unix=1e9, now=100.0, boot="this")
HOUR = 3600.0
FULL = Memory(
    net_conf='{"Network": "10.5.0.0/16"}',
    own=OWN,
    leases=(builders.lease(2, vxlan), builders.lease(3, vxlan)),
    mark=(12, 1 << 63, 3),
    unproven={"10.5.3.0-24": 100.0 + HOUR},
)


@pytest.mark.parametrize("known", [FULL, Memory(net_conf="{}")])
def test_what_is_saved_is_loaded(tmp_path: Path, known: Memory):
    memory.file(tmp_path, lambda: known, lambda: MOMENT).write_now()
    assert memory.load(tmp_path, MOMENT) == known


@pytest.mark.parametrize(
    "then, left",
    [
        (Moment(unix=1e9 + HOUR, now=100.0 + HOUR, boot="this"), HOUR),
        (Moment(unix=1e9 + 25 * HOUR, now=100.0 + HOUR, boot="this"), HOUR),  # the wall clock was set, both ways
        (Moment(unix=1e9 - 25 * HOUR, now=100.0 + HOUR, boot="this"), HOUR),
        (Moment(unix=1e9 + HOUR, now=5.0, boot="next"), HOUR),
        (Moment(unix=1e9 + 25 * HOUR, now=5.0, boot="next"), -23 * HOUR),
        (Moment(unix=1e9 - 1.0, now=5.0, boot="next"), -5.0),  # it cannot be before the file was written
        (Moment(unix=0.0, now=5.0, boot="next"), -5.0),
    ],
)
def test_a_lease_ends_in_time_whatever_is_done_to_the_wall_clock(tmp_path: Path, then: Moment, left: float):
    lease = replace(OWN, expires=MOMENT.now + 2 * HOUR)
    memory.file(tmp_path, lambda: Memory(net_conf="{}", own=lease), lambda: MOMENT).write_now()
    loaded = memory.load(tmp_path, then)
    assert loaded is not None
    assert loaded.own is not None
    assert loaded.own.expires == then.now + left


@pytest.mark.parametrize("now, left", [(1e9, 2 * HOUR), (0.0, -5.0)])
def test_a_file_that_does_not_say_when_it_was_written_is_read_too(tmp_path: Path, now: float, left: float):
    memory.file(tmp_path, lambda: FULL, lambda: MOMENT).write_now()
    [path] = tmp_path.glob("*.jsonl")
    head, *lines = path.read_text().splitlines()
    data = json.loads(head)
    del data["written"], data["mark"]
    data["own"]["expires"] = 1e9 + 2 * HOUR
    path.write_text("\n".join([json.dumps(data), *lines]))
    loaded = memory.load(tmp_path, Moment(unix=now, now=5.0, boot="this"))
    assert loaded is not None
    assert loaded.own is not None
    assert loaded.own.expires == 5.0 + left
    assert loaded.mark is None


@pytest.mark.parametrize("unix, left", [(1e9 + 60.0, HOUR - 60.0), (0.0, 86400.0)], ids=["in-time", "no-knowing"])
def test_what_is_kept_without_proof_is_kept_for_its_time_or_a_whole_lease(tmp_path: Path, unix: float, left: float):
    memory.file(tmp_path, lambda: FULL, lambda: MOMENT).write_now()
    loaded = memory.load(tmp_path, Moment(unix=unix, now=5.0, boot="next"))
    assert loaded is not None
    assert loaded.unproven == {"10.5.3.0-24": 5.0 + left}


def test_an_id_that_is_no_subnet_is_remembered(tmp_path: Path):
    named = replace(OWN, lease=replace(OWN.lease, id="node-1"), token=("uid", 7))
    kept = tuple(replace(lease, id=f"node-{lease.id}") for lease in FULL.leases)
    known = replace(FULL, own=named, leases=kept, unproven={kept[0].id: 100.0 + HOUR}, mark=("version", 12))
    memory.file(tmp_path, lambda: known, lambda: MOMENT).write_now()
    assert memory.load(tmp_path, MOMENT) == known


WAY = Way(
    kind="direct",
    via="node2",
    bases=(ip_address("10.5.2.0"), ip_address("fc00:0:0:2::")),
    remotes=(ip_address("fd00::2"),),
    hop_key="aGVhcmQ=",
    tunnel=Tunnel(key="c2Vlbg==", endpoint=Endpoint(ip_address("fd00::2"), 51820), keepalive=True),
    mtu=1380,
    reason="port-filtered",
)


@pytest.mark.parametrize("way", [WAY, Way(kind="vxlan"), replace(WAY, tunnel=Tunnel(key="c2Vlbg=="))])
def test_the_way_to_a_peer_is_remembered(tmp_path: Path, way: Way):
    """So what is in the kernel is wanted by the next run as well."""
    known = replace(FULL, leases=tuple(replace(lease, way=way) for lease in FULL.leases))
    memory.file(tmp_path, lambda: known, lambda: MOMENT).write_now()
    assert memory.load(tmp_path, MOMENT) == known


@pytest.mark.parametrize("bent", [{"kind": "air"}, {"bases": ["10.5.2"]}, {"wide": 1}])
def test_a_way_that_cannot_be_read_costs_one_peer(tmp_path: Path, bent: dict[str, object], caplog):
    known = replace(FULL, leases=tuple(replace(lease, way=WAY) for lease in FULL.leases))
    memory.file(tmp_path, lambda: known, lambda: MOMENT).write_now()
    [path] = tmp_path.glob("*.jsonl")
    head, second, third = path.read_text().splitlines()
    *rest, way = json.loads(second)
    path.write_text("\n".join([head, json.dumps([*rest, {**way, **bent}]), third]))
    loaded = memory.load(tmp_path, MOMENT)
    assert loaded is not None
    assert [lease.id for lease in loaded.leases] == [FULL.leases[1].id]
    assert "line 2 cannot be read" in caplog.text


def test_a_file_of_the_version_before_is_read(tmp_path: Path):
    memory.file(tmp_path, lambda: FULL, lambda: MOMENT).write_now()
    [path] = tmp_path.glob("*.jsonl")
    head, *lines = path.read_text().splitlines()
    data = json.loads(head)
    data["own"]["etcd_lease"], data["own"]["mod_revision"] = data["own"].pop("token")
    data["mark"] = dict(zip(("revision", "cluster", "term"), data["mark"], strict=True))
    path.write_text("\n".join([json.dumps(data), *lines]))
    assert memory.load(tmp_path, MOMENT) == FULL


@pytest.mark.parametrize("token", [5, [[7]], [None], [1.5]])
def test_a_token_of_another_form_costs_the_memory_and_not_the_start(tmp_path: Path, token: object, caplog):
    memory.file(tmp_path, lambda: FULL, lambda: MOMENT).write_now()
    [path] = tmp_path.glob("*.jsonl")
    head, *lines = path.read_text().splitlines()
    data = json.loads(head)
    data["own"]["token"] = token
    path.write_text("\n".join([json.dumps(data), *lines]))
    assert memory.load(tmp_path, MOMENT) is None
    assert "cannot be read" in caplog.text


def test_nothing_is_remembered_where_nothing_was_written(tmp_path: Path):
    assert memory.load(tmp_path, MOMENT) is None
    assert identity.load(tmp_path) is None


def test_a_line_that_cannot_be_read_costs_one_peer(tmp_path: Path, caplog):
    memory.file(tmp_path, lambda: FULL, lambda: MOMENT).write_now()
    [path] = tmp_path.glob("*.jsonl")
    head, second, third = path.read_text().splitlines()
    path.write_text("\n".join([head, second[:-9], third]))
    loaded = memory.load(tmp_path, MOMENT)
    assert loaded is not None
    assert [lease.v4 for lease in loaded.leases] == [IPv4Network("10.5.3.0/24")]
    assert "line 2 cannot be read" in caplog.text


@pytest.mark.parametrize("text", ["", "{", "[]", '{"net_conf": "x"}', '{"net_conf": "x", "own": 5}', "\x00"])
def test_a_torn_head_costs_the_memory_and_not_the_start(tmp_path: Path, text: str, caplog):
    (tmp_path / "cluster.jsonl").write_text(text)
    (tmp_path / "identity.json").write_text(text)
    assert memory.load(tmp_path, MOMENT) is None
    assert identity.load(tmp_path) is None
    assert caplog.text.count("cannot be read") == 2


def test_a_file_that_is_none_is_survived(tmp_path: Path):
    (tmp_path / "cluster.jsonl").mkdir()
    (tmp_path / "identity.json").mkdir()
    assert memory.load(tmp_path, MOMENT) is None
    assert identity.load(tmp_path) is None
