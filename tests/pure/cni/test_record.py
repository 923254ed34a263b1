"""What is kept of attachments on the disk, by name and to the letter: the version after this one must find it."""

import json
import os
from collections.abc import Iterator
from ipaddress import ip_address, ip_interface
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from weft.cni.host.files import RootedFiles
from weft.cni.install.directories import Directories
from weft.cni.plugins.firewall import plugin as firewallrecord
from weft.cni.plugins.flannel import state as flannelstate
from weft.cni.plugins.hostlocal import store as hostlocalstore
from weft.cni.plugins.portmap import maps
from weft.cni.sdk import record
from weft.cni.sdk.record import Record, alias_of, key_of
from weft.model.attachment import Attachment
from weft.wire.cni import failure
from weft.wire.cnijson import JsonError

ATTACHMENT = Attachment(network="cbr0", container_id="c1", ifname="eth0")
KEY = "dd6410424f7c47d8e090f69fcea63e91"
NOW = 1_700_000_000_000_000_000
OF_IT = {"network": "cbr0", "container": "c1", "ifname": "eth0", "boot": "this boot", "netns": 42, "since": NOW}
WHOLE = Record(veth="veth1", index=7, masq="nftables", addresses=(ip_interface("10.5.1.2/24"),), spoof_check=True)


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A call about ATTACHMENT at NOW, on a host whose state is in `tmp_path`."""
    monkeypatch.setattr(record.time, "time_ns", lambda: NOW)
    root = os.open(tmp_path, os.O_PATH | os.O_DIRECTORY)
    host = SimpleNamespace(state=RootedFiles(root, own=True), boot_id="this boot", namespace=(4, 42))
    yield SimpleNamespace(host=host, attachment=ATTACHMENT)
    os.close(root)


def kept(directory: Path) -> dict[str, Any]:
    found = {str(path.relative_to(directory)): path.read_text() for path in directory.rglob("*") if path.is_file()}
    return {name: json.loads(text) if name.endswith(".json") else text for name, text in found.items()}


def test_the_key_and_the_alias_stay_what_they_are():
    assert key_of(ATTACHMENT) == KEY
    assert alias_of(ATTACHMENT) == f"weft:pod:{KEY}"


def test_what_is_known_of_links(call, tmp_path: Path):
    record.write(call, WHOLE)
    links = {"veth": "veth1", "index": 7, "masq": "nftables", "addresses": ["10.5.1.2/24"], "spoofCheck": True}
    assert kept(tmp_path) == {f"attachments/{KEY}.json": OF_IT | links}
    assert (tmp_path / "attachments").stat().st_mode & 0o777 == 0o700
    assert record.read(call) == WHOLE
    assert list(record.all_of(call.host, "attachments")) == [(ATTACHMENT, OF_IT | links)]
    assert record.of_key(call.host, "attachments", KEY) == ATTACHMENT
    call.host.boot_id = "the next"
    assert record.read(call) == record.Record()
    assert record.recall(call.host, "attachments", ATTACHMENT) == OF_IT | links
    record.forget(call.host, "attachments", ATTACHMENT)
    assert kept(tmp_path) == {}


def test_a_record_says_since_when_there_is_one(call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """What a repeated ADD writes over an earlier one's proves nothing of the repeated one, and nothing is put back."""

    def since() -> int:
        return record.since(record.recall(call.host, "ipam", ATTACHMENT) or {})

    record.keep(call, "ipam", {"addresses": ["10.5.1.2"]})
    before = record.recall(call.host, "ipam", ATTACHMENT)
    monkeypatch.setattr(record.time, "time_ns", lambda: NOW + 1)
    record.keep(call, "ipam", {"addresses": ["10.5.1.3"]})
    assert since() == NOW
    record.forget(call.host, "ipam", ATTACHMENT)
    record.keep(call, "ipam", {"addresses": ["10.5.1.3"]})
    assert since() == NOW + 1
    record.put_back(call, "ipam", before)
    assert record.recall(call.host, "ipam", ATTACHMENT) == before
    call.host.boot_id = "the next"
    record.keep(call, "ipam", {"addresses": ["10.5.1.2"]})
    assert since() == NOW + 1
    for known in ({}, {"since": "now"}):
        (tmp_path / "ipam" / f"{KEY}.json").write_text(json.dumps({**OF_IT, "boot": "the next", "since": 0} | known))
        record.keep(call, "ipam", {})
        assert since() == 0


