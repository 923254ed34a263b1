"""Wrong input, as the daemon's operator sees it: what was seen, what was expected, a code, and nothing changed.

The node is one that worked a moment ago: its devices, routes, rules and lease must be there afterwards as before.
"""

import json
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.etcd import make_certs, wheel
from tests.support.weftd import HOST_GW, VXLAN, Cluster, Daemon, NetnsEtcd, eventually

# But for the multicast addresses of IPv6, which the kernel joins when it has the time.
KERNEL = (
    "ip -d link; ip address; ip route; ip -6 route; ip neigh show nud permanent;"
    " bridge fdb | grep -v ^33:33; iptables-save"
)


def conf(**changes: Any) -> str:
    return json.dumps({"Network": VXLAN["Network"], "Backend": VXLAN["Backend"], **changes})


def vxlan(**options: Any) -> str:
    return conf(Backend={"Type": "vxlan", **options})


@pytest.fixture
def node(cluster: Cluster) -> Daemon:
    """A node with a working network and one peer, whose daemon is stopped."""
    return worked(cluster)


def worked(cluster: Cluster) -> Daemon:
    cluster.configure()
    cluster.peer(50)
    node = cluster.node(1).start("--ip-masq")
    node.stop()
    return node


@contextmanager
def nothing_changes(node: Daemon, cluster: Cluster) -> Iterator[None]:
    """Neither the kernel nor the subnet file nor the store's leases change."""

    def seen() -> tuple[object, ...]:
        kernel = re.sub(
            r"^#.*\n|\[\d+:\d+\]|(valid|preferred)_lft .*\n", "", node.netns.run(KERNEL), flags=re.MULTILINE
        )
        return kernel.splitlines(), node.subnet_file.read_text(), cluster.leases()

    before = seen()
    yield
    assert seen() == before


def ends(node: Daemon, *flags: str, status: int, says: list[str], env: dict[str, str] | None = None) -> None:
    """Run the daemon, which must end by itself with one line for each of `says`, and no traceback."""
    assert node.spawn("--ip-masq", *flags, env=env).wait(60) == status
    said = [line for line in node.log.splitlines() if re.search(r"(^| ERROR main: )[A-Z]+-\d{3} ", line)]
    assert len(said) == len(says), node.log
    for pattern in says:
        assert any(re.search(pattern, line) for line in said), f"{pattern!r} is not in\n{node.log}"
    assert "Traceback" not in node.log


