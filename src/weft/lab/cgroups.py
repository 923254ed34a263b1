"""The cgroups of labs whose nodes run kubelets: all that such a lab has outside of its own namespaces.

They are `weft-lab/LAB/NODE` in every hierarchy (cgroups(7)), and below those kubelet and runc make theirs.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path("/sys/fs/cgroup")
_OURS: Final = "weft-lab"
# Where all processes of a machine are in its top cgroup, as without systemd, that of all labs weighs as much as one
# process by default: weftd in its pod would get a thirtieth of what another network's thirty plugins get, which run
# beside it. On a node of Kubernetes pods weigh twice what all else does.
_SHARES: Final = 65536
_PATIENCE: Final = 10.0  # seconds; what was in a cgroup takes a moment to end
_LOOK_AGAIN: Final = 0.02


def path(lab: str, node: str) -> str:
    return f"{_OURS}/{lab}/{node}"


def make(lab: str, node: str) -> None:
    for hierarchy in _hierarchies():
        (hierarchy / path(lab, node)).mkdir(parents=True, exist_ok=True)
        shares = hierarchy / _OURS / "cpu.shares"  # of version 1
        if shares.exists():
            shares.write_text(str(_SHARES))


def remove(lab: str) -> None:
    """What something still runs in stays."""
    end = time.monotonic() + _PATIENCE
    for hierarchy in _hierarchies():
        top = hierarchy / _OURS / lab
        for folder, _, _ in os.walk(top, topdown=False):
            _remove(Path(folder), end)
        if top.parent.is_dir() and not any(each.is_dir() for each in top.parent.iterdir()):
            _remove(top.parent, end)


def _remove(folder: Path, end: float) -> None:
    while True:
        try:
            folder.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            if time.monotonic() > end:
                return
            time.sleep(_LOOK_AGAIN)
        else:
            return


def _hierarchies() -> Iterator[Path]:
    if (ROOT / "cgroup.controllers").exists():  # there is but one, of version 2
        yield ROOT
    elif ROOT.is_dir():
        yield from (path for path in ROOT.iterdir() if path.is_dir() and not path.is_symlink())
