"""Whom the API is to take us for: a token, which may change while we run. Never logged, never on a command line."""

import asyncio
import logging
from pathlib import Path
from typing import Final, Protocol

from weft.beside import files
from weft.model.errors import Problem, Unavailable
from weft.model.value import Secret

log = logging.getLogger(__name__)

_FRESH_SECONDS: Final = 60.0  # as client-go; kubelet renews a token when a fifth of its time is left
_LARGEST: Final = 1 << 16


class Credentials(Protocol):
    """Returns the current token."""

    async def token(self) -> Secret | None:
        """None to send none. Raises `Unavailable` while there is none."""
        ...

    def refused(self) -> None:
        """The API has refused the token: get a new one at the next call."""
        ...


class Fixed:
    """One token for ever, or none."""

    def __init__(self, token: Secret | None = None) -> None:
        self._token = token

    async def token(self) -> Secret | None:
        return self._token

    def refused(self) -> None:
        """Nothing can be done about it."""


class TokenFile:
    """A file that another program renews: read again each minute, and when the API has refused what it held.

    While it cannot be read the token of before serves, unless the API has refused that.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._token: Secret | None = None
        self._until = 0.0

    async def token(self) -> Secret | None:
        now = asyncio.get_running_loop().time()
        if self._token is None or now >= self._until:
            try:
                self._token = await self._read()
            except Unavailable as error:
                if self._token is None:
                    raise
                log.warning("%s; going on with the token of before", error)
            self._until = now + _FRESH_SECONDS
        return self._token

    def refused(self) -> None:
        self._token = None

    async def _read(self) -> Secret:
        try:
            text = (await files.read_small(self._path, limit=_LARGEST)).decode("ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            why = files.why(error) if isinstance(error, OSError) else "not a token"
            passing = isinstance(error, OSError) and files.may_pass(error)
            raise Unavailable(
                Problem(
                    code="STORE-001" if passing else "STORE-002",
                    where=str(self._path),
                    seen=f"cannot be read: {why}",
                    expected="a token of the Kubernetes API",
                    hint="Kubernetes mounts it into pods: see automountServiceAccountToken, or correct the kubeconfig",
                )
            ) from None
        if not text or not text.isprintable() or " " in text:
            raise Unavailable(
                Problem(code="STORE-002", where=str(self._path), seen="not a token", expected="one line of text")
            )
        return Secret(text)