CONFIGURATIONS = {
    "not JSON": ("{", [r"CONF-002 .*/config: line 1, column 2: .*; expected one JSON object"]),
    "half": (conf()[:-1], [r"CONF-002 .*line 1, column \d+"]),
    "two objects": (conf() + "{}", [r"CONF-002 .*after the end of the object"]),
    "a list": ("[]", [r"CONF-002 .*an array; expected a JSON object"]),
    "no network": (json.dumps({"Backend": {"Type": "vxlan"}}), [r"CONF-002 .*Network: missing; expected"]),
    "wrong types": (
        conf(Network=5, SubnetLen="24", EnableIPv6="yes", Backend={"Type": "vxlan", "VNI": "1", "Learning": 1}),
        [
            r"CONF-002 .*Network: 5; expected an IPv4 network",
            r'CONF-002 .*SubnetLen: "24"; expected a whole number',
            r'CONF-002 .*EnableIPv6: "yes"; expected true or false',
            r'CONF-002 .*Backend.VNI: "1"; expected a whole number',
            r"CONF-002 .*Backend.Learning: 1; expected true or false",
        ],
    ),
    "SubnetLen beyond the family": (conf(SubnetLen=31), [r"CONF-002 .*SubnetLen: 31; expected a whole number from 0"]),
    "SubnetLen too short": (conf(SubnetLen=17), [r"CONF-002 .*SubnetLen: 17; expected at least 18: .* four subnets"]),
    "SubnetMin outside": (conf(SubnetMin="10.6.0.0"), [r"CONF-002 .*SubnetMin: 10.6.0.0; expected .* inside Network"]),
    "SubnetMax inside a subnet": (
        conf(SubnetMax="10.5.9.7"),
        [r"CONF-002 .*SubnetMax: 10.5.9.7 is not on .*; expected .* such as 10.5.9.0"],
    ),
    "SubnetMin above SubnetMax": (
        conf(SubnetMin="10.5.9.0", SubnetMax="10.5.3.0"),
        [r"CONF-002 .*SubnetMin: 10.5.9.0 is above SubnetMax 10.5.3.0"],
    ),
    "too small": (conf(Network="10.5.0.0/29"), [r"CONF-002 .*10.5.0.0/29 is too small; expected a /28 or larger"]),
    "too small, IPv6": (
        conf(EnableIPv6=True, IPv6Network="fd05::/125"),
        [r"CONF-002 .*fd05::/125 is too small; expected a /124 or larger"],
    ),
    "over loopback": (conf(Network="127.0.0.0/8"), [r"CONF-002 .*127.0.0.0/8; expected a network for pods"]),
    "unknown back end": (
        conf(Backend={"Type": "vxlam"}),
        [r'CONF-002 .*Backend.Type: unknown backend "vxlam"; expected vxlan, .* or extension. Did you mean'],
    ),
    "ipsec without a key": (
        conf(Backend={"Type": "ipsec"}),
        [r"CONF-002 .*Backend.PSK: no value; expected at least 96 characters. `openssl rand -hex 48` makes one"],
    ),
    "VNI too large": (vxlan(VNI=1 << 24), [r"CONF-002 .*Backend.VNI: 16777216; expected .* to 16777215"]),
    "MTU above the uplink's": (
        vxlan(MTU=9000),
        [r"MTU-001 Backend.MTU: 9000, while eth0 carries 1500 bytes; expected 0 .* or at most 1500. Correct"],
    ),
}


@pytest.mark.parametrize("text, says", CONFIGURATIONS.values(), ids=CONFIGURATIONS.keys())
def test_a_network_configuration_that_cannot_be_ends_the_start(cluster: Cluster, node: Daemon, text, says):
    cluster.configure(text)
    with nothing_changes(node, cluster):
        ends(node, status=1, says=says)


def test_the_choice_of_the_uplink_is_said_although_the_back_end_cannot_run_there(cluster: Cluster, node: Daemon):
    cluster.configure(vxlan(MTU=9000))
    assert node.spawn("--ip-masq").wait(60) == 1
    node.says("with 172.31.0.1, by --iface=eth0")
    node.says("MTU-001 Backend.MTU: 9000, while eth0 carries 1500 bytes")


def test_a_misspelt_key_is_said(cluster: Cluster):
    cluster.configure(conf(SubnetLn=25, Backend={"Type": "vxlan", "Prot": 3}))
    node = cluster.node(1).start()
    node.says(r"CONF-002 etcd key .*/config: SubnetLn is no known key and is ignored. Did you mean SubnetLen")
    node.says(r"CONF-002 etcd key .*/config: Backend.Prot is no known key and is ignored. Did you mean Backend.Port")


def test_pods_where_the_nodes_are_is_said(cluster: Cluster):
    """It is no error: only some subnets may be affected, and the lease may be taken elsewhere."""
    cluster.configure(conf(Network="172.16.0.0/12", SubnetMin="172.20.0.0"))
    node = cluster.node(1).start()
    node.says(
        r"ADDR-001 net-conf: Network: .* overlap 172\.31\.0\.0/24, where eth0 reaches the nodes; expected .*Choose"
    )


