"""A million frames of garbage: whatever comes ends a link or is read, and takes neither memory nor time.

Half of them are sealed by a peer that has the password, the others come from somebody without, at any moment of a link.
The seed is printed and another one each time; set WEFT_SEED to repeat a run.
"""

import gc
import os
import random
import resource
import time
from collections import Counter

import pytest

from tests.pure.wire.meshends import OLD, SHARED, end, joined, taken
from weft.model.mesh.messages import (
    Ack,
    Buckets,
    Founders,
    Grant,
    Message,
    Note,
    Offer,
    Ping,
    Promise,
    Propose,
    Pull,
    Records,
    Redirect,
    Root,
    Routed,
    Seen,
    Versions,
    Want,
)
from weft.model.mesh.records import MAX_FRAME, Layout, Member, Removal, Ring, Token
from weft.wire.mesh import Hostile, encode, framed
from weft.wire.meshlink import End, OtherPassword

IN_CI = 4_000
IN_SOAK = 1_000_000
MEMORY = 64 << 20  # bytes that a run may take more than its first frames
SLOWEST = 1.0  # seconds of a processor for a frame

KEY, RING = bytes(range(32)), bytes(range(16))
TOKENS = tuple(Token(start=at, stop=at + 3, owner=KEY, version=at << 32) for at in range(0, 600, 3))
REMOVAL = Removal(key=KEY, heir=KEY, number=1, tokens=TOKENS[:3])
MEMBER = Member(
    key=KEY, run=1 << 63, version=2, name="node1", endpoints=("10.0.0.5:51820", "[fd00::1]:51820"), attrs=b"{}" * 60,
    home=5, settled=True, links=(1, 2, 1 << 31), cannot=(3, 4), tunnels=("10.0.0.5:51820",),
)  # fmt: skip
GRANT = Grant(giver=KEY, taker=KEY, home=5, tokens=TOKENS[:2], ring=TOKENS)
BODIES = (
    Want(home=True), GRANT, Note(grant=GRANT), Propose(promise=Promise(proposer=KEY, number=1, names=(KEY,) * 9)),
    Ack(refused="no", tokens=TOKENS, removals=(REMOVAL,) * 3, peers=(KEY,) * 9),
)  # fmt: skip
SAID: tuple[Message, ...] = (
    Offer(ring=Ring(id=RING, layout=Layout(net_conf='{"Network": "10.32.0.0/12"}', blocks=4096, first=32), secret=KEY)),
    Founders(keys=(KEY,) * 4, whole=False), Records(members=(MEMBER,) * 9, tokens=TOKENS, removals=(REMOVAL,) * 9),
    Root(digest=1 << 63), Buckets(digests=(7,) * 64), Pull(members=(KEY,) * 40), Ping(number=8),
    Versions(buckets=tuple(range(64)), members=((KEY, 1),) * 99, tokens=TOKENS), Redirect(addresses=("10.0.0.5:1",)),
    Seen(endpoint="10.0.0.5:1"),
    *(Routed(source=KEY, target=KEY, ring=RING, number=1, answer=True, hops=3, body=body) for body in BODIES),
)  # fmt: skip
WHOLE = tuple(map(encode, SAID))
# Heads of msgpack that promise much: arrays, maps, bytes and texts of thousands of millions, and what nests.
PROMISES = (b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xdb\x7f\xff\xff\xff",
            b"\xdc\xff\xff", b"\x91" * 3000, b"\x81\xa1a" * 3000, b"\xc9\xff\xff\xff\xff\x01", b"\xcf" + b"\xff" * 8,
            b"\xd3\x80" + bytes(7), b"\xcb\x7f\xf8" + bytes(6), b"\xc1", b"\xa3\xed\xa0\x80")  # fmt: skip


