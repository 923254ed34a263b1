"""`weft lab cp`: files and directories from the machine into a node or pod, and back.

The supervisor opens the named place as the node or pod sees it. All below is found from there, name by name, and no
symbolic link is followed: what lies in a lab decides nothing about where files go.
"""

import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path, PurePath
from typing import Final

import click

from weft.lab import protocol
from weft.lab.call import Call
from weft.lab.commands.choose import find, lab_and_output
from weft.lab.places import Place
from weft.model.errors import ConfigError, Problem
from weft.model.text import counted
from weft.model.value import Value
from weft.screen.documents import show_report

_IN_LAB: Final = re.compile(r"([a-z][a-z0-9-]*):(.*)", re.DOTALL)
_MODE: Final = 0o777  # what is kept of a mode: no set-user-ID
_NAMED: Final = 3  # of many that are wrong


class _End(Value):
    """A path on the machine, or one that a node or pod sees."""

    text: str
    lab: Place
    where: str
    path: str

    def open(self, path: str) -> int | None:
        if not self.where:
            try:
                return os.open(path, os.O_PATH | os.O_CLOEXEC)
            except FileNotFoundError:
                return None
        with closing(Call(self.lab.socket, protocol.Open(self.where, path))) as call:
            call.result()
            return next(iter(call.descriptors()), None)


class _Entry(Value):
    """Something to copy, by its names below the source."""

    names: tuple[str, ...]
    directory: bool


@click.command("cp")
@click.argument("source", metavar="[NODE:|POD:]SOURCE")
@click.argument("target", metavar="[NODE:|POD:]TARGET")
@lab_and_output
def copy(source: str, target: str, lab: str, output: str) -> None:
    """Copy a file, or a directory with all that is in it, into a node or pod, out of one, or between two.

    \b
      weft lab cp node1:/run/flannel/subnet.env .
      weft lab cp my.conflist node1:/etc/cni/net.d/00-my.conflist
      weft lab cp pod1-1:/run/results results

    A file that exists is replaced; a directory that exists keeps its other files. If TARGET is a directory, the copy
    goes into it. Modes are kept, owners are not. Symbolic links, devices and sockets are not copied: a directory with
    some is refused, and then nothing is copied.

    A node has files of its own in /run, /etc/cni/net.d, /var/lib/cni and /var/lib/weft, which its pods see, too.
    Elsewhere it sees the machine's, and a copy to there changes them.
    """
    place = find(lab)
    ends = _end(place, source), _end(place, target)
    if not any(end.where for end in ends):
        expected = "NODE:PATH or POD:PATH on one side at least"
        raise ConfigError(_problem(f"{source} {target}", "both are paths of the machine", expected))
    with ExitStack() as opened:
        sizes = _copy(*ends, opened)
    size = sum(sizes)
    said = f"{counted(len(sizes), 'file')}, {counted(size, 'byte')}\n"
    show_report(output, {"files": len(sizes), "bytes": size}, said)


def _end(lab: Place, text: str) -> _End:
    found = _IN_LAB.fullmatch(text)
    where, path = ("", text) if found is None else (found[1], found[2] or "/")
    return _End(text=text, lab=lab, where=where, path=path)


def _copy(source: _End, target: _End, opened: ExitStack) -> list[int]:
    """Returns the size of each file. What can be wrong is looked for before anything is written."""
    found = _kept(source.open(source.path), opened)
    if found is None:
        raise ConfigError(_problem(source.text, "there is nothing", "a file or a directory"))
    entries = _survey(found, source)
    into, name = _into(target, PurePath(source.path).name, opened, directory=entries[0].directory)
    _check_kinds(entries, into, name, target)
    sizes = []
    for entry in entries:
        with ExitStack() as passing:
            one = _below(found, entry.names, passing)
            *above, last = name, *entry.names
            parent = _below(into, above, passing)
            if not entry.directory:
                sizes.append(_copy_file(one, parent, last))
                continue
            with suppress(FileExistsError):
                os.mkdir(last, stat.S_IMODE(os.fstat(one).st_mode) & _MODE | stat.S_IRWXU, dir_fd=parent)
    return sizes