FLAGS = {
    "unknown": (["--qqq"], [r"FLAG-001 --qqq: no such flag"]),
    "misspelt": (["--ifcae=eth0"], [r"FLAG-001 --ifcae: no such flag. Did you mean --iface\?"]),
    "no flag": (["eth0"], [r"FLAG-001 command line: 'eth0' is not a flag; expected flags only"]),
    "value of its own": (["--ip-masq", "false"], [r"FLAG-001 .*'false' is not a flag.*--ip-masq=false"]),
    "no value": (["--etcd-endpoints"], [r"FLAG-001 --etcd-endpoints: no value; expected --etcd-endpoints=URL,URL"]),
    "wrong values": (
        ["--healthz-port=70000", "--public-ip=fd05::1", "--iface-regex=(", "--ip-masq=maybe", "--iptables-resync=0"],
        [
            r"FLAG-001 --healthz-port: '70000'; expected .* to 65535",
            r"FLAG-001 --public-ip: 'fd05::1'; expected an IPv4 address",
            r"FLAG-001 --iface-regex: '\('; expected an RE2 pattern",
            r"FLAG-001 --ip-masq: 'maybe'; expected true or false",
            r"FLAG-001 --iptables-resync: '0'; expected a whole number from 1",
        ],
    ),
    "endpoint without a scheme it can speak": (
        ["--etcd-endpoints=ftp://x:1"],
        [r"FLAG-001 .*'ftp://x:1'; expected http"],
    ),
    "two passwords": (
        ["--etcd-username=u", "--etcd-password=p", "--etcd-password-file=/x"],
        [r"FLAG-001 --etcd-password: given together with --etcd-password-file. Give the file alone"],
    ),
    "user without password": (["--etcd-username=u"], [r"FLAG-001 --etcd-username: .*without a password. Add"]),
    "certificate without key": (["--etcd-certfile=/x"], [r"FLAG-001 --etcd-certfile: .*without its private key. Add"]),
    "a later part": (["--vmodule=a=1"], [r"FLAG-001 --vmodule: not in this build"]),
    "no name of the node": (["--kube-subnet-mgr"], [r"FLAG-001 NODE_NAME: not set"]),
    "a prefix that is none": (
        ["--kube-annotation-prefix=org"],
        [r"FLAG-001 --kube-annotation-prefix: 'org'; expected a"],
    ),
}


@pytest.mark.parametrize("flags, says", FLAGS.values(), ids=FLAGS.keys())
def test_flags_that_cannot_be_end_the_start(cluster: Cluster, node: Daemon, flags, says):
    with nothing_changes(node, cluster):
        ends(node, *flags, status=2, says=says)
        assert node.log.endswith("weftd --help lists every flag.\n")


def test_a_variable_that_cannot_be_ends_the_start_and_a_misspelt_one_is_said(cluster: Cluster, node: Daemon):
    with nothing_changes(node, cluster):
        says = [r"FLAG-001 FLANNELD_IP_BLACKHOLE_ROUTE: 'perhaps'; expected true or false"]
        ends(node, status=2, says=says, env={"FLANNELD_IP_BLACKHOLE_ROUTE": "perhaps"})
    node.spawn(env={"FLANNELD_IFCAE": "eth0"}).wait_ready()
    node.says(r"FLAG-001 FLANNELD_IFCAE is the variable of no flag and is ignored. Did you mean FLANNELD_IFACE\?")


PLACES = {
    "state directory": (["--state-dir=/dev/null"], r"FLAG-001 --state-dir: /dev/null: Not a directory; expected a"),
    "CNI socket": (["--cni-socket=/proc/none/x"], r"FLAG-001 --cni-socket: /proc/none: .*; expected a socket in a"),
    "open directory": (["--cni-socket=/tmp/x.sock"], r"FLAG-001 --cni-socket: /tmp: a directory of uid 0, mode 1777"),
    "health address": (["--healthz-ip=192.0.2.3"], r"FLAG-001 --healthz-ip.*192.0.2.3:\d+ cannot be bound: Cannot"),
    "CA": (
        ["--etcd-cafile=/none", "--etcd-endpoints=https://172.31.0.254:1"],
        r"FLAG-001 --etcd-cafile: /none: No such file or directory; expected CA certificates",
    ),
    "password": (
        ["--etcd-username=u", "--etcd-password-file=/none"],
        r"FLAG-001 --etcd-password-file: /none: No such file or directory; expected a readable file",
    ),
}


