"""Real daemons on real nodes: network namespaces on one underlay, with an etcd that all of them reach.

A node is a namespace with `eth0` (172.31.0.N/24, fd31::N/64) on the underlay's bridge. `weftd` runs in it as an
ordinary process with a subnet file, a state directory and sockets of its own. All ends with the test's process:
namespaces have no names, and programs are killed by the kernel when their parent goes.
"""

import http.client
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from itertools import count
from pathlib import Path
from typing import Any, Final

from tests.support.etcd import Binaries, Certs, Etcd, Kv
from tests.support.netns import Netns, wire
from tests.support.waiting import eventually, looks
from weft.model.net import Ip, Mac
from weft.wire import subnetenv

STORE: Final = "172.31.0.254"
# Daemons take their subnets by chance from these; what tests write by hand has other numbers.
_NETWORK: Final = {"Network": "10.5.0.0/16", "SubnetMin": "10.5.100.0", "SubnetMax": "10.5.139.0"}
VXLAN: Final = {**_NETWORK, "Backend": {"Type": "vxlan"}}
HOST_GW: Final = {**_NETWORK, "Backend": {"Type": "host-gw"}}
DUAL: Final = {
    "EnableIPv6": True,
    "IPv6Network": "fd05::/48",
    "IPv6SubnetMin": "fd05:0:0:100::",
    "IPv6SubnetMax": "fd05:0:0:1ff::",
}
ONLY_V6: Final = {"EnableIPv4": False, **DUAL}
HEALTH_PORT: Final = 8090
_UP: Final = 6  # IF_OPER_UP (linux/if.h)
_numbers = count(1)


def carrying(netns: Netns, name: str) -> None:
    """Wait until the kernel uses a link that was just joined: it looks at that once a second, or later when busy."""
    eventually(lambda: getattr(netns.rtnl.link(name), "operstate", 0) == _UP, seconds=10)


def settled(netns: Netns, *addresses: str) -> None:
    """Wait until the kernel takes packets to these IPv6 addresses, and to all that eth0 has.

    The route of an address comes from a worker of the kernel, with `nodad`, too: late on a busy machine.
    """
    named = {str(ip_address(text)) for text in addresses}

    def taken() -> bool:
        tentative = netns.run("ip -6 -o address show dev eth0 tentative")
        return not tentative and named.issubset(
            re.findall(r"(?m)^local (\S+)", netns.run("ip -6 route show table local"))
        )

    eventually(taken, seconds=30)


def public_v4(number: int, segment: int = 0) -> str:
    return f"172.31.{segment}.{number}"


def public_v6(number: int, segment: int = 0) -> str:
    return f"fd31:0:0:{segment:x}::{number:x}"


def quick_netns() -> Netns:
    netns = Netns()
    no_waiting(netns)
    return netns


def no_waiting(netns: Netns) -> None:
    """Have a namespace use its IPv6 addresses at once, for nobody else has them, and keep later IPv4 addresses."""
    netns.run(
        "sysctl -qw net.ipv6.conf.default.accept_dad=0 net.ipv6.conf.default.router_solicitations=0"
        " net.ipv4.conf.all.promote_secondaries=1"
    )


class NetnsEtcd(Etcd):
    """An etcd, and an etcdctl, in a namespace. Make it inside. With `certs` it asks for the client's, too."""

    def __init__(self, folder: Path, binaries: Binaries, netns: Netns, certs: Certs | None = None) -> None:
        folder.mkdir(parents=True)
        inside = Binaries(*(_wrapped(folder, netns, path) for path in (binaries.server, binaries.ctl)))
        super().__init__(folder, inside, host=STORE, certs=certs, client_certs=certs is not None)
        self._netns = netns

    def wait(self) -> None:
        self._netns.call(super().wait)

    def _gateway(self, call: str, body: dict[str, Any]) -> dict[str, Any]:
        above = super()._gateway
        return self._netns.call(lambda: above(call, body))


