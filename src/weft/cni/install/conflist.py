"""The network that weft configures on a node, under flannel's own name: flannel's list (flannel.md §10.7), or a copy.

A file of that name with other content is somebody's network: only a copy takes its place, as that of flannel's
`install-conf`.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from weft.cni.install.files import lasting, put
from weft.cni.install.inventory import Inventory
from weft.cni.runtime import conf
from weft.model.errors import ConfigError, Problem
from weft.wire import cnilist
from weft.wire.cni import CniError

NAME: Final = "10-flannel.conflist"
CONFLIST: Final[Mapping[str, Any]] = {
    "name": "cbr0",
    # libcni before 1.2 reads the first alone, and refuses what it does not know; later ones take the newest of the
    # second, and so ask for CHECK, STATUS and GC.
    "cniVersion": "0.3.1",
    "cniVersions": ["1.1.0", "1.0.0", "0.4.0", "0.3.1"],
    "plugins": [
        {"type": "flannel", "delegate": {"hairpinMode": True, "isDefaultGateway": True}},
        {"type": "portmap", "capabilities": {"portMappings": True}},
    ],
}


def render() -> bytes:
    return json.dumps(CONFLIST, indent=2).encode() + b"\n"


def read(source: Path) -> bytes:
    """`ConfigError` if it is no list."""
    try:
        content = source.read_bytes()
        cnilist.parse_list(content)
    except OSError as error:
        raise ConfigError(_unusable(source, error.strerror or str(error))) from error
    except CniError as error:
        raise ConfigError(_unusable(source, str(error))) from error
    return content


def install(conf_dir: Path, inventory: Inventory, copy: bytes | None = None) -> str:
    """Returns what was done, in a word."""
    conf_dir.mkdir(parents=True, exist_ok=True)
    path = conf_dir.absolute() / NAME
    content = render() if copy is None else copy
    if copy is None and path.is_file() and not inventory.owns(str(path)):
        return "there already" if path.read_bytes() == content else "kept"
    inventory.expect(str(path), content)
    inventory.write()
    with lasting(conf_dir):
        put(path, content, mode=0o644)
    return "written"


def before(conf_dir: Path) -> Path | None:
    listed = conf.files(conf_dir)
    return listed[0] if conf_dir / NAME in listed[1:] else None


def _unusable(source: Path, seen: str) -> Problem:
    return Problem(code="CNI-001", where=str(source), seen=seen, expected="a list of plugins (flannel.md §10.7)")
