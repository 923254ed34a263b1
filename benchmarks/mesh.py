"""What a link of the mesh costs: both ends of a handshake, and a password of words once."""

import os
import time
from collections.abc import Callable

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from benchmarks.figures import Figure
from weft.model.mesh.messages import Hello
from weft.model.value import Secret
from weft.wire import meshpassword, noise
from weft.wire.meshlink import End

ROUNDS = 20
HANDSHAKES = 20  # in a round


def measure() -> list[Figure]:
    handshakes, floors = [], []
    for _ in range(ROUNDS):  # in turns, so that both see the machine as it is
        handshakes.append(took(handshake))
        floors.append(took(exchanges))
    words = [took(lambda: meshpassword.shared(Secret("correct horse battery staple")), times=1) for _ in range(5)]
    return [
        Figure(what="handshake of a mesh, both ends", unit="ms", ours=handshakes, target=2, floor=floors),
        Figure(what="key of a password of words, once", unit="ms", ours=words),
    ]


def took(work: Callable[[], object], times: int = HANDSHAKES) -> float:
    """Milliseconds of the processor for each."""
    began = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - began) * 1000 / times


def handshake() -> None:
    """From the first byte to both hellos."""
    ends = [_end(initiator=True), _end(initiator=False)]
    while not all(end.peer for end in ends):
        for one, other in (ends, ends[::-1]):
            data = bytes(one.unsent)
            one.unsent.clear()
            other.feed(data)


def exchanges() -> None:
    """The arithmetic that no handshake of this kind does without: two keys are made, and three secrets at each end."""
    for _ in range(2):
        key = X25519PrivateKey.generate()
        for _ in range(3):
            key.exchange(key.public_key())


def _end(*, initiator: bool) -> End:
    private = os.urandom(32)
    hello = Hello(key=noise.public(private), run=1, name="node1", ring=None)
    return End(initiator=initiator, static=private, ephemeral=os.urandom(32), shared=(b"s" * 32,), hello=lambda: hello)
