"""Container images made of what this machine has, without a registry or a build program (OCI image specification v1).

An image is one layer, not compressed: it goes from memory to memory. Programs bring the libraries that ldd names.
"""

import hashlib
import io
import json
import os
import platform
import subprocess
import sysconfig
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from weft.model.value import Value

_EXTENSION: Final = sysconfig.get_config_var("EXT_SUFFIX")  # of Python's modules: .cpython-311-x86_64-linux-gnu.so
_TYPE: Final = "application/vnd.oci.image"
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm"}  # Go's words for them


class Tree:
    """The files of an image, by their path in it; a later one replaces an earlier."""

    def __init__(self) -> None:
        self._files: dict[str, Path | bytes] = {}
        self._modes: dict[str, int] = {}
        self._links: dict[str, str] = {}
        self._binaries: set[Path] = set()

    def file(self, path: str, content: Path | bytes, *, mode: int = 0) -> None:
        """Add a file; without `mode` it has that of its source, or 0644."""
        self._files[path] = content
        if isinstance(content, Path) and content.name.endswith(_EXTENSION):
            self._binaries.add(content)
        if mode:
            self._modes[path] = mode

    def link(self, path: str, target: str) -> None:
        """Add a symbolic link."""
        self._links[path] = target

    def program(self, source: Path, path: str = "") -> None:
        """Add a program or a library, and what it loads at its start, at the places where this machine has them."""
        self.file(path or str(source), source.resolve(), mode=0o755)
        self._binaries.add(source.resolve())

    def directory(self, source: Path, path: str, *, but: Callable[[str], bool] = lambda _: False) -> None:
        """Add all files below a directory, but those of which `but` says so of their path below it.

        What its libraries load is added for those in it that Python can import: others are loaded by what has the
        same libraries already.
        """
        for folder, names, files in os.walk(source):
            below = Path(folder).relative_to(source)
            names[:] = [name for name in names if not but(str(below / name))]
            for name in files:
                inner = below / name
                if not but(str(inner)):
                    self.file(f"{path}/{inner}", Path(folder) / name)

    def key(self) -> str:
        """Return a text that is another one when a file has another size or time, or another place."""
        seen = hashlib.sha256(repr((self._modes, self._links)).encode())
        for path, content in self._files.items():
            status = None if isinstance(content, bytes) else content.stat()
            what = content if status is None else (str(content), status.st_size, status.st_mtime_ns)
            seen.update(repr((path, what)).encode())
        return seen.hexdigest()

    def tar(self) -> bytes:
        """Return the layer."""
        for library in _libraries(self._binaries):
            self._files.setdefault(library, Path(library).resolve())
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as tar:
            for folder in ("tmp", "proc", "sys", "dev", "etc", "run"):
                entry = _entry(folder, 0o1777 if folder == "tmp" else 0o755)
                entry.type = tarfile.DIRTYPE
                tar.addfile(entry)
            for path, content in self._files.items():
                self._add(tar, path, content)
            for path, target in self._links.items():
                entry = _entry(path, 0o777)
                entry.type, entry.linkname = tarfile.SYMTYPE, target
                tar.addfile(entry)
        return buffer.getvalue()

    def _add(self, tar: tarfile.TarFile, path: str, content: Path | bytes) -> None:
        entry = _entry(path, self._modes.get(path, 0o644))
        if isinstance(content, bytes):
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
            return
        with content.open("rb") as file:
            status = os.fstat(file.fileno())
            entry.size = status.st_size
            entry.mtime = int(status.st_mtime)  # by it Python knows whether what it has compiled is of this source
            entry.mode = self._modes.get(path, status.st_mode & 0o755)
            tar.addfile(entry, file)


class Image(Value):
    """An image: `names` it is known by, its files, what it runs, and `arguments` for a container that names none."""

    names: tuple[str, ...]
    tree: Tree
    command: tuple[str, ...]
    environ: tuple[str, ...]
    arguments: tuple[str, ...] = ()

    def key(self) -> str:
        """Return a text that is another one when a file of it has changed, or anything else."""
        words = [*self.names, *self.command, *self.environ, *self.arguments, self.tree.key()]
        return hashlib.sha256("\n".join(words).encode()).hexdigest()

    def write(self, path: Path) -> None:
        """Write it for `ctr images import`."""
        blobs: dict[str, bytes] = {}

        def blob(kind: str, data: bytes) -> dict[str, Any]:
            digest = hashlib.sha256(data).hexdigest()
            blobs[f"blobs/sha256/{digest}"] = data
            return {"mediaType": f"{_TYPE}.{kind}", "digest": f"sha256:{digest}", "size": len(data)}

        layer = blob("layer.v1.tar", self.tree.tar())
        config = {
            "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
            "os": "linux",
            "config": {"Entrypoint": self.command, "Cmd": self.arguments, "Env": self.environ},
            "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": f"{_TYPE}.manifest.v1+json",
            "config": blob("config.v1+json", _json(config)),
            "layers": [layer],
        }
        entry = blob("manifest.v1+json", _json(manifest))
        index = [
            entry | {"annotations": {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name}}
            for name in self.names
        ]
        files = {
            "oci-layout": _json({"imageLayoutVersion": "1.0.0"}),
            "index.json": _json({"schemaVersion": 2, "manifests": index}),
            **blobs,
        }
        with tarfile.open(path, "w") as tar:
            for name, data in files.items():
                file = _entry(name, 0o644)
                file.size = len(data)
                tar.addfile(file, io.BytesIO(data))


def _libraries(binaries: Iterable[Path]) -> set[str]:
    """Return the paths of the libraries that programs and libraries load, of all of them at once."""
    wanted = sorted(map(str, binaries))
    if not wanted:
        return set()
    # It fails for static programs, and tells of the others all the same.
    said = subprocess.run(["ldd", *wanted], capture_output=True, text=True, check=False).stdout
    words = (line.split() for line in said.splitlines() if "(0x" in line)
    return {next(word for word in line if word.startswith("/")) for line in words if any(w[0] == "/" for w in line)}


def _entry(path: str, mode: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(path.removeprefix("/"))
    entry.mode = mode
    return entry


def _json(value: object) -> bytes:
    return json.dumps(value).encode()
