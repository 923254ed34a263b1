"""Open connections on a real node: those that a change forbids end in both directions, and those beside them go on."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.node.plugincalls import Runtime
from tests.node.policyworld import World, attach
from tests.support.netns import Netns
from tests.support.weftd import Cluster, eventually
from weft.cni import build
from weft.cni.install.executables import install

PORT = 9000
SERVICE = "10.96.0.10"
SILENCE = 1.5  # seconds, in which a sender tries again some times


@pytest.fixture(scope="module")
def bin_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    assert build.PROGRAM.build(), "musl-gcc is missing"
    return install(tmp_path_factory.mktemp("bin")).bin_dir


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path / "world")
    for name in ("web", "a", "b"):
        made.pod(name, app=name, open="yes")
    made.policy("only", {"app": "web"}, ingress=[allowing(open="yes")])
    made.write()
    return made


@pytest.fixture
def runtime(cluster: Cluster, tmp_path: Path, bin_dir: Path) -> Runtime:
    """Of a node that is to be started."""
    cluster.configure()
    return Runtime(cluster.node(1), tmp_path, bin_dir)


@pytest.fixture
def held() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def allowing(**labels: str) -> dict[str, object]:
    ports = [{"port": PORT, "protocol": protocol} for protocol in ("TCP", "UDP")]
    return {"from": [{"podSelector": {"matchLabels": labels}}], "ports": ports}


def narrow(world: World) -> None:
    """From now on `b` is not meant."""
    world.policy("only", {"app": "web"}, ingress=[allowing(app="a")])
    world.write()


class Talk:
    """A connection of which both ends send all the time."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.ends = client, server
        self.heard = {client: 0, server: 0}
        self.over = threading.Event()
        self.threads = [threading.Thread(target=self._listen, args=(end,)) for end in self.ends]
        for each in (client, server):
            each.settimeout(0.05)
        for thread in self.threads:
            thread.start()

    def _listen(self, end: socket.socket) -> None:
        while not self.over.is_set():
            with suppress(OSError):
                end.send(b"x")
            with suppress(OSError):
                self.heard[end] += len(end.recv(4096))
            self.over.wait(0.02)

    def goes_on(self, seconds: float = SILENCE) -> tuple[bool, bool]:
        """Whether the client and the server hear of each other from now on."""
        before = dict(self.heard)
        self.over.wait(seconds)
        client, server = (self.heard[end] > before[end] for end in self.ends)
        return client, server

    def close(self) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join()


def tcp(held: ExitStack, web: Netns) -> Callable[[Netns, str, int], Talk]:
    server = held.enter_context(web.call(lambda: socket.create_server(("", PORT))))

    def begin(pod: Netns, target: str, port: int) -> Talk:
        client = held.enter_context(pod.call(lambda: socket.create_connection((target, port), 2)))
        talk = Talk(client, held.enter_context(server.accept()[0]))
        held.callback(talk.close)
        return talk

    return begin


def udp(held: ExitStack, web: Netns) -> Callable[[Netns, str, int], Talk]:
    """The server answers each client from a socket of its own, at the same port."""

    def bound() -> socket.socket:
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(("", PORT))
        return made

    def begin(pod: Netns, target: str, port: int) -> Talk:
        def connected() -> socket.socket:
            made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            made.connect((target, port))
            return made

        client, server = (held.enter_context(each) for each in (pod.call(connected), web.call(bound)))
        client.send(b"first")
        server.settimeout(1)
        try:
            server.connect(server.recvfrom(100)[1])
        except TimeoutError:
            server.close()
            raise
        talk = Talk(client, server)
        held.callback(talk.close)
        return talk

    return begin


def opens(begin: Callable[[Netns, str, int], Talk], pod: Netns, target: str, port: int) -> bool:
    try:
        return begin(pod, target, port).goes_on(0.3) == (True, True)
    except TimeoutError:
        return False


@pytest.mark.parametrize("kind", [tcp, udp])
@pytest.mark.parametrize("service", [False, True], ids=["direct", "behind DNAT"])
def test_what_is_forbidden_now_is_cut_and_the_one_beside_it_stays(runtime, world, held, kind, service):
    runtime.node.start(*world.flags)
    (web, ip), (a, _), (b, _) = (attach(runtime, name) for name in ("web", "a", "b"))
    target, port = (SERVICE, 80) if service else (ip, PORT)
    if service:
        dnat = "add table ip svc; add chain ip svc p { type nat hook prerouting priority -100; };"
        for protocol in ("tcp", "udp"):
            dnat += f" add rule ip svc p ip daddr {SERVICE} {protocol} dport 80 dnat to {ip}:{PORT};"
        runtime.node.netns.run(["nft", dnat])
        for pod in (a, b):
            pod.run(f"ip route replace {SERVICE} via {runtime.node.v4[1]}")
    begin = kind(held, web)
    stays, goes = begin(a, target, port), begin(b, target, port)
    assert stays.goes_on(0.5) == goes.goes_on(0.5) == (True, True)
    narrow(world)
    eventually(lambda: goes.goes_on(0.3) == (False, False))
    assert goes.goes_on() == (False, False), "answers do not bring it back"
    assert stays.goes_on(0.5) == (True, True)
    world.policy("only", {"app": "web"}, ingress=[allowing(open="yes")])
    world.write()
    eventually(lambda: opens(begin, b, target, port))


def test_what_leaves_is_cut_when_the_label_of_its_target_changes(runtime, world, held):
    runtime.node.start(*world.flags)
    (web, ip), (a, _) = attach(runtime, "web"), attach(runtime, "a")
    world.policy("out", {"app": "a"}, egress=[{"to": [{"podSelector": {"matchLabels": {"app": "web"}}}]}])
    world.write()
    talk = tcp(held, web)(a, ip, PORT)
    assert talk.goes_on(0.5) == (True, True)
    world.pod("web", app="other", open="yes")
    world.write()
    eventually(lambda: talk.goes_on(0.3) == (False, False))
    assert talk.goes_on() == (False, False)


@pytest.mark.parametrize("mode", ["enforce", "audit"])
def test_policies_that_are_turned_on_cut_what_is_open_and_an_audit_cuts_nothing(runtime, world, held, mode):
    runtime.node.start()
    (web, ip), (a, _), (b, _) = (attach(runtime, name) for name in ("web", "a", "b"))
    runtime.node.netns.run("sysctl -q net.bridge.bridge-nf-call-iptables=1")
    tracked = (
        "add table ip t; add chain ip t f { type filter hook forward priority 0; }; add rule ip t f ct state new accept"
    )
    runtime.node.netns.run(["nft", tracked])
    begin = tcp(held, web)
    stays, goes = begin(a, ip, PORT), begin(b, ip, PORT)
    narrow(world)
    runtime.node.stop()
    runtime.node.start(f"--network-policy={mode}", world.flags[1])
    if mode == "enforce":
        eventually(lambda: goes.goes_on(0.3) == (False, False))
    assert goes.goes_on() == ((False, False) if mode == "enforce" else (True, True))
    assert stays.goes_on(0.5) == (True, True)
