"""Container images made of what this machine has, without a registry or a build program (OCI image specification v1).

An image is one layer, not compressed: it goes from memory to memory. Programs bring the libraries that they load.
"""

import hashlib
import io
import json
import os
import platform
import tarfile
from pathlib import Path
from typing import Any, Final

from weft.cni.install.installation import Tree
from weft.model.value import Value

_TYPE: Final = "application/vnd.oci.image"
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm"}  # Go's words for them


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

        layer = blob("layer.v1.tar", _layer(self.tree))
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


def _layer(tree: Tree) -> bytes:
    """Return the files as a layer, with the libraries where this machine has them."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for folder in ("tmp", "proc", "sys", "dev", "etc", "run"):
            entry = _entry(folder, 0o1777 if folder == "tmp" else 0o755)
            entry.type = tarfile.DIRTYPE
            tar.addfile(entry)
        for path, content in tree.files.items():
            _add(tar, path, content, tree.mode(path))
        for path in tree.libraries() - tree.files.keys():
            _add(tar, path, Path(path).resolve(), 0o755)
        for path, target in tree.links.items():
            entry = _entry(path, 0o777)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            tar.addfile(entry)
    return buffer.getvalue()


def _add(tar: tarfile.TarFile, path: str, content: Path | bytes, mode: int) -> None:
    entry = _entry(path, mode)
    if isinstance(content, bytes):
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
        return
    with content.open("rb") as file:
        status = os.fstat(file.fileno())
        entry.size = status.st_size
        entry.mtime = int(status.st_mtime)  # by it Python knows whether what it has compiled is of this source
        tar.addfile(entry, file)


def _entry(path: str, mode: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(path.removeprefix("/"))
    entry.mode = mode
    return entry


def _json(value: object) -> bytes:
    return json.dumps(value).encode()
