"""The image of this installation of weft, as deploy/Containerfile lays it out, and that of a pod's sandbox.

/opt/weft            a Python environment with weft and what it needs
/opt/bin/flanneld    and the other names that manifests for flannel use
"""

import re
import shutil
import sys
import sysconfig
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

from weft import __version__
from weft.lab.kubernetes.image import Image, Tree

WEFT: Final = f"localhost/weft:{__version__}"
NAMESPACE: Final = "kube-flannel"  # that of the manifest
PAUSE: Final = "localhost/pause:1"
# The first process of a pid namespace gets only signals that it asks for, which `sleep` does not.
WAIT: Final = ("/timeout", "0", "/sleep", "infinity")
_HOME: Final = "/opt/weft"
_SCRIPT: Final = "#!{home}/bin/python3 -I\nimport sys\nfrom weft.console import {name}\nsys.exit({name}())\n"
# Names that manifests for flannel use: `weft` is the command by whose name it is called.
_NAMES: Final = {"flanneld": "weftd", "install-conf": "weft", "mk-docker-opts.sh": "weft"}
_UNUSED: Final = (  # of the standard library, half of it
    *("test", "idlelib", "tkinter", "turtledemo", "lib2to3", "ensurepip", "pydoc_data", "distutils", "venv"),
    *("sqlite3", "curses", "dbm", "wsgiref", "xmlrpc", "site-packages", "dist-packages"),
    # Modules in C that bring libraries of their own
    *("_sqlite3", "_dbm", "_gdbm", "_curses", "_curses_panel", "readline", "nis", "ossaudiodev", "audioop"),
)
_IPTABLES: Final = ("iptables", "ip6tables")
_NAME_END: Final = re.compile(r"[ ;<>=!~\[(]")  # of a requirement (PEP 508)


def images() -> list[Image]:
    """Return both images."""
    path = f"PATH={_HOME}/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    ours = Image(names=(WEFT,), tree=_weft(), command=(f"{_HOME}/bin/weft",), environ=(path,))
    return [ours, Image(names=(PAUSE,), tree=pause(), command=WAIT, environ=("PATH=/",))]


def pause() -> Tree:
    """Return what holds a sandbox, with `WAIT` as its command."""
    tree = Tree()
    for name in ("timeout", "sleep"):
        tree.program(Path(shutil.which(name) or f"/bin/{name}"), f"/{name}")
    return tree


def _weft() -> Tree:
    tree = Tree()
    python = Path(sys.executable).resolve()
    tree.program(python)
    library = Path(sysconfig.get_path("stdlib"))
    tree.directory(library, str(library), but=_unused)
    own = f"{_HOME}/lib/{library.name}/site-packages"
    for needed in _closure("weft", set()):
        for file in needed.files or ():
            if ".." not in file.parts and not file.name.startswith("__editable__"):
                tree.file(f"{own}/{file}", Path(str(needed.locate_file(file))))
    import weft

    tree.directory(Path(weft.__file__).parent, f"{own}/weft")
    tree.file(f"{_HOME}/pyvenv.cfg", f"home = {python.parent}\n".encode())
    tree.link(f"{_HOME}/bin/python3", str(python))
    for name in ("weft", "weftd"):
        tree.file(f"{_HOME}/bin/{name}", _SCRIPT.format(home=_HOME, name=name).encode(), mode=0o755)
    for name, ours in _NAMES.items():
        tree.link(f"/opt/bin/{name}", f"{_HOME}/bin/{ours}")
    firewall(tree)
    return tree


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


def firewall(tree: Tree) -> Tree:
    """Add nft and iptables: both variants, and its extensions, which it loads by name."""
    if nft := shutil.which("nft"):
        tree.program(Path(nft))
    for variant in ("nft", "legacy"):
        multi = shutil.which(f"xtables-{variant}-multi")
        if multi is None:
            continue
        tree.program(Path(multi))
        for family in _IPTABLES:
            for end in ("", "-save", "-restore"):
                tree.link(f"/usr/sbin/{family}-{variant}{end}", multi)
                if variant == "nft":
                    tree.link(f"/usr/sbin/{family}{end}", multi)
    for folder in Path("/usr/lib").glob("*/xtables"):
        tree.directory(folder, str(folder))
    return tree
