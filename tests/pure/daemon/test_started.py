"""How the weftd that runs here was started, by what /proc tells of it."""

from pathlib import Path

import pytest

from weft.daemon.commands.verbs import Started, running_here
from weft.kernel import daemons


def process(proc: Path, command: bytes, environ: bytes = b"") -> None:
    (proc / "7").mkdir()
    (proc / "7/cmdline").write_bytes(command)
    (proc / "7/environ").write_bytes(environ)


@pytest.fixture(autouse=True)
def runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemons, "living", lambda: ["one"])
    monkeypatch.setattr(daemons, "process", lambda _: 7)


def here(proc: Path, *flags: str) -> Started | None:
    return running_here(flags, {"HERE": "1"}, lambda options: Path("/state", options.etcd_prefix.strip("/")), proc)


@pytest.mark.parametrize(
    "command",
    [
        b"python3\0/venv/bin/weftd\0--ip-masq\0-v=1\0",
        b"/opt/weft/bin/python3\0-I\0/opt/bin/flanneld\0--ip-masq\0-v=1\0",
        b"python3\0-X\0dev\0-I\0/anything\0--ip-masq\0-v=1\0",
        b"python3\0-m\0weft.daemon.main\0--ip-masq\0-v=1\0",
    ],
)
def test_flags_stand_behind_the_program(tmp_path: Path, command: bytes):
    process(tmp_path, command, b"FLANNELD_IFACE=eth1\0A=b=c\0EMPTY=\0")
    assert here(tmp_path) == Started(
        instance="one", flags=["--ip-masq", "-v=1"], environ={"FLANNELD_IFACE": "eth1", "A": "b=c", "EMPTY": ""}
    )


def test_of_one_whose_process_cannot_be_seen_nothing_but_its_name_is_known(tmp_path: Path, monkeypatch):
    unseen = Started(instance="one", flags=(), environ={"HERE": "1"})
    assert here(tmp_path) == unseen
    monkeypatch.setattr(daemons, "process", lambda _: 0)
    assert here(tmp_path) == unseen


def test_of_several_the_one_is_meant_whose_instance_the_flags_name(tmp_path: Path, monkeypatch):
    process(tmp_path, b"weftd\0weftd\0")
    monkeypatch.setattr(daemons, "living", lambda: ["one", "two.1f"])
    assert here(tmp_path) is None
    found = here(tmp_path, "--etcd-prefix=/two")
    assert found is not None
    assert found.instance == "two.1f"
    monkeypatch.setattr(daemons, "living", list)
    assert here(tmp_path) is None


def test_what_is_given_takes_the_place_of_what_it_was_started_with_and_the_rest_stays():
    running = Started(
        instance="one",
        flags=["--ip-masq", "--iface=eth1", "--iface", "eth2", "-etcd-prefix=/a"],
        environ={"FLANNELD_PUBLIC_IP": "192.0.2.1", "FLANNELD_SUBNET_FILE": "/a", "HOME": "/root"},
    )
    same = running.options([], {})
    assert (same.ip_masq, same.iface, same.etcd_prefix) == (True, ("eth1", "eth2"), "/a")
    assert (str(same.public_ip), same.subnet_file) == ("192.0.2.1", "/a")
    other = running.options(
        ["--ip-masq=false", "--iface=eth9", "--subnet-file=/b"], {"FLANNELD_PUBLIC_IP": "192.0.2.2", "PATH": "/"}
    )
    assert (other.ip_masq, other.iface, other.etcd_prefix) == (False, ("eth9",), "/a")
    assert (str(other.public_ip), other.subnet_file) == ("192.0.2.2", "/b")
