"""What a peer keeps on disk, in the store's own directory: mesh.json, members.bin and paths.bin.

mesh.json is who this node is and what it owns: replaced as a whole, and on disk before a message that depends on it.
members.bin is what others said: on disk before their leases are served. Without it the daemon's own memory is the only
witness of who was served, and absence proves nothing. paths.bin is what is found again: written late, and may be lost.
"""

import hashlib
import logging
from base64 import b64encode
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from weft.beside import files
from weft.beside.threads import beside
from weft.cluster.store import TunnelKeys
from weft.desired.tunnels.wireguard import private_key
from weft.model.errors import Problem, Unavailable
from weft.model.mesh.effects import Kept, PathFound, Recalled
from weft.model.value import Secret, Value
from weft.wire.meshpassword import of_tunnels

log = logging.getLogger(__name__)

_T = TypeVar("_T")
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_PRODUCT: Final = tuple(Path("/sys/class/dmi/id") / name for name in ("product_uuid", "product_serial", "board_serial"))
_MACHINE_ID: Final = Path("/etc/machine-id")
_SPOILT: Final = (msgspec.MsgspecError, UnicodeDecodeError)


class FileAccess(Value):
    """How files of ours are read and replaced. `read` raises `FileNotFoundError`, else `OSError`; so does `write`.

    `set_aside` renames what cannot be used, and returns the new name.
    """

    read: Callable[[Path], bytes]
    write: Callable[[Path, bytes], None]
    set_aside: Callable[[Path], str]


class Saved(Value):
    """The content of mesh.json. `secret` is our private key; `machine` and `boot` are where it was written."""

    secret: bytes
    machine: str
    boot: str
    kept: Kept = Kept()

    def __repr__(self) -> str:
        return f"Saved({self.kept!r})"


class Disk:
    """All methods wait for the disk, `tunnel_keys` in a thread."""

    def __init__(self, directory: Path, files: FileAccess) -> None:
        self._identity = directory / "mesh.json"
        self._members = directory / "members.bin"
        self._paths = directory / "paths.bin"
        self._files = files

    def load(self) -> Saved | None:
        """None without a file. One that is spoilt is set aside, which is said: this node is then another peer.

        Raises `Unavailable` while the disk does not give it: nobody may become another peer for that.
        """
        path = self._identity
        try:
            return self._read()
        except _SPOILT as error:
            kept = self._files.set_aside(path)
            hint = f"It is kept as {kept}; this node gets a new key and a new block" if kept else ""
            log.warning(
                "%s", Problem(code="STATE-001", where=str(path), seen=f"cannot be understood: {error}", hint=hint)
            )
            return None

    async def tunnel_keys(self) -> TunnelKeys:
        """Raises `Unavailable`, also without a file: who has no keys would send in clear."""
        where = str(self._identity)
        try:
            saved = await beside(self._read)
        except _SPOILT as error:
            raise Unavailable(Problem(code="STATE-001", where=where, seen=f"cannot be understood: {error}")) from None
        if saved is None or saved.kept.ring is None:
            raise Unavailable(Problem(code="MESH-001", where=where, seen="no ring", expected="the keys of a ring"))
        psk = Secret(b64encode(of_tunnels(saved.kept.ring.secret)).decode())
        return TunnelKeys(private=private_key(saved.secret), psk=psk)

    def _read(self) -> Saved | None:
        path = self._identity
        try:
            content = self._files.read(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            hint = "It holds the key and the blocks of this node; weftd waits for it"
            seen = f"cannot be read: {error.strerror or error}"
            raise Unavailable(Problem(code="STATE-001", where=str(path), seen=seen, hint=hint)) from None
        return msgspec.json.decode(content, type=Saved)

    def keep(self, saved: Saved) -> None:
        """Raises `OSError`; the file of before is there still then."""
        self._files.write(self._identity, msgspec.json.encode(saved))

    def recalled(self) -> Recalled | None:
        """None where the file is lost or spoilt: others tell it again."""
        return self._recall(self._members, Recalled)

    def paths(self) -> tuple[PathFound, ...]:
        """Empty where the file is lost or spoilt: they are found again."""
        return self._recall(self._paths, tuple[PathFound, ...]) or ()

    def remember(self, recalled: Recalled) -> None:
        """Raises `OSError`."""
        self._files.write(self._members, msgspec.msgpack.encode(recalled))

    def remember_paths(self, paths: Sequence[PathFound]) -> None:
        """Raises `OSError`."""
        self._files.write(self._paths, msgspec.msgpack.encode(paths))

    def _recall(self, path: Path, kind: type[_T]) -> _T | None:
        with suppress(OSError, msgspec.MsgspecError):
            return msgspec.msgpack.decode(self._files.read(path), type=kind)
        return None


def boot_id(path: Path = _BOOT) -> str:
    return files.read_now(path).decode().strip()


def machine_print(products: Sequence[Path] = _PRODUCT, machine_id: Path = _MACHINE_ID) -> str:
    """What tells this machine from another one that got a copy of its disk, hashed; as far as the machine says it."""
    words = [text for path in (*products, machine_id) if (text := _text(path))]
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:32]


def _text(path: Path) -> str:
    try:
        return files.read_now(path).decode(errors="replace").strip()
    except OSError:
        return ""
