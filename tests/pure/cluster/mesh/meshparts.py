"""A core that says what a test has it say, links that lead nowhere, and a disk in memory, for a real `Peer`."""

# ruff: noqa: ARG002 - the core's protocol says what is given

import asyncio
import errno
import os
from contextlib import asynccontextmanager, suppress
from math import inf

from tests.support.waiting import comes
from weft.beside.tasks import awaited
from weft.cluster.mesh.disk import Saved
from weft.cluster.mesh.peer import Peer, Self
from weft.model.mesh.effects import Kept, Leases, Own, Recalled
from weft.model.mesh.messages import Hello
from weft.model.mesh.records import Layout, Member, Ring
from weft.model.node.history import History
from weft.model.node.meshstate import MeshAsk
from weft.model.value import replace

NET_CONF = '{"Network": "10.32.0.0/12", "Backend": {"Type": "mesh"}}'
LAYOUT = Layout(net_conf=NET_CONF, blocks=4096, first=32)
RING = Ring(id=b"r" * 16, layout=LAYOUT, secret=b"s" * 32)
HELD = Kept(version=1, ring=RING, home=40)
ATTRS = b'{"PublicIP":"192.0.2.%d","PublicIPv6":null,"BackendType":"vxlan"}'


def member(number: int, **changes) -> Member:
    made = Member(key=bytes([number]) * 32, run=1, version=1, name=f"n{number}", attrs=ATTRS % number, home=40 + number)
    return replace(made, **changes)


def asked(verb, *names, sure=False):
    return MeshAsk(verb=verb, names=names, sure=sure)


class FakeCore:
    """`says` are the effects of the next call of whatever kind."""

    def __init__(self, kept, options, chance, recalled, paths):
        self.due = inf
        self.kept, self.options, self.chance = kept, options, chance
        self.ring = kept.ring
        self.members = {each.key: each for each in (recalled.members if recalled else ())}
        self.leases = {}
        self.paths = paths
        self.links = {}
        self.tokens = ()
        self.dialled = {"nowhere"}
        self.calls = []
        self.says = []

    @property
    def hello(self):
        ring = None if self.ring is None else self.ring.id
        return Hello(key=self.options.key, run=self.options.run, name=self.options.name, ring=ring)

    @property
    def recalled(self):
        return Recalled(ring=self.hello.ring, members=tuple(self.leases.values()))

    def way(self, key):
        return (key,)

    def paths_to(self, key):
        return ()

    def _call(self, *what):
        self.calls.append(what)
        said, self.says = self.says, []
        for each in said:
            if isinstance(each, Leases):
                self.leases |= {member.key: member for member in each.changed}
                for key in each.gone:
                    self.leases.pop(key, None)
        return said

    def start(self, now):
        usable = self.kept.home is not None and not self.options.booted
        return [*self._call("start"), Own(home=self.kept.home, usable=usable)]

    def link_up(self, link, hello, now, *, dialled):
        self.links[link] = hello
        return self._call("up", link, dialled)

    def link_down(self, link, now):
        self.links.pop(link, None)
        return self._call("down", link)

    def undialled(self, address, now):
        return self._call("undialled", address)

    def received(self, link, message, now):
        return self._call("received", link, message)

    def strangers(self, now):
        return []

    def check(self, command, now):
        pass

    def asked(self, command, now):
        return self._call("asked", command)

    def tick(self, now):
        self.due = inf
        return self._call("tick")


class FakeLinks:
    def __init__(self, secret, ears, hello):
        self.secret, self.ears, self.hello = secret, ears, hello
        self.did = []

    async def run(self):
        await asyncio.get_running_loop().create_future()

    def dial(self, address):
        self.did.append(("dial", address))

    def send(self, link, message):
        self.did.append(("send", link, message))

    def close(self, link, why):
        self.did.append(("close", link, why))


class FakeDisk:
    def __init__(self, saved=None):
        self.saved = saved
        self.writes = []
        self.full = False
        self.known = Recalled()
        self.remembered = self.remembered_paths = 0

    def load(self):
        return self.saved

    def keep(self, saved):
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.saved = saved
        self.writes.append(saved.kept)

    def recalled(self):
        return self.known

    def paths(self):
        return ()

    def remember(self, recalled):
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.known = recalled
        self.remembered += 1

    def remember_paths(self, paths):
        self.remembered_paths += 1


def saved(kept=HELD, **changes) -> Saved:
    return replace(Saved(secret=b"k" * 32, machine="machine", boot="boot", kept=kept), **changes)


class World:
    """A peer and what it is made of; `now` is the time."""

    def __init__(self, disk, *, boot="boot"):
        self.disk = disk
        self.now = 100.0
        self.cores, self.linkses = [], []
        self.used = set()
        me = Self(name="node1", peers=("10.0.0.5:51820",), founding=None, machine="machine", boot=boot)
        given = {"now": lambda: self.now, "random": os.urandom, "used": self._had_a_pod}
        self.history = History()
        self.peer = Peer(me, disk, self._links, **given, history=self.history, core=self._core)

    def _had_a_pod(self, subnets):
        return not self.used.isdisjoint(subnets)

    def _core(self, *given):
        self.cores.append(FakeCore(*given))
        return self.cores[-1]

    def _links(self, *given):
        self.linkses.append(FakeLinks(*given))
        return self.linkses[-1]

    @property
    def core(self):
        return self.cores[-1]

    @property
    def links(self):
        return self.linkses[-1]

    def say(self, *effects):
        """Have the core say so at the next thing that happens, which is now."""
        self.core.says += effects
        self.peer.undialled("nowhere", None)


@asynccontextmanager
async def running(world):
    """The peer runs."""
    task = awaited(world.peer.run())
    try:
        await comes(lambda: world.peer.core is not None or task.done())
        yield task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
