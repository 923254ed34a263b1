"""Who is behind a netlink port, as far as it can be proved: real processes, in a namespace of their own."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.netns import Netns
from tests.support.weftd import eventually
from weft.kernel import namespaces, portholders
from weft.kernel.portholders import Askers, asker
from weft.kernel.rtnetlink.events import Monitor
from weft.kernel.rtnetlink.notices import ObjectChanged
from weft.model.kernel.marks import PROTOCOL

# Opens a socket of rtnetlink with the port that is given, 0 for the kernel's choice, and deletes a route through it.
_PROGRAM = f"""
import socket, struct, sys, time
sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
sock.bind((int(sys.argv[1]), 0))
if sys.argv[2:]:
    sock.close()
    sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
    sock.bind((int(sys.argv[2]), 0))
body = struct.pack("=BBBBBBBBI", 2, 24, 0, 0, 254, {PROTOCOL}, 0, 0, 0)
body += struct.pack("=HH4s", 8, 1, bytes([10, 9, 0, 0]))
sock.send(struct.pack("=IHHII", 16 + len(body), 25, 5, 1, 0) + body)
assert struct.unpack_from("=i", sock.recv(4096), 16) == (0,)
print(sock.getsockname()[0], flush=True)
time.sleep(600)
"""


class Route:
    """A namespace with a route of ours, and what the monitor says when it is deleted."""

    def __init__(self, netns: Netns) -> None:
        self.netns = netns
        self._held = ExitStack()
        netns.bridge("eth0", "10.0.0.1/24")
        netns.run(f"ip route add 10.9.0.0/24 via 10.0.0.2 proto {PROTOCOL}")
        monitor = lambda: Monitor(netns.rtnl, devices={}, uplinks=set(), ports={netns.rtnl.port})  # noqa: E731
        self.monitor = netns.call(monitor)
        self._held.callback(self.monitor.close)

    def port(self) -> int:
        """The port that the notice of the deletion bears."""
        [port] = [each.port for each in self.monitor.read() if isinstance(each, ObjectChanged) and each.thing is None]
        return port

    def program(self, *ports: int) -> tuple[subprocess.Popen[str], int]:
        """A program that deletes the route and lives on, and the port that it has."""
        child, line = self.says([sys.executable, "-c", _PROGRAM, *map(str, ports)])
        return child, int(line)

    def says(self, command: list[str]) -> tuple[subprocess.Popen[str], str]:
        """A program, and the first line that it prints."""
        child = self.netns.popen(command, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        self._held.enter_context(child.stdout)
        return child, child.stdout.readline()

    def sleeper(self) -> subprocess.Popen[bytes]:
        """A program that does nothing."""
        child = self.netns.popen(["sleep", "600"])
        eventually(lambda: Path(f"/proc/{child.pid}/comm").read_text() == "sleep\n")
        return child

    def asker(self, port: int) -> str:
        return self.netns.call(lambda: asker(port))

    def asker_with_few_rights(self, port: int) -> str:
        """What a daemon sees, which may not look at the files of programs that have more rights."""

        def look() -> str:
            namespaces.keep(1 << 12)
            return asker(port)

        return self.netns.call(look)

    def close(self) -> None:
        self._held.close()


@pytest.fixture
def route(netns: Netns) -> Iterator[Route]:
    made = Route(netns)
    yield made
    made.close()


def test_a_program_that_has_the_socket_is_named(route: Route):
    child, port = route.program(0)
    assert route.port() == port == child.pid
    comm = Path(f"/proc/{child.pid}/comm").read_text().strip()
    assert route.asker(port) == f"{comm} (pid {child.pid})"
    assert route.asker_with_few_rights(port) == f"perhaps {comm} (pid {child.pid})"


def test_a_port_that_is_another_programs_number_is_not_that_programs(route: Route):
    innocent = route.sleeper()
    _, port = route.program(innocent.pid)
    assert route.port() == port == innocent.pid
    assert route.asker(port) == f"a program at netlink port {port}"
    assert route.asker_with_few_rights(port) == f"perhaps sleep (pid {port})"


def test_a_second_socket_has_a_port_that_says_nothing(route: Route):
    _, port = route.program(0, 3_000_000_000)
    assert route.port() == port == 3_000_000_000
    assert route.asker(port) == "a program at netlink port 3000000000"


def test_a_program_that_has_ended_is_not_named_and_one_that_has_closed_its_socket_perhaps(route: Route):
    child = route.netns.popen(["ip", "route", "del", "10.9.0.0/24"])
    child.wait()
    assert route.asker(route.port()) == f"a program at netlink port {child.pid}"
    sleeper = route.sleeper()
    assert route.asker(sleeper.pid) == f"perhaps sleep (pid {sleeper.pid})"


def test_what_asks_in_a_pid_namespace_of_its_own_is_no_process_of_ours(route: Route):
    """Its port is its number there; the process that has this number here is another."""
    route.says(["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", _PROGRAM, "0"])
    assert route.port() == 1
    assert route.asker(1) == "a program at netlink port 1"


def test_a_name_that_a_process_chose_is_quoted(route: Route):
    program = "import time; open('/proc/self/comm', 'w').write('x\\33[2J (pid 1)'); print(flush=True); time.sleep(600)"
    child, _ = route.says([sys.executable, "-c", program])
    assert route.asker(child.pid) == rf"perhaps 'x\x1b[2J (pid 1)' (pid {child.pid})"


def test_a_storm_looks_for_some_a_second(monkeypatch: pytest.MonkeyPatch):
    looked: list[int] = []

    def look(port: int) -> str:
        looked.append(port)
        return f"ip (pid {port})"

    monkeypatch.setattr(portholders, "asker", look)
    now = [0.0]
    askers = Askers(lambda: now[0])
    assert [askers.name(7) for _ in range(10_000)] == ["ip (pid 7)"] * 10_000
    assert looked == [7]
    names = [askers.name(port) for port in range(10, 10_010)]
    assert (len(looked), names.count("")) == (20, 10_000 - 19)
    assert askers.name(0) == ""
    now[0] += 1.0
    assert askers.name(7) == "ip (pid 7)"
    assert len(looked) == 21
    now[0] += 0.2
    askers.name(7)
    assert len(looked) == 22, "a port may be another's by now"
