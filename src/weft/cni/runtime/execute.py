"""Finding plugins in directories and running them, as every runtime does (cni.md §2.4, §2.5)."""

import errno
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from weft.beside.programs import KilledError, run_here
from weft.model.value import Value
from weft.wire.cni import Ran, failure
from weft.wire.cnichain import Step

_BUSY_ATTEMPTS: Final = 6
_BUSY_SECONDS: Final = 1.0
_MOST: Final = 4 << 20  # bytes of an output; a result is of some thousand


def _to_stderr(data: bytes) -> None:
    with suppress(OSError):
        os.write(2, data)


class Programs(Value):
    """`timeout` is in seconds, for one call. `stderr` takes what a plugin that succeeds has to say to people."""

    paths: Sequence[str]
    env: Mapping[str, str]
    timeout: float | None = None
    stderr: Callable[[bytes], object] = _to_stderr

    def __call__(self, step: Step) -> Ran:
        env = {**self.env, "CNI_PATH": ":".join(self.paths), **step.variables}
        ran = execute(self.find(step.plugin), env, step.stdin, timeout=self.timeout)
        if ran.exit == 0 and ran.stderr:
            self.stderr(ran.stderr)
        return ran

    def find(self, plugin: str) -> str:
        return find(plugin, self.paths)


def find(plugin: str, paths: Sequence[str]) -> str:
    """Return the first regular file of this name in the directories. `CniError` with the words of cni.md §2.4."""
    if not plugin:
        raise failure("no plugin name provided")
    if "/" in plugin:
        raise failure(f"invalid plugin name: {plugin}")
    if not any(paths):
        raise failure("no paths provided")
    for directory in filter(None, paths):
        path = os.path.join(directory, plugin)
        with suppress(ValueError):  # a name with NUL is no file's
            if os.path.isfile(path):
                return path
    raise failure(f'failed to find plugin "{plugin}" in path [{" ".join(paths)}]')


def execute(path: str, env: Mapping[str, str], stdin: bytes, *, timeout: float | None) -> Ran:
    """Run a program to its end, or for `timeout` seconds. `CniError` if it cannot be started.

    A program that is being written at this moment ("text file busy") is tried six times, a second apart. One that
    prints for ever is killed, and who holds its pipes after its end is not waited for.
    """
    for attempt in range(1, _BUSY_ATTEMPTS + 1):
        try:
            return _run(path, env, stdin, timeout)
        except OSError as error:
            if error.errno != errno.ETXTBSY or attempt == _BUSY_ATTEMPTS:
                raise failure(f"netplugin failed with no error message: {path}: {error.strerror}") from error
            time.sleep(_BUSY_SECONDS)
    raise AssertionError("the last attempt returns")


def _run(path: str, env: Mapping[str, str], stdin: bytes, timeout: float | None) -> Ran:
    try:
        ran = run_here([path], environ=env, text=stdin, seconds=timeout, most=_MOST)
    except KilledError as error:
        late = error.errno == errno.ETIMEDOUT
        return Ran(
            exit=1, ending=f"no answer within {timeout:g} s" if late else f"it printed more than {_MOST >> 20} MiB"
        )
    ending = f"signal: {signal.strsignal(-ran.status)}" if ran.status < 0 else ""
    return Ran(exit=ran.status, stdout=ran.out, stderr=ran.err, ending=ending)
