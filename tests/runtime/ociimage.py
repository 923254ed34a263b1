"""A container image without a registry: busybox-static in an OCI image layout, as one tar (OCI image specification v1).

`containerd` and `podman` load such a file; the image's name stands in it. It asks for SIGKILL as the signal that stops
it: its process is the first of its namespace and ends by no other.
"""

import gzip
import hashlib
import io
import json
import subprocess
import tarfile
from functools import cache
from pathlib import Path
from typing import Any, Final

IMAGE: Final = "localhost/busybox:1"
BUSYBOX: Final = "/bin/busybox"
_TYPE: Final = "application/vnd.oci.image"
# Debian's architecture is Go's, by which images name theirs.
_ARCHITECTURE: Final = ("dpkg", "--print-architecture")


def write(path: Path) -> None:
    """Write the image `IMAGE` to `path`."""
    tree, layer = _layer()
    architecture = subprocess.run(_ARCHITECTURE, capture_output=True, text=True, check=True).stdout.strip()
    blobs: dict[str, bytes] = {}

    def blob(kind: str, data: bytes) -> dict[str, Any]:
        digest = hashlib.sha256(data).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = data
        return {"mediaType": f"{_TYPE}.{kind}", "digest": f"sha256:{digest}", "size": len(data)}

    config = {
        "architecture": architecture,
        "os": "linux",
        "config": {"Cmd": ["sleep", "100000"], "Env": ["PATH=/bin"], "StopSignal": "SIGKILL"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(tree).hexdigest()}"]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{_TYPE}.manifest.v1+json",
        "config": blob("config.v1+json", _json(config)),
        "layers": [blob("layer.v1.tar+gzip", layer)],
    }
    names = {"io.containerd.image.name": IMAGE, "org.opencontainers.image.ref.name": IMAGE}
    entry = blob("manifest.v1+json", _json(manifest)) | {"annotations": names}
    index = {"schemaVersion": 2, "manifests": [entry]}
    files = {"oci-layout": _json({"imageLayoutVersion": "1.0.0"}), "index.json": _json(index), **blobs}
    with tarfile.open(path, "w") as tar:
        for file, data in files.items():
            _add(tar, file, data)


@cache
def _layer() -> tuple[bytes, bytes]:
    """The file system as a tar, plain and packed: busybox under the name of each of its applets."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for directory in ("bin", "etc", "tmp", "www"):
            entry = tarfile.TarInfo(directory)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
        _add(tar, "bin/busybox", Path(BUSYBOX).read_bytes(), mode=0o755)
        applets = subprocess.run([BUSYBOX, "--list"], capture_output=True, text=True, check=True).stdout.split()
        for applet in applets:
            link = tarfile.TarInfo(f"bin/{applet}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            if applet != "busybox":
                tar.addfile(link)
    return buffer.getvalue(), gzip.compress(buffer.getvalue(), 1)


def _add(tar: tarfile.TarFile, name: str, data: bytes, *, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), mode
    tar.addfile(entry, io.BytesIO(data))


def _json(value: object) -> bytes:
    return json.dumps(value).encode()
