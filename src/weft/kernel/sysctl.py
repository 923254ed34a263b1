"""Settings below /proc/sys, of the calling thread's network namespace.

A container cannot write its own /proc/sys; deploy/kubernetes.yaml mounts the node's `net` part elsewhere.
"""

import errno
from pathlib import Path
from typing import Final

from weft.model.errors import Failure
from weft.model.kernel.objects import Sysctl

_NODE: Final = Path("/host/proc/sys")
ROOT: Final = _NODE if (_NODE / "net/ipv4").is_dir() else Path("/proc/sys")


def read(name: str) -> str | None:
    """`name` has slashes (`net/ipv4/ip_forward`); None if this machine has no such setting."""
    try:
        return (ROOT / name).read_text().strip()
    except OSError as error:
        # A setting of a link that goes while it is read says ENODEV or EINVAL.
        if error.errno in (errno.ENOENT, errno.ENODEV, errno.EINVAL):
            return None
        raise


def write(wanted: Sysctl) -> Failure | None:
    try:
        (ROOT / wanted.name).write_text(wanted.value)
    except OSError as error:
        number = error.errno or errno.EIO
        return Failure(step=wanted, errno=number, message=f"/proc/sys/{wanted.name}: {error.strerror}")
    return None
