"""Services of a lab lead where they say: by address, by port of a node and to the pod itself, in both families."""

import json
import sys
from collections.abc import Iterator

import pytest

from tests.support.lab import Lab, lab, network, write_file
from tests.support.weftd import eventually

# Answers each connection and each datagram at port 8080 with the host's name and the address that it sees.
SERVER = """
import selectors, socket
sel = selectors.DefaultSelector()
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
    s = socket.socket(socket.AF_INET6, kind)
    s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    s.bind(("::", 8080))
    if kind == socket.SOCK_STREAM:
        s.listen(64)
    sel.register(s, selectors.EVENT_READ)
while True:
    for key, _ in sel.select():
        s = key.fileobj
        if s.type == socket.SOCK_STREAM:
            c, peer = s.accept()
            c.sendall(f"{socket.gethostname()} {peer[0].removeprefix('::ffff:')}".encode())
            c.close()
        else:
            _, peer = s.recvfrom(99)
            s.sendto(f"{socket.gethostname()} {peer[0].removeprefix('::ffff:')}".encode(), peer)
"""
# Asks argv[1]:argv[2] so many times as argv[3] says, and prints the answers as JSON.
CLIENT = """
import json, socket, sys
host, port, times, udp = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[-1 if "6" in udp else 0]
said = []
sock = socket.socket(family, socket.SOCK_DGRAM)
for _ in range(times):
    try:
        if "udp" in udp:
            sock.settimeout(2)
            sock.connect(address)
            sock.send(b"?")
            said.append(sock.recv(99).decode().split())
        else:
            with socket.create_connection(address[:2], 2) as s:
                said.append(s.recv(99).decode().split())
    except OSError as error:
        said.append([type(error).__name__, ""])
print(json.dumps(said))
"""

# One and the same flow, of datagrams.
FLOW = """
import socket
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.settimeout(3)
sock.bind(("", 4444))
sock.connect(("dns", 53))
sock.send(b"?")
print(sock.recv(99).decode())
"""


def serve(running: Lab, pod: str) -> None:
    running.run(pod, "sh", "-c", 'setsid "$0" -c "$1" >/dev/null 2>&1 </dev/null &', sys.executable, SERVER)
    eventually(lambda: ":1F90 " in running.run(pod, "cat", "/proc/net/tcp6", "/proc/net/udp6"))


def ask(running: Lab, where: str, host: str, port: int, *, times: int = 1, how: str = "") -> list[tuple[str, str]]:
    said = json.loads(running.run(where, sys.executable, "-c", CLIENT, host, str(port), str(times), how))
    return [(name, address) for name, address in said]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    content = {
        "network": network("vxlan", "46"),
        "nodes": 2,
        "services": [
            {"name": "web", "port": 80, "targetPort": 8080, "pods": ["pod1-1", "pod2-1"], "nodePort": 30080},
            {"name": "own", "port": 80, "targetPort": 8080, "pods": "pod1-1"},
        ],
    }
    with lab(write_file(tmp_path_factory.mktemp("lab"), **content)) as running:
        for pod in ("pod1-1", "pod2-1", "pod2-2"):
            serve(running, pod)
        yield running


def addresses(running: Lab, pod: str) -> list[str]:
    return [address.split("/")[0] for address in running.pod(pod)["addresses"]]


@pytest.mark.parametrize("how", ["4", "6"])
@pytest.mark.parametrize("where", ["pod1-2", "pod2-2"])
def test_by_name_from_a_pod_to_each_endpoint_and_the_source_is_kept(running: Lab, where: str, how: str):
    said = ask(running, where, "web", 80, times=24, how=how)
    assert {name for name, _ in said} == {"pod1-1", "pod2-1"}
    assert {seen for _, seen in said} <= set(addresses(running, where))


@pytest.mark.parametrize("how", ["4", "6"])
def test_from_nodes_and_by_their_ports(running: Lab, how: str):
    for where, host, port in (("node1", "web", 80), ("node1", "node2", 30080), ("pod1-2", "node2", 30080)):
        said = ask(running, where, host, port, times=24, how=how)
        assert {name for name, _ in said} == {"pod1-1", "pod2-1"}, (where, host, port)
    # From outside of the node: pod2-1 sees node2 itself, in its own pod network or at its uplink.
    assert not {seen for _, seen in said} & set(addresses(running, "pod1-2"))
    assert ask(running, "node1", "127.0.0.1", 30080) == [("ConnectionRefusedError", "")]


