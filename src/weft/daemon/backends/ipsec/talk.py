"""What weft says to a charon, and what it hears, in the terms of the model (vici's README.md, swanctl.conf(5)).

Each function raises `OSError`.
"""

import errno
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from ipaddress import IPv4Address
from pathlib import Path
from struct import Struct
from typing import Final, Self

from weft.desired.backends.ipsec.objects import REQID, Connection, SharedKey
from weft.kernel.unixsockets import peer_of
from weft.wire import vici
from weft.wire.vici import Message, Section

IKE_PROPOSAL: Final = "aes256-sha256-modp4096"
_KEY_PREFIX: Final = "weft-"
_DPD_SECONDS: Final = 10  # between two questions whether a peer that is silent is there
# Packets: with the usual 32, those that one processor is late with are taken for replayed ones, and dropped.
_REPLAY_WINDOW: Final = 1024
# A child in one of these states carries packets, or is about to.
_ALIVE: Final = frozenset({"CREATED", "ROUTED", "INSTALLING", "INSTALLED", "UPDATING", "REKEYING", "REKEYED"})
LONGEST_PATH: Final = 107  # bytes of a socket's path (struct sockaddr_un)
_SECONDS: Final = 5.0  # for one answer, or one event of a list
_LENGTH: Final = Struct("!I")
_MOST: Final = 512 * 1024  # bytes of a packet (vici's README.md)


class Session:
    """A connection to a charon. A context manager; `close` it otherwise.

    Answers do not say which request they belong to: after a missing one, each would be taken for the next. So every
    failure but a refusal ends the session, and all later calls raise ENOTCONN.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._ended = ""
        self.pid, _ = peer_of(connection)

    @classmethod
    def to(cls, path: Path) -> Self | None:
        """None if no charon listens there. Raises `OSError`."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(_SECONDS)
        try:
            connection.connect(str(path))
            return cls(connection)
        except (FileNotFoundError, ConnectionRefusedError):
            connection.close()
            return None
        except BaseException:
            connection.close()
            raise

    def close(self) -> None:
        self._socket.close()

    def ask(self, command: str, message: Message | None = None) -> Section:
        """Raises `OSError`: EREMOTEIO with charon's words for what it refuses."""
        with self._whole():
            self._send(vici.packet(vici.REQUEST, command, message))
            return _checked(command, self._receive())

    def list(self, command: str, event: str, take: Callable[[Section], None]) -> None:
        """Have charon send a list, an event for each entry, which `take` gets. Raises `OSError`."""
        with self._whole():
            self._register(vici.REGISTER, event)
            self._send(vici.packet(vici.REQUEST, command, {}))
            while (answer := self._receive())[0] == vici.EVENT:
                take(answer[1])
            _checked(command, answer)
            self._register(vici.UNREGISTER, event)

    @contextmanager
    def _whole(self) -> Iterator[None]:
        if self._ended:
            raise OSError(errno.ENOTCONN, f"the conversation with charon has ended: {self._ended}")
        try:
            yield
        except OSError as error:
            if error.errno != errno.EREMOTEIO:
                self._ended = error.strerror or str(error)
                self.close()
            raise

    def _register(self, kind: int, event: str) -> None:
        self._send(vici.packet(kind, event))
        answer, _ = self._receive()
        if answer != vici.CONFIRM:
            raise OSError(errno.EPROTO, f"charon does not know the event {event}")

    def _send(self, data: bytes) -> None:
        self._socket.settimeout(_SECONDS)
        self._socket.sendall(_LENGTH.pack(len(data)) + data)

    def _receive(self) -> tuple[int, Section]:
        end = time.monotonic() + _SECONDS
        (length,) = _LENGTH.unpack(self._bytes(_LENGTH.size, end))
        if length > _MOST:
            raise OSError(errno.EPROTO, f"charon announces {length} bytes")
        try:
            return vici.unpack(self._bytes(length, end))
        except vici.Unreadable as error:
            raise OSError(errno.EPROTO, f"charon's answer: {error}") from None

    def _bytes(self, count: int, end: float) -> bytes:
        """Read so many bytes before the time `end`, however slowly they come."""
        data = bytearray()
        while len(data) < count:
            self._socket.settimeout(max(end - time.monotonic(), 0.001))
            more = self._socket.recv(count - len(data))
            if not more:
                raise OSError(errno.EPIPE, "charon has closed the connection")
            data += more
        return bytes(data)


