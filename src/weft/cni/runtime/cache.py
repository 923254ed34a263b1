"""What a runtime remembers of its attachments, in files that libcni reads and writes too (cni.md §2.7).

A file is written under another name and renamed, so no reader sees half of one. It need not outlive a boot: the
attachment doesn't either.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from weft.cni.host.files import TEMPORARY, RootedFiles
from weft.cni.host.openat import open_root
from weft.model.value import Value
from weft.wire import cnicache, cnichain
from weft.wire.cni import CniError, failure
from weft.wire.cnicache import Entry
from weft.wire.cnichain import RuntimeConf
from weft.wire.cnijson import Object
from weft.wire.cnilist import NetworkList

DIRECTORY: Final = Path("/var/lib/cni")


class Listing(Value):
    """`unreadable` says, a line each, what could not be looked at."""

    entries: tuple[Entry, ...]
    unreadable: tuple[str, ...]


class Cache(Value):
    directory: Path = DIRECTORY

    def save(self, entry: Entry) -> None:
        """Raises `OSError`, or `CniError` if the file is another attachment's."""
        conf = entry.conf
        path = self._path(entry.network, conf.container_id, conf.ifname)
        with _files() as files:
            with suppress(FileNotFoundError):
                if not cnicache.belongs_to(files.read(path), entry.network, conf.container_id, conf.ifname):
                    raise failure(f"{path} holds another attachment, whose names give the same file name")
            files.replace(path, cnicache.render(entry), parents=0o700)

    def entry(self, network: str, container_id: str, ifname: str) -> Entry | None:
        data = self._read(network, container_id, ifname)
        return None if data is None else cnicache.parse(data, network)

    def previous(self, network: NetworkList, conf: RuntimeConf) -> Object | None:
        """In the network's version. `CniError` if what is there is no result, or cannot be converted."""
        data = self._read(network.name, conf.container_id, conf.ifname)
        if data is None:
            return None
        result = cnicache.parse_result(data)
        return cnichain.previous_of(network, result) if result else None

    def forget(self, network: str, container_id: str, ifname: str) -> None:
        """Raises `OSError` and `CniError`."""
        if self._read(network, container_id, ifname) is not None:
            with _files() as files, suppress(FileNotFoundError):
                files.unlink(self._path(network, container_id, ifname))

    def entries(self, container_id: str = "") -> Listing:
        """Bare results are no entries. A file that is no JSON is unreadable: a runtime may be writing it now."""
        entries: list[Entry] = []
        unreadable: list[str] = []
        with _files() as files:
            try:
                names = sorted(files.list(f"{self.directory}/results"))
            except FileNotFoundError:
                names = []
            except OSError as error:
                names, unreadable = [], [f"{self.directory}/results: {error.strerror}"]
            for name in names:
                if name.startswith(TEMPORARY):
                    continue
                path = f"{self.directory}/results/{name}"
                try:
                    entries += _entry(files.read(path))
                except FileNotFoundError:
                    continue  # its DEL was faster
                except (OSError, CniError) as error:
                    unreadable.append(f"{path}: {error.strerror if isinstance(error, OSError) else error}")
        wanted = (entry for entry in entries if container_id in ("", entry.conf.container_id))
        return Listing(entries=tuple(wanted), unreadable=tuple(unreadable))

    def _path(self, network: str, container_id: str, ifname: str) -> str:
        return f"{self.directory}/results/{cnicache.file_name(network, container_id, ifname)}"

    def _read(self, network: str, container_id: str, ifname: str) -> bytes | None:
        """None if there is no file, or another attachment's."""
        path = self._path(network, container_id, ifname)
        with _files() as files:
            try:
                data = files.read(path)
            except FileNotFoundError:
                return None
            except OSError as error:
                raise failure(f"{path}: {error.strerror}") from error
        return data if cnicache.belongs_to(data, network, container_id, ifname) else None


def _entry(data: bytes) -> list[Entry]:
    if not cnicache.has_kind(data):
        return []
    entry = cnicache.parse(data, "")
    return [entry] if entry.network and entry.conf.container_id and entry.conf.ifname else []


@contextmanager
def _files() -> Iterator[RootedFiles]:
    root = open_root("/")
    try:
        yield RootedFiles(root)
    finally:
        os.close(root)
