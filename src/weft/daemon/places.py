"""Tries the places that flags name before the first thing is made: a wrong flag leaves the node as it was.

What a trial makes it removes again. A disk that is full, read-only or away is no mistake of a flag: what needs it waits
for it later, and says so.
"""

import errno
import logging
import os
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from weft.config.options import Options
from weft.daemon.disk import instance
from weft.kernel.statefiles import PASSING, made_for_a_trial
from weft.model.errors import ConfigError, Problem

log = logging.getLogger(__name__)

_OTHERS: Final = stat.S_IROTH | stat.S_IWOTH | stat.S_IWGRP


def examine(options: Options) -> None:
    """Raise `ConfigError` with every path that cannot be what its flag says; warn of secrets that others can read."""
    from weft.cni.serve.endpoint import examine as examine_socket  # late: nothing else needs it before the network

    trials: list[Callable[[], None]] = [
        lambda: _try_file("--subnet-file", Path(options.subnet_file)),
        lambda: _try_directory("--state-dir", options.state_dir),
        lambda: examine_socket(options.cni_socket),
    ]
    problems: list[Problem] = []
    for each in trials:
        try:
            each()
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(*problems)
    for warning in _open_secrets(options):
        log.warning("%s", warning)


def listen(options: Options, directory: Path) -> socket.socket | None:
    """Listen at the health port, if one is asked for. Raises `ConfigError`.

    Where the port is taken by a weftd that also holds the directory, the error says that instead: it is the cause.
    """
    if not options.healthz_port:
        return None
    from weft.web import health

    try:
        return health.bind(str(options.healthz_ip), options.healthz_port)
    except ConfigError:
        if directory.is_dir():
            os.close(instance.take_directory(directory))
        raise


def _try_file(flag: str, path: Path) -> None:
    """Try to write a file beside the one that is to be replaced."""
    trial = path.parent / f".{path.name}.try"
    try:
        with made_for_a_trial(str(path.parent)):
            if path.is_dir() and not path.is_symlink():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            with suppress(FileExistsError):
                os.close(os.open(trial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
                trial.unlink()
    except OSError as error:
        _refuse(flag, str(path), error, "a file that weftd may write")


def _try_directory(flag: str, path: str) -> None:
    try:
        with made_for_a_trial(path):
            pass
    except OSError as error:
        _refuse(flag, error.filename or path, error, "a directory that weftd may write")


def _refuse(flag: str, path: str, error: OSError, expected: str) -> None:
    if error.errno not in PASSING:
        seen = f"{path}: {error.strerror}"
        raise ConfigError(Problem(code="FLAG-001", where=flag, seen=seen, expected=expected)) from None


def _open_secrets(options: Options) -> Iterator[Problem]:
    secrets = {
        "--etcd-password-file": options.etcd_password_file,
        "--etcd-keyfile": options.etcd_keyfile,
        "--password-file": options.password_file,
        "--kubeconfig-file": options.kubeconfig_file,
        "WIREGUARD_KEY_FILE": options.wireguard_key_file,
    }
    for name, path in secrets.items():
        with suppress(OSError):  # its reader says why it cannot be read
            mode = Path(path).stat().st_mode if path else 0
            if stat.S_ISREG(mode) and mode & _OTHERS:
                what = "read" if mode & stat.S_IROTH else "change"
                seen = f"mode {stat.S_IMODE(mode):04o}: other users can {what} the secret in it"
                yield Problem(code="FLAG-001", where=f"{name}: {path}", seen=seen, hint=f"Run: chmod 0600 {path}")
