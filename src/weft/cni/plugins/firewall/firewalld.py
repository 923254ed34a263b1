"""firewalld through D-Bus: which sources belong to a zone (cni.md §6.3).

The bus is found below the caller's `/`. jeepney makes and reads the messages; the socket is ours.
"""

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from weft.cni.host.files import RootedFiles
from weft.model.net import Ip
from weft.wire.cni import CniError, failure

_BUS: Final = "/run/dbus/system_bus_socket"
_NAME: Final = "org.fedoraproject.FirewallD1"
_ZONES: Final = ("/org/fedoraproject/FirewallD1", _NAME, f"{_NAME}.zone")
_DBUS: Final = ("/org/freedesktop/DBus", "org.freedesktop.DBus", "org.freedesktop.DBus")
_ALREADY: Final = "ZONE_ALREADY_SET"
# It reloads rules by way of other programs, which takes it a second on a busy host.
_SECONDS: Final = 10
_CHUNK: Final = 65536


class Firewalld:
    """On the bus, called with strings, one call at a time."""

    def __init__(self, sock: socket.socket) -> None:
        # Late: only a node with firewalld needs it, and it takes 30 ms.
        from jeepney import Parser
        from jeepney.auth import AuthenticationError, Authenticator

        self._sock = sock
        self._parser = Parser()
        self._serial = 0
        try:
            login = Authenticator()
            for line in login:
                sock.sendall(line)
                login.feed(self._receive())
                if login.authenticated:
                    break
            sock.sendall(login.data_to_send() or b"BEGIN\r\n")
        except (OSError, AuthenticationError) as error:
            raise failure(f"D-Bus: {error}") from error
        self.call(_DBUS, "Hello")

    def add(self, zone: str, addresses: Sequence[Ip]) -> None:
        for address in addresses:
            try:
                self.call(_ZONES, "addSource", zone, _source(address))
            except CniError as error:
                if _ALREADY not in error.msg:
                    raise failure(f"failed to add the address {address} to {zone} zone: {error.msg}") from error

    def remove(self, zone: str, address: Ip) -> None:
        self.call(_ZONES, "removeSource", zone, _source(address))

    def has(self, zone: str, address: Ip) -> bool:
        return bool(self.call(_ZONES, "querySource", zone, _source(address))[0])

    def call(self, address: tuple[str, str, str], method: str, *arguments: str) -> tuple[Any, ...]:
        """A method's error is a `CniError` with the error's name and text."""
        from jeepney import DBusAddress, HeaderFields, MessageType, new_method_call

        path, name, interface = address
        target = DBusAddress(path, bus_name=name, interface=interface)
        message = new_method_call(target, method, "s" * len(arguments) or None, arguments)
        self._serial += 1
        try:
            self._sock.sendall(message.serialise(serial=self._serial))
            answer = self._answer()
        except (OSError, ValueError) as error:
            raise failure(f"D-Bus: {method} of {name}: {error}") from error
        if answer.header.message_type is MessageType.error:
            name = answer.header.fields.get(HeaderFields.error_name, "an error")
            raise failure(f"{name}: {' '.join(map(str, answer.body))}")
        return tuple(answer.body)

    def _answer(self) -> Any:
        from jeepney import HeaderFields

        while True:
            message = self._parser.get_next_message()
            if message is None:
                self._parser.add_data(self._receive())
            elif message.header.fields.get(HeaderFields.reply_serial) == self._serial:
                return message

    def _receive(self) -> bytes:
        data = self._sock.recv(_CHUNK)
        if not data:
            raise ConnectionError("the bus has closed the connection")
        return data


@contextmanager
def opened(files: RootedFiles) -> Iterator[Firewalld | None]:
    """None if there is no bus, or firewalld is not on it."""
    try:
        sock = files.connect(_BUS, seconds=_SECONDS)
    except OSError:
        yield None
        return
    with sock:
        bus = Firewalld(sock)
        yield bus if bus.call(_DBUS, "NameHasOwner", _NAME)[0] else None


def _source(address: Ip) -> str:
    return f"{address}/{address.max_prefixlen}"
