"""Troubles of the store: it hangs, goes, loses its data, or holds what no node can use."""

import json
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Final

from tests.campaign.brokenworld import Trouble, World
from tests.support.waiting import in_time
from tests.support.weftd import peer_value, public_v4


@contextmanager
def hangs(world: World) -> Iterator[None]:
    world.cluster.etcd.pause()
    try:
        yield
    finally:
        world.cluster.etcd.resume()


@contextmanager
def away(world: World) -> Iterator[None]:
    world.cluster.etcd.kill()
    try:
        yield
    finally:
        world.cluster.etcd.start("--unsafe-no-fsync")


@contextmanager
def loses_its_data(world: World) -> Iterator[None]:
    """All keys are gone; the configuration and the peers of old are put again before the trouble ends."""
    etcd = world.cluster.etcd
    keys = [(kv.key, kv.value) for kv in etcd.below(world.cluster.prefix)]
    own = {world.cluster.lease_of(node).key for node in (world.one, world.two)}
    etcd.kill()
    shutil.rmtree(etcd.data)
    etcd.start("--unsafe-no-fsync")
    etcd.fill([(key, value) for key, value in keys if key.endswith("/config")])
    try:
        yield
    finally:
        etcd.fill([(key, value) for key, value in keys if not key.endswith("/config") and key not in own])


def packets(verdict: str) -> Callable[[World], AbstractContextManager[None]]:
    """What becomes of the packets from the first node to the store."""

    @contextmanager
    def lasts(world: World) -> Iterator[None]:
        switch = world.cluster.underlay.switch
        switch.run(
            f"nft add table inet hole && nft 'add chain inet hole i {{ type filter hook input priority 0; }}'"
            f" && nft add rule inet hole i ip saddr {public_v4(1)} tcp dport {world.cluster.etcd.port} {verdict}"
        )
        try:
            yield
        finally:
            switch.run("nft delete table inet hole")

    return lasts


@contextmanager
def malformed(world: World) -> Iterator[None]:
    """Keys and values that no node wrote, some of them large, some of them made to look like others."""
    below = f"{world.cluster.prefix}/subnets/"
    odd = [
        "nonsense",
        "10.5.60.0-24/x",
        "10.5.61.0-99",
        "\x1b[2J10.5.62.0-24",
        "10.5.63.0-24\nERROR forged",
        "0.0.0.0-0",
    ]
    values = ["", "{", "[]", "null", json.dumps({"PublicIP": 7}), "[" * 50_000, "x" * 500_000]
    pairs = [(below + name, world.chance.choice(values)) for name in odd]
    pairs += [(f"{below}10.5.{64 + number}.0-24", world.chance.choice(values)) for number in range(20)]
    for pair in pairs:  # one by one: a request of etcd's has a bound
        world.cluster.etcd.fill([pair])
    try:
        yield
    finally:
        for key, _ in pairs:
            world.cluster.etcd.delete(key)


@contextmanager
def clashing(world: World) -> Iterator[None]:
    """Hundreds of leases with one public IP, and some with our subnet, our address or a peer's MAC."""
    below = f"{world.cluster.prefix}/subnets/"
    data = "vxlan" if world.backend == "vxlan" else None
    many = {
        f"{below}10.5.{200 + number // 16}.{number % 16 * 16}-28": peer_value(
            99, data=data, public="172.31.0.50", BackendType=world.backend
        )
        for number in range(300)
    }
    wide = world.one.v4.supernet(new_prefix=22)
    many[f"{below}{wide[0]}-22"] = peer_value(98, data=data, BackendType=world.backend)
    many[f"{below}10.5.250.0-24"] = peer_value(97, data=data, public=public_v4(1), BackendType=world.backend)
    world.cluster.etcd.fill(many.items())
    try:
        yield
    finally:
        for key in (f"{below}10.5.2", f"{below}{wide[0]}-22"):
            world.cluster.etcd.delete(key, "--prefix")


@contextmanager
def silent_names(world: World) -> Iterator[None]:
    """The first endpoint is a name, and no name server answers."""
    with closing(world.one.netns.call(_silent_server)):
        resolv = world.folder / "resolv.conf"
        resolv.write_text("nameserver 127.0.0.1\noptions timeout:30 attempts:5\n")
        script = f'mount --make-rprivate / && mount --bind {resolv} /etc/resolv.conf && exec "$@"'
        endpoints = f"--etcd-endpoints=http://silent.example:2379,{world.cluster.etcd.url}"
        start = time.monotonic()
        with world.restarted(endpoints, wrap=("unshare", "--mount", "sh", "-c", script, "sh")):
            world.one.wait_ready(30)
            world.one.ip("route flush proto 165")
            yield
            start = time.monotonic()
        assert in_time(start, 10), "the end waits for a name server"


def _silent_server() -> socket.socket:
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", 53))
    return server


TROUBLES: Final = {
    "store hangs": Trouble(lasts=hangs, says="STORE-001"),
    "store away": Trouble(lasts=away, says="STORE-001"),
    "store loses its data": Trouble(lasts=loses_its_data),
    "store behind a hole": Trouble(lasts=packets("drop"), says="STORE-001"),
    "store resets connections": Trouble(lasts=packets("ct state established reject with tcp reset"), says="STORE-001"),
    "malformed keys": Trouble(lasts=malformed, says="ADDR-002"),
    "clashing leases": Trouble(lasts=clashing, says="ADDR-002"),
    "silent name server": Trouble(lasts=silent_names),
}
