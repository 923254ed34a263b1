"""The images that Kubernetes' network tests ask for, made of programs of this machine instead of pulled.

Their names are those of the tests, below `localhost` instead of a registry: `REPOSITORIES` says so to the tests.
"""

import shutil
import socket
import subprocess
from pathlib import Path
from typing import Final

from weft.cni.install.installation import Tree
from weft.lab.kubernetes.images import WAIT, Image, pause

# The tests' registries (test/utils/image/manifest.go), by which KUBE_TEST_REPO_LIST names others.
_REPOSITORY: Final = "localhost/e2e"
REPOSITORIES: Final = dict.fromkeys(("promoterE2eRegistry", "gcRegistry", "dockerLibraryRegistry"), _REPOSITORY)
DNS: Final = "localhost/coredns:1"
_CYCLONUS: Final = "docker.io/mfenwick100/cyclonus-worker:latest"
_CNP: Final = "registry.k8s.io/e2e-test-images/agnhost:2.45"
_PORTER: Final = b"""#!/bin/bash
[ "$1" != porter ] || exec /agnhost-2 pause
exec /agnhost-2 "$@"
"""
_TOOLS: Final = ("bash", "wget", "curl", "ip", "ss", "getent", "conntrack", "dig", "nc.openbsd", "iperf")
_PATH: Final = ("PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/",)


def of_kubernetes(folder: Path, programs: Path, names: list[str]) -> list[Path]:
    """Write the images of these names, as `e2e.test --list-images` prints them, and that of the cluster's DNS."""
    tools = _tools(programs)
    regression = "regression-issue-74839"
    kinds: dict[str, tuple[Tree, tuple[str, ...], tuple[str, ...]]] = {
        "agnhost": (tools, ("/agnhost",), ("pause",)),
        "jessie-dnsutils": (tools, ("/agnhost",), ("pause",)),
        "nginx": (tools, ("/agnhost",), ("test-webserver", "--port=80")),
        "httpd": (tools, ("/agnhost",), ("test-webserver", "--port=80")),
        "busybox": (_busybox(), (), ("/bin/sh",)),
        "pause": (pause(), WAIT, ()),
        regression: (_one(programs / regression), (f"/{regression}",), ()),
    }
    written = []
    for kind, (tree, command, arguments) in kinds.items():
        own = tuple(name for name in names if name.startswith(f"{_REPOSITORY}/{kind}:"))
        image = Image(names=own, tree=tree, command=command, environ=_PATH, arguments=arguments)
        written.append(folder / f"{kind}.tar")
        image.write(written[-1])
    return [*written, _dns(folder, programs)]


def of_cyclonus(folder: Path, programs: Path, suites: Path) -> list[Path]:
    """Write the image of its pods, agnhost with the worker that tries many connections, and that of the DNS."""
    tree = _tools(programs)
    tree.file("/worker", suites / "worker", mode=0o755)
    return [_agnhost(folder, _CYCLONUS, tree), _dns(folder, programs)]


def of_cnp(folder: Path, programs: Path) -> list[Path]:
    """Write the image of the pods of network-policy-api's tests, and that of the cluster's DNS.

    They begin when all containers are ready, some of which serve SCTP alone: without SCTP these wait.
    """
    tree = _tools(programs)
    if not has_sctp():
        tree.file("/agnhost-2", programs / "agnhost", mode=0o755)
        del tree.links["/agnhost-2"]
        tree.file("/agnhost", _PORTER, mode=0o755)
    return [_agnhost(folder, _CNP, tree), _dns(folder, programs)]


def _agnhost(folder: Path, name: str, tree: Tree) -> Path:
    image = Image(names=(name,), tree=tree, command=("/agnhost",), environ=_PATH, arguments=("pause",))
    image.write(folder / "agnhost.tar")
    return folder / "agnhost.tar"


def _dns(folder: Path, programs: Path) -> Path:
    image = Image(names=(DNS,), tree=_one(programs / "coredns"), command=("/coredns",), environ=_PATH)
    image.write(folder / "coredns.tar")
    return folder / "coredns.tar"


def has_sctp() -> bool:
    """Whether this kernel has SCTP sockets: its netfilter may know the protocol without."""
    try:
        socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_SCTP).close()
    except OSError:
        return False
    return True


def _one(program: Path) -> Tree:
    tree = Tree()
    tree.file(f"/{program.name}", program.resolve(), mode=0o755)
    return tree


def _busybox() -> Tree:
    tree = Tree()
    tree.file("/bin/busybox", Path("/bin/busybox"), mode=0o755)
    for applet in subprocess.run(["/bin/busybox", "--list"], capture_output=True, text=True, check=True).stdout.split():
        if applet != "busybox":
            tree.link(f"/bin/{applet}", "busybox")
    return tree


def _tools(programs: Path) -> Tree:
    """Return agnhost with the tools that tests call in its pods. `sh` is bash: busybox's prefers its own applets."""
    tree = _busybox()
    tree.file("/agnhost", programs / "agnhost", mode=0o755)
    tree.link("/agnhost-2", "/agnhost")
    for name in ("localhost.crt", "localhost.key"):
        tree.file(f"/{name}", programs / name)
    for name in _TOOLS:
        found = shutil.which(name)
        assert found, f"the tests call {name}, which scripts/setup.sh conformance installs"
        tree.program(Path(found), f"/usr/local/bin/{name.removesuffix('.openbsd')}")
    tree.link("/bin/sh", "/usr/local/bin/bash")
    tree.link("/bin/bash", "/usr/local/bin/bash")
    tree.file("/etc/passwd", b"root:x:0:0:root:/:/bin/sh\n")
    tree.file("/etc/nsswitch.conf", b"hosts: files dns\n")
    return tree
