"""The directory `cni` below `--state-dir`: opened, and made usable if somebody has spoilt it.

Records, locks and tokens lie in it. All of it is of this boot, or says so.
"""

import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from weft.cni.host.files import RootedFiles
from weft.cni.host.openat import open_root
from weft.kernel import statefiles

DEFAULT: Final = "/var/lib/weft"
SOCKET: Final = "/run/weft/cni.sock"
# What only a copy of weft that was put on a node has at its root (install/nodepart.py).
COPY: Final = "files.json"
_PUBLISHED: Final = "state-dir"
_MAX_PATH: Final = 4096


def publish(socket: str, state_dir: str) -> None:
    """Write beside the socket which state directory its daemon has, for calls that come without a daemon.

    Only root can enter the socket's directory, and it is gone with the boot, as is all that the state speaks of. A new
    file gives clients another stand-in (`name` in client/standin.c); one that runs goes on with its old directory.
    """
    directory, _ = os.path.split(os.path.abspath(socket))
    path = os.path.abspath(state_dir)
    if _published(directory) == path:
        return
    root = open_root(directory)
    try:
        RootedFiles(root).replace(f"/{_PUBLISHED}", os.fsencode(path))
    finally:
        os.close(root)


def chosen(environ: Mapping[str, str]) -> str:
    told = environ.get("WEFT_STATE_DIR", "")
    if told:
        return told
    directory, _ = os.path.split(os.path.abspath(environ.get("WEFT_CNI_SOCKET", "") or SOCKET))
    published = _published(directory)
    return published if os.path.isabs(published) and "\0" not in published else DEFAULT


def _published(directory: str) -> str:
    with suppress(OSError):
        return os.fsdecode(statefiles.read(f"{directory}/{_PUBLISHED}", limit=_MAX_PATH))
    return ""


def open_state(state_dir: str, say: statefiles.Say) -> RootedFiles:
    """What cannot be ours is set aside. `ConfigError` (STATE-003) when `state_dir` is another user's, or `OSError`."""
    os.close(statefiles.private_directory(state_dir, say))
    path = os.path.join(state_dir, "cni")
    fd = statefiles.private_directory(path, say, below=True)
    for name in os.listdir(fd):
        if statefiles.ASIDE not in name and not _can_be_ours(name, fd):
            kept = statefiles.set_aside(name, directory=fd)
            reason = "a file where a directory was, or the reverse"
            say(statefiles.problem(f"{path}/{name}", reason, kept))
    return RootedFiles(fd, own=True)


def _can_be_ours(name: str, directory: int) -> bool:
    try:
        mode = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return True
    return stat.S_ISREG(mode) if name.endswith((".lock", "locks")) else stat.S_ISDIR(mode)
