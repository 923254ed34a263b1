"""The plane of a user's commands, which run where peers come and go. What they do is not seen: it has no look.

It knows what it has run. After a restart all are run again, as flannel does; what an earlier run has added, and is
wanted no more, is removed.
"""

import errno
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from ipaddress import ip_network
from pathlib import Path
from typing import Final

import msgspec

from weft.daemon.backends.extension.commands import run
from weft.daemon.disk import files
from weft.daemon.disk.files import Latest
from weft.daemon.planes.contract import Place
from weft.daemon.planes.serving import failed
from weft.desired.backends.extension import Added, Begun, Command
from weft.model.errors import Failure
from weft.model.kernel.objects import Key, Object, Objects
from weft.model.value import Value, replace
from weft.plan.diff import Delete, Put, Step

log = logging.getLogger(__name__)

_SWEEP_SECONDS: Final = 3600.0  # nothing is found by it
_SHOWN: Final = 500
_FILE: Final = "ran.json"  # says of this boot: after another nothing of what commands made is there
_MOST: Final = 1 << 24  # 5,000 peers with 3 KB


class CommandsPlane:
    """Runs one command after the other, as flannel does."""

    kinds = frozenset({"command"})
    sweep = _SWEEP_SECONDS
    announces = False
    blind = False
    counts: Mapping[str, int] = {}

    def __init__(self, place: Place) -> None:
        self._done: dict[Key, Object] = {thing.key: thing for thing in _load(place.directory, place.boot)}
        self._file = _file(place.directory, place.boot, lambda: self._added)
        self._added: tuple[Added, ...] = ()
        self._waiting = False  # for what is to run before any command for a peer

    def close(self) -> None:
        """Undo nothing: peers are reached as before."""

    async def look(self, _known: Objects, only: Collection[Key] | None, /) -> dict[Key, Object]:
        """What has been run."""
        return {key: thing for key, thing in self._done.items() if only is None or key in only}

    async def apply(self, steps: Sequence[Step], /) -> list[Failure]:
        """Run the commands of each step; nothing runs for a peer before what is to run at the start has succeeded."""
        failures = []
        new = [step.object for step in steps if isinstance(step, Put) and step.object.key not in self._done]
        await self._record(*(thing for thing in new if isinstance(thing, Added)))
        for step in steps:
            try:
                await self._do(step)
            except OSError as error:
                failures.append(failed(step, error))
        await self._record()
        return failures

    async def _record(self, *begun: Added) -> None:
        """Write down for whom commands have run, and are about to: one that fails or is killed may have done half."""
        self._added = (*(thing for thing in self._done.values() if isinstance(thing, Added)), *begun)
        await self._file.attempt()

    async def _do(self, step: Step) -> None:
        thing, had = step.object, self._done.get(step.object.key)
        if isinstance(had, Added) and (isinstance(step, Delete) or not _same_peer(had, thing)):
            del self._done[had.key]
            await _remove(had)
            if isinstance(thing, Added) and not isinstance(step, Delete):
                await self._record(thing)
        if isinstance(step, Delete):
            self._done.pop(thing.key, None)
            return
        if isinstance(thing, Begun):
            self._waiting = True
            await _run("PostStartupCommand", thing.command, thing.variables)
            self._waiting = False
        elif isinstance(thing, Added):
            if self._waiting:
                raise OSError(errno.EAGAIN, "it waits for the PostStartupCommand")
            self._done[thing.key] = replace(thing, add=None)  # as after a restart: to be run again, and to be removed
            await _run("SubnetAddCommand", thing.add, thing.variables, thing.text)
        self._done[thing.key] = thing


async def undo(place: Place) -> None:
    """Remove whom an earlier run has added: another back end serves the network now."""
    for thing in _load(place.directory, place.boot):
        await _remove(thing)
    _forget(place.directory)


def _same_peer(had: Added, thing: Object) -> bool:
    """Tell whether the commands are told the same of both."""
    return isinstance(thing, Added) and (had.variables, had.text) == (thing.variables, thing.text)


async def _remove(thing: Added) -> None:
    """Run the command once: what it removes may be gone, so that it never will succeed."""
    try:
        await _run("SubnetRemoveCommand", thing.remove, thing.variables, thing.text)
    except OSError as error:
        log.error("CMD-001 %s", error.strerror)  # noqa: TRY400 - it says all


async def _run(name: str, command: Command | None, variables: Collection[tuple[str, str]], text: str = "") -> None:
    if command is None:
        return
    try:
        said = await run(command, dict(variables), text)
    except OSError as error:
        raise OSError(error.errno, f"{name} ({command}) {error.strerror}") from None
    about = " ".join(f"{key}={value}" for key, value in variables)
    words = " ".join(said.split())[:_SHOWN]
    log.info("%s for %s has run", name, about)
    log.debug("it printed: %s", words)


class _Peer(Value, kw_only=False):
    subnet: str
    variables: tuple[tuple[str, str], ...]
    text: str
    remove: tuple[str, ...]
    expands: bool


class _Ran(Value):
    boot: str
    peers: tuple[_Peer, ...]


def _load(directory: Path, boot: str) -> tuple[Added, ...]:
    """The peers that an earlier run of this boot has added, with the command that removes them and no other."""
    found = files.load(directory / _FILE, msgspec.json.Decoder(_Ran).decode, limit=_MOST, aside=False)
    if found is None or found.boot != boot:
        return ()
    return tuple(
        Added(
            subnet=ip_network(each.subnet),
            variables=each.variables,
            text=each.text,
            add=None,
            remove=Command(words=each.remove, expands=each.expands),
        )
        for each in found.peers
    )


def _forget(directory: Path) -> None:
    """Remove the file."""
    with suppress(OSError):
        (directory / _FILE).unlink()


def _file(directory: Path, boot: str, peers: Callable[[], Iterable[Added]]) -> Latest:
    """The file, which says what `peers` are now; those without a command that removes them need not be known."""

    def content() -> bytes:
        kept = tuple(
            _Peer(str(each.subnet), each.variables, each.text, each.remove.words, each.remove.expands)
            for each in peers()
            if each.remove is not None
        )
        return msgspec.json.encode(_Ran(boot=boot, peers=kept))

    return Latest(directory / _FILE, content, mode=0o600)
