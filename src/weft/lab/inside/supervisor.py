"""The process that is a lab: it owns the lab's namespaces, and its end is the lab's end.

    python -m weft.lab.inside.supervisor LISTENER DIRECTORY

The first stage makes the namespaces and a child, writes the child's process number and start time to DIRECTORY/pid, and
ends. The child is the first process of its pid namespace and serves the socket LISTENER. It also inherits the open lock
file that shows that the lab lives, and passes it on to no child. A first stage that fails writes why to its standard
output, as JSON, and exits with 1.
"""

import asyncio
import errno
import os
import resource
import signal
import socket
import sys
from pathlib import Path

import msgspec

from weft.kernel.namespaces import (
    CLONE_NEWIPC,
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWPID,
    CLONE_NEWUSER,
    CLONE_NEWUTS,
    unshare,
)
from weft.lab import system
from weft.lab.inside import filesystem
from weft.lab.inside.requests.server import Server
from weft.lab.protocol import Failed
from weft.model.errors import ConfigError, Problem

# All that `Inside` enters and leaves must be ours: a user namespace gives no right to go back to the machine's own.
_KINDS = CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID


def main() -> None:
    listener, directory = int(sys.argv[1]), Path(sys.argv[2])
    try:
        _enter_namespaces()
    except OSError as error:
        sys.stdout.buffer.write(msgspec.json.encode(Failed.of(ConfigError(_refused(error)))))
        sys.exit(1)
    # Both stages are in one mount namespace, where /run and /proc soon are others: both are reached by descriptor.
    place = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    child = os.fork()
    if child:
        pid = os.open("pid", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600, dir_fd=place)
        os.write(pid, f"{child} {system.start_time(child, proc)}\n".encode())
        os._exit(0)  # what is open belongs to the child
    os.close(proc)
    logs = os.open("logs", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=place)
    _detach(logs)
    filesystem.prepare_lab()
    asyncio.run(_serve(socket.socket(fileno=listener), logs))


async def _serve(listener: socket.socket, logs: int) -> None:
    listener.set_inheritable(False)
    server = Server(listener, logs=logs)
    # The first process of a pid namespace gets only signals that it asks for.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, server.ended.set)
    await server.serve()


def _enter_namespaces() -> None:
    """As root or, where we may not, as root of a user namespace of our own."""
    user, group = os.geteuid(), os.getegid()
    try:
        unshare(_KINDS)
    except PermissionError:
        unshare(CLONE_NEWUSER)
        proc = Path("/proc/self")
        (proc / "setgroups").write_text("deny")  # user_namespaces(7): else gid_map is refused
        (proc / "uid_map").write_text(f"0 {user} 1")
        (proc / "gid_map").write_text(f"0 {group} 1")
        unshare(_KINDS)


def _detach(logs: int) -> None:
    """Leave the terminal and the directory; what goes wrong goes to the log."""
    log = os.open("supervisor.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600, dir_fd=logs)
    nothing = os.open("/dev/null", os.O_RDONLY)
    for source, targets in ((nothing, (0,)), (log, (1, 2))):
        for target in targets:
            os.dup2(source, target)
        os.close(source)
    os.chdir("/")
    # A node takes six descriptors and a pod five.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard) if soft < hard else (soft, hard))


def _refused(error: OSError) -> Problem:
    hint = "Run it as root, or allow user namespaces: sysctl kernel.unprivileged_userns_clone=1, "
    hint += "kernel.apparmor_restrict_unprivileged_userns=0, user.max_user_namespaces=10000."
    if error.errno == errno.ENOSPC:
        hint = "Too many namespaces: look at /proc/sys/user/max_*_namespaces."
    return Problem(
        "HOST-002", "namespaces", str(error), expected="a kernel that lets this user make namespaces", hint=hint
    )


if __name__ == "__main__":
    main()
