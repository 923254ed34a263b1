"""How etcd is reached: endpoints, certificates, user, password, patience. Parses and checks; connects nowhere."""

import logging
import ssl
from typing import Final
from urllib.parse import urlsplit

from weft.beside import files
from weft.cluster import tls
from weft.cluster.reach import Endpoint
from weft.cluster.secretfile import SecretFile
from weft.model.errors import ConfigError, Problem
from weft.model.value import Secret, Value

log = logging.getLogger(__name__)

CLIENT_PORT: Final = 2379


class Timing(Value):
    """Patience, in seconds.

    `connect` bounds making a connection, `call` one request. On a watch etcd is asked for a sign of life every
    `ping`, and the endpoint is given up when `pong` passes without any: an etcd behind a hole in the network is
    noticed after `ping` + `pong` at most, and said when `connect` has passed, too. `backoff` doubles up to
    `backoff_most` between tries. A failed renewal is tried again after `renew_retry`.
    """

    connect: float = 2.0
    call: float = 5.0
    ping: float = 3.0
    pong: float = 3.0
    backoff: float = 0.1
    backoff_most: float = 5.0
    renew_retry: float = 60.0


class Access(Value):
    """What the user said about reaching etcd. Files are paths of PEM, empty for none."""

    endpoints: tuple[str, ...]
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    user: str = ""
    password: Secret | SecretFile[Secret] | None = None
    timing: Timing = Timing()

    @property
    def tls_files(self) -> bool:
        return bool(self.ca_file or self.cert_file or self.key_file)


def parse_endpoints(access: Access) -> tuple[Endpoint, ...]:
    """Read all endpoints; raises `ConfigError` with every problem at once."""
    problems: list[Problem] = []
    endpoints = []
    for text in access.endpoints:
        try:
            endpoints.append(_endpoint(text, access))
        except ValueError as error:
            problems.append(_flag("--etcd-endpoints", str(error), "http://HOST:PORT or https://HOST:PORT"))
    if not access.endpoints:
        problems.append(_flag("--etcd-endpoints", "no endpoint", "at least one etcd client URL"))
    if problems:
        raise ConfigError(*problems)
    return tuple(endpoints)


def tls_context(access: Access) -> ssl.SSLContext:
    """Build the context for `https://` endpoints: TLS 1.2 or newer, the given CA, else the system's roots.

    Read again for every connection, so renewed certificates are picked up; files may hang. Raises `ConfigError`.
    """
    if bool(access.cert_file) != bool(access.key_file):
        given, missing = ("cert", "key") if access.cert_file else ("key", "cert")
        raise ConfigError(
            _flag(f"--etcd-{missing}file", f"missing, though --etcd-{given}file is given", "both or none")
        )
    try:
        context = tls.trusting(files.read_now(access.ca_file) if access.ca_file else None)
    except (OSError, UnicodeError) as error:
        raise ConfigError(_unreadable("--etcd-cafile", access.ca_file, error, "CA certificates")) from None
    context.set_alpn_protocols(["h2"])
    if access.cert_file:
        try:
            tls.authenticate(context, files.read_now(access.cert_file), files.read_now(access.key_file))
        except OSError as error:
            both = f"{access.cert_file}, {access.key_file}"
            where = "--etcd-certfile, --etcd-keyfile"
            raise ConfigError(_unreadable(where, both, error, "a certificate and its unencrypted key")) from None
    return context


def _endpoint(text: str, access: Access) -> Endpoint:
    # Upstream's client uses TLS for a bare HOST:PORT exactly when it was given any certificates.
    scheme = "" if "://" in text else ("https://" if access.tls_files else "http://")
    parts = urlsplit(scheme + text)
    if parts.username is not None or parts.password is not None:
        raise ValueError("a URL with a user in it (use --etcd-username and --etcd-password)")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path not in ("", "/") or parts.query:
        raise ValueError(repr(text))
    try:
        port = parts.port or CLIENT_PORT
    except ValueError:
        raise ValueError(f"{text!r}: bad port") from None
    return Endpoint(url=scheme + text, host=parts.hostname, port=port, tls=parts.scheme == "https")


def _flag(where: str, seen: str, expected: str) -> Problem:
    return Problem(code="FLAG-001", where=where, seen=seen, expected=expected)


def _unreadable(where: str, path: str, error: OSError | UnicodeError, expected: str) -> Problem:
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError):
        reason = files.why(error)
    else:
        reason = f"not usable as PEM ({getattr(error, 'reason', None) or error})"
    return Problem(code="FLAG-001", where=where, seen=f"{path}: {reason}", expected=expected)


def password_in(text: str, _where: str) -> Secret:
    return Secret(text.rstrip("\n"))
