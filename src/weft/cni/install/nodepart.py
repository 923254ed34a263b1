"""weft's node part: a copy of this installation that needs nothing of the node that it is put on.

Where weftd is a pod, the node may have no Python and another C library. What stands in for weftd there
(client/standin.c) is run by this copy: the interpreter, its loader and libraries, weft and its packages, and the
programs that change firewall rules. `bin/weft` in it serves people. launch/launch.c starts it.

Versions lie beside each other, named by their content. `current` is the latest; it and the one before are kept.
"""

import ctypes
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

from weft import __version__
from weft.cni import build
from weft.cni.host import state
from weft.cni.install import installation
from weft.cni.install.files import lasting, put_link
from weft.cni.install.installation import Tree, loader
from weft.model.errors import Problem, Unavailable

_DIRECTORY: Final = "node"
_CURRENT: Final = "current"
_LAUNCHER: Final = "weft-launch"
_PYTHON: Final = Path("bin", "python3")
_SCRIPT: Final = b"import sys\nfrom weft.console import weft\nsys.exit(weft())\n"
_TRIAL: Final = "import weft.cni.serve.plugins, weft.cni.serve.standin"
_TRIAL_SECONDS: Final = 60.0
_UNFINISHED: Final = ".new-"


def put(directory: Path) -> Path:
    """`Unavailable` (CNI-004) when that is impossible, or when the copy does not run there."""
    try:
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            return _put(directory)
        finally:
            os.close(fd)
    except (OSError, subprocess.SubprocessError) as error:
        hint = "Plugins work while weftd runs; while it is away no pod starts or ends."
        raise Unavailable(Problem(code="CNI-004", where=str(directory), seen=str(error), hint=hint)) from error


def directory(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("WEFT_STATE_DIR") or state.DEFAULT) / _DIRECTORY


def remove(directory: Path) -> bool:
    """Remove all copies; tell whether there were any. One that runs this has loaded what it needs."""
    if not directory.is_dir():
        return False
    shutil.rmtree(directory)
    return True


def known(directory: Path) -> Path | None:
    with suppress(OSError):
        return directory.joinpath(os.readlink(directory / _CURRENT), _PYTHON).resolve(strict=True).parent / _PYTHON.name
    return None


def _put(directory: Path) -> Path:
    tree = _tree()
    with suppress(OSError):  # as a rule it is there from before
        place = directory / os.readlink(directory / _CURRENT)
        if place.name.startswith(f"{__version__}-") and _is_whole(place, tree):
            return place / _PYTHON
    digests = {path: hashlib.sha256(_read(content)).hexdigest() for path, content in tree.files.items()}
    listing = json.dumps({"files": digests, "links": tree.links}, sort_keys=True).encode()
    place = directory / f"{__version__}-{hashlib.sha256(listing).hexdigest()[:12]}"
    if not _is_whole(place, tree):
        with ExitStack() as undo:
            fresh = directory / f"{_UNFINISHED}{place.name}"
            undo.callback(shutil.rmtree, fresh, ignore_errors=True)
            shutil.rmtree(fresh, ignore_errors=True)
            _write(tree, fresh)
            (fresh / state.COPY).write_bytes(listing)
            _try(fresh)
            _sync(fresh)
            shutil.rmtree(place, ignore_errors=True)  # it was damaged
            fresh.rename(place)
    os.utime(place)
    with lasting(directory):
        put_link(directory / _CURRENT, place.name)
    _remove_old(directory, place)
    return place / _PYTHON


def _tree() -> Tree:
    launcher = build.LAUNCHER.built()
    if launcher is None:
        raise FileNotFoundError(f"this weft was built without its launcher: {build.LAUNCHER.hint}")
    tree = Tree()
    tree.program(installation.PYTHON, "libexec/python3")
    tree.file("libexec/weft", _SCRIPT)
    tree.file(f"bin/{_LAUNCHER}", launcher)
    for name in ("python3", "weft"):
        tree.link(f"bin/{name}", _LAUNCHER)
    for name, program in installation.firewall_programs().items():
        tree.program(program, f"libexec/{program.name}")
        if name != program.name:
            tree.link(f"libexec/{name}", program.name)
        tree.link(f"programs/{name}", f"../bin/{_LAUNCHER}")
    for folder in installation.iptables_extensions():
        tree.directory(folder, "lib/xtables")
    # Beside the standard library packages are found wherever a distribution has its own.
    modules = f"lib/{installation.LIBRARY.name}"
    installation.add_library(tree, modules)
    installation.add_packages(tree, modules)
    for library in tree.libraries():
        tree.file(f"lib/{Path(library).name}", Path(library).resolve(), mode=0o755)
    tree.file("lib/ld.so", loader(), mode=0o755)
    return tree


def _write(tree: Tree, place: Path) -> None:
    for path, content in tree.files.items():
        target = place / path
        target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        if isinstance(content, bytes):
            target.write_bytes(content)
        else:
            shutil.copyfile(content, target)
            # By the time Python knows whether what it has compiled is of this source.
            written = content.stat().st_mtime_ns
            os.utime(target, ns=(written, written))
        target.chmod(tree.mode(path))
    for path, leads in tree.links.items():
        target = place / path
        target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        target.symlink_to(leads)


def _is_whole(place: Path, tree: Tree) -> bool:
    try:
        return (
            (place / state.COPY).is_file()
            and all(os.readlink(place / path) == leads for path, leads in tree.links.items())
            and all(_read(f"{place}/{path}") == _read(content) for path, content in tree.files.items())
        )
    except OSError:
        return False


def _read(content: Path | str | bytes) -> bytes:
    if isinstance(content, bytes):
        return content
    with open(content, "rb", buffering=0) as file:  # a Path for each file costs more than reading it
        return file.readall()


def _try(place: Path) -> None:
    """Run it once: a file system may forbid that, or a library may be missing."""
    command = [str(place / _PYTHON), "-I", "-c", _TRIAL]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_TRIAL_SECONDS, env={})
    if ran.returncode:
        words = ran.stderr.strip().splitlines()
        raise OSError(f"the copy does not run there: {words[-1] if words else f'status {ran.returncode}'}")


def _sync(place: Path) -> None:
    """Have thousands of files on the disk: the whole file system is asked at once."""
    fd = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(fd):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(place))
    finally:
        os.close(fd)


def _remove_old(directory: Path, place: Path) -> None:
    others = [each for each in directory.iterdir() if each.is_dir() and not each.is_symlink() and each != place]
    unfinished = [each for each in others if each.name.startswith(_UNFINISHED)]
    finished = sorted((each for each in others if each not in unfinished), key=lambda each: each.stat().st_mtime)
    for old in (*unfinished, *finished[:-1]):
        shutil.rmtree(old, ignore_errors=True)
