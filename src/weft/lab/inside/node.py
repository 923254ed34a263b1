"""A running node: its namespaces, a socket in its network, and its daemon."""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Final

from weft.beside.tasks import awaited
from weft.config.netconf import NetConf
from weft.kernel.rtnetlink.rtnl import Rtnl
from weft.lab import system
from weft.lab.inside import control, filesystem, underlay
from weft.lab.inside.control import Health
from weft.lab.inside.namespaces import Inside, Room
from weft.lab.inside.processes import Arrivals, Child, Processes
from weft.lab.inside.stores import Store
from weft.lab.links import Link
from weft.lab.network import share
from weft.lab.report import NodeReport, serves
from weft.lab.spec import Node
from weft.model.errors import Problem, Unavailable
from weft.model.net import Family, Net
from weft.model.value import Value
from weft.wire.subnetenv import PluginEnv, SubnetEnv, parse_for_cni, render

_LEASE: Final = "subnet.env"
_WISH: Final = ".wish.env"
_SETTLE_SECONDS: Final = 30.0
_LOOK_AGAIN: Final = 0.01  # seconds
_LONGEST: Final = 3.0  # seconds for an answer of a daemon that is about to be needed


class RunningNode(Value, frozen=False):
    """`run` is its /run/flannel; `lease` is set once the daemon has written subnet.env there.

    `policed`: in a lab with policies its daemon is started to enforce them.
    `init` is the first process of its pid namespace, `pid` the daemon's number in it. Where weft is a pod, there is no
    `daemon`, and `pid` is 0.
    """

    spec: Node
    room: Room
    rtnl: Rtnl
    run: int
    lease: asyncio.Event
    init: subprocess.Popen[bytes]
    daemon: Child | None = None
    pid: int = 0
    policed: bool = True

    @property
    def process(self) -> int:
        """The daemon's number in the lab, as `control` wants it."""
        return 0 if self.daemon is None or self.daemon.ended.done() else self.daemon.pid

    @property
    def networks(self) -> Path:
        return filesystem.node_directory(self.spec.name, "net.d")

    @property
    def attachments(self) -> Path:
        """Where its runtime remembers attachments, as the lab sees it."""
        return filesystem.node_directory(self.spec.name, "cni")

    def subnet_env(self) -> PluginEnv:
        """`FileNotFoundError` before the daemon has written it."""
        with os.fdopen(os.open(_LEASE, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self.run)) as file:
            return parse_for_cni(file.read(), f"{self.spec.name}:/run/flannel/{_LEASE}")

    async def unknown(self, subnets: AbstractSet[Net], inside: Inside, *, apart: bool) -> AbstractSet[Net]:
        """Subnets of others that its daemon does not say it serves.

        Of nodes that are `apart`, in several segments, it may also say why it cannot. Of another daemon than weft's,
        the routes tell.
        """
        state = await control.state(inside, self.room, self.process)
        others = subnets - set(self.subnet_env().subnets)
        if state is None:
            if await control.runs(inside, self.room):
                return others  # it has not answered in the time it had
            return set() if apart and self.spec.daemon else await inside.run(None, lambda: self._without_route(others))
        peers = [peer for peer in state.peers if not peer.lacks and (apart or not peer.trouble)]
        served = {net for peer in peers for net in peer.subnets}
        return {net for net in others if str(net) not in served}

    async def joins(self, inside: Inside) -> object:
        """How far it knows the others: another value after each step."""
        state = await control.state(inside, self.room, self.process)
        told = None if state is None else [(peer.id, peer.lacks, peer.trouble) for peer in state.peers]
        routes = await inside.run(None, lambda: sum(1 for _ in self.rtnl.routes()))
        return self.lease.is_set(), told, routes

    def _without_route(self, subnets: AbstractSet[Net]) -> AbstractSet[Net]:
        """The default route does not count."""
        ways = [route.dst for route in self.rtnl.routes() if route.dst.prefixlen]
        return {net for net in subnets if not any(net.version == way.version and net.subnet_of(way) for way in ways)}  # type: ignore[arg-type]

    async def health(self, inside: Inside) -> Health:
        """`none` where there is no daemon."""
        if self.daemon is None and not self.lease.is_set():
            return Health(state="none")
        if self.daemon is not None and self.daemon.ended.done():
            return Health(state=f"exited {self.daemon.ended.result()}")
        return await control.health(inside, self.room, self.process)

    async def served(self, inside: Inside) -> None:
        """Wait until its daemon serves it, or has ended; for ever if it does neither."""
        while (state := (await self.health(inside)).state) != "none" and not state.startswith("exited"):
            if serves(state):
                return
            await asyncio.sleep(_LOOK_AGAIN)

    async def refuse_silent(self, inside: Inside, option: str) -> None:
        """`Unavailable` if its daemon runs and does not answer: plugins would wait for minutes."""
        if self.daemon is None or self.daemon.ended.done():
            return  # plugins do without it
        if (await control.health(inside, self.room, self.process, _LONGEST)).state != "silent":
            return
        go_on = f"weft lab exec{option} {self.spec.name} -- kill -CONT {self.pid}"
        seen = f"process {self.pid} runs and does not answer within {_LONGEST:.0f} s"
        where, hint = f"weftd of {self.spec.name}", f"If it was stopped, '{go_on}' lets it go on."
        raise Unavailable(Problem("LAB-002", where, seen, hint=hint))

    async def report(self, inside: Inside, families: tuple[Family, ...], link: Link) -> NodeReport:
        found = await self.health(inside)
        try:
            env = self.subnet_env()
        except FileNotFoundError:  # a daemon that has ended does not put it back
            env = PluginEnv(networks=(), subnets=(), mtu=0, ip_masq=False)
        return NodeReport(
            name=self.spec.name,
            underlay=[str(underlay.address_of(self.spec, family)) for family in families],
            subnets=[str(net) for net in env.subnets],
            mtu=env.mtu,
            daemon=found.state,
            problems=list(found.problems),
            pid=self.pid,
            link=link,
            segment=self.spec.segment,
            program=self.spec.daemon,
        )


