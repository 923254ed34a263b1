"""The files of an installation of weft, by where they are to be put: into an image, or onto a node."""

import hashlib
import os
import subprocess
import sysconfig
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

_EXTENSION: Final = sysconfig.get_config_var("EXT_SUFFIX")  # of Python's modules: .cpython-311-x86_64-linux-gnu.so
_HEAD: Final = 4096


class Tree:
    """Files by their path in it; a later one replaces an earlier."""

    def __init__(self) -> None:
        self.files: dict[str, Path | bytes] = {}
        self.links: dict[str, str] = {}
        self._modes: dict[str, int] = {}
        self._programs: set[Path] = set()
        self._modules: set[Path] = set()

    def file(self, path: str, content: Path | bytes, *, mode: int = 0) -> None:
        """Add a file; without `mode` it has that of its source, or 0644."""
        self.files[path] = content
        if isinstance(content, Path) and content.name.endswith(_EXTENSION):
            self._modules.add(content)
        if mode:
            self._modes[path] = mode

    def link(self, path: str, target: str) -> None:
        """Add a symbolic link."""
        self.links[path] = target

    def program(self, source: Path, path: str = "") -> None:
        """Add a program, whose libraries `libraries` tells."""
        self.file(path or str(source), source.resolve(), mode=0o755)
        self._programs.add(source.resolve())

    def directory(self, source: Path, path: str, *, but: Callable[[str], bool] = lambda _: False) -> None:
        """Add all files below a directory, but those of which `but` says so of their path below it."""
        for folder, names, files in os.walk(source):
            below = Path(folder).relative_to(source)
            names[:] = [name for name in names if not but(str(below / name))]
            for name in files:
                inner = below / name
                if not but(str(inner)):
                    self.file(f"{path}/{inner}", Path(folder) / name)

    def mode(self, path: str) -> int:
        """Return the mode of a file."""
        content = self.files[path]
        return self._modes.get(path, 0o644 if isinstance(content, bytes) else content.stat().st_mode & 0o755)

    def libraries(self) -> set[str]:
        """Return the paths of the libraries that its programs and modules of Python load, the loader among them.

        Other libraries in it are loaded by what has the same libraries already.
        """
        programs = sorted(program for program in self._programs if _is_dynamic(program))
        found: set[str] = set()
        for number, program in enumerate(programs):
            # Modules are no programs: with the first program all of them are looked at at once.
            found |= _loaded(program, () if number else sorted(map(str, self._modules)))
        return found

    def key(self) -> str:
        """Return a text that is another one when a file has another size or time, or another place."""
        seen = hashlib.sha256(repr((self._modes, self.links)).encode())
        for path, content in self.files.items():
            status = None if isinstance(content, bytes) else content.stat()
            what = content if status is None else (str(content), status.st_size, status.st_mtime_ns)
            seen.update(repr((path, what)).encode())
        return seen.hexdigest()


def loader() -> Path:
    """Return the dynamic loader that this process was loaded by."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = Path(line.split(maxsplit=5)[-1])
        if path.name.startswith("ld-"):
            return path
    raise FileNotFoundError("this Python was loaded by no dynamic loader")


def _is_dynamic(program: Path) -> bool:
    with program.open("rb") as file:
        return b"/ld-" in file.read(_HEAD)


def _loaded(program: Path, before: Iterable[str]) -> set[str]:
    """Return what is loaded for a program, and for modules that are loaded before it."""
    environ = {"LD_PRELOAD": " ".join(before)}
    command = [str(loader()), "--list", str(program)]
    said = subprocess.run(command, capture_output=True, text=True, check=True, env=environ).stdout
    words = (line.split() for line in said.splitlines() if "(0x" in line)
    return {next(word for word in line if word.startswith("/")) for line in words if any(w[0] == "/" for w in line)} - {
        *before
    }
