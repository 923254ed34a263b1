"""A node's VTEP MACs, which are made once and kept on disk."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Self

from weft.daemon.disk import files
from weft.daemon.disk.files import Latest
from weft.model.net import Mac
from weft.model.value import Value

_FILE: Final = "identity.json"
_MAX_BYTES: Final = 1 << 16


class Identity(Value):
    """A MAC for each family."""

    mac_v4: Mac
    mac_v6: Mac

    @classmethod
    def random(cls, chance: Callable[[int], bytes]) -> Self:
        """`chance(n)` returns n random bytes."""
        return cls(mac_v4=Mac.local(chance(6)), mac_v6=Mac.local(chance(6)))


def load(directory: Path, *, aside: bool = True) -> Identity | None:
    """Read it (`files.load`)."""
    return files.load(directory / _FILE, _parse, limit=_MAX_BYTES, aside=aside)


def _parse(content: bytes) -> Identity:
    data: Any = json.loads(content)
    identity = Identity(mac_v4=Mac.parse(data["mac_v4"]), mac_v6=Mac.parse(data["mac_v6"]))
    if not (identity.mac_v4.is_unicast and identity.mac_v6.is_unicast):
        raise ValueError("a MAC that no device can have")
    return identity


def file(directory: Path, identity: Identity) -> Latest:
    text = json.dumps({"mac_v4": str(identity.mac_v4), "mac_v6": str(identity.mac_v6)}) + "\n"
    return Latest(directory / _FILE, text.encode, mode=0o600)
