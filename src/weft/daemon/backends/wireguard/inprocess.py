"""WireGuard in a process, wireguard-go's, by its socket: lines of text (https://www.wireguard.com/xplatform/).

What asks a process raises `OSError`.
"""

import errno
import os
import socket
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import suppress
from ipaddress import ip_network
from pathlib import Path
from typing import Final

from weft.desired.tunnels.wireguard import Change, Device, LivePeer, Peer, key_bytes
from weft.kernel.tools import SEARCH_PATH, find
from weft.kernel.unixsockets import peer_of
from weft.model.net import Endpoint
from weft.model.value import Secret

PROGRAM: Final = "wireguard-go"
_FOLDER: Final = Path("/var/run/wireguard")
_SECONDS: Final = 5.0
_NO_KEY: Final = "0" * 64


class InProcess:
    """The devices that wireguard-go serves in this thread's namespace."""

    def process(self, name: str) -> int:
        """The process that serves a device; 0 if there is none, or in another namespace."""
        pid = _holder(name)
        return pid if pid and _is_here(name, pid) else 0

    def device(self, name: str) -> Device | None:
        """None if no process serves it."""
        return look(name) if self.process(name) else None

    def set_device(self, name: str, *, private: Secret, port: int) -> None:
        _ask(name, f"set=1\nprivate_key={_hex(private.reveal())}\nlisten_port={port}\n")

    def set_peers(self, name: str, changes: Mapping[str, Change]) -> None:
        """Change peers by their keys. When it raises, some may be set."""
        if changes:
            _ask(name, "set=1\n" + "".join(line for key, change in changes.items() for line in _peer(key, change)))


def look(name: str) -> Device | None:
    """Look at the device whose socket is there, in any network namespace."""
    try:
        return _device(_ask(name, "get=1\n"))
    except (FileNotFoundError, ConnectionRefusedError):
        return None


def installed() -> str | None:
    return find(PROGRAM, SEARCH_PATH)


def start(name: str) -> int:
    """Have a process serve the existing TUN device `name`; returns its number."""
    program = installed()
    if program is None:
        raise OSError(errno.ENOENT, f"there is no {PROGRAM} in {SEARCH_PATH}")
    if (holder := _holder(name)) and not _is_here(name, holder):
        taken = f"{_FOLDER}/{name}.sock is process {holder}'s, in another network namespace"
        raise OSError(errno.EADDRINUSE, f"{taken}: give one of the two a mount namespace with a folder of its own")
    nowhere = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3)]
    # What it would say of itself goes nowhere: it outlives those to whom it would say it.
    environ = {"WG_PROCESS_FOREGROUND": "1", "LOG_LEVEL": "silent", "PATH": SEARCH_PATH}
    return os.posix_spawn(program, [program, "-f", name], environ, file_actions=nowhere, setsid=True)


def _holder(name: str) -> int:
    """The process that has the socket of this name; 0 if there is none."""
    try:
        with _connect(name) as connection:
            pid, _ = peer_of(connection)
    except (FileNotFoundError, ConnectionRefusedError):
        return 0
    return pid


def _is_here(name: str, pid: int) -> bool:
    """Tell whether the process that has the socket is in the network namespace of this thread."""
    try:
        return Path(f"/proc/{pid}/ns/net").stat().st_ino == Path("/proc/thread-self/ns/net").stat().st_ino
    except FileNotFoundError:
        return False  # it has ended
    except PermissionError:
        # It has a capability that we have not, of an earlier start (ptrace(2)). A namespace lists its own sockets.
        listed = Path("/proc/thread-self/net/unix").read_text(errors="replace").splitlines()
        return any(line.endswith(f" {_FOLDER}/{name}.sock") for line in listed)


def _connect(name: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(_SECONDS)
        connection.connect(f"{_FOLDER}/{name}.sock")
    except BaseException:
        connection.close()
        raise
    return connection


def _ask(name: str, request: str) -> Iterator[tuple[str, str]]:
    """Send a request and read the lines of its answer. The `OSError` has the number that the process gives."""
    with _connect(name) as connection, connection.makefile("rw") as stream:
        stream.write(f"{request}\n")
        stream.flush()
        lines = []
        for line in stream:
            if line == "\n":
                break
            key, _, value = line.rstrip("\n").partition("=")
            lines.append((key, value))
    if not lines or lines[-1][0] != "errno":
        raise OSError(errno.EPIPE, f"{PROGRAM} has not answered")
    if number := abs(int(lines.pop()[1])):
        raise OSError(number, f"{PROGRAM}: {os.strerror(number)}")
    return iter(lines)


def _peer(key: str, change: Change) -> Iterator[str]:
    yield f"public_key={_hex(key)}\n"
    if change.gone:
        yield "remove=true\n"
        return
    peer = change.peer
    if peer is None:
        yield "update_only=true\n"
    else:
        yield f"preshared_key={_NO_KEY if peer.psk is None else _hex(peer.psk.reveal())}\n"
        yield f"persistent_keepalive_interval={peer.keepalive}\n"
        if peer.endpoint is not None:
            yield f"endpoint={peer.endpoint}\n"
    if change.alone:
        yield "replace_allowed_ips=true\n"
    for net in change.networks:
        yield f"allowed_ip={net}\n"


def _device(lines: Iterator[tuple[str, str]]) -> Device:
    private, port = None, 0
    peers: list[dict[str, str]] = []
    nets: list[list[str]] = []
    for key, value in lines:
        if key == "public_key":
            peers.append({})
            nets.append([])
        if key == "allowed_ip":
            nets[-1].append(value)
        elif peers:
            peers[-1][key] = value
        elif key == "private_key" and value != _NO_KEY:
            private = Secret(_base64(value))
        elif key == "listen_port":
            port = int(value)
    return Device(private=private, port=port, peers=tuple(map(_seen, peers, nets)))


def _seen(said: dict[str, str], nets: list[str]) -> LivePeer:
    psk = said.get("preshared_key", _NO_KEY)
    peer = Peer(
        key=_base64(said["public_key"]),
        endpoint=_endpoint(said["endpoint"]) if "endpoint" in said else None,
        psk=None if psk == _NO_KEY else Secret(_base64(psk)),
        keepalive=int(said.get("persistent_keepalive_interval", 0)),
    )
    handshake, sent, received = (int(said.get(each, 0)) for each in ("last_handshake_time_sec", "tx_bytes", "rx_bytes"))
    networks = frozenset(ip_network(net) for net in nets)
    return LivePeer(peer=peer, networks=networks, handshake=handshake, sent=sent, received=received)


def _endpoint(text: str) -> Endpoint | None:
    with suppress(ValueError):
        return Endpoint.parse(text)
    return None


def _hex(key: str) -> str:
    return key_bytes(key).hex()


def _base64(key: str) -> str:
    return b64encode(bytes.fromhex(key)).decode()
