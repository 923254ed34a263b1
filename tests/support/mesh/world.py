"""A mesh in virtual time: cores joined by links that are slow, break, lose and repeat, on disks that take a moment.

A node can be killed at any point: between two effects, while its disk writes, with what it wrote or without.
"""

import heapq
import itertools
from collections.abc import Callable, Iterable
from math import inf
from random import Random
from typing import Any

from tests.support.mesh.checks import Checks
from tests.support.mesh.nodes import End, Node, Weather
from weft.mesh.core import Core
from weft.model.mesh import effects as do
from weft.model.mesh.messages import Founders, Message, Offer
from weft.model.mesh.records import Layout

TIMEOUT = 10.0  # seconds until a dial to nobody is given up
FAILED = 0.01  # until a machine without a daemon refuses
RETRIES = (0.0, 1.0, 3.0, 7.0)  # when TCP asks again for a connection


class World:
    def __init__(self, seed: object, weather: Weather | None = None, check: Checks | None = None):
        self.chance = Random(str(seed))
        self.weather = weather or Weather()
        self.now = 1000.0
        self.ops = 0
        self.nodes: dict[str, Node] = {}
        self.by_address: dict[str, Node] = {}
        self.cut: set[frozenset[str]] = set()  # pairs of names
        self.check = check
        self.kill_at: dict[str, int] = {}  # by name: after so many effects more
        self.wire: Callable[[Message], Message] = lambda message: message  # what a message goes through
        self.before: list[Callable[[Node, do.Effect], None]] = []  # told of each effect before it is carried out
        self.watchers: list[Callable[[Node, do.Effect], None]] = []
        self._queue: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = itertools.count()
        self._numbers = itertools.count(1)

    # --- Time

    def at(self, when: float, what: Callable[..., None], *args: Any) -> None:
        heapq.heappush(self._queue, (when, next(self._order), what, args))

    def run(self, seconds: float = inf, *, ops: float = inf, until: Callable[[], bool] | None = None) -> bool:
        """Until `until` is true, which is asked now and then; tells whether it was."""
        end = self.now + seconds
        ends = self.ops + ops
        asked = -1.0
        while self._queue and self.ops < ends:
            when = self._queue[0][0]
            if until and when > asked:
                if until():
                    return True
                asked = when + 0.05
            if when > end:
                break
            when, _, what, args = heapq.heappop(self._queue)
            self.now = max(self.now, when)
            what(*args)
        if end < inf and self.ops < ends:
            self.now = end
        return until is not None and until()

    # --- Nodes

    def add(
        self, name: str, peers: Iterable[str] = (), *, founding: Layout | None = None, start: bool = True, **more: Any
    ) -> Node:
        address = f"10.0.{len(self.nodes) >> 8}.{len(self.nodes) & 255}:51820"
        addresses = tuple(self.nodes[peer].address if peer in self.nodes else peer for peer in peers)
        node = Node(
            name=name, key=self.chance.randbytes(32), address=address, peers=addresses, founding=founding, **more
        )
        self.nodes[name] = node
        self.by_address[address] = node
        if start:
            self.start(name)
        return node

    def start(self, name: str, *, booted: bool = False, moved: bool = False, publish: bool = True) -> None:
        node = self.nodes[name]
        if node.up:
            return
        node.life += 1
        options = do.Options(
            key=node.key,
            run=self.chance.getrandbits(63) | moved << 63,
            name=name,
            peers=node.peers,
            founding=node.founding,
            booted=booted,
            moved=moved,
        )
        node.core = Core(node.disk, options, self.chance.random, node.late, node.paths)
        node.own = None
        node.leases = {}
        self._called(node, node.core.start(self._clock(node)))
        if publish:
            self.ask(name, node.published)

    def kill(self, name: str, *, written: bool | None = None) -> None:
        """Kill, as kill -9 does. `written`: what the disk is writing is there afterwards; by chance without it."""
        node = self.nodes[name]
        if not node.up:
            return
        if node.writing and (self.chance.random() < 0.5 if written is None else written):
            self._write(node, node.waiting[0])
        self._remember(node, self.chance.random())
        node.core = None
        node.writing = False
        node.waiting.clear()
        node.untold.clear()
        node.wakes = inf
        self.kill_at.pop(name, None)
        for end in list(node.links.values()):
            self._break(end)

    def _remember(self, node: Node, which: float) -> None:
        """Of others the disk has at least what the daemon was told; or that file is lost.

        Then the daemon goes on with what it remembers itself.
        """
        node.late, node.paths = node.file, ()
        if which < 0.3:
            node.late = node.file = do.Recalled()
            node.served.clear()
        elif which > 0.6:
            node.paths = tuple(node.core.paths)

    def forget(self, name: str) -> None:
        """The disk of a dead node is lost: it comes back as another peer."""
        node = self.nodes[name]
        node.key = self.chance.randbytes(32)
        node.disk = do.Kept()
        node.disks.clear()
        node.late, node.paths = do.Recalled(), ()
        node.file = node.late
        node.served.clear()
        node.peers = tuple(other.address for other in self.nodes.values() if other is not node)

    def ask(self, name: str, command: do.Command) -> None:
        self.call(self.nodes[name], lambda core, now: core.asked(command, now))

    def call(self, node: Node, call: Callable[[Core, float], list[do.Effect]]) -> None:
        """Tell its core something."""
        self._call(node, node.life, call)

    def create(self, name: str, layout: Layout) -> None:
        self.ask(name, do.Create(layout=layout, ring=self.chance.randbytes(16), secret=self.chance.randbytes(32)))

    # --- The network

    def reach(self, one: Node, other: Node) -> bool:
        return frozenset((one.name, other.name)) not in self.cut

    def part(self, *groups: Iterable[str]) -> None:
        """Cut all pairs of different groups."""
        sets = [set(group) for group in groups]
        for one, other in itertools.combinations(sets, 2):
            self.cut |= {frozenset((a, b)) for a in one for b in other}

    def heal(self) -> None:
        self.cut.clear()

    def _dial(self, node: Node, life: int, address: str, attempt: int = 0) -> None:
        if node.life != life or not node.up:
            return
        other = self.by_address.get(address)
        if other and self.reach(node, other):
            if other.up:
                self._connect(node, other, address)
            else:
                self.at(self.now + FAILED, self._undialled, node, life, address)
        elif attempt + 1 < len(RETRIES):
            wait = RETRIES[attempt + 1] - RETRIES[attempt]
            self.at(self.now + wait, self._dial, node, life, address, attempt + 1)
        else:
            self.at(self.now + TIMEOUT - RETRIES[-1], self._undialled, node, life, address)

    def _undialled(self, node: Node, life: int, address: str) -> None:
        self._call(node, life, lambda core, now: core.undialled(address, now))

    def _connect(self, node: Node, other: Node, address: str) -> None:
        """The handshake: what each says of itself may be old when the link is up."""
        ours, theirs = node.core.hello, other.core.hello
        one = End(node, node.life, next(self._numbers), last=self.now)
        two = End(other, other.life, next(self._numbers), peer=one, last=self.now)
        one.peer = two
        self.at(self.now + self._delay(), self._up, one, theirs, address)
        self.at(self.now + self._delay(), self._up, two, ours, None)

    def _up(self, end: End, hello: Any, address: str | None) -> None:
        if end.node.life != end.life or not end.node.up:
            self._break(end)
            return
        if not end.open:
            if address:
                self._undialled(end.node, end.life, address)
            return
        end.node.links[end.number] = end
        self._call(end.node, end.life, lambda core, now: core.link_up(end.number, hello, now, dialled=address))
        early, end.early = end.early or [], None
        for message in early:
            self._arrive(end, message)

    def _send(self, end: End, message: Message) -> None:
        weather, chance = self.weather, self.chance.random
        end.node.sent += 1
        message = self.wire(message)
        if weather.loss and chance() < weather.loss and not isinstance(message, Offer | Founders):
            return
        for _ in range(1 + (weather.twice > 0 and chance() < weather.twice)):
            when = self.now + self._delay()
            if weather.reorder and chance() < weather.reorder:
                when += 10 * self._delay()
            else:
                when = end.last = max(end.last, when)
            self.at(when, self._arrive, end.peer, message)

    def _arrive(self, end: End, message: Message) -> None:
        node = end.node
        if not (end.open and self.reach(node, end.peer.node)):
            return
        if end.early is not None:
            end.early.append(message)
        elif end.number in node.links:
            number = end.number
            self._call(node, end.life, lambda core, now: core.received(number, message, now))

    def _break(self, end: End) -> None:
        """One side is gone; the other one hears of it if it can."""
        if not end.open:
            return
        end.open = False
        end.node.links.pop(end.number, None)
        self.at(max(self.now + self._delay(), end.last), self._broken, end.peer)

    def _broken(self, end: End) -> None:
        if not end.open:
            return
        if not self.reach(end.node, end.peer.node):
            self.at(self.now + 1.0, self._broken, end)  # until the network is whole; the core's own patience is shorter
            return
        end.open = False
        if end.node.links.pop(end.number, None):
            self._call(end.node, end.life, lambda core, now: core.link_down(end.number, now))

    def _delay(self) -> float:
        return self.weather.delay * (0.2 + 1.8 * self.chance.random())

    # --- Cores

    def _clock(self, node: Node) -> float:
        return self.now + node.skew

    def _call(self, node: Node, life: int, call: Callable[[Core, float], list[do.Effect]]) -> None:
        if node.core is not None and node.life == life:
            self._called(node, call(node.core, self._clock(node)))

    def _called(self, node: Node, effects: list[do.Effect]) -> None:
        self.ops += 1
        node.waiting.extend(effects)
        if not node.writing:
            self._carry_out(node)
        if node.core is not None and node.core.due - node.skew < node.wakes:
            node.wakes = max(self.now, node.core.due - node.skew)
            if self.weather.late and self.chance.random() < self.weather.late:
                node.wakes += 30 * self.chance.random()
            self.at(node.wakes, self._tick, node, node.life, node.wakes)

    def _tick(self, node: Node, life: int, when: float) -> None:
        if node.life == life and node.wakes == when:
            node.wakes = inf
            self._call(node, life, lambda core, now: core.tick(now))

    def _carry_out(self, node: Node) -> None:
        while node.waiting:
            if node.name in self.kill_at:
                self.kill_at[node.name] -= 1
                if self.kill_at[node.name] < 0:
                    self.kill(node.name)
                    return
            effect = node.waiting[0]
            for tell in self.before:
                tell(node, effect)
            if isinstance(effect, do.Keep):
                node.writing = True
                self.at(self.now + self.weather.disk * 2 * self.chance.random(), self._kept, node, node.life, effect)
                return
            node.waiting.popleft()
            self._do(node, effect)
        self._tell(node)

    def _tell(self, node: Node) -> None:
        """Tell the daemon of leases, once mesh.json and then members.bin have what there is."""
        if node.untold and self.check:
            node.file = node.core.recalled
        for effect in node.untold:
            if self.check and isinstance(effect, do.Agreed) and effect.so:
                self.check.listed(node, self.nodes.values())
            node.show(effect)
        node.untold.clear()

    def _kept(self, node: Node, life: int, effect: do.Effect) -> None:
        if node.life != life or not node.writing or node.waiting[0] is not effect:
            return
        node.writing = False
        self._write(node, node.waiting.popleft())
        self._carry_out(node)

    def _write(self, node: Node, effect: Any) -> None:
        node.disk = effect.kept
        node.disks.append(effect.kept)
        if self.check:
            self.check(node)

    def _do(self, node: Node, effect: do.Effect) -> None:
        for watch in self.watchers:
            watch(node, effect)
        if isinstance(effect, do.Send):
            if end := node.links.get(effect.link):
                self._send(end, effect.message)
        elif isinstance(effect, do.Dial):
            self._dial(node, node.life, effect.address)
        elif isinstance(effect, do.Close):
            if end := node.links.get(effect.link):
                self._break(end)
        elif isinstance(effect, do.Leases | do.Agreed):
            node.untold.append(effect)
        else:
            node.show(effect)
            if isinstance(effect, do.Rekey):
                self.at(self.now, self._rekey, node, node.life)

    def _rekey(self, node: Node, life: int) -> None:
        if node.life == life and node.up:
            self.kill(node.name)
            self.forget(node.name)
            self.start(node.name)
