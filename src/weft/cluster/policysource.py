"""Where policies, and the pods and namespaces that they speak of, are read.

Here that is files, for nodes without Kubernetes, whose API is the other source (weft.cluster.kube.policies). A file is
read again when it changes. One that cannot be read or understood changes nothing: what was read before holds.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final, NoReturn, Protocol

from weft.beside.files import read_now
from weft.beside.threads import bounded
from weft.model.errors import ConfigError, Problem
from weft.model.policy import Id, Thing
from weft.model.value import Value, replace
from weft.wire.policyobjects import ENDINGS, Objects, read_objects

_LARGEST: Final = 64 << 20
_LOOK_SECONDS: Final = 0.25
_READ_SECONDS: Final = 10.0
# A file that was written a moment ago may be half of what is to be in it, and so may a directory.
_REST_SECONDS: Final = 0.2

_Stamp = tuple[tuple[str, int, int, int], ...]


class Change(Value):
    """What is known now. `problems` are all that there are; `written` is when it was, in seconds since 1970.

    `current` is False while there may be something newer that cannot be read.
    """

    put: tuple[Thing, ...] = ()
    gone: tuple[Id, ...] = ()
    problems: tuple[Problem, ...] = ()
    written: float = 0.0
    current: bool = True


TakeChange = Callable[[Change | ConfigError], None]


class PolicySource(Protocol):
    """`advice` is for people whose pod is not known. `things` is all that was told, kept up before each change.

    `node` is this node's name once that is known, empty where pods do not say on which node they are. `settled`: all
    that was read is in what was told. `files` is the path of a source that is one.
    """

    @property
    def advice(self) -> str: ...

    @property
    def node(self) -> str: ...

    @property
    def things(self) -> Mapping[Id, Thing]: ...

    @property
    def settled(self) -> bool: ...

    @property
    def files(self) -> str: ...

    def form(self, name: Id) -> str:
        """Tell whether a policy or a namespace was read as somebody wrote it; empty where there is none."""
        ...

    async def run(self, take: TakeChange) -> NoReturn:
        """Give `take` all there is, then each change, or why it is not known."""
        ...

    async def ask(self, pod: Id) -> None:
        """Look for a pod now that is not known."""
        ...


def written_at(path: Path) -> float:
    """When a file was written, as a `Change` of it says: `st_mtime` may be another float, and a later one."""
    return path.stat().st_mtime_ns / 1e9


class Files:
    """A file, or the files of a directory that end in one of `ENDINGS`."""

    advice = "Add it where the policies are read"
    node = ""
    settled = True

    def __init__(self, path: Path) -> None:
        self.things: dict[Id, Thing] = {}
        self.files = str(path)
        self._path = path

    def form(self, name: Id) -> str:  # noqa: ARG002 - the protocol has it
        """A file's time says more (`Change.written`)."""
        return ""

    async def ask(self, pod: Id) -> None:
        """Files are looked at often enough."""

    async def run(self, take: TakeChange) -> NoReturn:
        stamp: _Stamp | None = None
        said = ""
        while True:
            try:
                look = await bounded(("policies", str(self._path)), partial(self._look, stamp), seconds=_READ_SECONDS)
            except OSError as error:
                if str(error) != said:  # it may be there again as it was, which is then said
                    stamp, said = None, str(error)
                    take(self._unreadable(error))
            else:
                if look is not None:
                    stamp, said = look[0], ""
                    take(look[1] if isinstance(look[1], ConfigError) else self._change(look[1]))
            await asyncio.sleep(_LOOK_SECONDS)

    def _change(self, found: Objects) -> Change:
        before, self.things = self.things, {each.id: each for each in found.things}
        put = tuple(each for name, each in self.things.items() if before.get(name) != each)
        gone = tuple(before.keys() - self.things.keys())
        return Change(put=put, gone=gone, problems=found.problems, written=found.written)

    def _look(self, before: _Stamp | None) -> tuple[_Stamp, Objects | ConfigError] | None:
        """None while nothing has changed, or something changes now."""
        stamp = self._stamp()
        if stamp == before or self._is_fresh(stamp):
            return None
        texts = {file: read_now(file, limit=_LARGEST).decode(errors="replace") for file, *_ in stamp}
        if self._stamp() != stamp:
            return None
        try:
            return stamp, replace(read_objects(texts), written=max((at / 1e9 for *_, at in stamp), default=0.0))
        except ConfigError as error:
            return stamp, error

    def _stamp(self) -> _Stamp:
        path = self._path
        files = sorted(each for each in path.iterdir() if each.name.endswith(ENDINGS)) if path.is_dir() else [path]
        stats = ((file, file.stat()) for file in files)
        return tuple((str(file), stat.st_ino, stat.st_size, stat.st_mtime_ns) for file, stat in stats)

    def _is_fresh(self, stamp: _Stamp) -> bool:
        now, written = time.time(), [each[-1] for each in stamp]
        if self._path.is_dir():  # an editor may have moved a file away to write it again
            written.append(self._path.stat().st_mtime_ns)
        return any(abs(now - each / 1e9) < _REST_SECONDS for each in written)

    def _unreadable(self, error: OSError) -> ConfigError:
        seen = f"cannot be read: {error.strerror or error}"
        hint = "What was read before holds. Trying again"
        return ConfigError(
            Problem(code="POL-003", where=str(self._path), seen=seen, expected="YAML or JSON", hint=hint)
        )