def _wrapped(folder: Path, netns: Netns, program: str) -> str:
    wrapper = folder / Path(program).name
    wrapper.write_text(f'#!/bin/sh\nexec nsenter --net={netns.path} "{program}" "$@"\n')
    wrapper.chmod(0o755)
    return str(wrapper)


class Underlay:
    """What joins the nodes: a namespace that switches and, between its two segments, routes. The store lives in it."""

    def __init__(self, folder: Path, binaries: Binaries) -> None:
        self.switch = quick_netns()
        self.switch.run("sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1")
        for segment in (0, 1):
            addresses = (f"{public_v4(254, segment)}/24", f"{public_v6(254, segment)}/64")
            bridge = self.switch.bridge(f"br{segment}", *addresses)
            # Its own for good: a bridge takes its lowest port's, and changes it with the ports.
            self.switch.rtnl.set_link(bridge, mac=mac(254, segment))
        self.etcd = self.switch.call(lambda: NetnsEtcd(folder, binaries, self.switch))
        # What it holds need not outlive the machine, and its disk is the other tests' too.
        self.etcd.start("--unsafe-no-fsync")

    def plug(self, node: Netns, number: int, segment: int) -> str:
        """Give a namespace its eth0; returns the name of the switch's port."""
        port = f"p{next(_numbers)}"
        at, _ = wire(self.switch, node, names=(port, "eth0"))
        self.switch.rtnl.set_link(at, master=self.switch.rtnl.link(f"br{segment}").index)
        carrying(self.switch, port)
        carrying(node, "eth0")
        # One MAC per address, whichever test it is: what the switch has learnt stays true.
        node.run(
            f"""ip link set eth0 address {mac(number, segment)}
            sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
            ip address add {public_v4(number, segment)}/24 dev eth0
            ip address add {public_v6(number, segment)}/64 dev eth0 nodad
            ip route add default via {public_v4(254, segment)}
            ip route add default via {public_v6(254, segment)}
            # The kernel's table of neighbours is shared by all namespaces, and somebody may fill it.
            ip neighbour replace {public_v4(254, segment)} lladdr {mac(254, segment)} dev eth0 nud permanent"""
        )
        self.switch.run(
            f"ip neighbour replace {public_v4(number, segment)} lladdr {mac(number, segment)}"
            f" dev br{segment} nud permanent"
        )
        settled(node, public_v6(number, segment))
        return port

    def close(self) -> None:
        self.etcd.kill()
        self.switch.close()


def mac(number: int, segment: int = 0) -> Mac:
    """The MAC of a node's eth0."""
    return Mac(bytes([2, 0x31, 0, 0, segment, number]))


