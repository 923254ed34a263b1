"""For which peers commands of `extension` have run: a peer that goes while no daemon runs is to be removed later.

It counts for this boot alone: after another nothing of what they made is there.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from ipaddress import ip_network
from pathlib import Path
from typing import Final

import msgspec

from weft.daemon.disk import files
from weft.daemon.disk.files import Latest
from weft.desired.backends.extension import Added, Command
from weft.model.value import Value

_FILE: Final = "ran.json"
_MOST: Final = 1 << 24  # 5,000 peers with 3 KB


class _Peer(Value, kw_only=False):
    subnet: str
    variables: tuple[tuple[str, str], ...]
    text: str
    remove: tuple[str, ...]
    expands: bool


class _Ran(Value):
    boot: str
    peers: tuple[_Peer, ...]


def load(directory: Path, boot: str) -> tuple[Added, ...]:
    """The peers that an earlier run of this boot has added, with the command that removes them and no other."""
    found = files.load(directory / _FILE, msgspec.json.Decoder(_Ran).decode, limit=_MOST, aside=False)
    if found is None or found.boot != boot:
        return ()
    return tuple(
        Added(
            subnet=ip_network(each.subnet),
            variables=each.variables,
            text=each.text,
            add=None,
            remove=Command(words=each.remove, expands=each.expands),
        )
        for each in found.peers
    )


def forget(directory: Path) -> None:
    """Remove the file."""
    with suppress(OSError):
        (directory / _FILE).unlink()


def file(directory: Path, boot: str, peers: Callable[[], Iterable[Added]]) -> Latest:
    """The file, which says what `peers` are now; those without a command that removes them need not be known."""

    def content() -> bytes:
        kept = tuple(
            _Peer(str(each.subnet), each.variables, each.text, each.remove.words, each.remove.expands)
            for each in peers()
            if each.remove is not None
        )
        return msgspec.json.encode(_Ran(boot=boot, peers=kept))

    return Latest(directory / _FILE, content, mode=0o600)
