"""From the password of a mesh to the key that its handshakes need.

A password that `weft mesh password` has made is as strong as a key, and costs nothing to turn into one. Any other is
stretched: an attacker who has recorded a handshake, and takes part in one, pays as much for each guess.
"""

import hashlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from typing import Final

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from weft.model.value import Secret
from weft.wire.noise import KEY

NONE: Final = bytes(KEY)  # without a password
SIZE: Final = 32  # bytes of chance in a password that we make
_MADE: Final = "weft1-"
_USE: Final = b"weft mesh 1"
_TUNNELS: Final = b"weft mesh wireguard 1"
_SCRYPT_MEMORY: Final = 1 << 26  # bytes, of which it takes half


def made(chance: bytes) -> Secret:
    return Secret(_MADE + urlsafe_b64encode(chance).rstrip(b"=").decode())


def damaged(password: Secret) -> bool:
    """It begins as one that we have made, and is none: a character was lost or another came to it."""
    return password.reveal().startswith(_MADE) and _chance(password) is None


def shared(password: Secret) -> bytes:
    """The pre-shared key. Takes 0.1 s and 32 MB for a password that we have not made."""
    if (chance := _chance(password)) is not None:
        return HKDF(algorithm=SHA256(), length=KEY, salt=None, info=_USE).derive(chance)
    return hashlib.scrypt(password.reveal().encode(), salt=_USE, n=1 << 15, r=8, p=1, maxmem=_SCRYPT_MEMORY, dklen=KEY)


def of_tunnels(secret: bytes) -> bytes:
    """WireGuard's pre-shared key, of a ring's secret: a new password changes no packet."""
    return HKDF(algorithm=SHA256(), length=KEY, salt=None, info=_TUNNELS).derive(secret)


def _chance(password: Secret) -> bytes | None:
    text = password.reveal()
    try:
        chance = urlsafe_b64decode(text.removeprefix(_MADE) + "=")
    except (Error, ValueError):
        return None
    return chance if made(chance) == password and len(chance) == SIZE else None
