"""This node's WireGuard key on disk: made once, 0600, and kept across restarts and reboots."""

import logging
import os
from base64 import b64encode
from pathlib import Path
from typing import Final

from weft.daemon.disk import files
from weft.desired.tunnels.wireguard import KEY_BYTES, key_bytes, private_key
from weft.kernel import statefiles
from weft.model.errors import ConfigError, Problem
from weft.model.value import Secret

log = logging.getLogger(__name__)

_NAME: Final = "wgkey"
_FLANNELS: Final = Path("/run/flannel/wgkey")
_MOST: Final = 256


def own(directory: Path, *, look_only: bool = False) -> Secret:
    """The key in the instance's directory; if there is none, flannel's, or a new one, which is written there.

    A file that cannot be read is set aside. One that cannot be written costs the next start its key, which is said.
    """
    place = directory / _NAME
    found = files.load(place, _key, limit=_MOST, aside=not look_only)
    if found is not None:
        return found
    made = files.load(_FLANNELS, _key, limit=_MOST, aside=False) or _new()
    if not look_only:
        try:
            _write(place, made)
        except OSError as error:
            log.warning("STATE-002 %s: %s; the next start makes another key", place, error.strerror)
    return made


def given(place: Path, *, look_only: bool = False) -> Secret:
    """The key in a file of the user's, which is made if it is missing.

    Raises `ConfigError` for a file that holds no key, or cannot be read or made: the user wants this one.
    """
    try:
        return _key(statefiles.read(place, limit=_MOST))
    except FileNotFoundError:
        made = _new()
    except OSError as error:
        raise _unusable(place, f"cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise _unusable(place, f"holds no key: {error}") from None
    if not look_only:
        try:
            _write(place, made)
        except OSError as error:
            raise _unusable(place, f"cannot be made: {error.strerror}") from None
    return made


def public(private: Secret) -> str:
    """The public key that belongs to a private one (RFC 7748 §5)."""
    # Late: 4 MB that no other back end needs.
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    key = X25519PrivateKey.from_private_bytes(key_bytes(private.reveal()))
    return b64encode(key.public_key().public_bytes_raw()).decode()


def _new() -> Secret:
    return private_key(os.urandom(KEY_BYTES))


def _key(content: bytes) -> Secret:
    return private_key(key_bytes(content.decode("ascii").strip()))


def _write(place: Path, key: Secret) -> None:
    files.write_atomically(place, key.reveal().encode(), 0o600, sync=True)


def _unusable(place: Path, seen: str) -> ConfigError:
    hint = "Correct it, or remove the file to have a new key made"
    return ConfigError(
        Problem(code="FLAG-001", where=f"WIREGUARD_KEY_FILE={place}", seen=seen, expected="a key in base64", hint=hint)
    )