@pytest.mark.parametrize("flags, says", PLACES.values(), ids=PLACES.keys())
def test_places_that_flags_name_and_that_cannot_be_used_end_the_start(cluster: Cluster, node: Daemon, flags, says):
    with nothing_changes(node, cluster):
        ends(node, *flags, status=1, says=[says])


# What can be wrong with a place: how it is made below a folder, and the path that is then given.
WRONG = {
    "below a file": lambda folder: folder / "file" / "below",
    "far below a file": lambda folder: folder / "file" / "far" / "below",
    "below a link that leads nowhere": lambda folder: folder / "nowhere" / "below",
    "below a link to itself": lambda folder: folder / "itself" / "below",
    "a name that is too long": lambda folder: folder / "new" / ("x" * 300),
    "where nothing can be made": lambda _: Path("/proc/none/x"),
    "a directory": lambda folder: folder / "full",
}
PATHS = {
    "subnet-file": WRONG.keys(),
    "cni-socket": WRONG.keys(),
    "state-dir": WRONG.keys() - {"a directory"},
    "etcd-password-file": WRONG.keys(),
    "etcd-cafile": WRONG.keys(),
    "etcd-keyfile": WRONG.keys(),
    "etcd-certfile": WRONG.keys(),
    "kubeconfig-file": WRONG.keys(),
}
NEEDED = {
    "etcd-password-file": ["--etcd-username=u"],
    "etcd-keyfile": ["--etcd-certfile=/etc/hostname"],
    "etcd-certfile": ["--etcd-keyfile=/etc/hostname"],
    "kubeconfig-file": ["--kube-subnet-mgr"],
}


def tree(folder: Path) -> list[tuple[str, int, int]]:
    return sorted((str(path), path.lstat().st_mode, path.lstat().st_size) for path in folder.rglob("*"))


@pytest.mark.parametrize("flag", PATHS)
def test_a_wrong_path_leaves_a_fresh_node_as_it_was(cluster: Cluster, tmp_path: Path, flag):
    """Whatever is wrong with it, and whichever flag has it: no lease, no file, no directory, no device, no rule."""
    cluster.configure()
    node = cluster.node(1)
    folder = tmp_path / "places"
    (folder / "full" / "of").mkdir(parents=True)
    (folder / "file").write_text("")
    (folder / "nowhere").symlink_to("/nonexistent/nowhere")
    (folder / "itself").symlink_to("itself")
    node.log_file.touch()
    before = tree(tmp_path), node.netns.run(KERNEL + "; ss -Hlnx | grep -c weft || true")
    for kind in sorted(PATHS[flag]):
        flags = (f"--{flag}={WRONG[kind](folder)}", *NEEDED.get(flag, ()), "--ip-masq")
        ends_at_once = node.spawn(*flags, env={"NODE_NAME": "node1"}).wait(60)
        assert ends_at_once in (1, 2), f"{kind}: {node.log}"
        assert node.lines(rf"FLAG-001 .*--{flag}"), f"{kind}: {node.log}"
        assert "Traceback" not in node.log, kind
        node.log_file.write_text("")
        assert (tree(tmp_path), node.netns.run(KERNEL + "; ss -Hlnx | grep -c weft || true")) == before, kind
        assert not cluster.leases(), kind


