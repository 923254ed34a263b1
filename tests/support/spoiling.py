"""State on disk that is not what weft wrote, one way for each name."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from weft.model.kernel.marks import ALIAS

_HUGE: Final = 300 << 20


def _free(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _directory(path: Path) -> None:
    path.mkdir()
    (path / "content").write_text(ALIAS)


def _huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(_HUGE)


def _link(path: Path) -> None:
    target = path.with_name(f"{path.name}.target")
    target.write_text(json.dumps({}))
    path.symlink_to(target)


def _of_another_user(path: Path) -> None:
    path.write_bytes(b"{}")
    os.chown(path, 65534, 65534)


_WAYS: Final[dict[str, Callable[[Path], object]]] = {
    "random": lambda path: path.write_bytes(bytes(range(256)) * 9),
    "empty": lambda path: path.write_bytes(b""),
    "deep": lambda path: path.write_bytes(b"[" * 200_000),
    "deep-object": lambda path: path.write_bytes(b'{"own":' * 100_000),
    "numbers": lambda path: path.write_bytes(b'{"net_conf": 1e999, "own": {"expires": 1e999}, "mac_v4": NaN}'),
    "huge": _huge,
    "directory": _directory,
    "fifo": os.mkfifo,
    "link": _link,
    "another-users": _of_another_user,
}
WAYS: Final = tuple(_WAYS)


def spoil(path: Path, way: str) -> None:
    """Put something else in the place of a file of weft's."""
    _free(path)
    _WAYS[way](path)