def _kept(descriptor: int | None, opened: ExitStack) -> int | None:
    if descriptor is not None:
        opened.callback(os.close, descriptor)
    return descriptor


def _into(target: _End, name: str, opened: ExitStack, *, directory: bool) -> tuple[int, str]:
    found = _kept(target.open(target.path), opened)
    if found is not None and stat.S_ISDIR(os.fstat(found).st_mode):
        if name in ("", ".", ".."):
            raise ConfigError(_problem(target.text, "it is a directory", "a new name for what is copied"))
        return found, name
    path = PurePath(target.path)
    if found is not None and directory:
        raise ConfigError(_problem(target.text, "it is a file", "a directory, or a new name"))
    if path.name in ("", "..") or (target.path.endswith("/") and not directory):
        raise ConfigError(_problem(target.text, "no such directory", "a directory, or a new name"))
    parent = _kept(target.open(str(path.parent)), opened)
    if parent is None or not stat.S_ISDIR(os.fstat(parent).st_mode):
        raise ConfigError(_problem(target.text, f"no directory {path.parent}", "a directory that is there"))
    return parent, path.name


def _survey(found: int, source: _End) -> list[_Entry]:
    """A directory before what is in it. `ConfigError` for what cannot be copied."""
    entries, others = [], []
    for names, mode in _walk(found, ()):
        if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
            entries.append(_Entry(names=names, directory=stat.S_ISDIR(mode)))
        else:
            others.append("/".join(names) or source.path)
    if others:
        seen = f"neither files nor directories: {', '.join(others[:_NAMED])}{', …' if others[_NAMED:] else ''}"
        hint = "'weft lab exec NODE -- tar -c PATH' packs symbolic links, too."
        raise ConfigError(_problem(source.text, seen, "files and directories", hint))
    return entries


def _walk(found: int, names: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], int]]:
    mode = os.fstat(found).st_mode
    yield names, mode
    if stat.S_ISDIR(mode):
        for name in sorted(path.name for path in Path(_way(found)).iterdir()):
            with ExitStack() as passing:
                yield from _walk(_below(found, (name,), passing), (*names, name))


def _check_kinds(entries: Sequence[_Entry], into: int, name: str, target: _End) -> None:
    """`ConfigError` where a file would replace a directory, or the reverse."""
    for entry in entries:
        with ExitStack() as passing, suppress(FileNotFoundError):
            there = _below(into, (name, *entry.names), passing)
            if stat.S_ISDIR(os.fstat(there).st_mode) != entry.directory:
                kinds = ("a file", "a directory") if entry.directory else ("a directory", "a file")
                where = "/".join((name, *entry.names))
                raise ConfigError(_problem(target.text, f"{where} is {kinds[0]}", f"{kinds[1]}, or nothing"))


def _below(found: int, names: Iterable[str], passing: ExitStack) -> int:
    """A descriptor; a link on the way is an `OSError`."""
    for name in names:
        found = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=found)
        passing.callback(os.close, found)
    return found


def _way(descriptor: int) -> str:
    """A path to what a descriptor stands for."""
    return f"/proc/self/fd/{descriptor}"


def _copy_file(one: int, parent: int, name: str) -> int:
    if not stat.S_ISREG(os.fstat(one).st_mode):  # a FIFO would be waited for, a device read without end
        raise ConfigError(_problem(name, "it is no file any more", "files that stay so while they are copied"))
    temporary = f".weft-{secrets.token_hex(8)}"
    made = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=parent)
    try:
        with os.fdopen(made, "wb") as writing, Path(_way(one)).open("rb") as reading:
            shutil.copyfileobj(reading, writing)
            os.fchmod(made, stat.S_IMODE(os.fstat(one).st_mode) & _MODE)
            size = writing.tell()
        os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
    except BaseException:
        os.unlink(temporary, dir_fd=parent)
        raise
    return size


def _problem(where: str, seen: str, expected: str = "", hint: str = "") -> Problem:
    return Problem("LAB-001", f"weft lab cp: {where}", seen, expected=expected, hint=hint)
