"""Tells systemd that the daemon is ready (sd_notify(3))."""

import contextlib
import socket


def notify(address: str, state: str) -> None:
    """Send `state` (`READY=1`) to NOTIFY_SOCKET, if any; `@` begins an abstract name."""
    if not address:
        return
    target = "\0" + address[1:] if address.startswith("@") else address
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock, contextlib.suppress(OSError):
        sock.sendto(state.encode(), target)
