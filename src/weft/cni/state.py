"""The directory `cni` below `--state-dir`: opened, and made usable if somebody has spoilt it.

Records, locks and tokens lie in it, each by its own module. All of it is of this boot, or says so.
"""

import os
import stat
from typing import Final

from weft.cni.files import RootedFiles
from weft.kernel import statefiles

DEFAULT: Final = "/var/lib/weft"


def open_state(state_dir: str, say: statefiles.Say) -> RootedFiles:
    """Open the directory, made if missing; what lies in it and cannot be what we have made is set aside.

    Raises `ConfigError` (STATE-003) when `state_dir` is another user's, `OSError` when it cannot be made.
    """
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
    """Tell by its kind: locks are files, everything else is a directory."""
    try:
        mode = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return True
    return stat.S_ISREG(mode) if name.endswith((".lock", "locks")) else stat.S_ISDIR(mode)
