"""What each node's containerd begins with: a directory in which the lab's images are unpacked already.

To import an image takes a node two seconds of a core, to copy what came of it a quarter. So it is done once, kept in
the user's cache, and done again when a file of the images has changed, or the containerd that reads it.
"""

import asyncio
import hashlib
import os
import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import Final

from weft.lab.inside.processes import Processes, listens
from weft.lab.kubernetes import ourimage, programs
from weft.lab.kubernetes.image import Image
from weft.model.errors import Problem, Unavailable

_STATE: Final = Path("/run/containerd")  # of the lab's own tmpfs
_LOG: Final = "containerd"
_KEPT: Final = 86400.0  # seconds


async def find(processes: Processes) -> Path:
    """Return a directory to copy to /var/lib/containerd of a node. `Unavailable` if the images cannot be made."""
    images = await asyncio.to_thread(ourimage.images)
    key = await asyncio.to_thread(_key, images, programs.find("containerd", processes.environ))
    cache = Path(processes.environ.get("HOME", "/root"), ".cache", "weft", "images")
    if not await asyncio.to_thread((cache / key).is_dir):
        work = await asyncio.to_thread(_work, cache)
        try:
            await _make(processes, images, work / "root")
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
    """Put a directory in its place, and remove those that no lab has used for a while, of other states of weft."""
    for old in place.parent.iterdir():
        if old.stat().st_mtime < time.time() - _KEPT:
            shutil.rmtree(old, ignore_errors=True)
    try:
        made.rename(place)
    except OSError:
        if not place.is_dir():  # else another lab was quicker
            raise


async def _make(processes: Processes, images: list[Image], work: Path) -> None:
    """Import images into an empty directory of containerd's."""
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
                words = ran.stderr.decode(errors="replace").strip()
                raise Unavailable(Problem(code="LAB-002", where="the lab's images", seen=words))
    finally:
        containerd.signal(signal.SIGTERM)
        await containerd.ended