def test_an_attachment_that_cannot_be_undone_in_a_gc_keeps_no_other_from_it(call, tmp_path: Path):
    gone = [Attachment(network="cbr0", container_id=name, ifname="eth0") for name in ("c2", "c3", "c4")]
    for attachment in (ATTACHMENT, *gone):
        record.keep_of(call.host, "bandwidth", attachment, {"ifb": "ifb1"})
    torn = tmp_path / "bandwidth" / f"{'0' * 32}.json"
    torn.touch()
    notes: list[str] = []
    call.is_valid, call.note = ATTACHMENT.__eq__, notes.append
    errors = iter([OSError("no"), failure("nor so"), JsonError("torn")])

    def undo(_: Any, attachment: Attachment, known: Any) -> None:
        assert known["ifb"] == "ifb1"
        record.forget(call.host, "bandwidth", attachment)
        raise next(errors)

    problems = record.undo_gone(call, "bandwidth", undo)
    assert sorted(problem.partition(" eth0: ")[0] for problem in problems) == ["c2", "c3", "c4"]
    assert [problem.partition(" eth0: ")[2] for problem in problems] == ["no", "nor so", "torn"]
    [note] = notes
    assert note.startswith("STATE-001")
    assert not torn.exists()
    assert [known["container"] for name, known in kept(tmp_path).items() if name.endswith(".json")] == ["c1"]


def test_what_is_known_of_addresses(call, tmp_path: Path):
    hostlocalstore.keep_given(call, "/d", map(ip_address, ("10.5.1.2", "fd05::2")))
    expected = {"dataDir": "/d", "addresses": ["10.5.1.2", "fd05::2"]}
    assert kept(tmp_path) == {f"ipam/{KEY}.json": OF_IT | expected}


def test_what_firewall_has_done_and_whose_an_address_is(call, tmp_path: Path):
    addresses = (ip_address("10.5.1.2"), ip_address("fd05::2"))
    done = firewallrecord.Done(boot="this boot", backend="firewalld", zone="trusted", addresses=addresses)
    firewallrecord.keep_done(call, done)
    expected = {"backend": "firewalld", "zone": "trusted", "addresses": ["10.5.1.2", "fd05::2"]}
    owners = {"firewall-owners/10.5.1.2": KEY, "firewall-owners/fd05::2": KEY}
    assert kept(tmp_path) == {f"firewall/{KEY}.json": OF_IT | expected, **owners}
    assert firewallrecord.find_done(call.host, ATTACHMENT) == done
    (tmp_path / "firewall-owners" / "fd05::2").write_text("another")
    assert firewallrecord.owned(call.host, ATTACHMENT, addresses) == addresses[:1]
    firewallrecord.forget_done(call.host, ATTACHMENT, addresses)
    assert kept(tmp_path) == {"firewall-owners/fd05::2": "another"}


def test_which_state_file_of_flannel_an_attachment_has(call, tmp_path: Path):
    record.keep(call, flannelstate.SUBJECT, {"path": "/var/lib/cni/flannel/c1"})
    assert kept(tmp_path) == {f"flannel/{KEY}.json": OF_IT | {"path": "/var/lib/cni/flannel/c1"}}


def test_which_attachments_of_a_container_share_ports(call, tmp_path: Path):
    other = Attachment(network="other", container_id="c1", ifname="eth1")
    maps.share(call.host, ATTACHMENT, other)
    [(name, content)] = kept(tmp_path).items()
    assert name.startswith("portmap-shared/")
    assert (content["network"], content["container"], content["ifname"]) == ("", "c1", "")
    by_name = sorted(content["attachments"], key=lambda each: each["network"])
    assert by_name == [{"network": "cbr0", "ifname": "eth0"}, {"network": "other", "ifname": "eth1"}]
    assert maps.siblings(call.host, ATTACHMENT) == {other}
    assert maps.stop_sharing(call.host, other) == {ATTACHMENT}


def test_where_plugins_were_installed(tmp_path: Path):
    environ = {"WEFT_STATE_DIR": str(tmp_path / "state")}
    chosen = Directories(bin_dir=Path("/a/bin"), conf_dir=Path("/a/net.d"))
    chosen.remember(environ, pytest.fail)
    written = {"bin_dir": "/a/bin", "conf_dir": "/a/net.d"}
    assert kept(tmp_path) == {"state/cni-directories.json": written}
    assert (tmp_path / "state" / "cni-directories.json").stat().st_mode & 0o777 == 0o644
    assert Directories.known(environ) == chosen
    mounted = {**environ, "WEFT_BIN_DIR": "/host/bin"}
    assert Directories.known(mounted) == Directories(bin_dir=Path("/host/bin"), conf_dir=Path("/a/net.d"))
    usual = Directories(bin_dir=Path("/opt/cni/bin"), conf_dir=Path("/etc/cni/net.d"))
    for odd in ({"bin_dir": "bin", "conf_dir": "/a"}, {"bin_dir": "/a", "conf_dir": "net.d"}, {"bin_dir": "/a"}, []):
        (tmp_path / "state" / "cni-directories.json").write_text(json.dumps(odd))
        assert Directories.known(environ) == usual
    usual.remember(environ, pytest.fail)
    assert kept(tmp_path) == {}
    assert Directories.known(environ) == usual
