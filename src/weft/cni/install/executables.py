"""The executables in a CNI bin directory: the client under each plugin's name, and which Python has weft.

Programs that were there before are kept. `uninstall` puts them all back, `hand_back` those that can serve.
"""

import errno
import os
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

from weft.cni import build
from weft.cni.install import judging
from weft.cni.install.files import lasting, put, remove
from weft.cni.install.inventory import Inventory, Replaced
from weft.cni.install.judging import NAMES, Found
from weft.model.errors import ConfigError, Problem
from weft.model.value import Value

SETTINGS: Final = ".weft-python"
PYTHON: Final = Path(sys.executable)
_MARK: Final = "\nweft plugin: "  # of versions.c
_MOST_LINKS: Final = 40  # path_resolution(7)
_ALL_USERS: Final = (1 << 32) - 1  # user_namespaces(7): the map of the machine's own namespace

Done = Literal["put back", "left", "gone", "removed", "still weft's", "weft's again"]


class Installed(Value):
    """`replaced` are other programs that are kept; `interpreter` stands in for the daemon, None if nothing does."""

    bin_dir: Path
    names: tuple[str, ...]
    interpreter: Path | None
    replaced: tuple[str, ...] = ()


def install(bin_dir: Path, *, interpreter: Path | None = PYTHON) -> Installed:
    """Put every plugin and `.weft-python` into a directory, each by rename: a runtime never sees half a program.

    Each plugin is a file of its own, so that a program which is copied over one changes no other. `ConfigError` if
    another user who may write to `interpreter` or to its directory could make root execute something, or if weft was
    built without its client.
    """
    if interpreter is not None:
        _check_interpreter(interpreter)
    content = client(bin_dir)
    bin_dir.mkdir(parents=True, exist_ok=True)
    inventory = Inventory.found(bin_dir)
    replaced = Replaced.beside(bin_dir)
    replaced.mend(NAMES)
    kept = replaced.keep_all(judging.look(bin_dir, NAMES, inventory.digests), inventory.programs)
    inventory.digests.pop(SETTINGS, None)
    with lasting(bin_dir):
        # Settings first: a client that finds no daemon needs them from its first call on.
        if interpreter is None:
            remove(bin_dir / SETTINGS)
        else:
            settings = f"{interpreter}\n".encode()
            inventory.expect(SETTINGS, settings)
            put(bin_dir / SETTINGS, settings, mode=0o644)
            if interpreter == PYTHON:
                os.utime(bin_dir / SETTINGS)  # an upgrade has changed it in its place: the next stand-in is another one
        put_client(inventory, NAMES, content)
    return Installed(bin_dir=bin_dir, names=NAMES, interpreter=interpreter, replaced=kept)


def client(bin_dir: Path) -> bytes:
    """`ConfigError` if weft was built without it."""
    program = build.PROGRAM.built()
    if program is None:
        seen, hint = "this weft was built without its client", f"Build it: {build.PROGRAM.hint}."
        raise ConfigError(Problem(code="CNI-001", where=str(bin_dir), seen=seen, hint=hint))
    return program.read_bytes()


def as_plugin(content: bytes, name: str) -> bytes:
    """Return the client with the name at its end, by which a copy of it knows what it is."""
    return content + f"{_MARK}{name}\n".encode()


def put_client(inventory: Inventory, names: Sequence[str], content: bytes) -> None:
    for name in names:
        inventory.expect(name, as_plugin(content, name))
    inventory.write()
    for name in names:
        put(inventory.bin_dir / name, as_plugin(content, name), mode=judging.MODE)


def uninstall(inventory: Inventory) -> Mapping[str, Done]:
    """Take everything of ours away, and put back what it has replaced; return what was done with each.

    The configuration goes first, so that no runtime looks for a plugin that has gone; `.weft-python` goes last: a
    client may need it now.
    """
    bin_dir = inventory.bin_dir
    if not bin_dir.is_dir():
        return {}
    done: dict[str, Done] = {name: take_network(inventory, name) for name in inventory.digests if "/" in name}
    done |= _change(inventory, for_good=True)
    inventory.digests.clear()
    with lasting(bin_dir):
        inventory.write()
        remove(bin_dir / SETTINGS)
    return done


