"""TLS contexts from PEM that was read before: OpenSSL itself would open files, which may hang."""

import os
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from weft.beside.files import why
from weft.beside.threads import bounded
from weft.model.errors import Problem, Unavailable

T = TypeVar("T")


async def within(seconds: float, make: Callable[[], T], *, key: object, where: str) -> T:
    """Have a context made beside the loop: the disk of its files may hang.

    Raises what `make` raises, and `Unavailable` after so many seconds. `key` and `where` are of those files.
    """
    try:
        return await bounded(("tls", key), make, seconds=seconds)
    except OSError as error:
        raise Unavailable(Problem(code="STORE-001", where=where, seen=f"cannot be read: {why(error)}")) from None


def trusting(ca: bytes | None) -> ssl.SSLContext:
    """A client's context: TLS 1.2 or newer, and these CAs, or the system's. Raises `ssl.SSLError`, `UnicodeError`."""
    if ca is not None and not ca.strip():  # which would mean the system's
        raise ssl.SSLError(ssl.SSL_ERROR_SSL, "no certificate in it")
    context = ssl.create_default_context(cadata=None if ca is None else ca.decode("ascii"))
    # Python 3.13 sets it. A CA without a key usage is good for Go, and so for upstream.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def authenticate(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Have a context show a certificate. Raises `ssl.SSLError`."""
    with _as_file(certificate) as first, _as_file(key) as second:
        # Without a password callback OpenSSL asks at the terminal, and the daemon hangs.
        context.load_cert_chain(first, second, password=lambda: "")


@contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """The path of a file that is on no disk: `ssl` takes no text here."""
    descriptor = os.memfd_create("weft-pem", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