def bent(chance: random.Random, data: bytes) -> bytes:
    """Changed in a few places, as often as not so that its structure holds."""
    changed = bytearray(data)
    for _ in range(chance.choice((0, 1, 1, 2, 5))):
        at = chance.randrange(len(changed) + 1)
        match chance.randrange(6):
            case 0:
                changed[at : at + 1] = chance.randbytes(1)
            case 1:
                changed[at:at] = chance.choice(PROMISES)
            case 2:
                del changed[at : at + chance.randrange(1, 40)]
            case 3:
                changed[at : at + 5] = chance.choice(PROMISES)
            case 4:
                other = chance.choice(WHOLE)
                changed[at:] = other[chance.randrange(len(other)) :]
            case 5:
                changed += changed[at:] * chance.randrange(1, 4)
    return bytes(changed[: MAX_FRAME // 8])


class Insider:
    """A peer that has the password, and what it talks to."""

    def __init__(self, chance: random.Random) -> None:
        self.victim = end(False, SHARED, chance=chance)
        self._self = end(True, SHARED, chance=chance)
        self._chance = chance
        assert joined(self._self, self.victim) == (None, None)

    def frame(self) -> bytes:
        whole = self._chance.choice(WHOLE)
        plain = (
            self._chance.randbytes(self._chance.randrange(300))
            if self._chance.random() < 0.1
            else bent(self._chance, whole)
        )
        return framed(self._self._session.seal(plain))


class Stranger:
    """Somebody without the password, who has recorded links, and comes at any moment of one that others make."""

    def __init__(self, chance: random.Random, recorded: list[bytes]) -> None:
        self._chance = chance
        self.victim = end(False, SHARED, chance=chance)
        other = end(True, chance.choice((SHARED, OLD)), chance=chance)
        for one, to in ((other, self.victim), (self.victim, other)) * chance.randrange(4):
            try:
                to.feed(taken(one))
            except OtherPassword:
                self.victim = end(False, SHARED, chance=chance)
                break
        self._next = taken(other)
        self._recorded = recorded
        if self._next:
            recorded.append(self._next)
            del recorded[: len(recorded) - 50]

    def frame(self) -> bytes:
        match self._chance.randrange(4):
            case 0:
                return bent(self._chance, self._next)
            case 1:
                return bent(self._chance, self._chance.choice(self._recorded or [b"weft\1\1\1\0"]))
            case 2:
                return framed(bent(self._chance, self._chance.choice(WHOLE)))
            case _:
                return self._chance.randbytes(self._chance.randrange(1, 200))


def fed(victim: End, data: bytes) -> str:
    """What came of it."""
    began = time.thread_time()
    try:
        heard = victim.feed(data)
        outcome = "read" if heard else "waits"
    except Hostile as error:
        outcome = error.kind
    except OtherPassword:
        outcome = "password"
    assert time.thread_time() - began < SLOWEST
    assert len(victim._held) <= MAX_FRAME + 4
    return outcome


def fuzz(frames: int) -> Counter[str]:
    seed = int(os.environ.get("WEFT_SEED") or random.randrange(1 << 32))
    print(f"WEFT_SEED={seed}")
    chance = random.Random(seed)
    outcomes: Counter[str] = Counter()
    recorded: list[bytes] = []
    attackers: list[Insider | Stranger] = [Insider(chance), Stranger(chance, recorded)]
    most = 0
    for number in range(frames):
        side = number % 2
        attacker = attackers[side]
        outcome = fed(attacker.victim, attacker.frame())
        outcomes[f"{'stranger' if side else 'insider'}: {outcome}"] += 1
        if outcome not in ("read", "waits") or chance.random() < 0.02:
            attackers[side] = Stranger(chance, recorded) if side else Insider(chance)
        if number == min(frames // 2, 10_000):
            gc.collect()
            most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 + MEMORY
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 < most
    print(dict(outcomes.most_common()))
    return outcomes


def check(outcomes: Counter[str], frames: int) -> None:
    """It has got to what it is about."""
    for outcome in (
        "insider: read",
        "insider: message",
        "stranger: handshake",
        "stranger: greeting",
        "stranger: length",
        "stranger: seal",
    ):
        assert outcomes[outcome] > frames / 200, outcome
    assert not outcomes["stranger: read"]
    assert not outcomes["insider: seal"]


@pytest.mark.long
def test_garbage_ends_a_link_or_is_read():
    check(fuzz(IN_CI), IN_CI)


@pytest.mark.soak
def test_nor_does_a_million_frames_do_harm():
    check(fuzz(IN_SOAK), IN_SOAK)
