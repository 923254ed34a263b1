"""Networks in a runtime's configuration directory: every file of it, and the one that has a name (cni.md §2.2, §2.3).

A file that cannot be read is reported beside what was found, because it may be the one that was meant.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from weft.model.value import Value
from weft.wire import cni, cnilist
from weft.wire.cni import CniError
from weft.wire.cnilist import NetworkList, PluginConf

DIRECTORY: Final = Path("/etc/cni/net.d")

_LISTS: Final = (".conflist",)
_SINGLE: Final = (".conf", ".json")


class Found(Value):
    """`broken` says, a line each, which files before it could not be read, and why."""

    network: NetworkList
    path: Path
    broken: tuple[str, ...] = ()


def load(directory: Path, name: str) -> Found:
    """Find a network by name: the first list that has it, else the first single configuration. `CniError` 7."""
    broken: list[str] = []
    seen = False
    for path in sorted(files(directory), key=lambda path: not path.name.endswith(_LISTS)):
        seen = True
        try:
            network = _read(path)
            if network.name == name:
                return Found(network=_with_drop_ins(path, network), path=path, broken=tuple(broken))
        except CniError as error:
            broken.append(f"{path}: {error}")
    if not seen:
        raise CniError(cni.BAD_CONFIG, f"no net configurations found in {directory}")
    raise CniError(cni.BAD_CONFIG, f'no net configuration with name "{name}" in {directory}', "; ".join(broken))


def load_all(directory: Path) -> Iterator[tuple[Path, NetworkList | CniError]]:
    """Give every network of a directory, in the order in which a runtime looks at them, or why it is none."""
    for path in files(directory):
        try:
            yield path, _with_drop_ins(path, _read(path))
        except CniError as error:
            yield path, error


def files(directory: Path) -> list[Path]:
    """Return the configuration files as runtimes sort them: by bytes, whatever their endings."""
    try:
        found = [path for path in directory.iterdir() if path.name.endswith((*_LISTS, *_SINGLE)) and not path.is_dir()]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise CniError(cni.IO_FAILURE, f"error reading {directory}: {error.strerror}") from error
    return sorted(found, key=bytes)


def _read(path: Path) -> NetworkList:
    data = _content(path)
    return cnilist.parse_list(data) if path.name.endswith(_LISTS) else cnilist.from_single(data)


def _with_drop_ins(path: Path, network: NetworkList) -> NetworkList:
    """Append the plugins of `<directory>/<network name>/*.conf`, sorted as networks are."""
    if not path.name.endswith(_LISTS) or network.only_inlined:
        return network
    # A name that is no name would lead out of the directory; what it is called for refuses it.
    if "/" in network.name or network.name in ("", ".", ".."):
        return cnilist.extended(network, ())
    return cnilist.extended(network, _drop_ins(path.parent / network.name))


def _drop_ins(directory: Path) -> list[PluginConf]:
    try:
        found = [path for path in directory.iterdir() if path.name.endswith(".conf") and not path.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise CniError(cni.IO_FAILURE, f"error reading {directory}: {error.strerror}") from error
    return [cnilist.parse_plugin(_content(path)) for path in sorted(found, key=bytes)]


def _content(path: Path) -> bytes:
    try:
        if path.exists() and not path.is_file():
            raise CniError(cni.IO_FAILURE, f"error reading {path}: not a regular file")
        return path.read_bytes()
    except OSError as error:
        raise CniError(cni.IO_FAILURE, f"error reading {path}: {error.strerror}") from error
