"""Killing a daemon at named points, which are seen from outside: in its log, its files, the kernel, the store.

The daemon knows nothing of this. A point is hit when what it is named for has just been seen and the daemon was
still running.
"""

import random
import shutil
import socket
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from tests.support.weftd import DUAL, HOST_GW, VXLAN, Cluster, Daemon
from weft.wire import subnetenv

_PATIENCE: Final = 15.0
_NETLINK_NETFILTER: Final = 12
_SOL_NETLINK, _ADD_MEMBERSHIP, _NFNLGRP_NFTABLES = 270, 1, 7
FLAGS: Final = ("--ip-masq",)


class RuleNotices:
    """Tells that somebody changed rules of nf_tables in a node's namespace."""

    def __init__(self, node: Daemon) -> None:
        def open_socket() -> socket.socket:
            sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER)
            sock.bind((0, 0))
            sock.setsockopt(_SOL_NETLINK, _ADD_MEMBERSHIP, _NFNLGRP_NFTABLES)
            sock.setblocking(False)
            return sock

        self._socket = node.netns.call(open_socket)

    def any(self) -> bool:
        """Whether there was a change since the last call."""
        found = False
        while True:
            try:
                found = bool(self._socket.recv(65536)) or found
            except BlockingIOError:
                return found

    def close(self) -> None:
        self._socket.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What a network is like: its back end, whether it has both families, and how its rules are written."""

    backend: str
    dual: bool
    nft: bool

    @property
    def net_conf(self) -> dict[str, Any]:
        backend = VXLAN if self.backend == "vxlan" else HOST_GW
        return {**backend, **(DUAL if self.dual else {}), "EnableNFTables": self.nft}

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices that the daemon makes, IPv4's first."""
        return ("flannel.1", "flannel-v6.1")[: 1 + self.dual] if self.backend == "vxlan" else ()


class Killer:
    """Starts the daemon of a node, kills it at a point, and counts how often each point was hit."""

    def __init__(self, cluster: Cluster, node: Daemon, chance: random.Random, *, kind: Kind) -> None:
        self.cluster = cluster
        self.node = node
        self.chance = chance
        self.kind = kind
        self.hits: Counter[str] = Counter()
        self._notices = RuleNotices(node)
        rtnl = node.netns.rtnl
        self._link: Callable[[], int] = lambda: getattr(rtnl.link("flannel.1"), "index", 0)
        self._routes = lambda: rtnl.routes(protocol=165)

    # Points of a start that finds all as it should be.
    @property
    def warm(self) -> dict[str, Callable[[], None]]:
        return {
            "any time": self.any_time,
            "flags read": lambda: self._at(lambda: "weftd" in self.node.log),
            "uplink chosen": lambda: self._at(lambda: "uplink eth0" in self.node.log),
            "lease taken": lambda: self._at(lambda: "leasing: lease" in self.node.log),
            "subnet.env replaced": lambda: self._at(self._file_changes()),
            "ready": lambda: self._at(lambda: "running: ready" in self.node.log),
            "stopping": self.stopping,
            "renewal": self.renewal,
        }

    # Points of a start or a repair that has everything to do.
    @property
    def cold(self) -> dict[str, Callable[[], None]]:
        exists = self._exists
        points = {
            "any time, nothing there": lambda: self.wiped() or self.any_time(),
            "identity written": lambda: self.wiped(state=True) or self._at(lambda: exists("identity.json")),
            "memory written": lambda: self.wiped(state=True) or self._at(lambda: exists("cluster.jsonl")),
            "first route": lambda: self.wiped() or self._at(lambda: bool(self._routes())),
            "rules laid": lambda: self.wiped() or self._at(self._notices.any),
            "subnet.env written": lambda: self.wiped() or self._at(self.node.subnet_file.exists),
            "repair of routes": lambda: self._repair(self._damage, lambda: bool(self._routes())),
            "repair of rules": lambda: self._repair("nft flush ruleset", self._notices.any),
        }
        if self.kind.devices:
            points |= {
                "device made": lambda: self.wiped() or self._at(lambda: self._link() > 0),
                "repair of the device": lambda: self._repair(self._damage, lambda: self._link() > 0),
            }
        return points

    def close(self) -> None:
        self._notices.close()

    def wiped(self, *, state: bool = False) -> None:
        """Take all from the kernel and the subnet file, as a reboot does; with `state` the disk is lost as well."""
        self.node.netns.run(f"set +e; {self._damage}; nft flush ruleset")
        self.node.subnet_file.unlink(missing_ok=True)
        if state:
            shutil.rmtree(self.node.state_dir, ignore_errors=True)
        self._notices.any()

    def any_time(self) -> None:
        self.node.spawn(*FLAGS)
        time.sleep(self.chance.uniform(0, 0.4))

    def stopping(self) -> None:
        self.node.start(*FLAGS)
        self.node.signal(15)
        self._until(lambda: "stopping" in self.node.log or not self.node.running)

    def renewal(self) -> None:
        """The store hangs at the moment of a renewal, so the daemon is surely in the middle of it."""
        self.node.start(*FLAGS)
        kv = self.cluster.lease_of(self.node)
        self.cluster.etcd.put_leased(kv.key, kv.value, ttl=6)
        # The daemon sees that its key hangs on another lease, and renews that after a third of its time.
        time.sleep(self.chance.uniform(1.2, 1.6))
        self.cluster.etcd.pause()
        time.sleep(0.9)

    def kill_at(self, name: str) -> None:
        """Go to a point and kill there."""
        {**self.warm, **self.cold}[name]()
        self.hits[name] += self.node.running
        self.node.signal(9) if self.node.running else None
        self.node.wait()
        self.cluster.etcd.resume()
        if self.node.subnet_file.exists():
            complete = subnetenv.parse(self.node.subnet_file.read_text())
            assert complete.subnet_v4 is not None, "torn subnet.env"

    @property
    def _damage(self) -> str:
        """Take the daemon's devices, and its routes with them."""
        gone = [f"ip link del {name} 2>/dev/null" for name in self.kind.devices]
        return "; ".join([*gone, "ip route flush proto 165", "ip -6 route flush proto 165"])

    def _repair(self, damage: str, seen: Callable[[], bool]) -> None:
        self.node.start(*FLAGS)
        self.node.netns.run(damage)
        self._notices.any()
        self._until(seen)

    def _at(self, seen: Callable[[], bool]) -> None:
        self.node.spawn(*FLAGS)
        self._until(seen)

    def _until(self, seen: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _PATIENCE
        while not seen():
            assert self.node.running, f"weftd ended:\n{self.node.log}"
            assert time.monotonic() < deadline, f"never seen:\n{self.node.log}"

    def _exists(self, name: str) -> bool:
        with suppress(FileNotFoundError):  # a start makes the directory once for a trial, and removes it again
            return any(self.node.state_dir.glob(f"*/{name}"))
        return False

    def _file_changes(self) -> Callable[[], bool]:
        def number() -> int:
            path = self.node.subnet_file
            return path.stat().st_ino if path.exists() else 0

        before = number()
        return lambda: number() != before
