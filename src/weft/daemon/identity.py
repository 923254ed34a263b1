"""What a node keeps for good: its VTEP MACs. Made once, kept on disk, inputs ever after."""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from weft.daemon.files import write_atomically
from weft.model.net import Mac
from weft.model.value import Value

log = logging.getLogger(__name__)

_FILE = "identity.json"


class Identity(Value):
    """The MAC of the VTEP of each family."""

    mac_v4: Mac
    mac_v6: Mac

    @classmethod
    def random(cls, chance: Callable[[int], bytes]) -> Self:
        """Make new ones; `chance(n)` returns n random bytes."""
        return cls(mac_v4=Mac.local(chance(6)), mac_v6=Mac.local(chance(6)))


def load(directory: Path) -> Identity | None:
    """Read the identity of this instance; None when there is none, or none that can be read."""
    path = directory / _FILE
    try:
        data: Any = json.loads(path.read_bytes())
        identity = Identity(mac_v4=Mac.parse(data["mac_v4"]), mac_v6=Mac.parse(data["mac_v6"]))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        log.warning("%s cannot be read (%s); making a new identity", path, error)
        return None
    return identity if identity.mac_v4.is_unicast and identity.mac_v6.is_unicast else None


def save(directory: Path, identity: Identity) -> None:
    """Write the identity so that it outlives a power cut."""
    text = json.dumps({"mac_v4": str(identity.mac_v4), "mac_v6": str(identity.mac_v6)}) + "\n"
    write_atomically(directory / _FILE, text.encode(), mode=0o600, sync=True)
