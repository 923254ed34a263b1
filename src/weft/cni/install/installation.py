"""What this installation of weft consists of, by where its files are to be put: into an image, or onto a node."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

from weft.model.errors import ConfigError, not_whole

_EXTENSION: Final = sysconfig.get_config_var("EXT_SUFFIX")  # of Python's modules: .cpython-311-x86_64-linux-gnu.so
_HEAD: Final = 4096
PYTHON: Final = Path(sys.executable)
LIBRARY: Final = Path(sysconfig.get_path("stdlib"))
# Of the standard library what is large, and what is of no use without a library in C that would come along.
_UNUSED: Final = (
    *("test", "idlelib", "tkinter", "turtledemo", "lib2to3", "ensurepip", "pydoc_data", "site-packages"),
    *("dist-packages", "sqlite3", "curses", "dbm"),
    *("_sqlite3", "_dbm", "_gdbm", "_curses", "_curses_panel", "nis", "ossaudiodev", "audioop"),
)
_FAMILIES: Final = ("iptables", "ip6tables")
_VARIANTS: Final = ("", "-nft", "-legacy")
_LAB: Final = ("lab", "ui")  # what weft-lab adds to weft's package; no node needs it
_OURS: Final = "weft-cni"
_NAME_END: Final = re.compile(r"[ ;<>=!~\[(]")  # of a requirement (PEP 508)


class Tree:
    """Files by their path in it; a later one replaces an earlier."""

    def __init__(self) -> None:
        self.files: dict[str, Path | bytes] = {}
        self.links: dict[str, str] = {}
        self._modes: dict[str, int] = {}
        self._programs: set[Path] = set()
        self._modules: set[Path] = set()

    def file(self, path: str, content: Path | bytes, *, mode: int = 0) -> None:
        self.files[path] = content
        if isinstance(content, Path) and content.name.endswith(_EXTENSION):
            self._modules.add(content)
        if mode:
            self._modes[path] = mode

    def link(self, path: str, target: str) -> None:
        self.links[path] = target

    def program(self, source: Path, path: str = "") -> None:
        self.file(path or str(source), source.resolve(), mode=0o755)
        self._programs.add(source.resolve())

    def directory(self, source: Path, path: str, *, but: Callable[[str], bool] = lambda _: False) -> None:
        """`but` says of a path below the directory whether it is left out."""
        for folder, names, files in os.walk(source):
            below = Path(folder).relative_to(source)
            names[:] = [name for name in names if not but(str(below / name))]
            for name in files:
                inner = below / name
                if not but(str(inner)):
                    self.file(f"{path}/{inner}", Path(folder) / name)

    def mode(self, path: str) -> int:
        content = self.files[path]
        return self._modes.get(path, 0o644 if isinstance(content, bytes) else content.stat().st_mode & 0o755)

    def libraries(self) -> set[str]:
        """Other libraries in the tree are loaded by what has the same libraries already."""
        programs = sorted(program for program in self._programs if _is_dynamic(program))
        found: set[str] = set()
        for number, program in enumerate(programs):
            # Modules are no programs: with the first program all of them are looked at at once.
            found |= _loaded(program, () if number else sorted(map(str, self._modules)))
        return found

    def key(self) -> str:
        seen = hashlib.sha256(repr((self._modes, self.links)).encode())
        for path, content in self.files.items():
            status = None if isinstance(content, bytes) else content.stat()
            what = content if status is None else (str(content), status.st_size, status.st_mtime_ns)
            seen.update(repr((path, what)).encode())
        return seen.hexdigest()


def loader() -> Path:
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = Path(line.split(maxsplit=5)[-1])
        if path.name.startswith("ld-"):
            return path
    raise FileNotFoundError("this Python was loaded by no dynamic loader")


def _is_dynamic(program: Path) -> bool:
    with program.open("rb") as file:
        return b"/ld-" in file.read(_HEAD)


def _loaded(program: Path, before: Iterable[str]) -> set[str]:
    environ = {"LD_PRELOAD": " ".join(before)}
    command = [str(loader()), "--list", str(program)]
    said = subprocess.run(command, capture_output=True, text=True, check=True, env=environ).stdout
    words = (line.split() for line in said.splitlines() if "(0x" in line)
    return {next(word for word in line if word.startswith("/")) for line in words if any(w[0] == "/" for w in line)} - {
        *before
    }


def add_library(tree: Tree, path: str) -> None:
    tree.directory(LIBRARY, path, but=_unused)


def add_packages(tree: Tree, path: str) -> None:
    """Raises `ConfigError` where weft is run without being installed: what it needs is not known then."""
    import weft

    try:
        distribution(_OURS)
    except PackageNotFoundError as error:
        raise ConfigError(not_whole(str(Path(weft.__file__).parent), error)) from None
    for needed in _closure(_OURS, set()):
        for file in needed.files or ():
            if ".." not in file.parts and not file.name.startswith("__editable__"):
                tree.file(f"{path}/{file}", Path(str(needed.locate_file(file))))
    tree.directory(Path(weft.__file__).parent, f"{path}/weft", but=_LAB.__contains__)


def firewall_programs() -> dict[str, Path]:
    ends = ("", "-save", "-restore")
    names = ["nft", *(f"{family}{variant}{end}" for family in _FAMILIES for variant in _VARIANTS for end in ends)]
    found = {name: shutil.which(name) for name in names}
    return {name: Path(path).resolve() for name, path in found.items() if path is not None}


def iptables_extensions() -> Iterator[Path]:
    return Path("/usr/lib").glob("*/xtables")


def _unused(path: str) -> bool:
    name = path.rpartition("/")[2].partition(".")[0] if path.startswith("lib-dynload/") else path
    return name in _UNUSED or path.startswith("config-") or path.endswith((".opt-1.pyc", ".opt-2.pyc"))


def _closure(name: str, seen: set[str]) -> Iterator[Distribution]:
    if name in seen:
        return
    seen.add(name)
    try:
        found = distribution(name)
    except PackageNotFoundError:  # of another platform or Python
        return
    yield found
    for need in found.requires or ():
        if "extra ==" not in need:
            yield from _closure(_NAME_END.split(need, 1)[0].strip(), seen)
