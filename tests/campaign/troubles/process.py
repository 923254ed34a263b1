"""Troubles of processes: a daemon that is stopped or told odd things, names and locks that others hold, delegates."""

import fcntl
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from ipaddress import ip_interface
from pathlib import Path
from typing import Final

from tests.campaign.brokenworld import SECONDS, Trouble, World, run_in
from tests.campaign.troubles.store import ETCD
from tests.node.test_status import asked
from tests.support.cni.standins import kill_stand_ins, stand_ins
from tests.support.netns import Netns
from tests.support.squatter import ROOT, ROOT_IN_A_USER_NAMESPACE, USER, squatting
from tests.support.weftd import eventually

_NO_RESOURCE: Final = ("setpriv", "--bounding-set=-sys_resource", "--inh-caps=-sys_resource", "--")
POOR: Final = (
    (*_NO_RESOURCE, "prlimit", "--nofile=20"),
    (*_NO_RESOURCE, "prlimit", "--fsize=10"),
    ("setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin"),
)
LIMITS: Final = (
    *POOR,
    ("prlimit", "--nofile=20:"),
    ("prlimit", "--fsize=10:"),
    ("prlimit", "--cpu=1:"),
    ("env", "LD_LIBRARY_PATH=/x", "PYTHONPATH=/x", "sh", "-c", "trap '' HUP; exec \"$@\"", "sh"),
)
_HANGS: Final = "#!/bin/sh\nexec sleep 300\n"


@contextmanager
def stopped(world: World) -> Iterator[None]:
    """The daemon does nothing for a while; a plugin that is called meanwhile is served afterwards."""
    pod = Netns()
    world.one.signal(signal.SIGSTOP)
    call = world.runtime.begin("ADD", "late", pod)
    try:
        yield
    finally:
        world.one.signal(signal.SIGCONT)
        answer = call.end()
        assert answer.exit == 0, answer
        assert world.runtime.ask("DEL", "late", pod) is None
        pod.close()


@contextmanager
def held_names(world: World) -> Iterator[None]:
    """A program without rights holds the names by which daemons find each other, and commands them; ours starts."""
    own = f"weft/instance/{asked(world.one)['instance']}"
    world.one.stop()
    names = ["weft/device/flannel.1", "weft/device/flannel-v6.1", "weft/rules", own, "weft/instance/zz"]
    stranger = world.chance.choice((USER, ROOT, ROOT_IN_A_USER_NAMESPACE))
    with squatting(world.one.netns, *names, wrap=stranger):
        world.start()
        assert asked(world.one)["pid"] == world.one.pid
        yield


@contextmanager
def held_lock(world: World) -> Iterator[None]:
    """Another program holds host-local's lock while pods of the node want addresses."""
    path = world.runtime.folder / "nets" / "cbr0" / "lock"
    lock = os.open(path, os.O_RDWR | os.O_CREAT)
    pods = [Netns() for _ in range(6)]
    calls = []
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        calls = [world.runtime.begin("ADD", f"waits{number}", pod) for number, pod in enumerate(pods)]
        time.sleep(0.5)
        yield
    finally:
        os.close(lock)
        for number, (call, pod) in enumerate(zip(calls, pods, strict=True)):
            call.end()
            assert world.runtime.ask("DEL", f"waits{number}", pod) is None
            pod.close()


@contextmanager
def hanging_delegate(world: World) -> Iterator[None]:
    """A third-party IPAM plugin does not answer; its runtime gives up in the end."""
    program = Path(world.runtime.bin_dir) / "hangs"
    program.write_text(_HANGS)
    program.chmod(0o755)
    pod = Netns()
    calls = [world.runtime.begin("ADD", f"hangs{number}", pod, type="hangs") for number in range(4)]
    try:
        with world.another_pod():
            yield
    finally:
        for call in calls:
            call.kill()
        pod.close()


@contextmanager
def foreign_limits(world: World) -> Iterator[None]:
    """While weftd is away a runtime with few rights calls first; others are served all the same, and so are its pods.

    What has few rights to raise its limits is told so, and what may raise them is served.
    """
    world.one.stop()
    with Netns() as first, Netns() as second:
        world.runtime.prefix = world.chance.choice(LIMITS)
        world.runtime.ask("ADD", "limited", first)
        assert world.runtime.ask("DEL", "limited", first) is None or world.runtime.prefix in POOR
        world.runtime.prefix = ()
        answer = world.runtime.ask("ADD", "other", second)
        assert "ips" in answer, answer
        assert not world.far.misses(tuple(ip_interface(each["address"]).ip for each in answer["ips"]))
        for name, netns in (("other", second), ("limited", first)):
            assert world.runtime.ask("DEL", name, netns) is None
    kill_stand_ins(world.one.folder)
    world.start()
    yield


