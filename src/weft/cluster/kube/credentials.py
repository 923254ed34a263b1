"""Whom the API is to take us for: a token, which may change while we run. Never logged, never on a command line."""

import asyncio
import errno
import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol

import msgspec

from weft.beside import files, programs
from weft.model.errors import ConfigError, Problem, Unavailable
from weft.model.text import one_line
from weft.model.value import Secret, Value, field

log = logging.getLogger(__name__)

_FRESH_SECONDS: Final = 60.0  # as client-go; kubelet renews a token when a fifth of its time is left
_LARGEST: Final = 1 << 16
_PROGRAM_SECONDS: Final = 30.0
_MOST_PRINTED: Final = 1 << 20  # bytes
_WORDS: Final = 300
_GROUP: Final = "client.authentication.k8s.io/"
_VERSIONS: Final = (f"{_GROUP}v1", f"{_GROUP}v1beta1")


class Credentials(Protocol):
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


class _Status(Value):
    token: str = ""
    certificate: str = field(name="clientCertificateData", default="")
    until: datetime | None = field(name="expirationTimestamp", default=None)


class _Answer(Value, rename="camel"):
    api_version: str
    status: _Status


class ExecPlugin:
    """Credentials that a program prints (client.authentication.k8s.io): `argv` is run with the variables `environ`.

    It has no shell and no terminal, and is run again when what it gave has expired or was refused. `hint` is the
    kubeconfig's, for a program that is missing.
    """

    def __init__(
        self, argv: tuple[str, ...], environ: Mapping[str, str], *, version: str, hint: str, where: str
    ) -> None:
        if version not in _VERSIONS:
            expected = " or ".join(_VERSIONS)
            raise ConfigError(
                Problem(code="FLAG-001", where=f"{where}.apiVersion", seen=repr(version), expected=expected)
            )
        self._argv = argv
        info = {"apiVersion": version, "kind": "ExecCredential", "spec": {"interactive": False}}
        self._environment = {**environ, "KUBERNETES_EXEC_INFO": json.dumps(info)}
        self._version = version
        self._hint = hint
        self._where = where
        self._token: Secret | None = None
        self._until: datetime | None = None

    async def token(self) -> Secret | None:
        """Raises `Unavailable`."""
        if self._token is None or (self._until is not None and datetime.now(UTC) >= self._until):
            found = await self._run()
            self._token, self._until = Secret(found.token), found.until
        return self._token

    def refused(self) -> None:
        self._token = None

    async def _run(self) -> _Status:
        try:
            ran = await programs.run(
                self._argv, environ=self._environment, seconds=_PROGRAM_SECONDS, most=_MOST_PRINTED, apart=True
            )
        except OSError as error:
            if error.errno == errno.ETIMEDOUT:
                raise self._failed(f"has not ended within {_PROGRAM_SECONDS:g} s") from None
            if error.errno == errno.EFBIG:
                raise self._failed(f"prints more than {_MOST_PRINTED} bytes") from None
            raise self._failed(f"cannot be run: {error.strerror}", self._hint) from None
        if ran.status:
            said = one_line(ran.err.decode(errors="replace"))[:_WORDS]
            raise self._failed(f"ended with status {ran.status}: {said}")
        return self._read(ran.out)

    def _read(self, out: bytes) -> _Status:
        """Read what the program printed; none of it is ever shown."""
        try:
            answer = msgspec.json.decode(out, type=_Answer)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise self._failed("printed no ExecCredential (not shown)") from None
        if answer.api_version != self._version:
            raise self._failed(f"printed an ExecCredential of {one_line(answer.api_version)[:_WORDS]}")
        if not answer.status.token:
            what = "a client certificate, which is not in this build" if answer.status.certificate else "no token"
            raise self._failed(f"printed {what}")
        return answer.status

    def _failed(self, seen: str, hint: str = "") -> Unavailable:
        where = f"{self._where}: {self._argv[0]}"
        expected = f"an ExecCredential of {self._version} with a token"
        return Unavailable(Problem(code="STORE-002", where=where, seen=seen, expected=expected, hint=hint))
