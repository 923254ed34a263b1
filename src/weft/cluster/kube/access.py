"""How the API is reached: its URL, whom we trust, whom it is to take us for. Connects nowhere."""

import ssl
from urllib.parse import urlsplit

from weft.beside import files
from weft.cluster import tls
from weft.cluster.kube.credentials import Credentials, Fixed
from weft.cluster.reach import Endpoint
from weft.model.errors import ConfigError, Problem
from weft.model.value import Value


class Timing(Value):
    """Patience, in seconds.

    `connect` bounds making a connection, `call` each wait for the server. `backoff` doubles up to `backoff_most`
    between tries. A server that hangs, or a balancer that holds connections, sends no goodbye: when a watch has said
    nothing for `quiet`, the API is asked for a sign of life beside it, each time, and when it has said nothing for
    `held` another watch takes its place. The API sends a bookmark a minute, as a rule.
    """

    connect: float = 5.0
    call: float = 10.0
    backoff: float = 0.1
    backoff_most: float = 10.0
    quiet: float = 10.0
    held: float = 90.0


class Pem(Value):
    """PEM text, or the file that holds it; nothing if both are empty. `where` names it for people."""

    file: str = ""
    data: bytes = b""
    where: str = ""

    def __bool__(self) -> bool:
        return bool(self.file or self.data)

    def content(self) -> bytes:
        """The text, read now if it is a file's. Raises `OSError`."""
        return self.data or (files.read_now(self.file) if self.file else b"")


class Access(Value):
    """All that a client needs. `server_name` is the name in the server's certificate, if not the URL's host."""

    url: str
    ca: Pem = Pem()
    certificate: Pem = Pem()
    key: Pem = Pem()
    server_name: str = ""
    insecure: bool = False
    credentials: Credentials = Fixed()
    timing: Timing = Timing()

    @property
    def endpoint(self) -> Endpoint:
        return parse_url(self.url)

    @property
    def pems(self) -> tuple[Pem, ...]:
        return tuple(pem for pem in (self.ca, self.certificate, self.key) if pem.file)

    @property
    def base(self) -> str:
        return urlsplit(self.url).path.rstrip("/")

    def context(self) -> ssl.SSLContext | None:
        """Build the TLS context, a new one for each connection, so that renewed files are picked up. None for http.

        Reads files, which may hang. Raises `ConfigError`.
        """
        if not self.endpoint.tls:
            return None
        try:
            context = tls.trusting(self.ca.content() if self.ca else None)
        except (OSError, UnicodeError) as error:
            raise ConfigError(_unusable(self.ca, error, "CA certificates in PEM")) from None
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.certificate:
            try:
                tls.authenticate(context, self.certificate.content(), self.key.content())
            except OSError as error:
                expected = "a client certificate and its unencrypted key in PEM"
                raise ConfigError(_unusable(self.certificate, error, expected)) from None
        return context


def parse_url(url: str) -> Endpoint:
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        raise ConfigError(_no_url(url)) from None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query:
        raise ConfigError(_no_url(url))
    return Endpoint(url=url, host=parts.hostname, port=port, tls=parts.scheme == "https")


def _no_url(url: str) -> Problem:
    seen = "a URL with a user in it (not shown)" if "@" in url else repr(url)
    return Problem(code="FLAG-001", where="--kube-api-url", seen=seen, expected="https://HOST:PORT")


def _unusable(pem: Pem, error: Exception, expected: str) -> Problem:
    seen = files.why(error) if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) else None
    return Problem(code="FLAG-001", where=pem.where, seen=seen or "not usable as PEM", expected=expected)
