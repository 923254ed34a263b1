"""portmap with sctp, and with a table of connections that is full, in the virtual machine (cni.md §5)."""

import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.kernel.hostports import NODE, OUTSIDE, Ports, Server, ask, mapping, outside
from tests.support.cni.call import Answer
from tests.support.netns import Netns

SCTP = 132  # IPPROTO_SCTP, which Python's socket module may lack
FORMS = ("", "iptables", "nftables")
SECONDS = 3.0


class World:
    """A node with somebody outside."""

    def __init__(self, stack: ExitStack, directory: str) -> None:
        self._stack = stack
        self.host, self.client = self.netns(), self.netns()
        self.ports = Ports(self.host, Path(directory))
        outside(self.host, self.client)

    def netns(self) -> Netns:
        netns = self._stack.enter_context(Netns())
        netns.run("echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad")
        return netns

    def pod(self, id_: str) -> Netns:
        pod = self.netns()
        self.ports.attach(pod, id_)
        return pod


@contextmanager
def world() -> Iterator[World]:
    with ExitStack() as stack:
        yield World(stack, stack.enter_context(tempfile.TemporaryDirectory()))


def options(form: str) -> dict[str, str]:
    return {"backend": form} if form else {}


def serve_sctp(pod: Netns, port: int, family: int) -> Callable[[], str]:
    """Listen; what is returned waits for a connection, and returns who it came from."""

    def opened() -> socket.socket:
        sock = socket.socket(socket.AF_INET6 if family == 6 else socket.AF_INET, socket.SOCK_STREAM, SCTP)
        if family == 6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(("::" if family == 6 else "0.0.0.0", port))  # noqa: S104 - a pod of a test
        sock.listen()
        sock.settimeout(SECONDS)
        return sock

    listener = pod.call(opened)
    pod.closing.callback(listener.close)

    def accept() -> str:
        connection, peer = listener.accept()
        with connection:
            connection.sendall(b"sctp")
        return str(peer[0])

    return accept


def reach_sctp(client: Netns, address: str, port: int) -> socket.socket | None:
    """Connect; None if nobody answers."""

    def inside() -> socket.socket | None:
        sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM, SCTP)
        sock.settimeout(1.0)
        try:
            sock.connect((address, port))
        except OSError:
            sock.close()
            return None
        return sock

    return client.call(inside)


def _succeed(answer: Answer) -> None:
    assert answer.exit == 0, answer


def _check_sctp(form: str, mappings: int) -> None:
    with world() as here:
        pod = here.pod("c1")
        accept = {family: serve_sctp(pod, 7000, family) for family in (4, 6)}
        many = [mapping(9000 + number, 7000, "sctp") for number in range(mappings)]
        _succeed(here.ports.portmap("ADD", *many, **options(form)))
        _succeed(here.ports.portmap("CHECK", *many, **options(form)))
        for family, port in ((4, 9000), (6, 9000 + mappings - 1)):
            found = reach_sctp(here.client, NODE[family], port)
            assert found is not None, f"IPv{family}: nobody answers"
            with found:
                assert accept[family]() == OUTSIDE[family]
                assert found.recv(9) == b"sctp"
        # The same port of another protocol is not mapped.
        assert ask(here.client, NODE[4], 9000, "tcp", seconds=0.5) == ""
        _succeed(here.ports.portmap("DEL", *many, **options(form)))
        assert reach_sctp(here.client, NODE[4], 9000) is None


def check_sctp_in_our_maps() -> None:
    _check_sctp("", 2)


def check_sctp_in_rules_of_iptables() -> None:
    # More than fit into one rule.
    _check_sctp("iptables", 17)


def check_sctp_in_rules_of_nftables() -> None:
    _check_sctp("nftables", 2)


def _flows(here: World) -> list[str]:
    return here.host.run("conntrack -L -p udp 2>/dev/null || true").splitlines()


def _check_udp(form: str) -> None:
    """M25: a client that goes on from the same port reaches the new pod, not the old one's address."""
    with world() as here:
        map_ = mapping(8080, 80, "udp")
        for id_ in ("c1", "c2"):
            pod = here.pod(id_)
            Server(pod, id_, 80, "udp")
            _succeed(here.ports.portmap("ADD", map_, id_=id_, **options(form)))
            assert ask(here.client, NODE[4], 8080, "udp", source=5555) == f"{id_} {OUTSIDE[4]}"
            assert any(here.ports.address(id_) in flow for flow in _flows(here)), "this kernel tracks nothing"
            _succeed(here.ports.portmap("DEL", map_, id_=id_, **options(form)))
            assert not [flow for flow in _flows(here) if "dport=8080" in flow]


def check_udp_in_our_maps() -> None:
    _check_udp("")


def check_udp_in_rules_of_iptables() -> None:
    _check_udp("iptables")


def check_udp_in_rules_of_nftables() -> None:
    _check_udp("nftables")


def check_a_full_table_of_connections() -> None:
    """DEL makes room again, whatever the table's limit: here it is the machine's own, and can be set."""
    limit = Path("/proc/sys/net/netfilter/nf_conntrack_max")
    before = limit.read_text()
    with world() as here:
        try:
            limit.write_text("40")
            map_ = mapping(8080, 80, "udp")
            pod = here.pod("c1")
            Server(pod, "c1", 80, "udp")
            _succeed(here.ports.portmap("ADD", map_, id_="c1"))
            served = [ask(here.client, NODE[4], 8080, "udp", source=5000 + n, seconds=0.2) for n in range(60)]
            assert "" in served, "the table never was full"
            _succeed(here.ports.portmap("DEL", map_, id_="c1"))
            assert not [flow for flow in _flows(here) if "dport=8080" in flow]
            other = here.pod("c2")
            Server(other, "c2", 80, "udp")
            _succeed(here.ports.portmap("ADD", map_, id_="c2"))
            assert ask(here.client, NODE[4], 8080, "udp", source=5000) == f"c2 {OUTSIDE[4]}"
        finally:
            limit.write_text(before)