def test_a_wrong_path_is_noticed_before_another_flag_makes_anything(cluster: Cluster, tmp_path: Path):
    """The health port is taken: neither the directory of the CNI socket nor the state directory is made."""
    cluster.configure()
    node = cluster.node(1)
    with node.netns.call(lambda: socket.create_server(("127.0.0.1", node.health_port))):
        assert node.spawn().wait(60) == 1
    node.says(rf"FLAG-001 --healthz-ip, --healthz-port: 0\.0\.0\.0:{node.health_port} cannot be bound: Address already")
    assert sorted(path.name for path in node.folder.iterdir()) == ["log"]


def test_a_directory_of_others_for_the_cni_socket_is_noticed_before_there_is_a_lease(cluster: Cluster, tmp_path: Path):
    cluster.configure()
    node = cluster.node(1)
    theirs = tmp_path / "theirs"
    theirs.mkdir(mode=0o755)
    (theirs / "file").touch()
    assert node.spawn(f"--cni-socket={theirs}/cni.sock").wait(60) == 1
    node.says(rf"FLAG-001 --cni-socket: {theirs}: a directory of uid 0, mode 0755; expected a socket in a directory of")
    assert sorted(path.name for path in node.folder.iterdir()) == ["log"]
    assert not cluster.leases()


def test_a_secret_that_others_can_read_is_said(cluster: Cluster, tmp_path: Path):
    cluster.configure()
    file = tmp_path / "password"
    file.write_text("secret\n")
    file.chmod(0o644)
    node = cluster.node(1).spawn("--etcd-username=u", f"--etcd-password-file={file}")
    node.says(rf"WARN .*FLAG-001 --etcd-password-file: {file}: mode 0644: other users can read .*chmod 0600 {file}")
    node.says(r"WARN .*FLAG-001 --etcd-password-file: the password goes over http:// to http://172\.31\.0\.254:")


def test_without_rights_it_says_so(cluster: Cluster, node: Daemon):
    with nothing_changes(node, cluster):
        without = ["setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin"]
        assert node.spawn(wrap=without).wait(60) == 1
        node.says(r"HOST-002 weftd: .*not permitted; expected root, or CAP_NET_ADMIN.* Run weftd as root")
        assert "Traceback" not in node.log


INTERFACES = {
    "no such name": (["--iface=eth7"], [r"IFACE-001 --iface=eth7: no interface has this name"]),
    "no address": (["--iface=bare"], [r"IFACE-001 --iface=bare: bare has no usable IPv4 address"]),
    "no such address": (["--iface=192.0.2.1"], [r"IFACE-001 --iface=192.0.2.1: no interface has the address"]),
    "nothing matches": (["--iface-regex=wlan.*"], [r"IFACE-001 --iface-regex=wlan.*: neither an address nor a name"]),
    "all are told": (
        ["--iface=eth7", "--iface=bare"],
        [r"IFACE-001 --iface=eth7: no interface", r"IFACE-001 --iface=bare: bare has no usable"],
    ),
}


@pytest.mark.parametrize("flags, says", INTERFACES.values(), ids=INTERFACES.keys())
def test_an_interface_that_cannot_carry_the_traffic_ends_the_start(cluster: Cluster, node: Daemon, flags, says):
    node.netns.run("ip link add bare type veth peer name other; ip link set bare addrgenmode none; ip link set bare up")
    with nothing_changes(node, cluster):
        ends(node, *flags, status=1, says=says)
        node.says(r"Name the interface with --iface. This node has: .*eth0 172\.31\.0\.1/24")


# --- The store


