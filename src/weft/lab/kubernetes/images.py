"""Container images of what this machine has, without a registry or a build program (OCI image specification v1).

weft's image is laid out as by deploy/Containerfile: /opt/weft is a Python environment, /opt/bin has the names that
manifests for flannel use. An image is one layer, not compressed; programs bring the libraries that they load.

A node takes two seconds of a core to import images, and a quarter to copy an unpacked directory. So that is made once,
kept in the user's cache, and made again when the images or containerd have changed.
"""

import asyncio
import hashlib
import io
import json
import os
import platform
import shutil
import signal
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from weft import __version__
from weft.cni import build
from weft.cni.install import installation
from weft.cni.install.installation import Tree
from weft.lab.inside.processes import Processes, listens
from weft.lab.kubernetes import programs
from weft.model.errors import Problem, Unavailable
from weft.model.value import Value

_TYPE: Final = "application/vnd.oci.image"
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm"}  # Go's words for them
WEFT: Final = f"localhost/weft:{__version__}"
NAMESPACE: Final = "kube-flannel"  # that of the manifest
PAUSE: Final = "localhost/pause:1"
# The first process of a pid namespace gets only signals that it asks for, which `sleep` does not.
WAIT: Final = ("/timeout", "0", "/sleep", "infinity")
_HOME: Final = "/opt/weft"
_SCRIPT: Final = "#!{home}/bin/python3 -I\nimport sys\nfrom weft.console import {name}\nsys.exit({name}())\n"
# Names that manifests for flannel use: `weft` is the command by whose name it is called.
_NAMES: Final = {"install-conf": "weft", "mk-docker-opts.sh": "weft", "weftd": "weftd"}
_STATE: Final = Path("/run/containerd")  # of the lab's own tmpfs
_LOG: Final = "containerd"
_KEPT: Final = 86400.0  # seconds


class Image(Value):
    """`names` it is known by, `arguments` for a container that names none."""

    names: tuple[str, ...]
    tree: Tree
    command: tuple[str, ...]
    environ: tuple[str, ...]
    arguments: tuple[str, ...] = ()

    def key(self) -> str:
        """Changes with any file, and with all else."""
        words = [*self.names, *self.command, *self.environ, *self.arguments, self.tree.key()]
        return hashlib.sha256("\n".join(words).encode()).hexdigest()

    def write(self, path: Path) -> None:
        """For `ctr images import`."""
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
    """With the libraries of this machine."""
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


def images() -> list[Image]:
    path = f"PATH={_HOME}/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    ours = Image(names=(WEFT,), tree=weft(), command=(f"{_HOME}/bin/weft",), environ=(path,))
    return [ours, Image(names=(PAUSE,), tree=pause(), command=WAIT, environ=("PATH=/",))]


def pause() -> Tree:
    """Holds a sandbox, with `WAIT` as its command."""
    tree = Tree()
    for name in ("timeout", "sleep"):
        tree.program(Path(shutil.which(name) or f"/bin/{name}"), f"/{name}")
    return tree


def weft() -> Tree:
    tree = Tree()
    python = installation.PYTHON.resolve()
    tree.program(python)
    installation.add_library(tree, str(installation.LIBRARY))
    installation.add_packages(tree, f"{_HOME}/lib/{installation.LIBRARY.name}/site-packages")
    tree.file(f"{_HOME}/pyvenv.cfg", f"home = {python.parent}\n".encode())
    tree.link(f"{_HOME}/bin/python3", str(python))
    for name in ("weft", "weftd"):
        tree.file(f"{_HOME}/bin/{name}", _SCRIPT.format(home=_HOME, name=name).encode(), mode=0o755)
    for name, ours in _NAMES.items():
        tree.link(f"/opt/bin/{name}", f"{_HOME}/bin/{ours}")
    if init := build.INIT.built():
        tree.file("/opt/bin/flanneld", init)
    else:
        tree.link("/opt/bin/flanneld", f"{_HOME}/bin/weftd")
    return firewall(tree)


def firewall(tree: Tree) -> Tree:
    """nft, iptables and its extensions."""
    for name, program in installation.firewall_programs().items():
        tree.program(program)
        if f"/usr/sbin/{name}" != str(program):
            tree.link(f"/usr/sbin/{name}", str(program))
    for folder in installation.iptables_extensions():
        tree.directory(folder, str(folder))
    return tree


async def find(processes: Processes) -> Path:
    """A directory to copy to a node's /var/lib/containerd. `Unavailable` if the images cannot be made."""
    ours = await asyncio.to_thread(images)
    key = await asyncio.to_thread(_key, ours, programs.find("containerd", processes.environ))
    cache = Path(processes.environ.get("HOME", "/root"), ".cache", "weft", "images")
    if not await asyncio.to_thread((cache / key).is_dir):
        work = await asyncio.to_thread(_work, cache)
        try:
            await _make(processes, ours, work / "root")
            await asyncio.to_thread(_keep, work / "root", cache / key)
        finally:
            await asyncio.to_thread(shutil.rmtree, work)
    os.utime(cache / key)
    return cache / key


def _key(images: list[Image], containerd: str) -> str:
    words = [containerd, str(Path(containerd).stat().st_mtime_ns), *(image.key() for image in images)]
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:16]


def _work(cache: Path) -> Path:
    cache.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(dir=cache, prefix=".new-"))
    (work / "root").mkdir()
    return work


def _keep(made: Path, place: Path) -> None:
    """Also removes those of other states of weft that no lab has used for a while."""
    for old in place.parent.iterdir():
        if old.stat().st_mtime < time.time() - _KEPT:
            shutil.rmtree(old, ignore_errors=True)
    try:
        made.rename(place)
    except OSError:
        if not place.is_dir():  # else another lab was quicker
            raise


async def _make(processes: Processes, images: list[Image], work: Path) -> None:
    config = work.with_name("config.toml")
    socket = _STATE / "containerd.sock"
    config.write_text(f'version = 2\nroot = "{work}"\nstate = "{_STATE}"\n[grpc]\naddress = "{socket}"\n')
    command = [programs.find("containerd", processes.environ), f"--config={config}", "--log-level=warn"]
    containerd = await processes.logged(_LOG, None, command)
    try:
        await listens(containerd, str(socket), _LOG)
        for image in images:
            file = work.with_name("image.tar")
            await asyncio.to_thread(image.write, file)
            ctr = [programs.find("ctr", processes.environ), f"--address={socket}", "--namespace=k8s.io"]
            command = [*ctr, "images", "import", "--snapshotter=overlayfs", str(file)]
            ran = await processes.answer(None, command, {}, b"")
            if ran.exit:
                raise Unavailable(Problem("LAB-002", "the lab's images", ran.stderr.decode(errors="replace").strip()))
    finally:
        containerd.signal(signal.SIGTERM)
        await containerd.ended
