"""What a peer is made of: protocols of its core and links, and what the node says of itself."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NoReturn, Protocol

from weft.cluster.mesh.links import Ears
from weft.model.mesh.effects import Command, Effect, Kept, Options, Sights
from weft.model.mesh.messages import Hello, Message
from weft.model.mesh.records import Layout, Member, Ring, Token
from weft.model.value import Value


class Core(Protocol):
    """What `weft.mesh.core.Core` is, as far as it is used here. Each call returns what has to be done, in order."""

    @property
    def due(self) -> float | None: ...
    @property
    def hello(self) -> Hello:
        """What we say of ourselves in a handshake now."""
        ...

    @property
    def ring(self) -> Ring | None: ...
    @property
    def agreed(self) -> bool:
        """A neighbour has the records that we have, or had since the start; or nobody else owns blocks."""
        ...

    @property
    def members(self) -> Mapping[bytes, Member]: ...
    @property
    def links(self) -> Mapping[int, Hello]:
        """Those to peers of our ring."""
        ...

    @property
    def tokens(self) -> Iterable[Token]: ...

    @property
    def dialled(self) -> Collection[str]: ...

    def strangers(self, now: float) -> list[Hello]: ...
    def check(self, command: Command, now: float) -> None: ...
    def start(self, now: float) -> list[Effect]: ...
    def link_up(self, link: int, hello: Hello, now: float, *, dialled: str | None) -> list[Effect]: ...
    def link_down(self, link: int, now: float) -> list[Effect]: ...
    def undialled(self, address: str, now: float) -> list[Effect]: ...
    def received(self, link: int, message: Message, now: float) -> list[Effect]: ...
    def asked(self, command: Command, now: float) -> list[Effect]: ...
    def saw(self, sights: Sights, now: float) -> list[Effect]: ...
    def tick(self, now: float) -> list[Effect]: ...


class Links(Protocol):
    async def run(self) -> NoReturn:
        """Listen and dial. Raises `ConfigError` (INST-001) when the port is another program's."""
        ...

    def dial(self, address: str) -> None: ...
    def send(self, link: int, message: Message) -> None: ...
    def close(self, link: int, why: str) -> None: ...


class Parts(Value):
    """What a peer is made of. `links` gets the private key, who hears, and what we say of ourselves."""

    core: Callable[[Kept, Options, Callable[[], float], Sequence[Member]], Core]
    links: Callable[[bytes, Ears, Callable[[], Hello]], Links]


class Self(Value):
    """What the flags and the machine say of this node."""

    name: str
    peers: tuple[str, ...]
    founding: Layout | None
    machine: str
    boot: str