class Daemon:
    """One node and the `weftd` on it, which may be started any number of times."""

    def __init__(
        self,
        underlay: Underlay,
        folder: Path,
        number: int,
        *,
        prefix: str,
        segment: int = 0,
        beside: "Daemon | None" = None,
    ) -> None:
        self.number = number
        self.folder = folder
        self.prefix = prefix
        self.public_v4 = IPv4Address(public_v4(number, segment))
        self.public_v6 = IPv6Address(public_v6(number, segment))
        self.segment = segment
        self.netns = quick_netns() if beside is None else beside.netns
        self.port = underlay.plug(self.netns, number, segment) if beside is None else ""
        self.health_port = HEALTH_PORT if beside is None else beside.health_port + 1
        self.subnet_file = folder / "run" / "subnet.env"
        self.state_dir = folder / "state"
        self.log_file = folder / "log"
        self.program = "weft.daemon.main"
        self.pods: list[Netns] = []
        self._underlay = underlay
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0
        folder.mkdir(parents=True, exist_ok=True)

    # --- The process

    def command(self, *flags: str) -> list[str]:
        """The command line of the daemon, with `flags` last, so that they win; only interfaces add up."""
        return [
            *(sys.executable, "-m", self.program),
            *(() if any(flag.startswith("--iface") for flag in flags) else ("--iface=eth0",)),
            *self.store_flags(),
            f"--subnet-file={self.subnet_file}",
            f"--state-dir={self.state_dir}",
            f"--cni-socket={self.folder / 'cni' / 'cni.sock'}",
            f"--healthz-port={self.health_port}",
            *flags,
        ]

    def store_flags(self) -> list[str]:
        """Which store it uses."""
        return [f"--etcd-endpoints={self._underlay.etcd.url}", f"--etcd-prefix={self.prefix}"]

    def spawn(self, *flags: str, env: dict[str, str] | None = None, wrap: Sequence[str] = ()) -> "Daemon":
        """Start the daemon without waiting for anything; `wrap` is a command that runs the daemon's."""
        assert self._process is None, "it runs already"
        self._log_start = self.log_file.stat().st_size if self.log_file.exists() else 0
        with self.log_file.open("ab") as log:
            self._process = self.netns.popen(
                ["setpriv", "--pdeathsig", "KILL", "--", *wrap, *self.command(*flags)],
                env={**os.environ, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        return self

    def start(self, *flags: str, env: dict[str, str] | None = None) -> "Daemon":
        """Start the daemon and wait until /readyz says that it is ready."""
        return self.spawn(*flags, env=env).wait_ready()

    def wait_ready(self, seconds: float = 60.0) -> "Daemon":
        for _ in looks(seconds):
            status = self.get("/readyz")[0]
            if status == 200:
                return self
            assert self.running, f"weftd ended:\n{self.log}"
        raise AssertionError(f"not ready ({status}):\n{self.log}")

    @property
    def pid(self) -> int:
        assert self._process is not None, "not running"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def wait(self, seconds: float = 60.0) -> int:
        """Wait for its end; returns the exit status."""
        assert self._process is not None, "not running"
        status = self._process.wait(seconds)
        self._process = None
        return status

    def stop(self) -> int:
        """End it as an operator does; returns the exit status."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """End it without warning."""
        self.signal(signal.SIGKILL)
        self.wait()

    def replug(self) -> None:
        """Give the node an uplink again: another device of the same name."""
        self.port = self._underlay.plug(self.netns, self.number, self.segment)

    def close(self) -> None:
        """End everything of this node."""
        if self.running:
            self._process.kill()  # type: ignore[union-attr]
        for pod in self.pods:
            pod.close()
        if not self.port:
            return
        self.netns.close()
        self.unplug()

    def unplug(self) -> None:
        """Take the node's uplink away, at once."""
        at = self._underlay.switch.rtnl.link(self.port)
        if at is not None:
            with suppress(OSError):  # it may be going with the namespace already
                self._underlay.switch.rtnl.delete_link(at.index)

    # --- What it says

    @property
    def log(self) -> str:
        """What the latest run has logged so far."""
        if not self.log_file.exists():
            return ""
        with self.log_file.open("rb") as file:
            file.seek(self._log_start)
            return file.read().decode(errors="replace")

    def lines(self, pattern: str) -> list[str]:
        """The log's lines that match."""
        return [line for line in self.log.splitlines() if re.search(pattern, line)]

    def says(self, pattern: str, *, seconds: float = 10.0) -> str:
        """Wait for a line that matches, and return it."""
        for _ in looks(seconds):
            if found := self.lines(pattern):
                return found[0]
        raise AssertionError(f"{pattern!r} is not in the log:\n{self.log}")

    def get(self, path: str, method: str = "GET") -> tuple[int, str]:
        """Ask the health server; (0, reason) when nobody answers."""

        def ask() -> tuple[int, str]:
            connection = http.client.HTTPConnection("127.0.0.1", self.health_port, timeout=5)
            try:
                connection.request(method, path)
                answer = connection.getresponse()
                return answer.status, answer.read().decode()
            except OSError as error:
                return 0, str(error)
            finally:
                connection.close()

        return self.netns.call(ask)

    @property
    def ready(self) -> bool:
        return self.get("/readyz")[0] == 200

    # --- What it did

    @property
    def env(self) -> dict[str, str]:
        """The subnet file."""
        return dict(line.split("=", 1) for line in self.subnet_file.read_text().splitlines())

    @property
    def v4(self) -> IPv4Network:
        subnet = subnetenv.parse(self.subnet_file.read_text()).subnet_v4
        assert subnet is not None
        return subnet

    @property
    def v6(self) -> IPv6Network:
        subnet = subnetenv.parse(self.subnet_file.read_text()).subnet_v6
        assert subnet is not None
        return subnet

    @property
    def macs(self) -> dict[str, str]:
        """What the node keeps on disk as its VTEPs' MACs."""
        [path] = self.state_dir.glob("*/identity.json")
        return dict(json.loads(path.read_text()))

    def diagnosis(self) -> set[str]:
        """The codes of what `weft doctor` finds on the node; it is not told what was done to it."""
        directories = (f"--{name}-dir={self.folder}" for name in ("conf", "bin"))
        doctor = (
            str(Path(sys.executable).parent / "weft"),
            "doctor",
            "-o",
            "json",
            f"--subnet-file={self.subnet_file}",
        )
        said = self.netns.run(shlex.join((*doctor, *directories)), check=False)
        return {finding["code"] for finding in json.loads(said)["findings"]}

    def ip(self, command: str) -> str:
        """What `ip …` prints on the node."""
        return self.netns.run(f"ip {command}")

    def sees(self, command: str, pattern: str, *, seconds: float = 5.0) -> str:
        """Wait until what a command prints on the node matches; returns what it printed."""
        for _ in looks(seconds):
            if re.search(pattern, text := self.netns.run(command), re.MULTILINE):
                return text
        raise AssertionError(f"{command!r} does not show {pattern!r}:\n{text}\n{self.log}")

    def pod(self) -> "Pod":
        """A new pod of this node, behind the bridge cni0."""
        if self.netns.rtnl.link("cni0") is None:
            self.netns.bridge("cni0", *(f"{subnet[1]}/{subnet.prefixlen}" for subnet in self.subnets))
        pod = Pod(self.subnets, len(self.pods) + 1)
        self.pods.append(pod)
        at, _ = wire(self.netns, pod, names=(f"pod{len(self.pods)}", "eth0"))
        self.netns.rtnl.set_link(at, master=self.netns.rtnl.link("cni0").index)
        carrying(self.netns, f"pod{len(self.pods)}")
        carrying(pod, "eth0")
        pod.configure(mtu=int(self.env["FLANNEL_MTU"]))
        return pod

    def describe(self) -> str:
        """All there is to know of the node, for the report of a test that failed."""
        looks = "ip address; ip route; ip -6 route; ip neigh; bridge fdb; bridge link; ss -tnoi"
        inside = [namespace.run(f"set +e; {looks}", check=False) for namespace in (self.netns, *self.pods)]
        alive = self.get("/readyz")  # its event loop answers, or it does not
        return "\n--\n".join([f"node {self.number}, {alive}: {self.log}", *inside])

    @property
    def subnets(self) -> tuple[IPv4Network | IPv6Network, ...]:
        """The node's own subnets, IPv4 first."""
        previous = subnetenv.parse(self.subnet_file.read_text())
        return tuple(net for net in (previous.subnet_v4, previous.subnet_v6) if net is not None)


class Pod(Netns):
    """A pod of a node: `ips` are its addresses, IPv4 first."""

    def __init__(self, subnets: Sequence[IPv4Network | IPv6Network], number: int) -> None:
        super().__init__()
        no_waiting(self)
        self.ips: list[Ip] = [subnet[1 + number] for subnet in subnets]
        self._subnets = subnets

    def configure(self, *, mtu: int) -> None:
        """Give its eth0 the MTU, the addresses and the way out."""
        self.run(f"ip link set eth0 mtu {mtu}")
        for ip, subnet in zip(self.ips, self._subnets, strict=True):
            nodad = " nodad" if ip.version == 6 else ""
            self.run(f"ip address add {ip}/{subnet.prefixlen} dev eth0{nodad}; ip route add default via {subnet[1]}")


class Cluster:
    """Nodes that share a network configuration, below a prefix of their own in the underlay's store."""

    def __init__(self, underlay: Underlay, folder: Path) -> None:
        self.underlay = underlay
        self.etcd = underlay.etcd
        self.prefix = f"/t/{os.getpid()}/{next(_numbers)}"
        self.daemons: list[Daemon] = []
        self._folder = folder
        self._stack = ExitStack()

    def configure(self, *parts: dict[str, Any] | str, **changes: Any) -> None:
        """Put the network configuration: one text, or dictionaries of which the later wins."""
        text = parts[0] if parts and isinstance(parts[0], str) else json.dumps(_merged(parts, changes))
        self.etcd.put(f"{self.prefix}/config", text)

    def node(self, number: int, *, segment: int = 0, prefix: str = "", kind: Callable[..., Daemon] = Daemon) -> Daemon:
        """Make a node; its daemon, of a kind, is not started."""
        folder = self._folder / f"node{number}"
        return self._keep(kind(self.underlay, folder, number, prefix=prefix or self.prefix, segment=segment))

    def beside(self, node: Daemon, name: str, *, prefix: str = "") -> Daemon:
        """Another daemon on the same node, with files of its own."""
        folder = self._folder / f"node{node.number}-{name}"
        return self._keep(Daemon(self.underlay, folder, node.number, prefix=prefix or self.prefix, beside=node))

    def _keep(self, daemon: Daemon) -> Daemon:
        self._stack.callback(daemon.close)
        self.daemons.append(daemon)
        return daemon

    def nodes(self, *numbers: int) -> list[Daemon]:
        """Make nodes, start their daemons at once and wait until all are ready."""
        made = [self.node(number).spawn() for number in numbers]
        return [node.wait_ready() for node in made]

    def key(self, lease: str) -> str:
        return f"{self.prefix}/subnets/{lease}"

    def leases(self) -> dict[str, Kv]:
        """The store's lease keys by their last part."""
        below = f"{self.prefix}/subnets/"
        return {kv.key.removeprefix(below): kv for kv in self.etcd.below(below)}

    def lease_of(self, node: Daemon) -> Kv:
        """The lease that carries a node's public address."""
        [kv] = [kv for kv in self.leases().values() if _publics(kv) & {node.public_v4, node.public_v6}]
        return kv

    def peer(self, number: int, *, lease: str = "", **fields: Any) -> str:
        """Write a peer's lease by hand as upstream does, for 24 hours; returns the lease's id."""
        name = lease or f"10.5.{number}.0-24"
        self.etcd.put_leased(self.key(name), peer_value(number, **fields))
        return name

    def peers(self, numbers: Iterable[int], **fields: Any) -> None:
        """Write many peers' leases at once."""
        self.etcd.fill((self.key(f"10.5.{number}.0-24"), peer_value(number, **fields)) for number in numbers)

    def close(self) -> None:
        self._stack.close()


def peer_mac(number: int) -> str:
    """The VTEP MAC of a peer that exists in the store alone."""
    return f"02:aa:00:00:00:{number:02x}"


def peer_value(number: int, *, data: Any = "vxlan", public: str = "", **fields: Any) -> str:
    """What a lease of peer N says: 172.31.0.N and MAC 02:aa:00:00:00:N, unless told otherwise."""
    value = {"PublicIP": public or public_v4(number), "PublicIPv6": None, "BackendType": "vxlan"}
    value["BackendData"] = {"VNI": 1, "VtepMAC": peer_mac(number)} if data == "vxlan" else data
    return json.dumps({**value, **fields}, separators=(",", ":"))


def _merged(parts: Sequence[Any], changes: dict[str, Any]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for part in parts or (VXLAN,):
        merged |= part
    return merged | changes


def _publics(kv: Kv) -> set[Ip]:
    value = json.loads(kv.value)
    return {ip_address(text) for text in (value["PublicIP"], value["PublicIPv6"]) if text}


def clusters(underlay: Underlay, folder: Path) -> Iterator[Cluster]:
    """One cluster, closed afterwards: the body of a fixture."""
    cluster = Cluster(underlay, folder)
    try:
        yield cluster
    finally:
        cluster.close()
