"""Where `weft cni install` has put plugins and networks, for the commands that are told nothing else.

The state directory says so, if that is not the usual place. In a pod, which has the node's directories mounted
elsewhere, WEFT_BIN_DIR and WEFT_CONF_DIR do.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

from weft.cni.host import state
from weft.cni.install.files import lasting, put, remove
from weft.cni.runtime import conf
from weft.kernel import statefiles
from weft.model.value import Value

_FILE: Final = "cni-directories.json"
_MAX_BYTES: Final = 16 << 10


class Directories(Value):
    bin_dir: Path = Path("/opt/cni/bin")
    conf_dir: Path = conf.DIRECTORY

    @classmethod
    def known(cls, environ: Mapping[str, str]) -> Self:
        noted = cls._noted(environ)
        return cls(
            bin_dir=Path(environ.get("WEFT_BIN_DIR") or noted.bin_dir),
            conf_dir=Path(environ.get("WEFT_CONF_DIR") or noted.conf_dir),
        )

    @classmethod
    def _noted(cls, environ: Mapping[str, str]) -> Self:
        try:
            known = json.loads(statefiles.read(_path(environ), limit=_MAX_BYTES))
            found = cls(bin_dir=Path(known["bin_dir"]), conf_dir=Path(known["conf_dir"]))
        except (OSError, ValueError, TypeError, LookupError, RecursionError):
            return cls()
        return found if found.bin_dir.is_absolute() and found.conf_dir.is_absolute() else cls()

    def remember(self, environ: Mapping[str, str], say: statefiles.Say) -> None:
        """`OSError` if that is impossible, `ConfigError` if the state directory is another user's."""
        path = _path(environ)
        if self == type(self)():
            remove(path)
            return
        os.close(statefiles.private_directory(path.parent, say))
        with lasting(path.parent):
            known = {"bin_dir": str(self.bin_dir), "conf_dir": str(self.conf_dir)}
            put(path, json.dumps(known).encode() + b"\n", mode=0o644)


def _path(environ: Mapping[str, str]) -> Path:
    # Not the daemon's --state-dir: plugins are often there before it first runs.
    return Path(environ.get("WEFT_STATE_DIR") or state.DEFAULT) / _FILE
