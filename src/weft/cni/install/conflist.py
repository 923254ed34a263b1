"""The network that weft configures on a node: flannel's own list, under flannel's own name (flannel.md §10.7).

A file of that name with other content is somebody's network, with pods in it: it stays, and weft's plugins serve it.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from weft.cni.install.inventory import Inventory, lasting, put

NAME: Final = "10-flannel.conflist"
CONFLIST: Final[Mapping[str, Any]] = {
    "name": "cbr0",
    # libcni before 1.2 reads the first alone, and refuses what it does not know; later ones take the newest of the
    # second, and so ask for CHECK, STATUS and GC.
    "cniVersion": "0.3.1",
    "cniVersions": ["0.3.1", "0.4.0", "1.0.0", "1.1.0"],
    "plugins": [
        {"type": "flannel", "delegate": {"hairpinMode": True, "isDefaultGateway": True}},
        {"type": "portmap", "capabilities": {"portMappings": True}},
    ],
}


def render() -> bytes:
    """Return the file's content."""
    return json.dumps(CONFLIST, indent=2).encode() + b"\n"


def install(conf_dir: Path, inventory: Inventory) -> str:
    """Put the list into a runtime's directory, after the plugins; returns what was done with it, in a word."""
    conf_dir.mkdir(parents=True, exist_ok=True)
    path = conf_dir.absolute() / NAME
    content = render()
    if path.exists() and not inventory.owns(str(path)):
        return "there already" if path.read_bytes() == content else "kept"
    inventory.expect(str(path), content)
    inventory.write()
    with lasting(conf_dir):
        put(path, content, mode=0o644)
    return "written"
