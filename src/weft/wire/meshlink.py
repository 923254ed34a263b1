"""One end of a link between two peers, from its first byte to its last, without I/O or chance (`weft.wire.mesh`)."""

from collections.abc import Callable, Generator, Sequence
from typing import Final, Literal

from weft.model.mesh.messages import Hello, Message
from weft.model.mesh.records import MAX_FRAME, MAX_HANDSHAKE
from weft.wire.mesh import (
    GREETING,
    LENGTH,
    Greeting,
    Hostile,
    decode,
    encode,
    frame_size,
    framed,
    greeting_bytes,
    hello_bytes,
    read_greeting,
    read_hello,
)
from weft.wire.meshpassword import NONE
from weft.wire.noise import Forged, Handshake, Session, WrongKey

_REFUSED: Final = framed(b"")

Case = Literal["another", "only ours", "only theirs"]


class OtherPassword(Exception):
    """The two ends have not the same password, or only one has any."""

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.case: Case = case


class End:
    """Feed it with what comes, and send what is in `unsent`.

    `ephemeral` is a new private key. `shared` are the keys of passwords: the first is offered, all are taken; none
    without a password. What `hello` says is sealed: nobody without the password reads it.
    """

    def __init__(
        self,
        *,
        initiator: bool,
        static: bytes,
        ephemeral: bytes,
        shared: Sequence[bytes],
        hello: Callable[[], Hello],
    ) -> None:
        self.peer: Hello | None = None  # once the link is up
        self.unsent = bytearray()
        self._initiator = initiator
        self._keys = (static, ephemeral)
        self._shared = shared
        self._hello = hello
        self._session: Session
        self._heard: list[Message] = []
        self._held = bytearray()
        self._life = self._talk()
        self._needed = next(self._life)

    def feed(self, data: bytes) -> list[Message]:
        """The messages that are whole now. Raises `Hostile` and `OtherPassword`, which end the link."""
        self._held += data
        while len(self._held) >= self._needed:
            part = bytes(self._held[: self._needed])
            del self._held[: self._needed]
            self._needed = self._life.send(part)
        heard, self._heard = self._heard, []
        return heard

    def say(self, message: Message) -> None:
        """Once the link is up. Raises `ValueError` for a message that is too long."""
        self.unsent += framed(self._session.seal(encode(message)))

    def _talk(self) -> Generator[int, bytes, None]:
        """Asks for so many bytes, gets them, and goes on."""
        ours = greeting_bytes(Greeting(password=bool(self._shared)))
        self.unsent += ours
        theirs = yield GREETING.size
        if read_greeting(theirs).password != bool(self._shared):
            raise OtherPassword("only ours" if self._shared else "only theirs")
        try:
            self._session, key = yield from self._handshake(ours + theirs if self._initiator else theirs + ours)
            self.unsent += framed(self._session.seal(hello_bytes(self._hello())))
            said = yield from self._frame()
            if self._initiator and framed(said) == _REFUSED:
                raise OtherPassword("another")
            self.peer = read_hello(self._session.open(said), key)
        except WrongKey:
            self.unsent += _REFUSED
            raise OtherPassword("another") from None
        except Forged as error:
            raise Hostile("handshake", str(error)) from None
        while True:
            sealed = yield from self._frame(MAX_FRAME)
            try:
                message = decode(self._session.open(sealed))
            except Forged as error:
                raise Hostile("seal", str(error)) from None
            if message is not None:
                self._heard.append(message)

    def _handshake(self, prologue: bytes) -> Generator[int, bytes, tuple[Session, bytes]]:
        static, ephemeral = self._keys
        handshake = Handshake(
            initiator=self._initiator,
            static=static,
            ephemeral=ephemeral,
            shared=self._shared or (NONE,),
            prologue=prologue,
        )
        for turn in range(3):
            if self._initiator == (turn % 2 == 0):
                self.unsent += framed(handshake.write())
            else:
                handshake.read((yield from self._frame()))
        return handshake.session(), handshake.peer

    def _frame(self, limit: int = MAX_HANDSHAKE) -> Generator[int, bytes, bytes]:
        return (yield frame_size((yield LENGTH.size), limit=limit))
