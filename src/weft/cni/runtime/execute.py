"""Finding plugins in directories and running them, as every runtime does (cni.md §2.4, §2.5)."""

import errno
import math
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from weft.model.value import Value
from weft.wire.cni import failure
from weft.wire.cnichain import Ran, Step

_BUSY_ATTEMPTS: Final = 6
_BUSY_SECONDS: Final = 1.0
_MOST: Final = 4 << 20  # bytes of an output; a result is of some thousand
_CHUNK: Final = 1 << 16
# What is in the pipes at a program's end is there at once; who else has them may have them for ever.
_LINGER_SECONDS: Final = 1.0
_LOOK_SECONDS: Final = 0.02  # between two looks at a program whose end is told by no descriptor


def _to_stderr(data: bytes) -> None:
    with suppress(OSError):
        os.write(2, data)


class Programs(Value):
    """The plugins of a machine: the directories where they are, and the whole environment that they inherit.

    `timeout` is in seconds and for one call. `stderr` takes what a plugin that succeeds has to say to people.
    """

    paths: Sequence[str]
    env: Mapping[str, str]
    timeout: float | None = None
    stderr: Callable[[bytes], object] = _to_stderr

    def __call__(self, step: Step) -> Ran:
        """Run a plugin. `CniError` if it is not there, or cannot be started."""
        env = {**self.env, "CNI_PATH": ":".join(self.paths), **step.variables}
        ran = execute(self.find(step.plugin), env, step.stdin, timeout=self.timeout)
        if ran.exit == 0 and ran.stderr:
            self.stderr(ran.stderr)
        return ran

    def find(self, plugin: str) -> str:
        """Return the path of a plugin's program."""
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
            return _run(path, env, stdin, math.inf if timeout is None else timeout)
        except OSError as error:
            if error.errno != errno.ETXTBSY or attempt == _BUSY_ATTEMPTS:
                raise failure(f"netplugin failed with no error message: {path}: {error.strerror}") from error
            time.sleep(_BUSY_SECONDS)
    raise AssertionError("the last attempt returns")


def _run(path: str, env: Mapping[str, str], stdin: bytes, timeout: float) -> Ran:
    given = os.memfd_create("stdin", os.MFD_CLOEXEC)
    try:
        os.write(given, stdin)
        os.lseek(given, 0, os.SEEK_SET)
        pipe = subprocess.PIPE
        child = subprocess.Popen([path], env=env, stdin=given, stdout=pipe, stderr=pipe)
    finally:
        os.close(given)
    with child:
        try:
            said, ending = _listen(child, timeout)
        finally:
            child.kill()  # nothing, if it has ended
            status = child.wait()
    if ending:
        return Ran(exit=1, ending=ending)
    ending = f"signal: {signal.strsignal(-status)}" if status < 0 else ""
    return Ran(exit=status, stdout=said["stdout"], stderr=said["stderr"], ending=ending)


def _listen(child: "subprocess.Popen[bytes]", timeout: float) -> tuple[dict[str, bytes], str]:
    """Return what a program says on its two outputs until its end, and why it has to be killed, if it has."""
    said = {"stdout": bytearray(), "stderr": bytearray()}
    end, ended = time.monotonic() + timeout, _descriptor(child.pid)
    with selectors.DefaultSelector() as waiting:
        if ended is not None:
            waiting.register(ended, selectors.EVENT_READ, "")
        for name in said:
            waiting.register(getattr(child, name), selectors.EVENT_READ, name)
        running, why = True, f"no answer within {timeout:g} s"
        try:
            while (running or waiting.get_map()) and (left := end - time.monotonic()) > 0:
                longest = _LOOK_SECONDS if running and ended is None else math.inf
                for key, _ in waiting.select(None if min(left, longest) == math.inf else min(left, longest)):
                    more = os.read(key.fd, _CHUNK) if key.data else b""
                    if not more:
                        waiting.unregister(key.fileobj)
                    elif len(said[key.data]) + len(more) > _MOST:
                        return {}, f"it printed more than {_MOST >> 20} MiB"
                    else:
                        said[key.data] += more
                if running and child.poll() is not None:
                    running, end, why = False, time.monotonic() + _LINGER_SECONDS, ""
        finally:
            if ended is not None:
                os.close(ended)
    return {name: bytes(data) for name, data in said.items()}, why


def _descriptor(pid: int) -> int | None:
    """A descriptor that says when a process has ended; None where the kernel has none (before 5.3), or a filter."""
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None
