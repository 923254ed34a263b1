"""How the weftd that runs here was started, by what /proc tells of it."""

from pathlib import Path

import pytest

from weft.daemon.commands import started
from weft.kernel import asking, daemons


def process(proc: Path, command: bytes, environ: bytes = b"") -> None:
    (proc / "7").mkdir()
    (proc / "7/cmdline").write_bytes(command)
    (proc / "7/environ").write_bytes(environ)


@pytest.fixture(autouse=True)
def runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemons, "living", lambda: ["one"])
    monkeypatch.setattr(asking, "process", lambda _: 7)


@pytest.mark.parametrize(
    "command",
    [b"/usr/bin/weftd\0--ip-masq\0-v=1\0", b"python3\0/venv/bin/weftd\0--ip-masq\0-v=1\0",
     b"python3\0-m\0weft.daemon.main\0--ip-masq\0-v=1\0"],
)  # fmt: skip
def test_flags_stand_behind_the_program(tmp_path: Path, command: bytes):
    process(tmp_path, command, b"FLANNELD_IFACE=eth1\0A=b=c\0EMPTY=\0")
    assert started.here(tmp_path) == started.Started(
        pid=7, flags=["--ip-masq", "-v=1"], environ={"FLANNELD_IFACE": "eth1", "A": "b=c", "EMPTY": ""}
    )


def test_what_is_no_weftd_or_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert started.here(tmp_path) is None
    process(tmp_path, b"sleep\0009\0")
    assert started.here(tmp_path) is None
    monkeypatch.setattr(asking, "process", lambda _: 0)
    assert started.here(tmp_path) is None
    monkeypatch.setattr(daemons, "living", lambda: ["one", "two"])
    assert started.here(tmp_path) is None
