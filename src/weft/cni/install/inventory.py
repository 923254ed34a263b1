"""What weft has put into a node's CNI directories, so that exactly that is taken away, and what it has replaced.

A file is ours as long as it has content that we gave it. Programs of ours are known without the list (`judging`).
"""

import json
import os
import stat
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from weft.cni.install import files, judging
from weft.cni.install.judging import Found
from weft.kernel import statefiles
from weft.model.errors import ConfigError, Problem
from weft.model.value import Value, field

LIST: Final = ".weft-installed"
_MAX_BYTES: Final = 1 << 20
_DIRECTORY: Final = ".weft-replaced"
_UP: Final = "../"


class Inventory(Value, frozen=False):
    """What is about to be put there is noted before, so a file may have several digests."""

    bin_dir: Path
    digests: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def read(cls, bin_dir: Path) -> "Inventory":
        """`ConfigError` if somebody has broken the list."""
        path = bin_dir / LIST
        try:
            known = json.loads(statefiles.read(path, limit=_MAX_BYTES))
            return cls(bin_dir=bin_dir, digests={name: list(map(str, digests)) for name, digests in known.items()})
        except FileNotFoundError:
            return cls(bin_dir=bin_dir)
        except (OSError, ValueError, AttributeError, TypeError, RecursionError) as error:
            expected, hint = "what 'weft cni install' has written", "'weft cni install' writes it again."
            seen = f"it cannot be read: {error}"
            problem = Problem(code="HOST-002", where=str(path), seen=seen, expected=expected, hint=hint)
            raise ConfigError(problem) from error

    @classmethod
    def found(cls, bin_dir: Path) -> "Inventory":
        try:
            return cls.read(bin_dir)
        except ConfigError:
            return cls(bin_dir=bin_dir)

    def write(self) -> None:
        if self.digests:
            files.put(self.bin_dir / LIST, json.dumps(self.digests, indent=2).encode() + b"\n", mode=0o644)
        else:
            files.remove(self.bin_dir / LIST)

    @property
    def programs(self) -> list[str]:
        return [name for name in self.digests if "/" not in name and not name.startswith(".")]

    def owns(self, name: str) -> bool:
        seen = judging.see(self.bin_dir / name)
        return seen is not None and not seen.link and seen.digest in self.digests.get(name, ())

    def expect(self, name: str, content: bytes) -> None:
        digests = self.digests.setdefault(name, [])
        if judging.digest(content) not in digests:
            digests.append(judging.digest(content))


class Replaced(Value):
    """The directory of programs of others that weft's have replaced, which need not be there.

    Under a plugin's name lies what was there first, which is put back. With a number behind the name lies what others
    have put there since.
    """

    path: Path

    @classmethod
    def beside(cls, bin_dir: Path) -> Self:
        return cls(path=bin_dir / _DIRECTORY)

    def look(self, names: Iterable[str]) -> dict[str, Found]:
        return judging.look(self.path if self._is_there else Path(os.devnull), names, {})

    @property
    def names(self) -> list[str]:
        if not self._is_there:
            return []
        return sorted(path.name for path in self.path.iterdir() if not path.name.startswith("."))

    def keep_all(self, there: Mapping[str, Found], ours: Collection[str]) -> tuple[str, ...]:
        """A program that is wrong under one name is not kept if it is right under another."""
        foreign = sorted(there.items(), key=lambda item: item[1].state != "theirs")
        return tuple(sorted(name for name, found in foreign if self.keep(name, found, ours)))

    def keep(self, name: str, found: Found, ours: Collection[str]) -> bool:
        """Keep what somebody has put under a name, unless it is kept already; tell whether it is the first.

        What cannot serve is not the first under a name that was `ours` before. It is copied, and stays in place until
        another file gets the name: with a second name of the same file, who writes to it there would change what is
        kept.
        """
        if found.state in ("missing", "ours", "spoilt"):
            return False
        first = self.path / name
        is_first = found.state == "theirs" and (found.serves or name not in ours) and not os.path.lexists(first)
        if found.digest in self._digests() and not is_first:
            return False
        if not self._is_there:
            files.remove(self.path)
            self.path.mkdir(mode=0o755)
        to = first if is_first else files.free(first)
        with files.lasting(self.path):
            if found.link:
                # It is to lead from here to where it has led; what has another plugin's name is kept beside it.
                is_same = found.link.startswith("/") or found.link in judging.NAMES
                files.put_link(to, found.link if is_same else f"{_UP}{found.link}")
            elif found.digest:
                status = found.path.stat()
                content, owner = found.path.read_bytes(), (status.st_uid, status.st_gid)
                files.put(to, content, mode=stat.S_IMODE(status.st_mode), owner=owner)
            elif found.path.is_dir() and any(found.path.iterdir()):
                found.path.rename(to)
        return is_first

    def unfit(self, names: Iterable[str]) -> list[Found]:
        """Return what cannot have been there first. A link may lead to what only the node's own programs see."""
        there = self.look(names).values()
        return [
            found
            for found in there
            if found.state not in ("missing", "theirs") and not (found.link and not found.digest)
        ]

    def mend(self, names: Iterable[str]) -> None:
        for found in self.unfit(names):
            if found.state == "wrong" and self._digests().count(found.digest) == 1:
                found.path.rename(files.free(found.path))
            else:
                files.remove(found.path)

    def put_back(self, name: str, path: Path) -> None:
        """At no time is there nothing under the name."""
        kept = self.path / name
        if kept.is_symlink() and (link := str(kept.readlink())).startswith(_UP):
            files.put_link(path, link.removeprefix(_UP))
            kept.unlink()
        else:
            files.rename(kept, path)

    def end(self) -> None:
        with suppress(OSError):
            self.path.rmdir()

    @property
    def _is_there(self) -> bool:
        return self.path.is_dir() and not self.path.is_symlink()

    def _digests(self) -> list[str]:
        seen = (judging.see(self.path / name) for name in self.names)
        return [each.digest for each in seen if each and each.digest and not each.link]
