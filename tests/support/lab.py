"""Labs for tests: started and asked through the `weft` command, as users do, and always ended.

Each has a name of its own, so that tests can run beside each other and beside somebody's lab.
"""

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.support.checkout import CHECKOUT

WEFT = str(Path(sys.executable).parent / "weft")
SECONDS = 500  # for a command that hangs: a machine that is busy takes a while
BACKENDS = ("vxlan", "vxlan-direct", "host-gw")
FAMILIES = ("4", "46", "6")

_numbers = itertools.count(1)
_NETWORKS = {
    "4": {"Network": "10.244.0.0/16"},
    "6": {"EnableIPv4": False, "EnableIPv6": True, "IPv6Network": "2001:cafe:42::/56"},
    "46": {"Network": "10.244.0.0/16", "EnableIPv6": True, "IPv6Network": "2001:cafe:42::/56"},
}


# In a mount namespace of its own, a tmpfs in place of directory $1 that holds nothing but the way to the checkout $2.
_SHOW = """
mount --bind "$2" /mnt
mount -t tmpfs -o mode=755 tmpfs "$1"
mkdir -p "$2"
mount --bind /mnt "$2"
umount /mnt
shift 2
exec "$@"
"""


def ordinary(uid: int) -> tuple[str, ...]:
    """A command that runs another as a user without any rights, who can see the checkout, wherever it lies."""
    user = ("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all")
    hidden = [place for place in CHECKOUT.parents if not place.stat().st_mode & 0o001]
    if not hidden:
        return user
    return ("unshare", "--mount", "sh", "-ec", _SHOW, "sh", str(hidden[-1]), str(CHECKOUT), *user)


def new_name() -> str:
    return f"t{os.getpid()}-{next(_numbers)}"


def weft(
    *arguments: str, user: Sequence[str] = (), check: bool = True, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run `weft`, perhaps behind a command that makes it another user."""
    options = {"stdin": subprocess.DEVNULL, "cwd": "/"} | options
    ran = subprocess.run(
        [*user, WEFT, *arguments], capture_output=True, text=True, check=False, timeout=SECONDS, **options
    )
    if check and ran.returncode != 0:
        raise AssertionError(f"weft {' '.join(arguments)} ended with {ran.returncode}:\n{ran.stdout}{ran.stderr}")
    return ran


@dataclass(frozen=True)
class Lab:
    """A lab that is up."""

    name: str
    user: tuple[str, ...] = ()

    def weft(
        self, command: str, *arguments: str, check: bool = True, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run `weft lab COMMAND` in this lab."""
        return weft("lab", command, "--lab", self.name, *arguments, user=self.user, check=check, **options)

    def json(self, command: str, *arguments: str, check: bool = True) -> Any:
        return json.loads(self.weft(command, "-o", "json", *arguments, check=check).stdout)

    def run(self, where: str, *command: str, check: bool = True) -> str:
        """Return what a command prints in a node or pod."""
        return self.weft("exec", where, "--", *command, check=check).stdout

    def reached(self, source: str, target: str) -> dict[int, bool]:
        """Tell whether the target's address of each family answers."""
        cells = self.json("ping", source, target, "-c", "1", check=False)["cells"]
        return {cell["family"]: cell["fault"] in ("", "forbidden") and not cell["refused"] for cell in cells}

    def lost(self, source: str, target: str) -> bool:
        """Tell whether a ping by either family is lost, in less time than `reached` takes for that."""
        pings = (("ping", f"-{family}", "-c1", "-W0.2", target) for family in (4, 6))
        return all(self.weft("exec", source, "--", *ping, check=False).returncode == 1 for ping in pings)

    def supervisor(self) -> int:
        """The process number of the supervisor, of a lab of root's."""
        return int(Path("/run/weft-lab", self.name, "pid").read_text().split()[0])

    def ps(self) -> Any:
        return self.json("ps")

    def node(self, name: str) -> Any:
        return next(node for node in self.ps()["nodes"] if node["name"] == name)

    def pod(self, name: str) -> Any:
        return next(pod for pod in self.ps()["pods"] if pod["name"] == name)


@contextmanager
def lab(*arguments: str, name: str = "", user: Sequence[str] = ()) -> Iterator[Lab]:
    """Start a lab, and end it whatever happens."""
    name = name or new_name()
    weft("lab", "up", "--name", name, *arguments, user=user)
    try:
        yield Lab(name, tuple(user))
    finally:
        weft("lab", "down", name, user=user, check=False)


def network(backend: str, family: str) -> dict[str, Any]:
    """Return the net-conf of one of BACKENDS and FAMILIES."""
    options = {"Type": "vxlan", "DirectRouting": True} if backend == "vxlan-direct" else {"Type": backend}
    return _NETWORKS[family] | {"Backend": options}


def write_file(folder: Path, **content: Any) -> str:
    """Write a lab file and return its path."""
    path = folder / "lab.yaml"
    path.write_text(yaml.safe_dump(content))
    return str(path)
