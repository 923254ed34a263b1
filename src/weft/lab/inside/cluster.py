"""A lab builds itself and changes. One `World` per supervisor; `account` reports on it.

It waits for facts (a file, a process, a route), never for time to pass.
"""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from weft.cni.install import conflist, executables
from weft.diag.trace.hops import OUTSIDE
from weft.kernel.rtnetlink.rtnl import Rtnl
from weft.lab import cgroups, spec
from weft.lab.inside import daemons, etcd, filesystem, node, relay, underlay
from weft.lab.inside.changes.switch import Switch
from weft.lab.inside.daemons import Note
from weft.lab.inside.namespaces import Inside, Room
from weft.lab.inside.node import RunningNode
from weft.lab.inside.pod import RunningPod
from weft.lab.inside.pods import Pods, refused, unknown
from weft.lab.inside.processes import Arrivals, Child, Children, Processes
from weft.lab.inside.stores import MeshStore, Store
from weft.lab.links import Conditions
from weft.lab.network import misfits, understand
from weft.lab.report import PodReport, ServiceReport, serves
from weft.lab.services.serving import Serving
from weft.model.errors import ConfigError, Unavailable
from weft.model.node.history import History
from weft.model.text import counted
from weft.model.value import replace

if TYPE_CHECKING:
    from weft.lab.kubernetes.kubelets import Kubelets

_READY_SECONDS: Final = 5.0  # for the daemons of new nodes, once they know each other
_PATIENCE: Final = 1.0  # seconds for an answer of the store


