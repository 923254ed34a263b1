"""The cgroups of a lab's nodes."""

from pathlib import Path

import pytest

from weft.lab import cgroups


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two hierarchies of version 1; the kernel would make the files of a group with it."""
    for hierarchy in ("cpu", "memory"):
        (tmp_path / hierarchy / "weft-lab").mkdir(parents=True)
    (tmp_path / "cpu" / "weft-lab" / "cpu.shares").write_text("1024")
    monkeypatch.setattr(cgroups, "ROOT", tmp_path)
    return tmp_path


def test_pods_weigh_more_than_one_process_beside_them(root: Path):
    cgroups.make("nua", "node1")
    assert (root / "cpu/weft-lab/nua/node1").is_dir()
    assert (root / "memory/weft-lab/nua/node1").is_dir()
    assert int((root / "cpu/weft-lab/cpu.shares").read_text()) > 30 * 1024
    assert not (root / "memory/weft-lab/cpu.shares").exists()
