"""Noise_XXpsk3_25519_ChaChaPoly_BLAKE2s (The Noise Protocol Framework, revision 34), without I/O or chance.

Three messages without payloads; both ends know each other's static key and, if they have the same pre-shared one, can
seal. A transport message may be longer than the 65,535 bytes that Noise allows: how long is the caller's affair.
"""

import hmac
from collections.abc import Iterator, Sequence
from contextlib import suppress
from copy import copy
from hashlib import blake2s
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

KEY: Final = 32  # bytes of each key, and of a hash
TAG: Final = 16  # bytes that sealing adds
_NAME: Final = b"Noise_XXpsk3_25519_ChaChaPoly_BLAKE2s"
_MESSAGES: Final = (("e",), ("e", "ee", "s", "es"), ("s", "se", "psk"))


class Forged(ValueError):
    """What came was not made by the other end of this handshake, or not in this order."""


class WrongKey(Forged):
    """The handshake is right, but for the pre-shared key."""


class _Cipher:
    """A key and how often it was used."""

    def __init__(self, key: bytes) -> None:
        self._aead = ChaCha20Poly1305(key)
        self._uses = 0

    def seal(self, text: bytes, seen: bytes = b"") -> bytes:
        return self._aead.encrypt(self._nonce(), text, seen)

    def open(self, sealed: bytes, seen: bytes = b"") -> bytes:
        try:
            return self._aead.decrypt(self._nonce(), sealed, seen)
        except InvalidTag:
            raise Forged("the seal is broken") from None

    def _nonce(self) -> bytes:
        self._uses += 1
        return bytes(4) + (self._uses - 1).to_bytes(8, "little")


class _Mixed:
    """Everything said so far, mixed into a key: Noise's SymmetricState."""

    def __init__(self, prologue: bytes) -> None:
        self.hash = self._chain = blake2s(_NAME).digest()  # the name is longer than a hash
        self._cipher = _Cipher(bytes(KEY))  # never used: the first step mixes a key in
        self.mix_hash(prologue)

    def mix_hash(self, data: bytes) -> None:
        self.hash = blake2s(self.hash + data).digest()

    def mix_key(self, material: bytes) -> None:
        self._chain, key = self._derived(material, 2)
        self._cipher = _Cipher(key)

    def mix_shared(self, shared: bytes) -> None:
        self._chain, seen, key = self._derived(shared, 3)
        self.mix_hash(seen)
        self._cipher = _Cipher(key)

    def seal(self, text: bytes) -> bytes:
        sealed = self._cipher.seal(text, self.hash)
        self.mix_hash(sealed)
        return sealed

    def open(self, sealed: bytes) -> bytes:
        text = self._cipher.open(sealed, self.hash)
        self.mix_hash(sealed)
        return text

    def split(self) -> Iterator[_Cipher]:
        return map(_Cipher, self._derived(b"", 2))

    def _derived(self, material: bytes, count: int) -> list[bytes]:
        """HKDF with HMAC-BLAKE2s, as Noise has it (section 4.3)."""
        secret = hmac.new(self._chain, material, blake2s).digest()
        outputs = [b""]
        for number in range(1, count + 1):
            outputs.append(hmac.new(secret, outputs[-1] + bytes((number,)), blake2s).digest())
        return outputs[1:]


class Session:
    """What a finished handshake gives: two ciphers, of which each message moves one on."""

    def __init__(self, *, sends: _Cipher, receives: _Cipher) -> None:
        self.seal = sends.seal
        self.open = receives.open  # raises `Forged`


class Handshake:
    """One end; the initiator begins to `write`, and they take turns: three messages in all.

    The keys are 32 bytes each; `ephemeral` is new for each handshake. The first of `shared` is offered, all are taken.
    """

    def __init__(
        self, *, initiator: bool, static: bytes, ephemeral: bytes, shared: Sequence[bytes], prologue: bytes
    ) -> None:
        self._initiator = initiator
        self._shared = shared
        self._keys = {
            "s": X25519PrivateKey.from_private_bytes(static),
            "e": X25519PrivateKey.from_private_bytes(ephemeral),
        }
        self._others: dict[str, X25519PublicKey] = {}
        self._mixed = _Mixed(prologue)
        self._messages = iter(_MESSAGES)

    @property
    def peer(self) -> bytes:
        """The other end's static key, once it has proved that it has it."""
        return self._others["s"].public_bytes_raw()

    def write(self) -> bytes:
        """Raises `Forged` if what was read before holds a key of which no secret comes."""
        written = b""
        for step in next(self._messages):
            if step in self._keys:
                key = self._keys[step].public_key().public_bytes_raw()
                written += self._said(key) if step == "e" else self._mixed.seal(key)
            elif step == "psk":
                self._mixed.mix_shared(self._shared[0])
            else:
                self._mixed.mix_key(self._agreed(step))
        return written + self._mixed.seal(b"")

    def read(self, message: bytes) -> None:
        """Raises `Forged`, and `WrongKey` for nothing but the pre-shared key; the handshake is then of no more use."""
        rest = message
        for step in next(self._messages):
            if step == "e":
                self._others[step] = _public(self._said(rest[:KEY]))
                rest = rest[KEY:]
            elif step == "s":
                self._others[step] = _public(self._mixed.open(rest[: KEY + TAG]))
                rest = rest[KEY + TAG :]
            elif step == "psk":
                self._mix_one_of_shared(rest)
            else:
                self._mixed.mix_key(self._agreed(step))
        if self._mixed.open(rest):
            raise Forged("a payload where none is expected")

    def session(self) -> Session:
        """What seals from here on; after the third message."""
        first, second = self._mixed.split()
        if self._initiator:
            return Session(sends=first, receives=second)
        return Session(sends=second, receives=first)

    def _said(self, ephemeral: bytes) -> bytes:
        """An ephemeral key is mixed in twice where there is a pre-shared one (section 9.2)."""
        self._mixed.mix_hash(ephemeral)
        self._mixed.mix_key(ephemeral)
        return ephemeral

    def _agreed(self, step: str) -> bytes:
        """The secret of two keys; the step names the initiator's first."""
        named = step if self._initiator else step[::-1]
        try:
            return self._keys[named[0]].exchange(self._others[named[1]])
        except ValueError:
            raise Forged("a key of which no secret comes") from None

    def _mix_one_of_shared(self, rest: bytes) -> None:
        """Mix in that pre-shared key under which the rest of the message opens."""
        for shared in self._shared:
            tried = copy(self._mixed)
            tried.mix_shared(shared)
            with suppress(Forged):
                tried.open(rest)
                return self._mixed.mix_shared(shared)
        raise WrongKey("another pre-shared key")


def public(static: bytes) -> bytes:
    """The public key of a private one."""
    return X25519PrivateKey.from_private_bytes(static).public_key().public_bytes_raw()


def _public(key: bytes) -> X25519PublicKey:
    try:
        return X25519PublicKey.from_public_bytes(key)
    except ValueError:
        raise Forged("the message is too short") from None
