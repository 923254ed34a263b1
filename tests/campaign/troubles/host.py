"""Troubles of the machine: rules, settings, files, disks, clocks, descriptors."""

import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from tests.campaign.brokenworld import Trouble, World, scramble
from tests.campaign.troubles.store import ETCD
from tests.campaign.troubles.uplink import once

DESCRIPTORS: Final = 256
# Runs the daemon's command with a small file system in the place of its state directory, filled with what was there.
_SMALL_DISK: Final = (
    "mount --make-rprivate / && mkdir -p {s}.small"
    " && mount -t tmpfs -o size=$(($(du -sk {s} | cut -f1) + 256))k none {s}.small"
    ' && cp -a {s}/. {s}.small/ && mount --bind {s}.small {s} && exec "$@"'
)


@contextmanager
def small_disk(world: World) -> Iterator[Path]:
    """Run the daemon on a small disk; yields the place of that disk as seen from here."""
    script = _SMALL_DISK.format(s=world.one.state_dir)
    with world.restarted(wrap=("unshare", "--mount", "sh", "-c", script, "sh")):
        world.one.wait_ready(30)
        yield Path(f"/proc/{world.one.pid}/root{world.one.state_dir}")


@contextmanager
def full_disk(world: World) -> Iterator[None]:
    with small_disk(world) as disk:
        filler = os.open(disk / "filler", os.O_WRONLY | os.O_CREAT)
        with suppress(OSError):
            while True:
                os.write(filler, bytes(4096))
        os.close(filler)
        world.cluster.peer(60, **world.peer_fields)
        world.one.sees("ip route", "10.5.60.0/24")
        yield
        world.cluster.etcd.delete(world.cluster.key("10.5.60.0-24"))


@contextmanager
def read_only_disk(world: World) -> Iterator[None]:
    """The state directory turns read-only, by a mount on top of it: open files would bar a remount.

    What the daemon holds open it may write to as before, and so it attaches pods.
    """
    with small_disk(world):
        path = world.one.state_dir
        script = f"mount --bind {path} {path} && mount -o remount,bind,ro {path}"
        world.one.netns.run(["nsenter", f"--mount=/proc/{world.one.pid}/ns/mnt", "sh", "-c", script])
        yield


@contextmanager
def read_only_start(world: World) -> Iterator[None]:
    """The daemon starts on a state directory that is read-only."""
    script = 'mount --bind -o ro "$1" "$1"; shift; exec "$@"'
    with world.restarted(wrap=("unshare", "--mount", "sh", "-c", script, "sh", str(world.one.state_dir))):
        yield


@contextmanager
def spoilt_state(world: World) -> Iterator[None]:
    """Some files of the state are not what was written; the daemon starts on them."""
    world.one.stop()
    files = [path for path in world.one.state_dir.rglob("*") if path.is_file() and path.name != "lock"]
    for path in world.chance.sample(files, world.chance.randint(1, len(files))):
        kind = world.chance.choice(("bytes", "bytes", "directory", "fifo", "gone"))
        path.unlink()
        if kind == "bytes":
            path.write_bytes(scramble(world.chance))
        elif kind == "directory":
            (path / "in the way").mkdir(parents=True)
        elif kind == "fifo":
            os.mkfifo(path)
    world.start()
    yield


@contextmanager
def no_descriptors(world: World) -> Iterator[None]:
    """Clients without a request take the descriptors that the daemon, with few to begin with, may still open."""
    with world.restarted(wrap=("prlimit", f"--nofile={DESCRIPTORS}")), ExitStack() as clients:
        world.one.wait_ready(30)

        def connect() -> None:
            for _ in range(DESCRIPTORS):
                with suppress(OSError):
                    clients.enter_context(socket.create_connection(("127.0.0.1", world.one.health_port), timeout=2))
                client = clients.enter_context(socket.socket(socket.AF_UNIX))
                client.setblocking(False)
                with suppress(OSError):
                    client.connect(str(world.one.folder / "cni" / "cni.sock"))

        world.one.netns.call(connect)
        yield


@contextmanager
def clock_jumps(world: World) -> Iterator[None]:
    world.clock.set(world.chance.choice((-25, 25, 24 * 400)))
    try:
        yield
    finally:
        world.clock.set(0)


@contextmanager
def no_subnet_file(world: World) -> Iterator[None]:
    if world.chance.random() < 0.5:
        world.one.subnet_file.unlink()
    else:
        world.one.subnet_file.write_text("FLANNEL_NETWORK=nonsense\n")
    yield


@contextmanager
def subnet_file_barred(world: World) -> Iterator[None]:
    """A directory lies where subnet.env was."""
    world.one.subnet_file.unlink()
    with suppress(FileExistsError):
        world.one.subnet_file.mkdir()
        (world.one.subnet_file / "in the way").touch()
    try:
        yield
    finally:
        if world.one.subnet_file.is_dir():
            shutil.rmtree(world.one.subnet_file)


TROUBLES: Final = {
    "state directory full": Trouble(lasts=full_disk, says="STATE-002", on=ETCD - {"udp"}),
    "state directory read-only": Trouble(lasts=read_only_disk),
    "state directory read-only from the start": Trouble(lasts=read_only_start, says="STATE-002"),
    "state spoilt": Trouble(lasts=spoilt_state),
    "descriptors taken by idle clients": Trouble(lasts=no_descriptors),
    "wall clock jumps": Trouble(lasts=clock_jumps),
    "subnet.env gone or changed": Trouble(lasts=no_subnet_file),
    "subnet.env is a directory": Trouble(lasts=subnet_file_barred, says="LEASE-001"),
    "forwarding off": Trouble(lasts=once("sysctl -qw net.ipv4.ip_forward=0 net.ipv6.conf.all.forwarding=0")),
    "all rules flushed": Trouble(lasts=once("nft flush ruleset")),
    "masquerade chain flushed": Trouble(lasts=once("iptables -w -t nat -F FLANNEL-POSTRTG")),
}
