"""A peer's files: who it is outlives all that can be helped, and nobody becomes another peer for a passing fault."""

import errno
import logging
import os
from base64 import b64decode
from functools import partial

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from weft.cluster.mesh.disk import Disk, FileAccess, Saved, boot_id, machine_print
from weft.daemon.disk.files import write_atomically
from weft.kernel import statefiles
from weft.model.errors import Unavailable
from weft.model.mesh.effects import Kept, PathFound, Recalled
from weft.model.mesh.records import Layout, Member, Ring, Token
from weft.model.value import replace

FILES = FileAccess(
    read=partial(statefiles.read, limit=1 << 20),
    write=lambda path, data: write_atomically(path, data, 0o600, sync=True),
    set_aside=statefiles.set_aside,
)
RING = Ring(id=bytes(16), layout=Layout(net_conf="{}", blocks=8, first=2), secret=b"s" * 32)
SAVED = Saved(
    secret=b"k" * 32,
    machine="m",
    boot="b",
    kept=Kept(version=7, ring=RING, tokens=(Token(start=2, stop=8, owner=b"o" * 32, version=1),), home=2),
)


def test_what_is_kept_is_read_again_and_only_root_can_read_it(tmp_path):
    disk = Disk(tmp_path / "store", FILES)
    assert disk.load() is None
    assert list(tmp_path.iterdir()) == []  # nothing is made before there is something to keep
    disk.keep(SAVED)
    assert Disk(tmp_path / "store", FILES).load() == SAVED
    assert (tmp_path / "store" / "mesh.json").stat().st_mode & 0o777 == 0o600
    assert "kkk" not in repr(SAVED)
    assert "sss" not in repr(SAVED)


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"secret": 1}', b"\xff\xfe"])
def test_a_spoilt_file_is_set_aside_and_that_is_said(tmp_path, content, caplog):
    (tmp_path / "mesh.json").write_bytes(content)
    with caplog.at_level(logging.WARNING):
        assert Disk(tmp_path, FILES).load() is None
    assert (tmp_path / "mesh.json.spoilt-1").read_bytes() == content
    assert "STATE-001" in caplog.text
    assert "a new key and a new block" in caplog.text


def test_nobody_becomes_another_peer_while_the_disk_does_not_answer(tmp_path):
    def failing(_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with pytest.raises(Unavailable) as caught:
        Disk(tmp_path, FileAccess(read=failing, write=FILES.write, set_aside=FILES.set_aside)).load()
    assert caught.value.problems[0].code == "STATE-001"


def test_what_others_said_may_be_lost(tmp_path):
    disk = Disk(tmp_path, FILES)
    assert disk.recalled() is None
    member = Member(key=b"a" * 32, run=1, version=2, name="node1", attrs=b"{}", home=3)
    token = Token(start=2, stop=8, owner=b"a" * 32, version=1)
    recalled = Recalled(ring=bytes(16), members=(member,), tokens=(token,))
    paths = (PathFound(key=b"a" * 32, kind="vxlan", fallen=True), PathFound(key=b"a" * 32, kind="direct", mtu=1400))
    disk.remember(recalled)
    disk.remember_paths(paths)
    assert (disk.recalled(), disk.paths()) == (recalled, paths)
    for name in ("members.bin", "paths.bin"):
        (tmp_path / name).write_bytes(b"\x93garbage")
    assert (disk.recalled(), disk.paths()) == (None, ())


def test_a_machine_is_told_by_what_it_says_of_itself(tmp_path):
    product, machine, missing = tmp_path / "product", tmp_path / "machine-id", tmp_path / "missing"
    product.write_text("a\n")
    machine.write_text("b\n")
    here = machine_print([product, missing], machine)
    assert here == machine_print([product], machine)
    product.write_text("c\n")
    assert machine_print([product], machine) != here
    assert machine_print() == machine_print()
    assert boot_id() == boot_id()


async def test_wireguards_keys_are_the_own_one_and_one_of_the_ring(tmp_path):
    disk = Disk(tmp_path, FILES)
    disk.keep(SAVED)
    keys = await disk.tunnel_keys()
    own, of_ring = (b64decode(key.reveal()) for key in (keys.private, keys.psk))
    public = X25519PrivateKey.from_private_bytes(SAVED.secret).public_key()
    assert X25519PrivateKey.from_private_bytes(own).public_key() == public, "by which others know this node"
    assert (own[0] & 7, own[31] & 0xC0) == (0, 0x40), "as WireGuard shows it"
    assert len(of_ring) == 32
    disk.keep(replace(SAVED, secret=b"n" * 32))
    others = await disk.tunnel_keys()
    assert (others.private != keys.private, others.psk) == (True, keys.psk)
    assert "kkk" not in repr(keys)


@pytest.mark.parametrize("content, code", [(b"{", "STATE-001"), (None, "MESH-001")])
async def test_without_a_ring_or_a_whole_file_there_are_no_keys_yet(tmp_path, content, code):
    disk = Disk(tmp_path, FILES)
    disk.keep(replace(SAVED, kept=Kept()))
    if content is not None:
        (tmp_path / "mesh.json").write_bytes(content)
    with pytest.raises(Unavailable) as caught:
        await disk.tunnel_keys()
    assert caught.value.problems[0].code == code
    assert [path.name for path in tmp_path.iterdir()] == ["mesh.json"]


async def test_without_a_file_nobody_goes_on_without_keys(tmp_path):
    """What is remembered serves as long as the disk does not take another one: with a password, but in clear."""
    with pytest.raises(Unavailable, match="MESH-001"):
        await Disk(tmp_path, FILES).tunnel_keys()
