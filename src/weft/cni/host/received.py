"""What a client has sent: descriptors, each of which is checked before it is used, and what it says of its pod's."""

import errno
import os
import socket
from fcntl import ioctl
from typing import Final

from weft.kernel.namespaces import CLONE_NEWNET
from weft.wire import cni
from weft.wire.cni import CniError

_SIOCGSKNS: Final = 0x894C  # linux/sockios.h: a descriptor of a socket's network namespace
# asm-generic/socket.h: Python names neither.
_SO_PROTOCOL: Final = 38
_SO_DOMAIN: Final = 39
_NS_GET_NSTYPE: Final = 0xB703  # linux/nsfs.h
_ERRNO_DIGITS: Final = 4  # MAX_ERRNO is 4095 (linux/err.h)

NamespaceId = tuple[int, int]


def namespace_of(fd: int) -> NamespaceId:
    """Return device and inode of a network namespace. `CniError` if the descriptor is none of a namespace."""
    try:
        if ioctl(fd, _NS_GET_NSTYPE) != CLONE_NEWNET:
            raise OSError(errno.EINVAL, "it belongs to another kind")
    except OSError as error:
        raise CniError(cni.BAD_NETNS, f"a descriptor that should be a network namespace is none: {error}") from error
    seen = os.fstat(fd)
    return seen.st_dev, seen.st_ino


def namespace_of_socket(fd: int) -> NamespaceId:
    """Return device and inode of the network namespace that a socket lives in. `CniError` if it is no socket."""
    try:
        netns = ioctl(fd, _SIOCGSKNS)
    except OSError as error:
        raise CniError(cni.BAD_NETNS, f"a descriptor that should be a socket is none: {error}") from error
    try:
        return namespace_of(netns)
    finally:
        os.close(netns)


def check_route(fd: int) -> None:
    """Refuse a socket of another kind. Its own numbers are asked for: those of the object are what we say."""
    sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE, fileno=fd)
    try:
        kind = sock.getsockopt(socket.SOL_SOCKET, _SO_DOMAIN), sock.getsockopt(socket.SOL_SOCKET, _SO_PROTOCOL)
    finally:
        sock.detach()
    if kind != (socket.AF_NETLINK, socket.NETLINK_ROUTE):
        raise CniError(cni.INTERNAL, "the client has sent a socket that is not of rtnetlink")


def describe_netns_problem(problem: str, path: str) -> str:
    """Return the words of cni.md §1.18 for `STEP NUMBER`: which step failed for the path, and how."""
    if not problem:
        return ""
    step, _, number = problem.partition(" ")
    if step == "magic":
        return f'unknown FS magic on "{path}": {number}'
    is_errno = number.isascii() and number.isdigit() and len(number) <= _ERRNO_DIGITS
    reason = os.strerror(int(number)) if is_errno else problem
    reason = reason[:1].lower() + reason[1:]
    return f'failed to {"Statfs" if step == "statfs" else step} "{path}": {reason}'


def is_gone(problem: str) -> bool:
    """Tell whether `STEP NUMBER` says that the path leads to no network namespace any more, whatever lies there.

    After a crash or a reboot it may lead to the file or the directory on which the namespace was mounted, to a process
    that is no more, or below something else.
    """
    return problem in _GONE or problem.startswith("magic ")


_GONE: Final = frozenset(
    f"{step} {number}"
    for step, numbers in {
        "statfs": (errno.ENOENT, errno.ENOTDIR),
        "open": (errno.ENOENT, errno.ENOTDIR, errno.ESRCH, errno.ENXIO),
        "setns": (errno.EINVAL,),
    }.items()
    for number in numbers
)


def check_settings(name: str, fd: int) -> None:
    """Refuse what is no directory of settings: written through, a wrong one might change the host's."""
    try:
        target = os.readlink(f"/proc/self/fd/{fd}")
    except OSError as error:
        raise CniError(cni.INTERNAL, f"the directory of settings {name!r} cannot be looked at: {error}") from error
    if "/" in name or not target.endswith(f"/sys/net/{name}"):
        raise CniError(cni.INTERNAL, f"the client has sent {target!r} as the directory of settings {name!r}")
