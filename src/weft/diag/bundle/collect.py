"""Gathers what a report of one node needs beside its sight: listings, configuration, the log; without secrets.

Programs are run by their names, with no word of anybody else's.
"""

import errno
import os
import platform
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from weft.cni.runtime import conf
from weft.diag.bundle import secrets
from weft.diag.sight.look import Places, said
from weft.kernel.namespaces import processes
from weft.wire.cni import CniError

_LONGEST: Final = 8 << 20  # characters of a text
_LOG: Final = 512 << 10  # bytes of the end of a log
_LINES: Final = 2000  # of the journal
_DAEMONS: Final = ("weftd", "flanneld")
LISTINGS: Final = {
    "ip-link.json": ("ip", "-d", "-s", "-j", "link"),
    "ip-address.json": ("ip", "-d", "-j", "address"),
    "ip-route.json": ("ip", "-d", "-j", "route", "show", "table", "all"),
    "ip-6-route.json": ("ip", "-6", "-d", "-j", "route", "show", "table", "all"),
    "ip-rule.json": ("ip", "-d", "-j", "rule"),
    "ip-6-rule.json": ("ip", "-6", "-d", "-j", "rule"),
    "ip-neigh.json": ("ip", "-d", "-s", "-j", "neigh"),
    "ip-xfrm-policy.txt": ("ip", "xfrm", "policy"),  # and never `state`, which shows keys
    "bridge-fdb.json": ("bridge", "-d", "-j", "fdb"),
    "bridge-link.json": ("bridge", "-d", "-j", "link"),
    "nft.txt": ("nft", "-a", "list", "ruleset"),
    "iptables-save.txt": ("iptables-save", "-c"),
    "ip6tables-save.txt": ("ip6tables-save", "-c"),
    "sysctl.txt": ("sysctl", "-e", "-a", "--pattern", "^net[.]"),
    "sockets.txt": ("ss", "-lunp"),
    "versions/ip.txt": ("ip", "-V"),
    "versions/nft.txt": ("nft", "--version"),
    "versions/iptables.txt": ("iptables", "--version"),
}


def texts(places: Places) -> tuple[dict[str, str], dict[str, str]]:
    """Return the texts by their names in the bundle, and why others could not be had."""
    found: dict[str, str] = {}
    unseen: dict[str, str] = {}

    def take(name: str, text: Callable[[], str], without: Callable[[str], str]) -> None:
        try:
            found[name] = without(_short(text()))
        except (OSError, ValueError) as error:
            unseen[name] = str(error)

    for name, command in LISTINGS.items():
        take(f"listings/{name}", partial(said, command), secrets.text_without)
    take("subnet.env", lambda: places.subnet_file.read_text(errors="replace"), secrets.text_without)
    take("versions/kernel.txt", lambda: f"{platform.release()} {platform.version()} {platform.machine()}", str)
    take("versions/os-release.txt", lambda: Path("/etc/os-release").read_text(errors="replace"), str)
    try:
        configured = conf.files(places.conf_dir)
    except CniError as error:
        configured, unseen["cni"] = [], str(error)
    for file in configured:
        take(f"cni/{file.name}", partial(_read, file), secrets.list_without)
    for pid, name in processes(places.proc).items():
        if name in _DAEMONS:
            process = places.proc / str(pid)
            take(f"{name}-{pid}/command.txt", partial(_command, process), str)
            take(f"{name}-{pid}/log.txt", partial(_log, process), secrets.text_without)
    return found, unseen


def _short(text: str) -> str:
    cut = len(text) - _LONGEST
    return text if cut <= 0 else f"{text[:_LONGEST]}\n… and {cut} characters more\n"


def _read(file: Path) -> str:
    with file.open("rb") as opened:
        return opened.read(_LONGEST).decode(errors="replace")


def _command(process: Path) -> str:
    words = (process / "cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
    return secrets.words_without(words)


def _log(process: Path) -> str:
    """The end of what a process of root's has written to its standard error: a file, or else the journal.

    Raises `OSError` for what another user may have made look like a log: such a process, or a file that it only reads.
    """
    if not _is_roots(process):
        raise PermissionError(errno.EPERM, "it does not run as root")
    log = process / "fd/2"
    if not log.readlink().is_absolute() or not log.is_file():
        return said(("journalctl", "--no-pager", "-o", "short-iso", "-n", str(_LINES), f"_PID={process.name}"))
    if not _is_written(process / "fdinfo/2"):
        raise PermissionError(errno.EPERM, "it does not write to its standard error")
    with os.fdopen(os.open(log, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is no file any more")
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _LOG))
        text = file.read(_LOG).decode(errors="replace")
    return text.partition("\n")[2] if size > _LOG else text


def _is_roots(process: Path) -> bool:
    """True if all user ids of a process are root's (proc(5)): a name alone, anybody can have."""
    [uids] = (line for line in (process / "status").read_text().splitlines() if line.startswith("Uid:"))
    return set(uids.split()[1:]) == {"0"}


def _is_written(fdinfo: Path) -> bool:
    """True if a descriptor is open for writing (proc(5)): one of O_PATH opens nothing."""
    [flags] = (line for line in fdinfo.read_text().splitlines() if line.startswith("flags:"))
    mode = int(flags.split()[1], 8)
    return bool(mode & (os.O_WRONLY | os.O_RDWR)) and not mode & os.O_PATH
