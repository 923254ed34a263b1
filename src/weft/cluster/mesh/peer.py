"""This node in the mesh: tells its core all that happens, in turn, and carries out what the core wants.

What the core wants is carried out in its order, at once or by one task (`held`): what follows a `Keep` and could tell
of it waits for the disk. The store reads here, and leases in the book (`leases`), once the disk has them
(`remembering`).
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NoReturn

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from weft.beside.threads import beside
from weft.cluster.mesh.disk import Disk, Saved
from weft.cluster.mesh.driver import CoreDriver
from weft.cluster.mesh.held import Held
from weft.cluster.mesh.leases import Leasebook, unfit
from weft.cluster.mesh.links import Ears, TcpLinks
from weft.cluster.mesh.paths import MeshPaths
from weft.cluster.mesh.remembering import Remembering
from weft.cluster.mesh.said import Said
from weft.cluster.mesh.saving import Saving
from weft.mesh.core import Core
from weft.model.errors import ConfigError, Problem, Unavailable
from weft.model.mesh.effects import (
    Agreed,
    Close,
    Command,
    Dial,
    Effect,
    Hop,
    Kept,
    Leases,
    Options,
    Own,
    Probe,
    Publish,
    Rekey,
    Say,
    Send,
    Sights,
    Used,
)
from weft.model.mesh.messages import Hello, Message, Offer, Seen
from weft.model.mesh.records import KEY_SIZE, Layout, peer_id
from weft.model.node.history import History
from weft.model.value import Value, replace
from weft.wire.mesh import Hostile

log = logging.getLogger(__name__)

_USE_SECONDS: Final = 2.0  # between two looks whether a pod has an address
_SHOWN: Final = 64  # addresses that do not answer


class Self(Value):
    """What the flags and the machine say of this node."""

    name: str
    peers: tuple[str, ...]
    founding: Layout | None
    machine: str
    boot: str
    relays: bool = True


class _Again(Exception):
    """This node begins again as another peer, with a new key."""


class Peer:
    """`run` is all that waits; the rest reads what it has left, and `changed` tells when that is another."""

    def __init__(
        self,
        me: Self,
        disk: Disk,
        links: Callable[[bytes, Ears, Callable[[], Hello]], TcpLinks],
        *,
        now: Callable[[], float],
        random: Callable[[int], bytes],
        used: Callable[[Sequence[str]], bool],
        history: History,
        core: type[Core] = Core,
    ) -> None:
        """`links` gets the private key. `used` tells whether a pod ever had an address of these subnets."""
        self.me = me
        self.key = b""
        self.own = Own(home=None, usable=False)
        self.book = Leasebook()
        self.paths = MeshPaths(self.book, self.saw)
        self.kept = Kept()
        self.unreached: dict[str, Problem] = {}  # by the address that was dialled last in vain
        self.said = Said(self.book, now, history)
        self.heard: float | None = None
        self.saving = Saving(disk)
        self._make = core, links
        self.now = now
        self._random = random
        self._used = used
        self._published: Publish | None = None
        self._turn = asyncio.Event()
        self._links: TcpLinks
        self._held = Held(self._keep, self._carry_out)
        self.others = Remembering(self.saving, self.book, self._tell, self._held.kept)
        self._driver = CoreDriver(self._held, now)
        self._unlinked = now()

    @property
    def core(self) -> Core | None:
        """None until the disk was read, and after a fault until the next begins."""
        return self._driver.core

    @property
    def id(self) -> str:
        return peer_id(self.me.name, self.key)

    async def changed(self) -> None:
        """Wait for the next change of anything here."""
        await self._turn.wait()

    @property
    def unlinked_for(self) -> float | None:
        """In seconds; None while a link is up."""
        return None if self.core is not None and self.core.links else self.now() - self._unlinked

    def _tell(self) -> None:
        self._turn.set()
        self._turn = asyncio.Event()

    # --- what is asked of it

    def check(self, command: Command) -> None:
        """Raises as `ask` would."""
        if self.core is None:
            raise Unavailable(unread())
        self.core.check(command, self.now())

    def ask(self, command: Command) -> None:
        """Raises `ConfigError` for what the core refuses, `Unavailable` while there is none."""
        if self.core is None:
            raise Unavailable(unread())
        self._driver.call(lambda core: core.asked(command, self.now()))
        if (fault := self._driver.fault) is not None:
            raise Unavailable(Problem(code="INST-002", where="mesh", seen=f"a fault in weft: {fault!r}"))

    @property
    def strangers(self) -> list[Hello]:
        """Peers without our ring: those that have a link with us, and those of other rings that lately had one."""
        return [] if self.core is None else self.core.strangers(self.now())

    def saw(self, sights: Sights) -> None:
        self._driver.call(lambda core: core.saw(sights, self.now()))

    def publish(self, publish: Publish) -> None:
        """At once or once there is a core, and again whenever another begins."""
        self._published = publish
        if self.core is not None:
            self.ask(publish)

    # --- what it hears

    def up(self, link: int, hello: Hello, dialled: str | None) -> None:
        if self.core is not None:
            self.unreached.pop(dialled or "", None)
            self._driver.call(lambda core: core.link_up(link, hello, self.now(), dialled=dialled))
            self._tell()

    def down(self, link: int) -> None:
        if self.core is not None:
            self._driver.call(lambda core: core.link_down(link, self.now()))
            self._unlinked = self.now()
            self._tell()

    def received(self, link: int, message: Message) -> None:
        """Raises `Hostile` for a ring that this node could not use."""
        if isinstance(message, Offer) and (why := unfit(message.ring.layout)):
            raise Hostile("ring", f"a ring that cannot be used: {why}")
        if isinstance(message, Seen) and self.book.is_of_pods(message.endpoint):
            return  # all others would refuse our lease for it
        if self.core is not None:
            self.heard = now = self.now()
            self._driver.call(lambda core: core.received(link, message, now))

    def undialled(self, address: str, why: Problem) -> None:
        if self.core is not None:
            self.unreached[address] = why
            if len(self.unreached) > _SHOWN:
                del self.unreached[next(iter(self.unreached))]
            self._driver.call(lambda core: core.undialled(address, self.now()))

    # --- its life

    async def run(self) -> None:
        """Raises `ConfigError` when another program has the port, and what the core has raised; then begin again."""
        saved = await self.saving.load()
        if saved is not None and saved.machine != self.me.machine:
            hint = "If that one runs on, one of the two gets a new key and another subnet"
            log.warning("%s", Problem("MESH-004", "mesh.json", "it was written on another machine", hint=hint))
        while True:
            if saved is None:
                saved = Saved(secret=self._random(KEY_SIZE), machine=self.me.machine, boot=self.me.boot)
                await self.saving.keep(saved)  # before anybody hears of it
            try:
                await self._live(saved)
            except ExceptionGroup as group:
                if (wrong := group.subgroup(ConfigError)) is not None:
                    raise wrong.exceptions[0] from None
                if (faults := group.split(_Again)[1]) is not None:
                    raise faults from None
                saved = None

    async def _live(self, saved: Saved) -> None:
        self.key = X25519PrivateKey.from_private_bytes(saved.secret).public_key().public_bytes_raw()
        me = self.me
        moved = saved.machine != me.machine
        options = Options(
            key=self.key,
            run=int.from_bytes(self._random(8)) >> 1 | moved << 63,
            name=me.name,
            peers=me.peers,
            founding=me.founding,
            booted=moved or saved.boot != me.boot,
            moved=moved,
        )
        self._forget()
        self._has(saved.kept)
        self.own = Own(home=self.kept.home, usable=False)
        recalled, paths = await self.others.recall()
        make_core, make_links = self._make
        core = make_core(saved.kept, options, self._chance, recalled, paths)
        self._links = links = make_links(saved.secret, self, lambda: core.hello)
        self._saved = saved
        self._unlinked = self.now()
        self._driver.begin(core)
        self._driver.call(lambda core: core.start(self.now()))
        self.others.begun(core)
        if self._published is not None:
            published = self._published
            self._driver.call(lambda core: core.asked(published, self.now()))
        self._tell()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._driver.run(core))
                tasks.create_task(links.run())
                tasks.create_task(self._held.run())
                tasks.create_task(self.others.run(core))
                tasks.create_task(self.others.run_late(core))
                tasks.create_task(self._follow_use())
        finally:
            self._driver.end()  # its links have ended

    def _forget(self) -> None:
        """What an earlier core has said."""
        for said in (self.book, self.unreached, self._held, self.others):
            said.clear()

    def _chance(self) -> float:
        return int.from_bytes(self._random(7)) / (1 << 56)

    async def _keep(self, kept: Kept) -> None:
        """A start before our block was usable here counts for nothing: the next one waits and warns as this one has."""
        here = {"machine": self.me.machine, "boot": self.me.boot} if self.own.usable else {}
        saved = replace(self._saved, kept=kept, **here)
        if saved != self._saved:
            await self.saving.keep(saved)
            self._saved = saved
            self._has(kept)
            self._tell()

    def _has(self, kept: Kept) -> None:
        self.kept, self.book.ring = kept, kept.ring

    def _carry_out(self, effect: Effect) -> None:
        if isinstance(effect, Send):
            self._links.send(effect.link, effect.message)
        elif isinstance(effect, Dial):
            self._links.dial(effect.address)
        elif isinstance(effect, Close):
            self._links.close(effect.link, effect.why)
            self.down(effect.link)
        else:
            self._show(effect)

    def _show(self, effect: Effect) -> None:
        if isinstance(effect, Probe):
            self.paths.want(effect)
            return
        if isinstance(effect, Leases | Agreed | Hop):
            self.others.take(effect)
            return
        if isinstance(effect, Own):
            self.own = effect
            self._held.again(self.kept)
        elif isinstance(effect, Say):
            self.said.take(effect)
        elif isinstance(effect, Rekey):
            self.said.take(Say(text="this node is the copy of another peer", problem=effect.why))
            raise _Again
        self._tell()

    async def _follow_use(self) -> NoReturn:
        """Tell the core whether a pod had an address of the block that is ours now."""
        home, ever = self.own.home, None
        while True:
            if home != self.own.home:
                home, ever = self.own.home, None
            if home is not None and not ever:
                now = await beside(partial(self._used, self.book.subnets(home)))
                if now != ever:
                    ever = now
                    self.ask(Used(ever=now))
            await asyncio.sleep(_USE_SECONDS)


def unread() -> Problem:
    hint = "Try again in a moment; 'weft mesh status' says what is wrong with the disk"
    return Problem(code="MESH-001", where="mesh", seen="weftd has not read its disk yet", hint=hint)
