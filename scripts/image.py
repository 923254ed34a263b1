"""Lays trees out as a container image of two architectures, and lists what is in each: scripts/image.sh.

    python -m scripts.image FOLDER VERSION ARCHITECTURE=TREE…

TREE-base and TREE-weft are the layers. Into FOLDER go weft-image-VERSION.tar, an OCI archive (OCI image
specification v1) whose one entry is the index of both, and weft-image-VERSION-ARCHITECTURE.cdx.json, an SBOM in
the form of CycloneDX.
The same trees make the same bytes.
"""

import gzip
import hashlib
import io
import json
import os
import sys
import tarfile
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

_TYPE: Final = "application/vnd.oci.image"
_PATH: Final = "PATH=/opt/weft/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_LOCK: Final = Path("requirements/image.txt")


class Archive:
    """An OCI archive, of which blobs are added before its index is known."""

    def __init__(self) -> None:
        self._blobs: dict[str, bytes] = {}

    def add(self, kind: str, data: bytes, **more: Any) -> dict[str, Any]:
        """Add a blob; returns its descriptor."""
        digest = hashlib.sha256(data).hexdigest()
        self._blobs[f"blobs/sha256/{digest}"] = data
        return {"mediaType": f"{_TYPE}.{kind}", "digest": f"sha256:{digest}", "size": len(data), **more}

    def write(self, path: Path, entry: dict[str, Any]) -> None:
        files = {
            "oci-layout": _json({"imageLayoutVersion": "1.0.0"}),
            "index.json": _json({"schemaVersion": 2, "manifests": [entry]}),
            **dict(sorted(self._blobs.items())),
        }
        with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as tar:
            for name, data in files.items():
                file = tarfile.TarInfo(name)
                file.size, file.mtime = len(data), _epoch()
                tar.addfile(file, io.BytesIO(data))


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def _epoch() -> int:
    return int(os.environ["SOURCE_DATE_EPOCH"])


def layer(tree: Path) -> bytes:
    """A tree as a tar: all is root's, of one time, and in order."""

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        member.mtime = _epoch()
        return member

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for path in sorted(tree.rglob("*")):
            tar.inodes = {}  # two names of a file are two files, whatever unpacking made of them
            tar.add(path, str(path.relative_to(tree)), recursive=False, filter=plain)
    return buffer.getvalue()


def image(archive: Archive, version: str, architecture: str, layers: list[bytes]) -> dict[str, Any]:
    """Add the image of an architecture; returns its descriptor."""
    packed = [archive.add("layer.v1.tar+gzip", gzip.compress(each, 6, mtime=0)) for each in layers]
    labels = {
        "org.opencontainers.image.title": "weft",
        "org.opencontainers.image.description": "A pod network for Kubernetes and everything else that speaks CNI",
        "org.opencontainers.image.licenses": "Apache-2.0",
        "org.opencontainers.image.version": version,
    }
    config = {
        "architecture": architecture,
        "os": "linux",
        "config": {"Entrypoint": ["/opt/weft/bin/weft"], "Env": [_PATH], "Labels": labels},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(each).hexdigest()}" for each in layers]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{_TYPE}.manifest.v1+json",
        "config": archive.add("config.v1+json", _json(config)),
        "layers": packed,
        "annotations": labels,
    }
    platform = {"architecture": architecture, "os": "linux"}
    return archive.add("manifest.v1+json", _json(manifest), platform=platform)


def sbom(wheels: Path, version: str, architecture: str) -> bytes:
    """The list of the wheel's packages, with weft itself and Debian's packages of the lock file."""
    bom = json.loads((wheels / f"weft_cni-{version}.cdx.json").read_text())
    own = {"bom-ref": "weft", "type": "library", "version": version, "purl": f"pkg:pypi/weft-cni@{version}"}
    weft = bom["metadata"]["component"] | own
    bom["metadata"]["component"] = {"type": "container", "bom-ref": "image", "name": "weft", "version": version}
    locked = [line for line in _LOCK.read_text().splitlines() if line[0] != "#"]
    bom["components"] += [weft, *(_debian(line, architecture) for line in locked)]
    bom["dependencies"] = [{"ref": "image", "dependsOn": sorted(each["bom-ref"] for each in bom["components"])}]
    return json.dumps(bom, indent=2, sort_keys=True).encode() + b"\n"


def _debian(line: str, architecture: str) -> dict[str, Any]:
    name, version, amd64, arm64 = line.split()
    return {
        "type": "library",
        "bom-ref": f"deb-{name}",
        "name": name,
        "version": version,
        "purl": f"pkg:deb/debian/{quote(name)}@{quote(version)}?arch={architecture}&distro=debian-12",
        "hashes": [{"alg": "SHA-256", "content": {"amd64": amd64, "arm64": arm64}[architecture]}],
    }


def main(folder: str, version: str, *trees: str) -> None:
    archive, out = Archive(), Path(folder)
    manifests = []
    for architecture, _, tree in (each.partition("=") for each in trees):
        layers = [layer(Path(f"{tree}-{part}")) for part in ("base", "weft")]
        manifests.append(image(archive, version, architecture, layers))
        (out / f"weft-image-{version}-{architecture}.cdx.json").write_bytes(sbom(out, version, architecture))
    index = {"schemaVersion": 2, "mediaType": f"{_TYPE}.index.v1+json", "manifests": manifests}
    name = f"localhost/weft:{version}"
    entry = archive.add("index.v1+json", _json(index))
    entry["annotations"] = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": version}
    archive.write(out / f"weft-image-{version}.tar", entry)


if __name__ == "__main__":
    main(*sys.argv[1:])
