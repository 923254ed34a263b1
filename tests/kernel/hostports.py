"""A node with pods behind a bridge and somebody outside, to try ports of the host with real packets.

A server answers with the address it sees, so that a test knows where an answer comes from and whether the client's
address was kept.
"""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.support.cni.call import Answer
from tests.support.cni.site import Site
from tests.support.netns import Netns, wire

NETWORK = "dbnet"
NODE = {4: "192.0.2.1", 6: "2001:db8::1"}
OUTSIDE = {4: "192.0.2.2", 6: "2001:db8::2"}
BRIDGE = {4: "10.1.2.1", 6: "fd00::1"}
SUBNETS = [[{"subnet": "10.1.2.0/24"}], [{"subnet": "fd00::/64"}]]
_FAMILIES = {4: socket.AF_INET, 6: socket.AF_INET6}
_KINDS = {"tcp": socket.SOCK_STREAM, "udp": socket.SOCK_DGRAM}
_SECONDS = 3.0


def mapping(host: int, container: int, protocol: str = "tcp", host_ip: str = "") -> dict[str, Any]:
    """One of `runtimeConfig.portMappings`."""
    made = {"hostPort": host, "containerPort": container, "protocol": protocol}
    return {**made, "hostIP": host_ip} if host_ip else made


class Ports:
    """A site whose pods are attached to a bridge; `portmap` calls the plugin for one of them."""

    def __init__(self, host: Netns, directory: Path, *, ipv6: bool = True) -> None:
        self.site = Site(host, directory)
        self.results: dict[str, Any] = {}
        self.bridge = {
            "cniVersion": "1.0.0",
            "name": NETWORK,
            "type": "bridge",
            "isDefaultGateway": True,
            # With br_netfilter, what a pod sends to itself never leaves the bridge.
            "hairpinMode": True,
            "ipam": {
                "type": "host-local",
                "dataDir": str(self.site.store),
                "ranges": SUBNETS if ipv6 else SUBNETS[:1],
            },
        }

    def attach(self, pod: Netns, id_: str = "c1", ifname: str = "eth0") -> Any:
        """Attach a pod to the bridge; returns the result."""
        conf = self.bridge if ifname == "eth0" else {**self.bridge, "isDefaultGateway": False, "isGateway": True}
        result = self.site.call("bridge", "ADD", conf, container=pod, id_=id_, ifname=ifname).result
        self.results[f"{id_} {ifname}"] = result
        return result

    def conf(self, *mappings: dict[str, Any], id_: str = "c1", ifname: str = "eth0", **more: Any) -> dict[str, Any]:
        conf = {"cniVersion": "1.0.0", "name": NETWORK, "type": "portmap", **more}
        if mappings:
            conf["runtimeConfig"] = {"portMappings": list(mappings)}
        return {**conf, "prevResult": self.results[f"{id_} {ifname}"]}

    def portmap(
        self,
        command: str,
        *mappings: dict[str, Any],
        id_: str = "c1",
        ifname: str = "eth0",
        debian: bool = False,
        **more: Any,
    ) -> Answer:
        """Call portmap, ours or the reference's. The namespace is none of its business."""
        call = self.site.via("debian") if debian else self.site.call
        conf = self.conf(*mappings, id_=id_, ifname=ifname, **more)
        return call("portmap", command, conf, id_=id_, ifname=ifname, netns="/proc/1/none")

    def address(self, id_: str = "c1", family: int = 4, ifname: str = "eth0") -> str:
        found = [ip["address"] for ip in self.results[f"{id_} {ifname}"]["ips"]]
        return next(address.split("/")[0] for address in found if (":" in address) == (family == 6))


def outside(host: Netns, other: Netns) -> None:
    """Wire somebody outside to the node, with addresses of both families; pods are reached through the node."""
    here, there = wire(host, other, names=("uplink", "eth0"))
    for netns, index, addresses in ((host, here, NODE), (other, there, OUTSIDE)):
        for family, address in addresses.items():
            netns.run(
                f"ip addr add {address}/{24 if family == 4 else 64} dev {netns.rtnl.link(index).name}"  # type: ignore[union-attr]
                f"{' nodad' if family == 6 else ''}"
            )


class Server:
    """Answers on a port of a namespace, `name` and the client's address, until closed."""

    def __init__(self, netns: Netns, name: str, port: int, protocol: str = "tcp", family: int = 4) -> None:
        def opened() -> socket.socket:
            sock = socket.socket(_FAMILIES[family], _KINDS[protocol])
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == 6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.bind(("::" if family == 6 else "", port))
            return sock

        self._name = name
        self._socket = netns.call(opened)
        if protocol == "tcp":
            self._socket.listen(16)
        serve = self._serve_tcp if protocol == "tcp" else self._serve_udp
        self._thread = threading.Thread(target=self._until_closed, args=[serve], daemon=True)
        self._thread.start()
        netns.closing.callback(self.close)

    def close(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()

    def _until_closed(self, serve: Callable[[], None]) -> None:
        with suppress(OSError):
            while True:
                serve()

    def _serve_tcp(self) -> None:
        connection, peer = self._socket.accept()
        with connection:
            connection.sendall(f"{self._name} {peer[0]}".encode())

    def _serve_udp(self) -> None:
        data, peer = self._socket.recvfrom(64)
        if not data:
            raise OSError("closed")
        self._socket.sendto(f"{self._name} {peer[0]}".encode(), peer)


def silent(client: Netns, address: str, port: int, protocol: str = "tcp", *, source: int = 0) -> bool:
    """Tell whether nobody answers there within half a second."""
    return not ask(client, address, port, protocol, source=source, seconds=0.5)


def ask(
    client: Netns, address: str, port: int, protocol: str = "tcp", *, source: int = 0, seconds: float = _SECONDS
) -> str:
    """Return the answer of whoever serves there: its name and the address it sees, empty if there is none."""
    family = 6 if ":" in address else 4

    def inside() -> str:
        with socket.socket(_FAMILIES[family], _KINDS[protocol]) as sock:
            sock.settimeout(seconds)
            if source:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                sock.bind(("", source))
            try:
                sock.connect((address, port))
                if protocol == "udp":
                    sock.send(b"?")
                return sock.recv(64).decode()
            except OSError:
                return ""

    return client.call(inside)