class World:
    """A running lab. Call its methods from the supervisor's event loop."""

    def __init__(
        self, lab: spec.Lab, *, environ: Mapping[str, str], logs: int, outside: Sequence[socket.socket] = ()
    ) -> None:
        """`logs` is an open directory, `outside` are the sockets that come with `protocol.Up`."""
        self.lab = lab
        self.inside = Inside()
        self.processes = Processes(Children(self.inside), environ=environ, logs=logs)
        self.nodes: dict[str, RunningNode] = {}
        self.pods = Pods(lab, self.inside, self.processes, nodes=self.nodes, taken=self.names)
        self.services = Serving(lab, self.inside, self.processes, nodes=self.nodes, pods=self.pods.running)
        self.rtnl = Rtnl.open()
        ways = list(outside)
        self.store, self._kubelets = _stores(self.processes, lab, ways.pop(0) if lab.store == "kubernetes" else None)
        self._ways = ways
        self._arrivals = Arrivals()
        self.switch = Switch(self.rtnl, self.processes, lab.families, lab.nat)
        self._routers: list[Room] = []  # with NAT
        self.history = History(time.time)  # of what commands change
        self.one_change = asyncio.Lock()  # of the switch and of what runs, at a time
        self._network = understand(lab.network)

    @property
    def backend(self) -> str:
        return self._network.backend

    async def look_at_network(self) -> None:
        """Take over the configuration that the store holds now, if it can be read."""
        with suppress(Unavailable, ConfigError, TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                text = await self.store.configuration()
            if text != self.lab.network:
                self._network = understand(text)
                self.lab = replace(self.lab, network=text)

    async def configure(self, network: str, where: str) -> None:
        """`ConfigError` if it does not fit this lab."""
        wanted = understand(network, where)
        problems = misfits(wanted, self.lab, where)
        if wanted.families != self.lab.families:
            families = " and ".join(f"IPv{family}" for family in self.lab.families)
            problems.append(refused(self.lab, where, "a network of other families", f"{families}, as the lab has"))
        if problems:
            raise ConfigError(*problems)
        await self.store.configure(network)

    async def up(self, note: Note) -> None:
        """Build everything and wait until every pod runs. Raises the first failure."""
        families = self.lab.families
        underlay.make_switches(self.rtnl, families, self.lab.segments, self.lab.nat)
        for segment in self.lab.nat:
            self._routers.append(await self.switch.add_router(self.inside, self.lab, segment))
        await self.store.start()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._make_nodes(self.lab.nodes, note))
            if not self.lab.kubelets:
                group.create_task(asyncio.to_thread(executables.install, filesystem.PLUGINS))
            group.create_task(self.store.ready())
        note("the store answers")
        await relay.lead_in(self.lab, self._ways, note)
        if self.lab.bare:
            self._name_hosts()
            return
        apart = self.lab.apart
        await self.switch.set(Conditions(cuts=apart), self.lab.nodes)
        await self._fill(self.lab.nodes, self.lab.pods, note)
        if self.lab.store == "mesh" and (apart or self.lab.password):
            await daemons.met(self.nodes, apart, self.inside, note, sealed=self.lab.password)
        await self.switch.set(Conditions(links=self.lab.links, cuts=apart.union(self.lab.cuts)), self.lab.nodes)

    async def grow(self, nodes: Sequence[spec.Node], pods: Sequence[spec.Pod], note: Note) -> None:
        """Add nodes and pods to a lab on etcd. Raises the first failure."""
        await self._make_nodes(nodes, note)
        self.lab = replace(self.lab, nodes=(*self.lab.nodes, *nodes))
        await self._fill(nodes, pods, note)

    @asynccontextmanager
    async def leaving(self, name: str) -> AsyncIterator[None]:
        """Let no pod come to a node, after its pods have ended."""
        async with self.pods.none_come_to(name):
            for there in [pod.spec.name for pod in self.pods.in_order() if pod.spec.node == name]:
                await self.remove_pod(there)
            yield

    async def forget(self, name: str) -> None:
        """Drop a node without pods. Its namespaces stay for `node.end`."""
        del self.nodes[name]
        nodes = tuple(node for node in self.lab.nodes if node.name != name)
        self.lab = replace(self.lab, nodes=nodes)
        await self._lead()

    async def _fill(self, nodes: Sequence[spec.Node], pods: Sequence[spec.Pod], note: Note) -> None:
        made = [self.nodes[node.name] for node in nodes]
        self.pods.expect(pods)
        await self._start_daemons(made, note)
        await self.pods.start_all(pods)
        await self._lead()
        await self.pods.police()
        note(f"{counted(len(pods), 'pod')} started")
        with suppress(TimeoutError):  # `ps` shows what they say instead
            async with asyncio.timeout(_READY_SECONDS):
                await asyncio.gather(*(running.served(self.inside) for running in made))

    async def run_pod(self, wanted: spec.Pod) -> PodReport:
        """All others then know its name. On failure nothing of it stays."""
        if problems := spec.name_problem("a pod", "weft lab run", wanted.name):
            raise ConfigError(*problems)
        await self.node(wanted.node).refuse_silent(self.inside, self.lab.option)
        await self.pods.start(wanted)
        await self._lead()
        await self.pods.police()
        return self.pod(wanted.name).report()

    async def remove_pod(self, name: str) -> None:
        """If a plugin refuses, the pod stays."""
        async with self.pods.stopping(self.pod(name)):
            await self._lead()
            await self.pods.police()

    async def start_daemon(self, running: RunningNode) -> Child:
        flags = self.pods.policies.flags if self.pods.policies is not None and running.policed else ()
        return await node.start_daemon(running, self.processes, self.store, flags)

    async def expose(self, wanted: spec.Service) -> ServiceReport:
        """All nodes and pods then know its name. On failure nothing of it stays."""
        report = await self.services.expose(wanted)
        self._name_hosts()
        return report

    async def unexpose(self, name: str) -> None:
        await self.services.unexpose(name)
        self._name_hosts()

    def names(self) -> AbstractSet[str]:
        """Of all nodes, pods and Services, also of pods that come or go."""
        return {*self.nodes, *self.pods.names, *self.services.names}

    def node(self, name: str) -> RunningNode:
        """`ConfigError` names those there are."""
        if name not in self.nodes:
            raise unknown(self.lab, "node", name, self.nodes)
        return self.nodes[name]

    def pod(self, name: str) -> RunningPod:
        """`ConfigError` names those there are."""
        if name not in self.pods.running:
            raise unknown(self.lab, "pod", name, [pod.spec.name for pod in self.pods.in_order()])
        return self.pods.running[name]

    def place(self, name: str) -> RunningNode | RunningPod:
        found = self.nodes.get(name) or self.pods.running.get(name)
        if found is None:
            pods = (pod.spec.name for pod in self.pods.in_order())
            raise unknown(self.lab, "node or pod", name, [*self.nodes, *pods])
        return found

    def room(self, name: str) -> Room | None:
        """None for the lab's own namespaces, outside of all nodes."""
        return None if name == OUTSIDE else self.place(name).room

    async def _lead(self) -> None:
        """Names and Services lead to what there is now."""
        self._name_hosts()
        await self.services.follow(self.lab)

    def _name_hosts(self) -> None:
        nodes = (
            (running.spec.name, underlay.address_of(running.spec, family))
            for running in self.nodes.values()
            for family in self.lab.families
        )
        pods = (
            (running.spec.name, address.ip) for running in self.pods.running.values() for address in running.addresses
        )
        filesystem.name_hosts([*nodes, *pods, *self.services.hosts()])

    async def _make_nodes(self, nodes: Sequence[spec.Node], note: Note) -> None:
        for wanted in nodes:
            if self.lab.kubelets:
                cgroups.make(self.lab.name, wanted.name)
            running = await node.make(
                self.inside,
                wanted,
                self._arrivals,
                self.processes.environ,
                kubelet=self.lab.kubelets,
                policies=self.pods.policies is not None,
            )
            if not (self.lab.kubelets or self.lab.bare):  # a pod of weft brings its network along
                (running.networks / conflist.NAME).write_bytes(conflist.render())
            underlay.plug_in(self.rtnl, wanted, netns=running.room.net)
            underlay.settle_node(running.rtnl, wanted, self.lab.families, self.lab.segments)
            if wanted.segment in self.lab.nat:
                await self.inside.run(running.room, partial(underlay.finish_checksums, underlay.UPLINK))
            if self.lab.kubelets:
                underlay.lead_out(running.rtnl, self.lab.families)
            if self.lab.store == "etcd" and not self.lab.bare:  # Kubernetes gives out subnets by itself
                node.wish(running, self._network)
            self.nodes[wanted.name] = running
        there = [running.spec for running in self.nodes.values()]
        for running in self.nodes.values():
            underlay.introduce(running.rtnl, running.spec, self.lab.families, there)
        await asyncio.gather(*(node.settled(self.nodes[wanted.name]) for wanted in nodes))
        note(f"{counted(len(nodes), 'node')} made")
        if self._kubelets is not None:
            await self._kubelets.start(self.nodes.values())

    async def _start_daemons(self, nodes: Sequence[RunningNode], note: Note) -> None:
        """Wait until new daemons and all that can hear of them know each other."""
        others = [running for running in self.nodes.values() if running not in nodes]
        hearing = [running for running in others if await self._hears(running)]
        if self._kubelets is not None:
            await self._kubelets.ready(note)
        else:
            for running in nodes:
                await self.start_daemon(running)
        await daemons.joined([*hearing, *nodes], self.inside, self.processes, note, self._kubelets)
        if self._kubelets is not None:
            for running in nodes:
                for subnet in running.subnet_env().subnets:
                    underlay.lead_to(self.rtnl, subnet, running.spec)

    async def _hears(self, running: RunningNode) -> bool:
        """Whether an older node hears of new ones: it is well, and nothing is set for it."""
        if self.switch.now.concern(running.spec.name):
            return False
        return serves((await running.health(self.inside)).state)


def _stores(processes: Processes, lab: spec.Lab, outside: socket.socket | None) -> "tuple[Store, Kubelets | None]":
    if lab.store == "etcd":
        return etcd.EtcdStore(processes, lab), None
    if lab.store == "mesh":
        return MeshStore(lab), None
    # Late: they bring more than labs on etcd need.
    from weft.lab.kubernetes.kubelets import Kubelets
    from weft.lab.kubernetes.store import KubernetesStore

    store = KubernetesStore(processes, lab, outside)
    return store, Kubelets(processes, lab, store) if lab.kubelets else None