def hand_back(inventory: Inventory, *, networks: bool = False) -> Mapping[str, Done]:
    """With `networks` configurations of ours are removed first. Returns what was done under each name."""
    if not inventory.bin_dir.is_dir():
        return {}
    done: dict[str, Done] = {}
    for name in [name for name in inventory.digests if networks and "/" in name]:
        done[name] = take_network(inventory, name)
        del inventory.digests[name]
    done |= _change(inventory, for_good=False)
    with lasting(inventory.bin_dir):
        for name in [name for name, how in done.items() if how in ("put back", "left")]:
            inventory.digests.pop(name, None)
        inventory.write()
    return done


def take_network(inventory: Inventory, name: str) -> Done:
    path = Path(name)
    if not path.parent.is_dir():
        return "gone"
    if not inventory.owns(name):
        return "left" if path.exists() else "gone"
    with lasting(path.parent):
        remove(path)
    return "removed"


def _change(inventory: Inventory, *, for_good: bool) -> dict[str, Done]:
    bin_dir, replaced = inventory.bin_dir, Replaced.beside(inventory.bin_dir)
    names = sorted({*NAMES, *inventory.programs})
    replaced.mend(names)
    there, before = judging.look(bin_dir, names, inventory.digests), replaced.look(names)
    known = {*inventory.programs, *(name for name, found in there.items() if found.state in ("ours", "spoilt"))}
    known |= {name for name, found in before.items() if found.state != "missing"}
    done: dict[str, Done] = {
        name: _fate(there[name], before[name], for_good=for_good) for name in names if name in known
    }
    stays = {there[name].digest for name, how in done.items() if how == "left"}
    with lasting(bin_dir):
        for name, how in done.items():
            if how in ("put back", "weft's again", "removed") and there[name].digest not in stays:
                replaced.keep(name, there[name], inventory.programs)
            if how == "put back":
                replaced.put_back(name, bin_dir / name)
            elif how == "removed":
                remove(bin_dir / name)
        if again := [name for name, how in done.items() if how == "weft's again"]:
            put_client(inventory, again, client(bin_dir))
    replaced.end()
    return done


def _fate(there: Found, before: Found, *, for_good: bool) -> Done:
    """Say what becomes of a name, by what is there and by what was there first.

    A program that others have put there since stays if it serves. One that was there first comes back if it can serve,
    or for good.
    """
    if there.serves:
        return "left"
    if before.serves or (for_good and before.state != "missing" and there.state != "theirs"):
        return "put back"
    if not for_good:
        return "still weft's" if there.state == "ours" else "weft's again"
    if there.state == "missing":
        return "gone"
    return "removed" if there.state in ("ours", "spoilt", "wrong") else "left"


def _check_interpreter(path: Path) -> None:
    """A user who may write to a directory on the way can put another program there, unless it has the sticky bit.

    The client looks again before it starts a stand-in (check_way, interpreter.c).
    """
    if not path.is_absolute() or "\n" in str(path):
        raise _unsafe(path, "not an absolute path")
    for each in (path, Path(__file__)):
        try:
            for step in _steps(each):
                seen = step.lstat()
                mode = stat.S_IMODE(seen.st_mode)
                closed = stat.S_ISLNK(seen.st_mode) or (stat.S_ISDIR(seen.st_mode) and mode & stat.S_ISVTX)
                if seen.st_uid not in _roots() or (mode & 0o022 and not closed):
                    raise _unsafe(path, f"{step} has uid {seen.st_uid}, mode {mode:04o}")
        except OSError as error:
            raise _unsafe(path, f"{error.strerror}: {error.filename}") from error


def _steps(path: Path) -> Iterator[Path]:
    here, rest, links = Path("/"), [*path.parts[1:]], 0
    yield here
    while rest:
        step = here / rest.pop(0)
        yield step
        if step.is_symlink():
            links += 1
            if links > _MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
            target = step.readlink()
            rest = [*(part for part in target.parts if part != "/"), *rest]
            here = Path("/") if target.is_absolute() else here
        else:
            here = here.parent if step.name == ".." else step


def _roots() -> set[int]:
    """In a user namespace (a lab of an ordinary user) files of everyone outside show one and the same number."""
    inside, _, count = map(int, Path("/proc/self/uid_map").read_text().split()[:3])
    if inside == 0 and count == _ALL_USERS:
        return {0}
    return {0, int(Path("/proc/sys/kernel/overflowuid").read_text())}


def _unsafe(path: Path, seen: str) -> ConfigError:
    return ConfigError(
        Problem(
            code="CNI-001",
            where=f"interpreter {path}",
            seen=seen,
            expected="a program that root owns and nobody else may write",
            hint="Install weft into an environment of root's.",
        )
    )
