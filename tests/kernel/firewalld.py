"""A system bus of a test's own, and on it what answers to firewalld's name.

The bus is Debian's dbus-daemon; the service keeps the sources of zones, refuses as the real one does, and writes
down what it was told.
"""

import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jeepney import HeaderFields, MessageType, new_error, new_method_return
from jeepney.bus_messages import message_bus
from jeepney.io.blocking import DBusConnection, open_dbus_connection

NAME = "org.fedoraproject.FirewallD1"
SECONDS = 20

_CONFIG = """\
<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <listen>unix:path={socket}</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow send_destination="*" eavesdrop="true"/>
    <allow eavesdrop="true"/>
    <allow own="*"/>
  </policy>
</busconfig>
"""


class FakeFirewalld:
    """Zones by name, each with its sources; `told` is every call of a zone, in order."""

    def __init__(self, address: str) -> None:
        self.zones: dict[str, set[str]] = {"trusted": set(), "public": set()}
        self.told: list[tuple[str, ...]] = []
        self.broken = ""
        self._connection: DBusConnection = open_dbus_connection(address)
        self._connection.send_and_get_reply(message_bus.RequestName(NAME), timeout=SECONDS)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._connection.sock.shutdown(2)
        self._thread.join(SECONDS)
        self._connection.close()

    def _serve(self) -> None:
        while True:
            try:
                call = self._connection.receive()
            except (OSError, EOFError):
                return
            if call.header.message_type is not MessageType.method_call:
                continue
            try:
                signature, body = self._answer(call.header.fields[HeaderFields.member], *call.body)
                reply = new_method_return(call, signature, body)
            except (KeyError, ValueError) as error:
                reply = new_error(call, f"{NAME}.Exception", "s", (str(error.args[0]),))
            self._connection.send(reply)

    def _answer(self, method: str, zone: str, source: str) -> tuple[str, tuple[Any, ...]]:
        self.told.append((method, zone, source))
        if self.broken:
            raise ValueError(self.broken)
        if zone not in self.zones:
            raise ValueError(f"INVALID_ZONE: {zone}")
        sources = self.zones[zone]
        match method:
            case "addSource":
                if source in sources:
                    raise ValueError(f"ZONE_ALREADY_SET: {source}")
                sources.add(source)
            case "removeSource":
                if source not in sources:
                    raise ValueError(f"UNKNOWN_SOURCE: {source}")
                sources.discard(source)
            case "querySource":
                return "b", (source in sources,)
        return "s", (zone,)


@contextmanager
def system_bus(root: Path) -> Iterator[Callable[[], FakeFirewalld]]:
    """Run a bus at run/dbus/system_bus_socket below `root`; calling what this gives puts firewalld on it."""
    socket = root / "run" / "dbus" / "system_bus_socket"
    socket.parent.mkdir(parents=True)
    config = root / "bus.conf"
    config.write_text(_CONFIG.format(socket=socket))
    services: list[FakeFirewalld] = []

    def start() -> FakeFirewalld:
        services.append(FakeFirewalld(f"unix:path={socket}"))
        return services[-1]

    command = ["dbus-daemon", "--nofork", "--nopidfile", "--print-address", f"--config-file={config}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as bus:
        try:
            assert bus.stdout is not None
            assert bus.stdout.readline().startswith(b"unix:path=")
            yield start
        finally:
            for service in services:
                service.close()
            bus.kill()
