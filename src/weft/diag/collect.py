"""`weft bundle`: everything for a bug report of this node, in one file without secrets."""

import errno
import os
import platform
import stat
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from weft import __version__
from weft.cni.runtime import conf
from weft.diag.bundle import archive, secrets
from weft.diag.bundle.contents import FORM, Bundle, Manifest, files_of
from weft.diag.check.proof import examined
from weft.diag.options import place_options, places_of
from weft.diag.sight.listings import said
from weft.diag.sight.look import Places
from weft.kernel import daemons
from weft.kernel.namespaces import processes
from weft.model.errors import Unavailable
from weft.model.node.history import EventsSince
from weft.model.text import counted, one_line
from weft.screen.documents import output_option, show_report
from weft.screen.groups import need_root
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
_STDOUT: Final = "-"


@click.command()
@output_option
@click.option(
    "--out",
    metavar="FILE.tar.gz",
    help="Where to put it; - is standard output. [default: weft-bundle-NODE-TIME.tar.gz in this directory, or standard"
    " output where nothing can be written here]",
)
@place_options
def bundle(output: str, *, out: str | None, **where: Any) -> int:
    """Write all that a bug report of this node needs into one file, without secrets.

    That is what `weft doctor` sees, with what peers answer; the daemon's state, events and last log lines; the kernel's
    links, addresses, routes, neighbours and settings; all programs' firewall rules; CNI configuration; versions.
    Passwords, keys, tokens and credentials in URLs are replaced. Addresses and names of nodes stay: look at it before
    you publish it.

    \b
      weft bundle
      weft bundle --out node1.tar.gz
      kubectl -n kube-flannel exec POD -- weft bundle >node1.tar.gz
      weft doctor --from node1.tar.gz
      weft trace --from node1.tar.gz 10.244.1.2 10.244.2.3

    `weft doctor`, `trace`, `status`, `peers` and `events` take `--from FILE`, on any machine and for any user.
    """
    if out is None and not os.access(".", os.W_OK):
        out = _STDOUT
    if out == _STDOUT and sys.stdout.isatty():
        raise click.UsageError("a bundle is no text for a terminal: say where to put it, or redirect standard output")
    need_root("weft bundle")
    places = places_of(where)
    made = time.time()
    sight = examined(places)
    told = _events(places.instance) if sight.daemon is not None else None
    texts, unseen = gathered(places)
    manifest = Manifest(form=FORM, weft=__version__, node=platform.node(), made=made, unseen=unseen)
    files = files_of(Bundle(manifest=manifest, sight=sight, told=told), texts)
    packed = archive.pack(files, made)
    if out == _STDOUT:
        click.echo(packed, nl=False)
        return 0
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(made))
    path = Path(out or f"weft-bundle-{manifest.node.replace('/', '_')}-{stamp}.tar.gz")
    archive.write(path, packed)
    said = [f"{path}: {counted(len(files), 'file')}, {len(packed)} bytes, secrets replaced"]
    said += [one_line(f"not seen {name}: {why}") for name, why in unseen.items()]
    done = {"file": str(path), "bytes": len(packed), "files": list(files), "unseen": unseen}
    show_report(output, done, "".join(f"{line}\n" for line in said))
    return 0


def _events(instance: str | None) -> EventsSince | None:
    try:
        return daemons.events(daemons.choose(instance), 0)
    except Unavailable:  # it has ended since, and its sight says what there was
        return None


def gathered(places: Places) -> tuple[dict[str, str], dict[str, str]]:
    """Return the texts by their names in the bundle, and why others could not be had."""
    found: dict[str, str] = {}
    unseen: dict[str, str] = {}

    def take(name: str, text: Callable[[], str], without: Callable[[str], str]) -> None:
        try:
            whole = text()
            cut = len(whole) - _LONGEST
            found[name] = without(whole if cut <= 0 else f"{whole[:_LONGEST]}\n… and {cut} characters more\n")
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
