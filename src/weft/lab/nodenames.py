"""Names in /run/netns, by which `ip netns` finds the namespaces of a lab's nodes: files with a namespace on each.

The directory becomes a mount of itself that is shared, as `ip netns add` makes it. Made later, by that, it would hide
the names of a lab that is up: nobody could remove them any more, and they would hold the namespaces. With the last
name of a lab it is undone, unless others have made names there meanwhile.
"""

import errno
import fcntl
import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from weft.lab import system

_NETNS: Final = Path("/run/netns")
_SHARED: Final = "netns.json"  # beside the labs: the names that were there when it was shared, if we did that


def give(place: Path, namespaces: Mapping[str, int]) -> list[str]:
    """Name the namespaces of the nodes of the lab in `place`, where that is possible; earlier names are removed.

    `namespaces` are descriptors, by nodes. A name that is there all the same is not touched; those are returned.
    """
    wanted = {f"{_prefix(place)}{node}": descriptor for node, descriptor in namespaces.items()}
    with _locked(place.parent):
        _take(place)
        taken = [name for name in wanted if os.path.lexists(_NETNS / name)]
        ours = {name: descriptor for name, descriptor in wanted.items() if name not in taken}
        # Before they are made, so that they are found however we end.
        identities = {name: os.fstat(descriptor).st_ino for name, descriptor in ours.items()}
        system.write(_record(place), json.dumps(identities))
        try:
            _share(place.parent / _SHARED)
            for name, descriptor in ours.items():
                os.close(os.open(_NETNS / name, os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o444))
                system.mount(f"/proc/self/fd/{descriptor}", str(_NETNS / name), flags=system.MS_BIND)
        except OSError:
            _take(place)
    return taken


def take(place: Path) -> None:
    """Remove the names of the lab in `place`."""
    with _locked(place.parent):
        _take(place)
        _unshare(place.parent / _SHARED)


def _take(place: Path) -> None:
    """Names are ours if they lead to the namespace that they were made for."""
    try:
        names = msgspec.json.decode(_record(place).read_bytes(), type=dict[str, int])
    except (OSError, msgspec.MsgspecError):  # none were made, or not by us
        return
    for name, identity in names.items():
        if name.startswith(_prefix(place)) and "/" not in name:
            _take_name(_NETNS / name, identity)
    _record(place).unlink()


def _take_name(path: Path, identity: int) -> None:
    try:
        status = path.lstat()
        if status.st_ino == identity and status.st_dev != _NETNS.stat().st_dev:
            system.unmount(str(path))
            status = path.lstat()
        # What is not mounted yet, or no more, is the empty file that the mount needs.
        if stat.S_ISREG(status.st_mode) and not status.st_size and status.st_dev == _NETNS.stat().st_dev:
            path.unlink()
    except (FileNotFoundError, PermissionError):
        pass  # somebody has removed it; or we may not, and could not have made it


def _share(note: Path) -> None:
    _NETNS.mkdir(mode=0o755, exist_ok=True)
    place = str(_NETNS)
    try:
        system.mount("", place, flags=system.MS_SHARED | system.MS_REC)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        system.write(note, json.dumps(_names()))  # it is no mount yet
        system.mount(place, place, flags=system.MS_BIND | system.MS_REC)
        system.mount("", place, flags=system.MS_SHARED | system.MS_REC)


def _unshare(note: Path) -> None:
    """Names that were there before have their own mounts below ours."""
    with suppress(OSError, msgspec.MsgspecError):  # others have shared it
        before = msgspec.json.decode(note.read_bytes(), type=set[str])
        if not before.issuperset(_names()):
            return
        note.unlink()
        system.unmount(str(_NETNS))
    with suppress(OSError):  # somebody else's names, or not there at all
        _NETNS.rmdir()


def _names() -> list[str]:
    return [path.name for path in _NETNS.iterdir()]


def _prefix(place: Path) -> str:
    return f"lab-{place.name}-"


def _record(place: Path) -> Path:
    return place / "names"


@contextmanager
def _locked(labs: Path) -> Iterator[None]:
    """Labs come and go one after the other here."""
    directory = os.open(labs, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        yield
    finally:
        os.close(directory)