async def make(
    inside: Inside,
    node: Node,
    arrivals: Arrivals,
    environ: Mapping[str, str],
    *,
    kubelet: bool = False,
    policies: bool = False,
) -> RunningNode:
    """It has no link but lo, and no pod network yet."""

    def inner() -> tuple[Room, Rtnl, int, subprocess.Popen[bytes]]:
        filesystem.make_node(node.name, kubelet=kubelet, policies=policies)
        first = filesystem.KUBELET_INIT if kubelet else filesystem.INIT
        # Its end is the lab's end, so nothing waits for it.
        init = subprocess.Popen(first, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        run = os.open("/run/flannel", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        return Room.here(inside.proc), Rtnl.open(), run, init

    room, rtnl, run, init = await inside.run(None, inner)
    return RunningNode(spec=node, room=room, rtnl=rtnl, run=run, lease=arrivals.expect(run, _LEASE), init=init)


def wish(node: RunningNode, network: NetConf) -> None:
    """Let a new node ask for its share of the network, as if from an earlier run (flannel.md §3.3).

    So a lab's subnets are the same each time. The file is linked, so what waits for one that is written or renamed into
    place is not woken.
    """
    v4, v6 = share(network, node.spec.index)
    env = SubnetEnv(
        network_v4=None if network.v4 is None else network.v4.network,
        subnet_v4=v4,
        network_v6=None if network.v6 is None else network.v6.network,
        subnet_v6=v6,
        mtu=0,  # as if nothing was known of the uplink
        ip_masq=True,
    )
    with os.fdopen(os.open(_WISH, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644, dir_fd=node.run), "w") as file:
        file.write(render(env))
    os.link(_WISH, _LEASE, src_dir_fd=node.run, dst_dir_fd=node.run)
    os.unlink(_WISH, dir_fd=node.run)


async def settled(node: RunningNode) -> None:
    """Wait until the node has its own /proc. `Unavailable` if that fails or takes too long."""
    assert node.init.stdout is not None  # noqa: S101 - it is a pipe
    output, loop, said = node.init.stdout.fileno(), asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(output, said.set)
    try:
        async with asyncio.timeout(_SETTLE_SECONDS):
            await said.wait()
    except TimeoutError:
        seen = f"its own /proc was not mounted within {_SETTLE_SECONDS:g} s"
    else:
        if os.read(output, 1):
            return
        seen = "its own /proc could not be mounted"
    finally:
        loop.remove_reader(output)
    raise Unavailable(Problem("HOST-002", node.spec.name, seen, expected="a machine that lets weft mount one"))


async def start_daemon(node: RunningNode, processes: Processes, store: Store, more: Sequence[str] = ()) -> Child:
    """With `more` flags."""
    store.prepare(node.spec)
    command = [
        *_program(node.spec),
        *store.flags(node.spec),
        f"--iface={underlay.UPLINK}",
        "--ip-masq",
        f"--healthz-port={control.HEALTH_PORT}",
        f"-subnet-file=/run/flannel/{_LEASE}",
        *more,
    ]
    # NODE_NAME is flannel's: which object of Kubernetes is this node's.
    node.daemon = await processes.logged(node.spec.name, node.room, command, NODE_NAME=node.spec.name)
    node.pid = system.number_inside(node.daemon.pid)
    return node.daemon


def _program(node: Node) -> list[str]:
    """The daemon by the script of that name, which `ps` shows, where it is installed."""
    if node.daemon:
        return [node.daemon]
    script = Path(sys.executable).with_name("weftd")
    return [str(script)] if script.exists() else [sys.executable, "-m", "weft.daemon.main"]


async def end(node: RunningNode) -> None:
    """With all its processes and files; it has no pods any more."""
    node.init.kill()
    while system.number_inside(node.init.pid):  # noqa: ASYNC110 - its end is that of all others in the node
        await asyncio.sleep(_LOOK_AGAIN)
    node.rtnl.close()
    node.room.close()
    os.close(node.run)
    await asyncio.to_thread(shutil.rmtree, filesystem.NODES / node.spec.name)


async def daemon_ready(node: RunningNode, processes: Processes) -> None:
    """Wait for the daemon's subnet.env. `Unavailable` if it ends instead."""
    if node.daemon is None:  # a pod: its kubelet starts it again if it ends
        await node.lease.wait()
        return
    lease = awaited(node.lease.wait())
    try:
        await asyncio.wait((lease, node.daemon.ended), return_when=asyncio.FIRST_COMPLETED)
    finally:
        lease.cancel()
    if not node.lease.is_set():
        raise early_end(node, processes, node.daemon)


def early_end(node: RunningNode, processes: Processes, daemon: Child) -> Unavailable:
    seen = f"it ended with status {daemon.ended.result()}:\n{processes.last_words(node.spec.name)}"
    return Unavailable(Problem("LAB-002", f"weftd of {node.spec.name}", seen))
