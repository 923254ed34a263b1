"""Two ends of a link, joined in memory."""

from random import Random

from weft.model.mesh.messages import Hello
from weft.wire import noise
from weft.wire.mesh import Hostile
from weft.wire.meshlink import End, OtherPassword

SHARED, OLD = b"S" * 32, b"O" * 32
STATIC = {True: b"i" * 32, False: b"r" * 32}


def hello(initiator: bool) -> Hello:
    return Hello(key=noise.public(STATIC[initiator]), run=7, name="first" if initiator else "second", ring=None)


def end(initiator: bool, *shared: bytes, chance: Random | None = None) -> End:
    return End(
        initiator=initiator,
        static=STATIC[initiator],
        ephemeral=(chance or Random(initiator)).randbytes(32),
        shared=shared,
        hello=lambda: hello(initiator),
    )


def taken(side: End) -> bytes:
    """What it sends now."""
    data = bytes(side.unsent)
    side.unsent.clear()
    return data


def joined(first: End, second: End) -> tuple[Exception | None, Exception | None]:
    """Let them talk until nobody has anything to say; returns what has ended each, if anything has."""
    ends, ended = (first, second), [None, None]
    while any(side.unsent for side in ends):
        for number, side in enumerate(ends):
            data = taken(side)
            try:
                if ended[1 - number] is None:
                    ends[1 - number].feed(data)
            except (Hostile, OtherPassword) as error:
                ended[1 - number] = error
    return ended[0], ended[1]
