"""The image of this installation of weft, as deploy/Containerfile lays it out, and that of a pod's sandbox.

/opt/weft            a Python environment with weft and what it needs
/opt/bin/flanneld    and the other names that manifests for flannel use
"""

import shutil
from pathlib import Path
from typing import Final

from weft import __version__
from weft.cni import build
from weft.cni.install import installation
from weft.cni.install.installation import Tree
from weft.lab.kubernetes.image import Image

WEFT: Final = f"localhost/weft:{__version__}"
NAMESPACE: Final = "kube-flannel"  # that of the manifest
PAUSE: Final = "localhost/pause:1"
# The first process of a pid namespace gets only signals that it asks for, which `sleep` does not.
WAIT: Final = ("/timeout", "0", "/sleep", "infinity")
_HOME: Final = "/opt/weft"
_SCRIPT: Final = "#!{home}/bin/python3 -I\nimport sys\nfrom weft.console import {name}\nsys.exit({name}())\n"
# Names that manifests for flannel use: `weft` is the command by whose name it is called.
_NAMES: Final = {"install-conf": "weft", "mk-docker-opts.sh": "weft", "weftd": "weftd"}


def images() -> list[Image]:
    """Return both images."""
    path = f"PATH={_HOME}/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    ours = Image(names=(WEFT,), tree=weft(), command=(f"{_HOME}/bin/weft",), environ=(path,))
    return [ours, Image(names=(PAUSE,), tree=pause(), command=WAIT, environ=("PATH=/",))]


def pause() -> Tree:
    """Return what holds a sandbox, with `WAIT` as its command."""
    tree = Tree()
    for name in ("timeout", "sleep"):
        tree.program(Path(shutil.which(name) or f"/bin/{name}"), f"/{name}")
    return tree


def weft() -> Tree:
    """Return the files of weft's image."""
    tree = Tree()
    python = installation.PYTHON.resolve()
    tree.program(python)
    installation.add_library(tree, str(installation.LIBRARY))
    installation.add_packages(tree, f"{_HOME}/lib/{installation.LIBRARY.name}/site-packages")
    tree.file(f"{_HOME}/pyvenv.cfg", f"home = {python.parent}\n".encode())
    tree.link(f"{_HOME}/bin/python3", str(python))
    for name in ("weft", "weftd"):
        tree.file(f"{_HOME}/bin/{name}", _SCRIPT.format(home=_HOME, name=name).encode(), mode=0o755)
    for name, ours in _NAMES.items():
        tree.link(f"/opt/bin/{name}", f"{_HOME}/bin/{ours}")
    if init := build.INIT.built():
        tree.file("/opt/bin/flanneld", init)
    else:
        tree.link("/opt/bin/flanneld", f"{_HOME}/bin/weftd")
    return firewall(tree)


def firewall(tree: Tree) -> Tree:
    """Add nft and iptables, and its extensions."""
    for name, program in installation.firewall_programs().items():
        tree.program(program)
        if f"/usr/sbin/{name}" != str(program):
            tree.link(f"/usr/sbin/{name}", str(program))
    for folder in installation.iptables_extensions():
        tree.directory(folder, str(folder))
    return tree
