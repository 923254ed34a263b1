"""Troubles of the store: it hangs, goes, loses its data, or holds what no node can use."""

import json
import os
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Final

from tests.campaign.brokenworld import FLAGS, PEERS, SECONDS, Trouble, World
from tests.campaign.troubles.uplink import addressed
from tests.node.test_uplink import NEW, renumber
from tests.support.hungdisk import hung
from tests.support.kubernetes import kubeobjects
from tests.support.kubernetes.kubeobjects import PREFIX
from tests.support.lab import WEFT
from tests.support.waiting import in_time
from tests.support.weftd import eventually, peer_value, public_v4

ETCD: Final = frozenset(("etcd", "vxlan", "host-gw", "udp"))
KUBERNETES: Final = frozenset(("kubernetes", "vxlan", "host-gw"))


@contextmanager
def hangs(world: World) -> Iterator[None]:
    world.store.pause()
    try:
        yield
    finally:
        world.store.resume()


@contextmanager
def away(world: World) -> Iterator[None]:
    world.store.kill()
    try:
        yield
    finally:
        world.start_store()


@contextmanager
def no_space(world: World) -> Iterator[None]:
    """The space of etcd is used up: it answers, watches and renews, and takes no write that adds."""
    world.cluster.etcd.no_space(on=True)
    try:
        yield
    finally:
        world.cluster.etcd.no_space(on=False)


def untold(lasts: Callable[[World], AbstractContextManager[None]]) -> Callable[[World], AbstractContextManager[None]]:
    """The node's address changes while the store cannot be told; peers send to the old one."""

    @contextmanager
    def both(world: World) -> Iterator[None]:
        with lasts(world):
            renumber(world.one)
            yield
            if back_first := world.chance.random() < 0.5:
                _number_as_before(world)
        if not back_first:
            # One route leads to udp's relay, which knows the peers.
            peers = f"{WEFT} peers" if world.kind.backend == "udp" else "ip route; bridge fdb show"
            world.two.sees(peers, NEW, seconds=SECONDS)
            _number_as_before(world)

    return both


def _number_as_before(world: World) -> None:
    addressed(world)
    world.one.ip(f"address del {NEW}/24 dev eth0")
    addressed(world)  # the default route may have gone with the address


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
        switch = world.underlay.switch
        switch.run(
            f"nft add table inet hole && nft 'add chain inet hole i {{ type filter hook input priority 0; }}'"
            f" && nft add rule inet hole i ip saddr {public_v4(1)} tcp dport {world.port} {verdict}"
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
    value = peer_value(99, public="172.31.0.50", **world.peer_fields)
    many = {f"{below}10.5.{200 + number // 16}.{number % 16 * 16}-28": value for number in range(300)}
    wide = world.one.v4.supernet(new_prefix=22)
    many[f"{below}{wide[0]}-22"] = peer_value(98, **world.peer_fields)
    many[f"{below}10.5.250.0-24"] = peer_value(97, public=public_v4(1), **world.peer_fields)
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
            world.one.wait_ready(SECONDS)
            world.one.ip("route flush proto 165")
            yield
            start = time.monotonic()
        assert in_time(start, 10), "the end waits for a name server"


def _silent_server() -> socket.socket:
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", 53))
    return server


# --- Kubernetes


@contextmanager
def claimed(world: World) -> Iterator[None]:
    """An older node says that it is where ours is, and by our MAC; a daemon may start meanwhile."""
    api, name = world.server.admin, f"node{world.chance.choice(PEERS)}"
    before, own = kubeobjects.published(api, name), kubeobjects.published(api, "node1")
    what = world.chance.choice((["public-ip"], ["public-ip", "backend-data"]))
    kubeobjects.annotate(api, name, **{PREFIX + key: own[key] for key in what})
    try:
        eventually(lambda: world.said("ADDR-002"), seconds=SECONDS)
        for node in world.chance.choice(((), (world.one,), (world.two,))):
            node.stop()
            node.start(*FLAGS, env=world.clock.env)
        yield
    finally:
        kubeobjects.annotate(api, name, **{PREFIX + key: before[key] for key in what})


@contextmanager
def nonsense(world: World) -> Iterator[None]:
    """Nodes say what no node can mean."""
    api = world.server.admin
    numbers = world.chance.sample(PEERS, 3)
    before = {f"node{number}": kubeobjects.published(api, f"node{number}") for number in numbers}
    odd = ("", "{", "null", '{"VtepMAC":"zz"}', "here", "\x1b[2J", "[" * 5_000, "x" * 100_000)
    for name, said in before.items():
        key = world.chance.choice(sorted(said))
        other = world.chance.choice([each for each in odd if each != said[key]])
        kubeobjects.annotate(api, name, **{PREFIX + key: other})
    try:
        yield
    finally:
        for name, said in before.items():
            kubeobjects.annotate(api, name, **{PREFIX + key: text for key, text in said.items()})


@contextmanager
def hanging_files(world: World) -> Iterator[None]:
    """Token, CA and network configuration lie on a dead file system, or a FIFO that nobody writes lies in their place.

    The API server starts again, so that what it takes is read again; weftd may be told to end meanwhile.
    """
    with world.chance.choice((_dead, _fifo))(world):
        world.server.kill()
        world.server.start()
        yield
        if ends := world.chance.random() < 0.5:
            world.one.stop()
    if ends:
        world.spawn()


@contextmanager
def _dead(world: World) -> Iterator[None]:
    with hung(world.one.folder / "files"):
        yield


@contextmanager
def _fifo(world: World) -> Iterator[None]:
    path = world.one.folder / "files" / world.chance.choice(("token", "ca", "net-conf"))
    kept = path.rename(path.with_suffix(".kept"))
    os.mkfifo(path)
    try:
        yield
    finally:
        kept.rename(path)


TROUBLES: Final = {
    "store hangs": Trouble(lasts=hangs, says="STORE-001", on=ETCD),
    "store away": Trouble(lasts=away, says="STORE-001", on=ETCD),
    "store loses its data": Trouble(lasts=loses_its_data, on=ETCD),
    "store behind a hole": Trouble(lasts=packets("drop"), says="STORE-001", on=ETCD),
    "store resets connections": Trouble(
        lasts=packets("ct state established reject with tcp reset"), says="STORE-001", on=ETCD
    ),
    "store without space": Trouble(lasts=no_space, on=ETCD),
    "address changes, store without space": Trouble(lasts=untold(no_space), says="LEASE-004", flows=False, on=ETCD),
    "address changes, store away": Trouble(lasts=untold(away), says="STORE-001", flows=False, on=ETCD),
    "malformed keys": Trouble(lasts=malformed, says="ADDR-002", on=ETCD),
    "clashing leases": Trouble(lasts=clashing, says="ADDR-002", on=ETCD),
    "silent name server": Trouble(lasts=silent_names, on=ETCD),
    "API server hangs": Trouble(lasts=hangs, says="STORE-001", on=KUBERNETES),
    "API server away": Trouble(lasts=away, says="STORE-001", on=KUBERNETES),
    "API server behind a hole": Trouble(lasts=packets("drop"), says="STORE-001", on=KUBERNETES),
    "address changes, API server hangs": Trouble(lasts=untold(hangs), says="STORE-001", flows=False, on=KUBERNETES),
    "our address claimed by an older node": Trouble(lasts=claimed, says="ADDR-002", on=KUBERNETES),
    "annotations without a meaning": Trouble(lasts=nonsense, says="ADDR-002", on=KUBERNETES),
    "files that hang": Trouble(lasts=hanging_files, on=KUBERNETES),
}
