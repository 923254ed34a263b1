"""What lies under the names of plugins in a directory: weft's programs, those of others, or what cannot serve there.

Weft's is a regular file of its own with the client's content. It is `spoilt` if it is not as weft leaves it, such as
two that are one file: what is copied over one changes the other.
"""

import hashlib
import os
import re
import stat
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Final, Literal

from weft.cni.runtime import execute
from weft.cni.runtime.library import Programs, Runtime
from weft.model.value import Value
from weft.wire.cni import CniError

State = Literal["missing", "ours", "spoilt", "theirs", "wrong", "broken"]
MODE: Final = 0o755  # of our programs
# Of weft's plugins, as the registry has them: importing that takes 12 ms.
NAMES: Final = (
    *("bandwidth", "bridge", "firewall", "flannel", "host-local", "loopback", "portmap", "ptp", "sbr", "static"),
    *("tuning",),
)

# Without a command a plugin tells people what it is (cni.md §1.3); flannel's has an order of words of its own.
_ABOUT: Final = re.compile(r"^CNI (?:(\S+) plugin (?:version )?(.+)|Plugin (\S+) version (\S+).*)$", re.MULTILINE)
_ENVIRON: Final = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
_SECONDS: Final = 10.0
# Every version of the client has these in it: it is known without the list of what was installed.
_MARKS: Final = (b"\x7fELF", b".weft-python", b"/run/weft/cni.sock")
_CHUNK: Final = 1 << 20  # more than the client has
_KINDS: Final = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class FileSeen(Value):
    """`wrong` says why it is no program; the digest is of the content, through a link."""

    link: str = ""
    wrong: str = ""
    file: tuple[int, int] = (0, 0)  # device and inode
    mode: int = 0
    digest: str = ""
    is_client: bool = False


class About(Value):
    """What a program tells of itself. `silent` says why it does not answer."""

    plugin: str = ""
    version: str = ""
    speaks: tuple[str, ...] = ()
    silent: str = ""


class Found(Value):
    """`why` says what is wrong with it, or why another's does not answer."""

    path: Path
    state: State
    why: str = ""
    link: str = ""
    digest: str = ""

    @property
    def serves(self) -> bool:
        return self.state == "theirs" and not self.why


def look(directory: Path, names: Iterable[str], ours: Mapping[str, Collection[str]]) -> dict[str, Found]:
    """`ours` has digests of what weft has put there, beside the client's marks."""
    seen = {name: see(directory / name) for name in names}
    found = {}
    state: State
    for name, one in seen.items():
        path = directory / name
        if one is None:
            found[name] = Found(path=path, state="missing")
            continue
        # Copies, and not links, which somebody has set up: flannel's program may lie under all names.
        twins = {other: each for other, each in seen.items() if each and not each.link and each.digest == one.digest}
        twins.pop(name, None)
        if one.wrong:
            state, why = "broken", f"it is {one.wrong}"
        elif one.is_client or one.digest in ours.get(name, ()):
            state, why = _ours(one, [other for other, each in twins.items() if each.file == one.file])
        else:
            state, why = _theirs(path, [] if one.link else [*twins])
        found[name] = Found(path=path, state=state, why=why, link=one.link, digest=one.digest)
    return found


def see(path: Path) -> FileSeen | None:
    """Look at what is there, None for nothing. It may be anything, and is not waited for."""
    try:
        status = path.lstat()
        link = str(path.readlink()) if stat.S_ISLNK(status.st_mode) else ""
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            return FileSeen(link=link, wrong=_KINDS.get(stat.S_IFMT(status.st_mode), "not a file"))
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            start = file.read(_CHUNK)
            content = hashlib.sha256(start)
            while more := file.read(_CHUNK):
                content.update(more)
    except OSError as error:
        return FileSeen(link=link, wrong=f"{f'a link to {link}' if link else 'unreadable'}: {error.strerror}")
    return FileSeen(
        link=link,
        wrong="" if start else "an empty file",
        file=(status.st_dev, status.st_ino),
        mode=stat.S_IMODE(status.st_mode),
        digest=content.hexdigest() if start else "",
        is_client=start.startswith(_MARKS[0]) and all(mark in start for mark in _MARKS),
    )


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def ask(path: Path) -> About:
    programs = Programs(paths=[str(path.parent)], env=_ENVIRON, timeout=_SECONDS, stderr=len)
    plugin = version = ""
    try:
        said = execute.execute(str(path), programs.env, b"", timeout=_SECONDS).stderr.decode("utf-8", "replace")
        if about := _ABOUT.search(said):
            plugin, version = about[1] or about[3], about[2] or about[4]
        return About(plugin=plugin, version=version, speaks=Runtime(run=programs).versions(path.name))
    except CniError as error:
        # Its loader is not here, as in a container: the node's runtime can start it.
        silent = "" if isinstance(error.__cause__, FileNotFoundError) else str(error)
        return About(plugin=plugin, version=version, silent=silent)


def is_another(name: str, told: About) -> bool:
    return name in NAMES and told.plugin != name and told.plugin in NAMES


def _ours(one: FileSeen, same_file: list[str]) -> tuple[State, str]:
    if one.link:
        return "spoilt", f"it is a link to {one.link}, which is weft's: what is copied over it changes that"
    if same_file:
        return "spoilt", f"it is one file with {', '.join(same_file)}: what is copied over it changes them"
    if one.mode != MODE:
        return "spoilt", f"its mode is {one.mode:04o} instead of {MODE:04o}"
    return "ours", ""


def _theirs(path: Path, twins: list[str]) -> tuple[State, str]:
    told = ask(path)
    if is_another(path.name, told):
        return "wrong", f"it says that it is {told.plugin}"
    if twins and told.plugin != path.name:
        return "wrong", f"it is the same program as {', '.join(twins)}"
    return "theirs", told.silent
