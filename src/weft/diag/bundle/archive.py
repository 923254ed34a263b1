"""A bundle as a file: a gzipped tar, written whole, and read in memory, where nothing of it gets a path.

What is read may come from anybody: its size is bounded, packed and unpacked.
"""

import io
import os
import tarfile
import tempfile
import zlib
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from weft.diag.bundle.contents import refused

FOLDER: Final = "weft-bundle"  # the directory that all files stand in when people unpack it
_PACKED: Final = 64 << 20  # bytes
_UNPACKED: Final = 256 << 20
_FILES: Final = 1000
_GZIP: Final = zlib.MAX_WBITS | 16


def pack(files: Mapping[str, bytes], made: float) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(f"{FOLDER}/{name}")
            entry.size, entry.mtime, entry.mode = len(content), int(made), 0o600
            archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def write(path: Path, packed: bytes) -> None:
    """Put the archive at `path`, for its owner alone, in place of what is there. Raises `OSError`."""
    fd, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    with ExitStack() as undo:
        undo.callback(Path(name).unlink, missing_ok=True)
        with os.fdopen(fd, "wb") as file:
            file.write(packed)
        Path(name).replace(path)
        undo.pop_all()


def unpack(path: Path) -> dict[str, bytes]:
    """The names are those below its one directory. Raises `ConfigError`, `OSError`."""
    with path.open("rb") as file:
        packed = file.read(_PACKED + 1)
    if len(packed) > _PACKED:
        raise refused(str(path), f"more than {_PACKED >> 20} MiB")
    unzip = zlib.decompressobj(_GZIP)
    try:
        data = unzip.decompress(packed, _UNPACKED)
        if not unzip.eof:
            raise refused(str(path), f"more than {_UNPACKED >> 20} MiB when unpacked, or cut short")
        return _files(data, path)
    except (zlib.error, tarfile.TarError, ValueError, OverflowError) as error:
        raise refused(str(path), f"no gzipped tar: {error}") from None


def _files(data: bytes, path: Path) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
        for entry in archive:
            if len(found) >= _FILES:
                raise refused(str(path), f"more than {_FILES} files")
            folder, _, name = entry.name.partition("/")
            # A sparse file may say any size, and has no bytes for it.
            file = archive.extractfile(entry) if entry.isfile() and not entry.issparse() else None
            if file is not None and folder == FOLDER and name:
                found[name] = file.read()
    return found
