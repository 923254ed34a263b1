"""What the text of a flag means: each reader returns the value, or raises `ValueError` that says what was expected."""

import re
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any, Final, TypeVar, get_args

from weft.config.re2 import Pattern
from weft.model.net import Ip, is_reachable, with_port
from weft.model.value import Secret, Value

MESH_PORT: Final = 51820
_ENDPOINT: Final = re.compile(r"(?:([A-Za-z][A-Za-z0-9+.-]*)://)?((?:\[[0-9A-Fa-f:.]+\]|[^\s/@:\[\]]+):([0-9]{1,5}))/?")
_PEER: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s/@:,\[\]]+))(?::([0-9]{1,5}))?")
# sun_path has 108 bytes, the last of them zero (unix(7)), and the socket is first bound as `PATH.new`.
_SOCKET_PATH_MAX: Final = 107 - len(".new")

IpT = TypeVar("IpT", IPv4Address, IPv6Address)


def endpoints(text: str) -> tuple[str, ...]:
    found = [_ENDPOINT.fullmatch(part.strip()) for part in text.split(",") if part.strip()]  # as a template leaves it
    if not found or not all(
        each and (each[1] or "http").lower() in ("http", "https") and 0 < int(each[3]) <= 65535 for each in found
    ):
        raise ValueError(
            "http://HOST:PORT or https://HOST:PORT, several separated by commas, without user, password or path"
        )
    return tuple(f"{each[1].lower()}://{each[2]}" if each[1] else each[2] for each in found if each)


def pattern(text: str) -> Pattern:
    try:
        return Pattern(text)
    except ValueError as error:
        raise ValueError(f"an RE2 pattern: {error}") from None


def one_of(kind: Any) -> Callable[[str], str]:
    """A word of a `Literal`."""
    words: tuple[str, ...] = get_args(kind)

    def read(text: str) -> str:
        if text not in words:
            raise ValueError(" or ".join((", ".join(words[:-1]), words[-1])))
        return text

    return read


def ip_or_none(text: str) -> Ip | None:
    try:
        return None if "%" in text else ip_address(text)
    except ValueError:
        return None


def ip(text: str) -> Ip:
    address = ip_or_none(text)
    if address is None:
        raise ValueError("an IP address")
    return address


def optional_ip(text: str) -> Ip | None:
    return ip(text) if text else None


def public_ip(kind: type[IpT]) -> Callable[[str], IpT | None]:
    def read(text: str) -> IpT | None:
        address = ip_or_none(text)
        if isinstance(address, kind) and is_reachable(address):
            return address
        if text:
            raise ValueError(f"an {kind.__name__.removesuffix('Address')} address that other nodes can reach")
        return None

    return read


def path(text: str) -> str:
    if not text:
        raise ValueError("a path")
    return text


def socket_path(text: str) -> str:
    if not 0 < len(text.encode(errors="surrogateescape")) <= _SOCKET_PATH_MAX:
        raise ValueError(f"a path of at most {_SOCKET_PATH_MAX} bytes")
    return path(text)


def secret(text: str) -> Secret | None:
    return Secret(text) if text else None


class PeerAddress(Value, kw_only=False):
    """Where a node of the mesh listens; `host` is a name or an address."""

    host: str
    port: int = MESH_PORT

    def __str__(self) -> str:
        return with_port(self.host, self.port)


def peer_address(text: str) -> PeerAddress:
    host, port = text, MESH_PORT
    if ip_or_none(text) is None:
        found = _PEER.fullmatch(text)
        host, port = (found[1] or found[2], int(found[3] or MESH_PORT)) if found else ("", 0)
    address = ip_or_none(host)
    if not 0 < port <= 65535 or (":" in host and address is None) or not (address is None or is_reachable(address)):
        raise ValueError("HOST, HOST:PORT, an IPv6 address or [IPv6]:PORT of another node; a flag for each")
    return PeerAddress(host, port)
