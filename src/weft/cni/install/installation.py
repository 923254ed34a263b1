"""What this installation of weft consists of: Python, weft and the packages that it needs, and the programs it runs."""

import re
import shutil
import sys
import sysconfig
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

from weft.cni.install.tree import Tree

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
_NAME_END: Final = re.compile(r"[ ;<>=!~\[(]")  # of a requirement (PEP 508)


def add_library(tree: Tree, path: str) -> None:
    """Add Python's standard library."""
    tree.directory(LIBRARY, path, but=_unused)


def add_packages(tree: Tree, path: str) -> None:
    """Add weft, without the lab and the page, and what it needs."""
    import weft

    for needed in _closure("weft", set()):
        for file in needed.files or ():
            if ".." not in file.parts and not file.name.startswith("__editable__"):
                tree.file(f"{path}/{file}", Path(str(needed.locate_file(file))))
    tree.directory(Path(weft.__file__).parent, f"{path}/weft", but=_LAB.__contains__)


def firewall_programs() -> dict[str, Path]:
    """Return nft and iptables' programs by name, as far as they are there, and where each really is."""
    ends = ("", "-save", "-restore")
    names = ["nft", *(f"{family}{variant}{end}" for family in _FAMILIES for variant in _VARIANTS for end in ends)]
    found = {name: shutil.which(name) for name in names}
    return {name: Path(path).resolve() for name, path in found.items() if path is not None}


def iptables_extensions() -> Iterator[Path]:
    """Give the directories with the extensions that iptables loads by name."""
    return Path("/usr/lib").glob("*/xtables")


def _unused(path: str) -> bool:
    name = path.rpartition("/")[2].partition(".")[0] if path.startswith("lib-dynload/") else path
    return name in _UNUSED or path.startswith("config-") or path.endswith((".opt-1.pyc", ".opt-2.pyc"))


def _closure(name: str, seen: set[str]) -> Iterator[Distribution]:
    """Give a distribution and all that it needs."""
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