def signalled(number: signal.Signals) -> Callable[[World], AbstractContextManager[None]]:
    @contextmanager
    def lasts(world: World) -> Iterator[None]:
        world.one.signal(number)
        yield

    return lasts


@contextmanager
def killed(world: World) -> Iterator[None]:
    """Killed, and started again, while pods come and go."""
    pod = Netns()
    call = world.runtime.begin("ADD", "cut", pod)
    time.sleep(world.chance.uniform(0, 0.02))
    world.one.kill()
    call.end()
    world.start()
    yield
    assert world.runtime.ask("DEL", "cut", pod) is None
    pod.close()


@contextmanager
def unread_log(world: World) -> Iterator[None]:
    """What reads the log has stopped reading, and there is much to say."""
    pipe = world.folder / "log-pipe"
    if not pipe.exists():
        os.mkfifo(pipe)
    held = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
    with world.restarted(wrap=("sh", "-c", f'exec "$@" 2>{pipe}', "sh")):
        world.one.wait_ready(30)
        keys = [f"{world.cluster.prefix}/subnets/odd{number}" for number in range(1500)]
        world.cluster.etcd.fill((key, "{" + "x" * 200) for key in keys)
        try:
            yield
        finally:
            world.cluster.etcd.delete(f"{world.cluster.prefix}/subnets/odd", "--prefix")
    os.close(held)


@contextmanager
def second_daemon(world: World) -> Iterator[None]:
    """Another daemon is started for the same node, and has to give way."""
    command = world.one.command("--healthz-port=0")
    other = run_in(world.one.netns, ["env", f"NODE_NAME=node{world.one.number}", *command])
    eventually(lambda: other.poll() is not None, seconds=20)
    assert other.returncode == 1
    yield


@contextmanager
def few_processes(world: World) -> Iterator[None]:
    """The daemon may have few processes and threads (pids.max), from its start on or while work comes."""
    top = Path("/sys/fs/cgroup/pids")
    group = top / f"weft-test-{os.getpid()}-{world.one.pid}"
    group.mkdir()
    try:
        if world.chance.random() < 0.5:
            least = 5 if world.kind.store == "etcd" else 8
            (group / "pids.max").write_text(str(world.chance.randint(least, least + 3)))
            join = f'echo $$ >{group}/cgroup.procs && exec "$@"'
            with world.restarted(wrap=("sh", "-c", join, "sh")):
                world.one.wait_ready(SECONDS)
                yield
        else:
            (group / "cgroup.procs").write_text(str(world.one.pid))
            (group / "pids.max").write_text((group / "pids.current").read_text())
            flush = (f"{program} -w -t nat -F FLANNEL-POSTRTG" for program in ("iptables", "ip6tables"))
            world.one.subnet_file.unlink()
            world.one.netns.run("; ".join(("ip route flush proto 165", *flush)))
            eventually(world.one.subnet_file.is_file, seconds=SECONDS)  # which takes a thread, in whichever way
            yield
        assert not stand_ins(world.one.folder), "weftd has served plugins"
    finally:
        (group / "pids.max").write_text("max")
        for process in (group / "cgroup.procs").read_text().split():
            with suppress(OSError):  # it has ended
                (top / "cgroup.procs").write_text(process)
        eventually(lambda: _removed(group), seconds=SECONDS)


def _removed(group: Path) -> bool:
    with suppress(OSError):
        group.rmdir()
    return not group.exists()


TROUBLES: Final = {
    "weftd stopped": Trouble(lasts=stopped, answers=False),
    "weftd killed within a request": Trouble(lasts=killed),
    "weftd told SIGHUP": Trouble(lasts=signalled(signal.SIGHUP)),
    "weftd told SIGUSR1": Trouble(lasts=signalled(signal.SIGUSR1)),
    "names held by a program without rights": Trouble(lasts=held_names),
    "host-local's lock held": Trouble(lasts=held_lock, attaches=False),
    "a delegate that hangs": Trouble(lasts=hanging_delegate),
    "log that is not read": Trouble(lasts=unread_log, on=ETCD),
    "few processes": Trouble(lasts=few_processes),
    "a runtime with few rights, without weftd": Trouble(lasts=foreign_limits),
    "a second daemon": Trouble(lasts=second_daemon, says=""),
}