def test_a_store_that_refuses_the_user_ends_the_start(own_cluster: Cluster, tmp_path: Path):
    cluster, etcd = own_cluster, own_cluster.etcd
    node = worked(cluster)
    etcd.add_user("weft", "right-password", prefix=cluster.prefix)
    etcd.add_user("stranger", "right-password", prefix="/elsewhere")
    etcd.enable_auth()
    for name, password, seen in (
        ("", "", r"STORE-002 http://.*to no user \(--etcd-username is not given\); expected an etcd user"),
        ("weft", "wrong-password", r"STORE-002 http://.*to user 'weft'; expected .*Check --etcd-username"),
        ("stranger", "right-password", r"STORE-002 http://.*permission denied, to user 'stranger'"),
    ):
        file = tmp_path / "password"
        file.write_text(f"{password}\n")
        with nothing_changes(node, cluster):
            flags = [f"--etcd-username={name}", f"--etcd-password-file={file}"] if name else []
            ends(node, *flags, status=1, says=[seen])
            assert "password\n" not in node.log.replace(str(file), "")
            assert not password or password not in node.log
    file.write_text("right-password\n")
    node.start("--etcd-username=weft", f"--etcd-password-file={file}")


@contextmanager
def listening(cluster: Cluster, says: bytes) -> Iterator[str]:
    """A server beside the store that is no etcd: it greets whoever comes and hangs up."""

    def bind() -> socket.socket:
        return socket.create_server(("172.31.0.254", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                connection.recv(100)
                connection.sendall(says)

    with cluster.underlay.switch.call(bind) as server:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://172.31.0.254:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        thread.join(5)


def test_what_is_no_store_ends_the_start(cluster: Cluster, node: Daemon):
    with listening(cluster, b"HTTP/1.0 400 Bad Request\r\n\r\n") as url, nothing_changes(node, cluster):
        says = r"STORE-002 http://.*: an answer that begins with b'HTTP/1.0 .*; expected etcd's gRPC. Check --etcd-end"
        ends(node, f"--etcd-endpoints={url}", status=1, says=[says])


def test_tls_where_there_should_be_none_and_the_reverse_end_the_start(cluster: Cluster, node: Daemon, tmp_path: Path):
    with nothing_changes(node, cluster):
        plain = cluster.etcd.url.replace("http:", "https:")
        says = r"STORE-002 https://.*: no TLS spoken there; expected TLS, as https:// says. Use http://"
        ends(node, f"--etcd-endpoints={plain}", status=1, says=[says])
    certs = make_certs(tmp_path / "certs")
    switch = cluster.underlay.switch
    etcd = switch.call(lambda: NetnsEtcd(tmp_path / "tls", wheel(), switch))
    etcd.certs = certs
    etcd.spawn()
    try:
        eventually(lambda: switch.call(lambda: _answers(etcd.port)))
        with nothing_changes(node, cluster):
            url = etcd.url.replace("https:", "http:")
            says = r"STORE-002 http://.*: TLS is spoken there; expected no TLS, as http:// says. Use https://"
            ends(node, f"--etcd-endpoints={url}", status=1, says=[says])
            says = r"STORE-002 https://.*certificate is not trusted: .*; expected .*Give the CA .* as --etcd-cafile"
            ends(node, f"--etcd-endpoints={etcd.url}", status=1, says=[says])
    finally:
        etcd.kill()


def test_a_store_that_answers_with_an_error_is_waited_for_and_named(own_cluster: Cluster):
    """Its operator can make room; meanwhile what is in the kernel serves."""
    cluster, etcd = own_cluster, own_cluster.etcd
    cluster.configure()
    etcd.stop()
    etcd.start("--quota-backend-bytes=16384")
    node = cluster.node(1).spawn()
    node.says(r"waiting for a lease: STORE-002 http://.*etcd says: .*space.*; expected an answer. See etcd's own log")
    assert node.get("/readyz")[0] == 503
    assert node.ip("route show proto 165") == ""
    assert node.stop() == 0
    assert "Traceback" not in node.log


@pytest.mark.parametrize("before", [VXLAN, HOST_GW], ids=["vxlan", "host-gw"])
def test_the_right_input_then_starts_it(cluster: Cluster, before):
    cluster.configure("{")
    node = cluster.node(1)
    ends(node, status=1, says=["CONF-002"])
    cluster.configure(before)
    node.start("--ip-masq")


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("172.31.0.254", port)) == 0