def test_a_pod_reaches_itself_by_its_own_service(running: Lab):
    for how in ("4", "6"):
        [(name, seen)] = ask(running, "pod1-1", "own", 80, how=how)
        assert name == "pod1-1"
        assert seen not in addresses(running, "pod1-1")


@pytest.mark.parametrize("where, target", [("pod1-1", "own:80"), ("pod1-2", "node2:30080")])
def test_a_trace_to_a_service_that_may_lead_back_shows_each_source_once(running: Lab, where: str, target: str):
    found = json.loads(running.weft("trace", "-o", "json", where, target).stdout)
    assert found["well"]
    seen = [each["address"] for each in found["sources"]]
    assert seen[0] in addresses(running, where)
    assert len(seen) == len(set(seen)) > 1, found["sources"]
    assert not [hop for leg in found["legs"] for hop in leg["way"]["hops"] if hop["suspect"]]


def test_ports_that_a_service_has_not_are_refused_at_once(running: Lab):
    for where in ("pod1-2", "node1"):
        assert ask(running, where, "web", 81) == [("ConnectionRefusedError", "")]


def test_endpoints_follow_pods(running: Lab):
    made = running.json("expose", "dns", "--port", "53", "--target-port", "8080", "--udp", "new*")
    assert (made["endpoints"], made["addresses"]) == ([], ["10.96.0.13", "fd31:96::d"])
    assert ask(running, "pod1-1", "dns", 53, how="udp") == [("ConnectionRefusedError", "")]
    assert "none (new*)" in running.weft("services").stdout
    for pod, node in (("new1", "node1"), ("new2", "node2")):
        running.weft("run", pod, "--node", node)
        serve(running, pod)
    first = running.run("pod1-1", sys.executable, "-c", FLOW).split()[0]
    running.weft("rm", first)
    # The same flow goes on to the other: what connection tracking knew of it is forgotten.
    assert running.run("pod1-1", sys.executable, "-c", FLOW).split()[0] in {"new1", "new2"} - {first}
    running.weft("unexpose", "dns")
    running.weft("rm", *({"new1", "new2"} - {first}))
    assert running.weft("exec", "pod1-1", "--", "getent", "hosts", "dns", check=False).returncode == 2


def test_what_is_refused_changes_nothing(running: Lab):
    before = running.run("node1", "nft", "-s", "list", "ruleset")
    for arguments, said in (
        (("web", "--port", "80", "pod1-1"), "LAB-001 Service web: the name 'web' is taken"),
        (("x", "--port", "80", "pod9"), "LAB-001 Service x: no pod 'pod9'"),
        (("x", "--port", "80", "--node-port", "30080", "pod1-1"), "node port 30080 is that of Service web"),
    ):
        refused = running.weft("expose", *arguments, check=False)
        assert (refused.returncode, said in refused.stderr) == (2, True), refused.stderr
    refused = running.weft("unexpose", "wep", check=False)
    assert "LAB-002 wep: no Service of this name; expected one of web, own" in refused.stderr
    refused = running.weft("run", "web", "--node", "node1", check=False)
    assert "the name is taken; expected a name that no node, pod or Service has" in refused.stderr
    assert running.run("node1", "nft", "-s", "list", "ruleset") == before


def test_a_node_that_takes_no_rules_keeps_a_service_from_all(running: Lab):
    running.run("node2", "sh", "-c", "mount --bind /bin/false $(command -v nft)")
    try:
        refused = running.weft("expose", "x", "--port", "80", "pod1-1", check=False)
        assert refused.returncode == 1
        assert "LAB-002 Services on node2: nft ended with status 1" in refused.stderr
    finally:
        running.run("node2", "sh", "-c", "umount $(command -v nft)")
    assert [each["name"] for each in running.json("services")] == ["web", "own"]
    assert "service/x" not in running.run("node1", "nft", "-s", "list", "ruleset")


def test_the_last_one_takes_tables_and_routes_along(running: Lab):
    assert "10.96.0.0/16" in running.run("node1", "ip", "route")
    for name in ("web", "own"):
        running.weft("unexpose", name)
    for node in ("node1", "node2"):
        assert "weft-lab-services" not in running.run(node, "nft", "list", "tables")
        assert "10.96" not in running.run(node, "ip", "route")
        assert "fd31:96" not in running.run(node, "ip", "-6", "route")
    nothing = running.weft("services")
    assert "weft lab expose" in nothing.stderr
