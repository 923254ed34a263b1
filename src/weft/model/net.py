"""Addresses: parsed once at the edge, compared as values."""

from contextlib import suppress
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final, Literal, NamedTuple, Self

from weft.model.value import Value

Ip = IPv4Address | IPv6Address
Net = IPv4Network | IPv6Network
Family = Literal[4, 6]
FAMILIES: Final[tuple[Family, ...]] = (4, 6)
# One of each family, None for a family without.
Subnets = tuple[IPv4Network | None, IPv6Network | None]

_IPV6 = 1 << 128
_PORT_MAX = 65535
_HEX_DIGITS = 12
_USUAL_LENGTH = 17
_HEX = frozenset("0123456789abcdefABCDEF")


class Addresses(NamedTuple):
    """An address of each family, and `where` each was read."""

    v4: IPv4Address | None = None
    v6: IPv6Address | None = None
    where: tuple[str, str] = ("", "")


class Endpoint(Value, kw_only=False):
    ip: Ip
    port: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `10.0.0.1:80` or `[fd00::1]:80`. Raises `ValueError`."""
        host, port = host_and_port(text)
        return cls(ip_address(host), port)

    def __str__(self) -> str:
        return with_port(self.ip, self.port)


def family_of(what: Ip | Net) -> Family:
    return 4 if what.version == 4 else 6


def host_and_port(text: str) -> tuple[str, int]:
    """Of `10.0.0.1:80`, `[fd00::1]:80` or `node1.example:80`. Raises `ValueError`."""
    host, _, port = text.rpartition(":")
    if not 0 < int(port) <= _PORT_MAX:
        raise ValueError(f"there is no port {port}")
    return host.strip("[]"), int(port)


def is_reachable(ip: Ip) -> bool:
    """Tell whether others could reach a node or a pod at this address."""
    mapped = ip.ipv4_mapped if isinstance(ip, IPv6Address) else None
    scoped = isinstance(ip, IPv6Address) and ip.scope_id is not None
    return not (ip.is_unspecified or ip.is_loopback or ip.is_multicast or mapped is not None or scoped)


def within(net: Net, other: Net) -> bool:
    if isinstance(net, IPv4Network):
        return isinstance(other, IPv4Network) and net.subnet_of(other)
    return isinstance(other, IPv6Network) and net.subnet_of(other)


@lru_cache(maxsize=1 << 16)  # rules of a packet filter name the same addresses again and again
def ip_in(text: str) -> Ip | None:
    """The address that a text is; None if it is none."""
    try:
        return ip_address(text)
    except ValueError:
        return None


def with_port(address: object, port: int) -> str:
    """`10.0.0.1:80` or `[fd00::1]:80`; the address alone for port 0."""
    if not port:
        return str(address)
    return f"[{address}]:{port}" if ":" in str(address) else f"{address}:{port}"


def number_of(ip: Ip) -> int:
    """A number that no address of the other family has; IPv4's is kept small to save memory."""
    return int(ip) if ip.version == 4 else int(ip) | _IPV6


def address_of(number: int) -> Ip:
    return IPv6Address(number ^ _IPV6) if number & _IPV6 else IPv4Address(number)


class Mac(bytes):
    """A 48-bit Ethernet address: six bytes, printed as `aa:bb:cc:dd:ee:ff`."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `aa:bb:…`, `aa-bb-…` or `aabb.ccdd.eeff`. Raises `ValueError`."""
        if text[2::3] == ":::::" and len(text) == _USUAL_LENGTH:
            # As thousands are written at a start. What is none is refused below.
            with suppress(ValueError):
                found = cls.fromhex(text.replace(":", ""))
                if len(found) == _HEX_DIGITS // 2:
                    return found
        for separator, separators in ((":", text[2::3]), ("-", text[2::3]), (".", text[4::5])):
            if separators == separator * (len(text) - _HEX_DIGITS) and separators:
                digits = text.replace(separator, "")
                if len(digits) == _HEX_DIGITS and _HEX.issuperset(digits):
                    return cls(bytes.fromhex(digits))
        raise ValueError(f"not a MAC address: {text!r}")

    @classmethod
    def local(cls, six_bytes: bytes) -> Self:
        """Make a locally administered unicast address of six random bytes (flannel.md §6.2)."""
        if len(six_bytes) != _HEX_DIGITS // 2:
            raise ValueError(f"a MAC address has six bytes, not {len(six_bytes)}")
        return cls(bytes([six_bytes[0] & 0xFE | 0x02]) + six_bytes[1:])

    @property
    def is_unicast(self) -> bool:
        """Neither zero nor with the group bit set."""
        return any(self) and not self[0] & 1

    def __str__(self) -> str:
        return self.hex(":")

    def __repr__(self) -> str:
        return f"Mac({self})"
