"""Credentials that a program prints: an exec plugin of a kubeconfig (client.authentication.k8s.io, v1 and v1beta1).

It is run without a shell and without a terminal, and again when what it gave has expired or was refused.
"""

import errno
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

import msgspec

from weft.beside import programs
from weft.model.errors import ConfigError, Problem, Unavailable
from weft.model.text import one_line
from weft.model.value import Secret, Value, field

_SECONDS: Final = 30.0
_WORDS: Final = 300
_LARGEST: Final = 1 << 20  # bytes of what it prints
_GROUP: Final = "client.authentication.k8s.io/"
_VERSIONS: Final = (f"{_GROUP}v1", f"{_GROUP}v1beta1")


class _Status(Value):
    token: str = ""
    certificate: str = field(name="clientCertificateData", default="")
    until: datetime | None = field(name="expirationTimestamp", default=None)


class _Answer(Value, rename="camel"):
    api_version: str
    status: _Status


class ExecPlugin:
    """Runs `argv` with the variables `environ`.

    `hint` is the kubeconfig's, for a program that is missing.
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
            ran = await programs.run(self._argv, environ=self._environment, seconds=_SECONDS, most=_LARGEST, apart=True)
        except OSError as error:
            if error.errno == errno.ETIMEDOUT:
                raise self._failed(f"has not ended within {_SECONDS:g} s") from None
            if error.errno == errno.EFBIG:
                raise self._failed(f"prints more than {_LARGEST} bytes") from None
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
