"""One peer of a mesh: what happens goes in, effects come out. Each part of it is a module beside this one."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from weft.mesh.commands import Commands
from weft.mesh.copies import Copies
from weft.mesh.estate import Estate
from weft.mesh.founding import Founding
from weft.mesh.gossip import Gossip
from weft.mesh.hearing import Hearing
from weft.mesh.leaving import Leaving
from weft.mesh.links import Link
from weft.mesh.meeting import Meeting
from weft.mesh.outside import Outside
from weft.mesh.publishing import Publishing
from weft.mesh.questions import Questions
from weft.mesh.reach import Reach
from weft.mesh.removing import Removing
from weft.mesh.state import State
from weft.mesh.tunnels import Tunnels
from weft.mesh.waying import Waying
from weft.model.mesh.effects import (
    Agreed,
    Command,
    Effect,
    Kept,
    Options,
    PathFound,
    PathNow,
    Recalled,
    Send,
    Sights,
)
from weft.model.mesh.messages import Hello, Message, Redirect
from weft.model.mesh.records import Member, Removal, Ring, Token

LATE: Final = 1.0  # seconds behind `due`, after which our own loop is not to be trusted


class Core:
    """`recalled` and `paths` are what an earlier run knew, perhaps long ago. `due` is when `tick` is wanted."""

    def __init__(
        self,
        kept: Kept,
        options: Options,
        chance: Callable[[], float],
        recalled: Recalled | None = None,
        paths: Iterable[PathFound] = (),
    ) -> None:
        self._state = state = State(kept, options, chance)
        self._outside = Outside(state)
        self._tunnels = Tunnels(state, self._outside)
        self._waying = Waying(state, self._tunnels, paths)
        self._publishing = Publishing(state, self._waying, self._outside, self._tunnels)
        self._removing = Removing(state)
        self._estate = Estate(state, self._removing)
        self._leaving = Leaving(state, self._removing, self._estate.soon)
        self._copies = Copies(state)
        self._gossip = Gossip(state, self._removing, self._copies)
        self._founding = Founding(state, self._estate)
        self._meeting = Meeting(state)
        self._reach = Reach(state)
        self._hearing = Hearing(
            state,
            copies=self._copies,
            founding=self._founding,
            gossip=self._gossip,
            meeting=self._meeting,
            outside=self._outside,
            questions=Questions(self._estate, self._removing, self._leaving, state),
            reach=self._reach,
            met=self._met,
        )
        self._commands = Commands(
            state,
            founding=self._founding,
            leaving=self._leaving,
            meeting=self._meeting,
            publishing=self._publishing,
            reach=self._reach,
            removing=self._removing,
        )
        self._parts = (
            self._removing,
            self._leaving,
            self._estate,
            self._reach,
            self._tunnels,
            self._waying,
            self._publishing,
            self._copies,
        )
        state.changing += [self._publishing.forget, self._estate.soon]
        self.due = 0.0
        self._agreed = False
        if recalled is not None:
            state.recall(recalled)

    # --- What others may look at

    @property
    def hello(self) -> Hello:
        """What a handshake tells of us now."""
        state = self._state
        return Hello(
            key=state.me, run=state.options.run, name=state.options.name, ring=state.known.ring, lone=state.lone
        )

    @property
    def ring(self) -> Ring | None:
        return self._state.ring

    @property
    def members(self) -> Mapping[bytes, Member]:
        """Ourselves, too."""
        return self._state.known.members

    @property
    def links(self) -> Mapping[int, Hello]:
        """Those to peers of our ring."""
        return {link.number: link.hello for link in self._state.links.of(self._state.known.ring)}

    def strangers(self, now: float) -> list[Hello]:
        """Peers without our ring: those that have a link with us, and those of other rings that lately had one."""
        return self._meeting.strangers(now)

    def way(self, key: bytes) -> tuple[bytes, ...]:
        """To a peer, by the keys of all that packets go to."""
        return self._waying.way(key)

    def paths_to(self, key: bytes) -> Iterable[PathNow]:
        """To a peer itself, best first: those that are permitted."""
        return self._waying.paths_to(key)

    @property
    def dialled(self) -> Collection[str]:
        """Addresses that are dialled, while no link leads to who is there."""
        members = self._state.known.members.values()
        return {*self._reach.addresses, *(address for member in members for address in member.endpoints)}

    @property
    def tokens(self) -> Iterable[Token]:
        return self._state.known.tokens

    @property
    def removals(self) -> Iterable[Removal]:
        return self._state.known.removals

    @property
    def digest(self) -> int:
        """Equal for those that know the same."""
        return self._state.known.digest.root

    @property
    def leases(self) -> Mapping[bytes, Member]:
        """Those that were told."""
        return self._publishing.shown

    @property
    def recalled(self) -> Recalled:
        """What the next run should know of others: at least the leases that were told."""
        known = self._state.known
        return Recalled(ring=known.ring, members=tuple(known.members.values()), tokens=tuple(known.tokens))

    @property
    def paths(self) -> Iterable[PathFound]:
        """What the next run should know of them."""
        return self._waying.found

    @property
    def kept(self) -> Kept:
        """What was asked to be kept last."""
        return self._state.kept

    @property
    def agreed(self) -> bool:
        """Whether a neighbour with blocks has told us of all of them that it knows, since we began with this ring.

        Their owners' records are here, too. Or nobody else has any blocks.
        """
        return self._agreed

    # --- What happens

    def start(self, now: float) -> list[Effect]:
        self.due = now
        self._state.start(now)
        self._removing.begin_again()
        self._outside.begin()
        self._estate.start(now)
        return self.tick(now)

    def tick(self, now: float) -> list[Effect]:
        state = self._state
        if now > self.due + LATE:
            state.links.forgive(now)
            self._waying.forgive(now)
        if now >= state.links.due:
            for link in state.links.tick(now):
                self._begun(link, now)
        if now >= state.routing.due:
            state.routing.tick(state.known, now)
        if now >= self._gossip.due:
            self._gossip.tick(now)
        return self._done(now)

    def link_up(self, link: int, hello: Hello, now: float, *, dialled: str | None) -> list[Effect]:
        state = self._state
        made = Link(number=link, hello=hello, dialled=dialled, since=now, heard=now, ring=hello.ring)
        if dialled is not None:
            self._reach.answered(dialled, hello.key)
            self._founding.reached(dialled, hello.key)
        if hello.key == state.me:
            state.links.refuse(made, "ourselves")
        elif dialled is None and state.links.to(hello.key) is None and self._crowded(hello.key):
            state.out.append(Send(link=link, message=Redirect(addresses=self._reach.others(hello.key))))
            state.links.refuse(made, "links enough")
        elif state.links.up(made, now):
            self._met(made, now)
        return self._done(now)

    def link_down(self, link: int, now: float) -> list[Effect]:
        self._down(link, now)
        return self._done(now)

    def undialled(self, address: str, now: float) -> list[Effect]:
        self._reach.answered(address, None)
        self._reach.soon(now)
        return self._done(now)

    def received(self, link: int, message: Message, now: float) -> list[Effect]:
        state = self._state
        at = state.links.get(link)
        if at is not None and state.links.hear(at, message, now):
            self._hearing.take(at, message, now)
        return self._done(now)

    def saw(self, sights: Sights, now: float) -> list[Effect]:
        """The first call says that paths can be asked from now on."""
        for key in self._tunnels.saw(sights, now):
            self._waying.met(key, now)
        self._waying.saw(sights, now)
        return self._done(now)

    def check(self, command: Command, now: float) -> None:
        """Raises `ConfigError` for what `asked` would refuse now."""
        self._commands.check(command, now)

    def asked(self, command: Command, now: float) -> list[Effect]:
        """Raises `ConfigError`."""
        self._commands.check(command, now)
        self._commands.do(command, now)
        return self._done(now)

    # --- Links

    def _crowded(self, key: bytes) -> bool:
        member = self._state.known.members.get(key)
        return self._state.links.full(newcomer=member is None or not member.links)

    def _met(self, link: Link, now: float) -> None:
        self._state.stale = True
        self._meeting.met(link, now)
        self._gossip.again(now)
        self._reach.soon(now)

    def _begun(self, link: Link, now: float) -> None:
        """A peer has begun again, and its old link does not answer."""
        state = self._state
        held, link.held = link.held, []
        state.links.up(link, now)
        self._met(link, now)
        for message in held:
            self._hearing.take(link, message, now)

    def _down(self, number: int, now: float) -> None:
        state = self._state
        state.flood.close(number)
        self._founding.down(number)
        if link := state.links.down(number):
            state.stale = True
            self._reach.down(link, now)

    # --- The end of each call

    def _done(self, now: float) -> list[Effect]:
        state = self._state
        while state.links.closing:
            self._down(state.links.closing.pop().number, now)
        self._founding.tell(now)
        if state.touched:
            state.touched = False
            self._estate.soon()
        for part in self._parts:
            if now >= part.due:
                part.tick(now)
        if state.stale:
            self._publishing.tick(now)
        if now >= state.flood.due:
            self._gossip.flush()
        self._publishing.leases(now)
        agreed = (state.agreed or state.sole) and (self._agreed or self._knows_owners())
        if agreed != self._agreed:
            self._agreed = agreed
            state.out.append(Agreed(so=agreed))
        while state.links.closing:
            self._down(state.links.closing.pop().number, now)
        self.due = min(
            *(part.due for part in self._parts),
            state.links.due,
            state.routing.due,
            state.flood.due,
            self._gossip.due,
        )
        return state.effects()

    def _knows_owners(self) -> bool:
        known = self._state.known
        return known.tokens.owners <= known.members.keys() | {self._state.me}
