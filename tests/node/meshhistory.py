"""Histories of a real mesh, as Jepsen has them: clients attach and detach pods while the network and daemons fail.

Each node has a client, which calls the real plugins as a runtime does. What happens meanwhile is drawn from a seed.
Two things must hold: no address is two living pods' at any moment, and no packet is lost between nodes that the fault
leaves alone.
"""

import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from ipaddress import ip_interface
from itertools import combinations, permutations
from math import inf
from typing import Final

from tests.node.meshnode import MeshNode
from tests.node.plugincalls import Runtime
from tests.support.netns import Netns
from tests.support.traffic import Pings, reaches
from tests.support.waiting import eventually
from weft.model.net import Ip

PODS: Final = 3  # of a client
EVERY: Final = 0.01  # seconds between two pings
DETOUR: Final = 8.0  # seconds in which packets take another way after a fault
CHANGE: Final = 0.1  # … that a change of way by our own choice may cost, as when a path is back
HEALED: Final = 20.0  # … and in which all reach all again


@dataclass
class Life:
    """A pod has had this address from the end of its ADD to the beginning of its DEL."""

    address: str
    pod: str
    begin: float
    end: float = inf


def shared(lives: Iterable[Life]) -> list[str]:
    """Which addresses two living pods had at one moment."""
    found, last = [], dict[str, Life]()
    for life in sorted(lives, key=lambda life: life.begin):
        before = last.get(life.address)
        if before and life.begin < before.end:
            found.append(f"{life.address} was {before.pod}'s and {life.pod}'s")
        if before is None or life.end > before.end:
            last[life.address] = life
    return found


class Client(threading.Thread):
    """Attaches and detaches pods of a node, until it is told to end."""

    def __init__(self, runtime: Runtime, seed: object) -> None:
        super().__init__(name=f"client of {runtime.node.number}", daemon=True)
        self.runtime = runtime
        self.lives: list[Life] = []
        self.turn = threading.Lock()  # who has it keeps the client from its next call
        self.fault: Exception | None = None
        self._chance = random.Random(f"client {seed} {runtime.node.number}")
        self._free = [Netns() for _ in range(PODS)]
        self._live: dict[str, tuple[Netns, Life]] = {}
        self._over = threading.Event()
        self._count = 0
        runtime.node.pods += self._free

    def run(self) -> None:
        while not self._over.wait(0.3 * self._chance.random()):
            try:
                with self.turn:
                    self._next()
            except Exception as fault:  # noqa: BLE001 - told by `end`
                self.fault = fault
                return

    def end(self) -> None:
        self._over.set()
        self.join()
        if self.fault:
            raise self.fault

    def _next(self) -> None:
        if self._free and self._chance.random() < len(self._free) / PODS:
            self._attach()
        else:
            self._detach(self._chance.choice(list(self._live)))

    def _attach(self) -> None:
        self._count += 1
        name, netns = f"pod{self.runtime.node.number}-{self._count}", self._free.pop()
        answer = self.runtime.begin("ADD", name, netns).end()
        if answer.exit:  # what a runtime does then
            self.runtime.begin("DEL", name, netns).end()
            self._free.append(netns)
            return
        address = str(ip_interface(answer.json["ips"][0]["address"]).ip)
        life = Life(address, name, time.monotonic())
        self.lives.append(life)
        self._live[name] = netns, life

    def _detach(self, name: str) -> None:
        netns, life = self._live.pop(name)
        life.end = time.monotonic()
        answer = self.runtime.begin("DEL", name, netns).end()
        assert answer.exit == 0, answer
        self._free.append(netns)

    def clear(self) -> None:
        """Detach all, with `turn` held: the machine goes."""
        for name in list(self._live):
            self._detach(name)