def _checked(command: str, answer: tuple[int, Section]) -> Section:
    kind, told = answer
    if kind != vici.RESPONSE:
        raise OSError(errno.EPROTO, f"charon does not know the command {command}")
    if told.get("success", "yes") != "yes":
        raise OSError(errno.EREMOTEIO, f"charon refuses {command}: {told.get('errmsg', 'it does not say why')}")
    return told


def is_up(session: Session) -> bool:
    """Wait until charon has begun; False if it ends. It listens before it has begun, and may still end."""
    try:
        session.ask("version")
    except ConnectionError:
        return False
    return True


def load_key(session: Session, key: SharedKey) -> None:
    """Replace the node's key."""
    owner = str(key.owner)
    session.ask("load-shared", {"id": _KEY_PREFIX + owner, "type": "IKE", "data": key.secret, "owners": [owner]})


def unload_key(session: Session, owner: IPv4Address) -> None:
    with _absent():
        session.ask("unload-shared", {"id": f"{_KEY_PREFIX}{owner}"})


def load_connection(session: Session, connection: Connection) -> None:
    """Load a connection; its running sessions stay."""
    session.ask("load-conn", {connection.name: _connection(connection)})


def unload_connection(session: Session, name: str) -> None:
    """Unload a connection and end its sessions."""
    with _absent():
        session.ask("unload-conn", {"name": name})
    with _absent():
        session.ask("terminate", {"ike": name, "force": "yes", "timeout": "-1"})


def initiate(session: Session, connection: Connection) -> None:
    """Begin to negotiate with a peer again; charon goes on by itself."""
    session.ask("initiate", {"child": connection.child, "ike": connection.name, "timeout": "-1"})


def owners(session: Session) -> Iterator[IPv4Address]:
    """The nodes whose keys charon has from us."""
    keys = session.ask("get-shared").get("keys", [])
    for name in keys:
        with suppress(ValueError):
            yield IPv4Address(name.removeprefix(_KEY_PREFIX))


def connections(session: Session) -> list[str]:
    return list(session.ask("get-conns").get("conns", []))


def sessions(session: Session) -> dict[str, bool]:
    """The connections that charon negotiates with peers, and whether packets go by them."""
    found: dict[str, bool] = {}

    def take(told: Section) -> None:
        for name, said in told.items():
            if isinstance(said, dict) and said.get("state") != "DELETING":
                children = said.get("child-sas")
                alive = isinstance(children, dict) and any(map(_is_alive, children.values()))
                begins = said.get("state") in ("CREATED", "CONNECTING")
                if alive or begins:
                    found[name] = found.get(name, False) or alive

    session.list("list-sas", "list-sa", take)
    return found


def _is_alive(child: object) -> bool:
    return isinstance(child, dict) and child.get("state") in _ALIVE


def _connection(wanted: Connection) -> Message:
    """As upstream, plus probes for dead peers.

    Where charon carries packets, numbers of its own tell its peers' states apart, and routes of its own lead to them;
    no packet triggers a negotiation there, so a closed connection begins again at once.
    """
    child: dict[str, str | list[str]] = {
        "local_ts": [str(wanted.local.subnet)],
        "remote_ts": [str(wanted.remote.subnet)],
        "esp_proposals": [wanted.proposal],
        "start_action": "start",
        "close_action": "start" if wanted.in_process else "trap",
        "dpd_action": "restart",
        "mode": "tunnel",
        "rekey_time": "1h",
        "replay_window": str(_REPLAY_WINDOW),
        "policies": "yes" if wanted.in_process else "no",
    }
    if not wanted.in_process:
        child["reqid"] = str(REQID)
    return {
        "version": "2",
        "local_addrs": [str(wanted.local.public)],
        "remote_addrs": [str(wanted.remote.public)],
        "proposals": [IKE_PROPOSAL],
        "keyingtries": "0",
        "encap": "yes" if wanted.udp_encap else "no",
        "dpd_delay": f"{_DPD_SECONDS}s",
        "local": {"auth": "psk"},
        "remote": {"auth": "psk"},
        "children": {wanted.child: child},
    }


@contextmanager
def _absent() -> Iterator[None]:
    """Treat "not found" as success."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.EREMOTEIO:
            raise
