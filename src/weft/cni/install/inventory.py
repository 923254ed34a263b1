"""What weft has put into a node's CNI directories, and what was there before: so that exactly that is taken away.

The list lies in the bin directory as `.weft-installed`, what was replaced in `.weft-replaced/` beside it. A file is
ours as long as it has content that we gave it; one that somebody has changed since is left alone.
"""

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from weft.model.errors import ConfigError, Problem
from weft.model.value import Value, field

_LIST: Final = ".weft-installed"
_REPLACED: Final = ".weft-replaced"


class Inventory(Value, frozen=False):
    """Our files, by name in `bin_dir` or by absolute path elsewhere, with the digests of what we have put there.

    A file may have several: what is about to be put there is noted before, and until then the old content is ours.
    """

    bin_dir: Path
    digests: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def read(cls, bin_dir: Path) -> "Inventory":
        """Read the list; there is nothing of ours where there is none. `ConfigError` if somebody has broken it."""
        path = bin_dir / _LIST
        try:
            known = json.loads(path.read_bytes())
            return cls(bin_dir=bin_dir, digests={name: list(map(str, digests)) for name, digests in known.items()})
        except FileNotFoundError:
            return cls(bin_dir=bin_dir)
        except (ValueError, AttributeError, TypeError) as error:
            expected = "what 'weft cni install' has written"
            problem = Problem(code="HOST-002", where=str(path), seen=f"it cannot be read: {error}", expected=expected)
            raise ConfigError(problem) from error

    def write(self) -> None:
        """Write the list, or remove it when it is empty."""
        if self.digests:
            put(self.bin_dir / _LIST, json.dumps(self.digests, indent=2).encode() + b"\n", mode=0o644)
        else:
            remove(self.bin_dir / _LIST)
            with suppress(OSError):  # something is kept there still, or nothing ever was
                (self.bin_dir / _REPLACED).rmdir()

    @property
    def programs(self) -> list[str]:
        """The names of our programs."""
        return [name for name in self.digests if "/" not in name]

    def path(self, name: str) -> Path:
        """Return where a file is."""
        return self.bin_dir / name

    def aside(self, name: str) -> Path:
        """Return where what this program of ours has replaced is kept."""
        return self.bin_dir / _REPLACED / name

    def has_replaced(self, name: str) -> bool:
        """Tell whether there was another program under this name."""
        return os.path.lexists(self.aside(name))

    def owns(self, name: str) -> bool:
        """Tell whether a file is there as we have left it."""
        try:
            return _digest(self.path(name).read_bytes()) in self.digests.get(name, ())
        except OSError:
            return False

    def expect(self, name: str, content: bytes) -> None:
        """Note what is about to be put there. The list is written before that is done."""
        digests = self.digests.setdefault(name, [])
        if _digest(content) not in digests:
            digests.append(_digest(content))

    def keep_aside(self, name: str) -> bool:
        """Keep what somebody else has put under this name; tells whether there was anything. It stays in place."""
        path, aside = self.path(name), self.aside(name)
        if self.owns(name) or not (path.is_symlink() or path.is_file()):
            return False
        aside.parent.mkdir(mode=0o755, exist_ok=True)
        fresh = aside.with_name(f".{name}.new")
        remove(fresh)
        os.link(path, fresh, follow_symlinks=False)
        fresh.rename(aside)
        remove(fresh)  # renaming one link of a file onto another does nothing (rename(2))
        return True

    def give_back(self, name: str) -> str:
        """Put back what was there before a file of ours, or remove ours; returns which, in a word.

        At no time is there nothing under the name, if there was something before us.
        """
        path = self.path(name)
        ours = self.owns(name)
        self.digests.pop(name, None)
        if not ours:
            return "left" if path.exists() else "gone"
        if "/" not in name and self.has_replaced(name):
            self.aside(name).rename(path)
            return "put back"
        remove(path)
        return "removed"


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def put(path: Path, content: bytes, *, mode: int) -> None:
    """Write a file that is there whole or not at all, and lasts: to disk, then by rename."""
    fresh = path.with_name(f".weft-{path.name}.new")
    with ExitStack() as undo:
        undo.callback(remove, fresh)
        remove(fresh)
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with os.fdopen(fd, "wb") as file:
            os.fchmod(fd, mode)
            file.write(content)
            file.flush()
            os.fsync(fd)
        fresh.rename(path)


def remove(path: Path) -> None:
    """Remove a file that may be there."""
    with suppress(FileNotFoundError):
        path.unlink()


@contextmanager
def lasting(directory: Path) -> Iterator[None]:
    """Have the names that are changed inside on the disk before it goes on."""
    yield
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