class History:
    """`nodes` serve each other; each has a pod that stays, beside those of its client."""

    def __init__(self, nodes: list[MeshNode], runtimes: list[Runtime], seed: object) -> None:
        self.nodes = nodes
        self.chance = random.Random(f"history {seed}")
        self.clients = {runtime.node.number: Client(runtime, seed) for runtime in runtimes}
        self.pods = {node.number: self._pod(node) for node in nodes}
        self.told: list[str] = []
        self._mended: set[MeshNode] = set()  # whose way may be another again now

    def _pod(self, node: MeshNode) -> tuple[Netns, Ip]:
        pod, name, client = Netns(), f"stays{node.number}", self.clients[node.number]
        node.pods.append(pod)
        answer = client.runtime.begin("ADD", name, pod).end()
        assert answer.exit == 0, answer
        address = ip_interface(answer.json["ips"][0]["address"]).ip
        client.lives.append(Life(str(address), name, time.monotonic()))
        return pod, address

    def play(self, faults: Iterable[str]) -> None:
        for client in self.clients.values():
            client.start()
        try:
            for fault in faults:
                self.told.append(fault)
                getattr(self, fault)()
                self._all_reach_all()
        finally:
            for client in self.clients.values():
                client.end()

    @property
    def lives(self) -> list[Life]:
        return [life for client in self.clients.values() for life in client.lives]

    # --- What is looked at

    @contextmanager
    def _nothing_lost(self, pairs: Iterable[tuple[MeshNode, MeshNode]], *, but: float = 0.0) -> Iterator[None]:
        """Between pods of these nodes, but for so many seconds."""
        pings, mended = [], self._mended
        with ExitStack() as stack:
            for one, other in pairs:
                here, (_, target) = self.pods[one.number][0], self.pods[other.number]
                pings.append((one, other, stack.enter_context(Pings(here, target, every=EVERY))))
            yield
        lost = {
            f"{a.name} to {b.name}": len(each.lost)
            for a, b, each in pings
            if len(each.lost) * EVERY > max(but, CHANGE * ({a, b} == mended))
        }
        assert not lost, f"{self.told}: lost of {[each.sent for *_, each in pings]}: {lost}"

    def _all_reach_all(self) -> None:
        def reached() -> bool:
            pairs = permutations(self.pods.values(), 2)
            return all(reaches(here, target, seconds=0.5) for (here, _), (_, target) in pairs)

        eventually(reached, seconds=HEALED)

    def _sides(self) -> tuple[list[MeshNode], list[MeshNode]]:
        some = self.chance.sample(self.nodes, self.chance.randint(1, len(self.nodes) - 1))
        return some, [node for node in self.nodes if node not in some]

    def _dropped(self, rules: dict[MeshNode, list[str]]) -> Callable[[], None]:
        """Have nodes drop what comes and matches; returns what ends that."""
        for node, matches in rules.items():
            node.netns.run("nft add table ip faults")
            node.netns.run("nft 'add chain ip faults input { type filter hook prerouting priority -400; }'")
            for match in matches:
                node.netns.run(f"nft add rule ip faults input {match} drop")
        return lambda: [node.netns.run("nft delete table ip faults") for node in rules] and None

    # --- What happens

    def partition(self) -> None:
        """Nothing goes between two sides."""
        sides = self._sides()
        within = [pair for side in sides for pair in combinations(side, 2)]
        with self._nothing_lost(within):
            rules = {
                node: [f"ip saddr {there.public_v4}" for there in other]
                for side, other in (sides, sides[::-1])
                for node in side
            }
            heal = self._dropped(rules)
            time.sleep(3 + 4 * self.chance.random())
            heal()

    def silence(self) -> None:
        """Daemons of two sides do not hear each other; packets of pods are left alone."""
        one, other = self._sides()
        with self._nothing_lost(combinations(self.nodes, 2)):
            ports = [f"ip saddr {there.public_v4} tcp {port} 51820" for there in other for port in ("sport", "dport")]
            heal = self._dropped(dict.fromkeys(one, ports))
            time.sleep(3 + 4 * self.chance.random())
            heal()

    def one_way(self) -> None:
        """One node hears nothing of another by vxlan."""
        here, there = self.chance.sample(self.nodes, 2)
        others = [pair for pair in combinations(self.nodes, 2) if {*pair} != {here, there}]
        with self._nothing_lost(others), self._nothing_lost([(here, there)], but=DETOUR):
            heal = self._dropped({here: [f"ip saddr {there.public_v4} udp dport 8472"]})
            time.sleep(DETOUR)
            heal()
            time.sleep(1)
        self._mended = {here, there}

    def kills(self) -> None:
        """Daemons are killed, and started again."""
        some, _ = self._sides()
        with self._nothing_lost(combinations(self.nodes, 2)):
            for node in some:
                node.kill()
            time.sleep(2 * self.chance.random())
            for node in some:
                node.spawn()
            for node in some:
                node.wait_ready()

    def lost(self) -> None:
        """A machine is gone for good, and removed; another one with its disk comes back later."""
        gone, by, *others = self.chance.sample(self.nodes, len(self.nodes))
        subnet, client, (stays, _) = str(gone.v4), self.clients[gone.number], self.pods.pop(gone.number)
        with client.turn, self._nothing_lost(combinations((by, *others), 2)):
            client.clear()
            for life in client.lives:
                life.end = min(life.end, time.monotonic())
            client.runtime.begin("DEL", f"stays{gone.number}", stays).end()
            gone.kill()
            gone.netns.run("ip link del cni0", check=False)
            eventually(lambda: "weftd does so" in by.mesh("rmpeer", gone.name, "--yes", check=False), seconds=40)
            eventually(lambda: all(subnet not in node.routes() for node in (by, *others)), seconds=40)
            gone.spawn()
            eventually(lambda: str(gone.v4) != subnet, seconds=40)
            gone.wait_ready()
            self.pods[gone.number] = self._pod(gone)
