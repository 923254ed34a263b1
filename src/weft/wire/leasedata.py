"""The part of a lease beside its subnets, as flannel writes it into a store: JSON and addresses.

The store may hold anything, so readers return a value or raise `PeerError`.
"""

import json
import sys
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address
from typing import Any, Final

from msgspec import MsgspecError
from msgspec.json import Decoder

from weft.model.errors import PeerError, Problem
from weft.model.lease import LeaseAttrs, PolicyMode

# A lease takes some 200 bytes. A writer to the store may put 1.5 MB under each of thousands of names.
LONGEST: Final = 4096
# What decodes may still be too deep to be compared. Lease data are two objects deep.
_MOST_NESTED: Final = 64
# What Go's encoder escapes beyond JSON's own rules. These only ever stand inside JSON strings.
_ESCAPES: Final = str.maketrans({char: f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"})
_MODES: Final[dict[str, PolicyMode]] = {"enforce": "enforce", "audit": "audit"}
# It takes no more than Go's: no NaN, no number that would become infinite, no half of a surrogate pair. Names that
# come again are one text, which saves a megabyte with 5,000 leases.
_JSON: Final[Decoder[Any]] = Decoder()
# Every spelling of an octet that counts: no leading zeros, signs or blanks, which `int` would let pass.
_OCTETS: Final = {str(octet): octet for octet in range(256)}


def encode_json(value: Any) -> str:
    """As Go's encoder writes it: compact, with its escapes."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).translate(_ESCAPES)


def decode_json(value: bytes | str, where: str) -> Any:
    """Read JSON of the size and depth that a lease can need."""
    if len(value) > LONGEST:
        raise too_long(where, f"{len(value)} bytes")
    text = value.encode() if isinstance(value, str) else value
    if text.count(b"[") + text.count(b"{") > _MOST_NESTED:
        raise unusable(where, "the value is not a lease: it is nested too deeply", "backend data of an object or two")
    try:
        return _JSON.decode(text)
    except (MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise unusable(where, f"the value is not JSON: {error}") from None


def decode_attrs(fields: Mapping[str, Any], where: str) -> LeaseAttrs:
    """`fields` are by their names in etcd."""
    public, public6, backend = fields.get("PublicIP"), fields.get("PublicIPv6"), fields.get("BackendType")
    try:
        return LeaseAttrs(
            public_ip=_public_v4(public) if "PublicIP" in fields else None,
            public_ipv6=None if public6 is None else _public_v6(public6),
            backend="" if backend is None else sys.intern(_text(backend)),
            data=fields.get("BackendData"),
            data_v6=fields.get("BackendV6Data"),
            policies=_MODES.get(str(fields.get("NetworkPolicy")), ""),
        )
    except ValueError as error:
        raise unusable(where, str(error)) from None


def _public_v4(value: Any) -> IPv4Address | None:
    try:
        number = v4_number(value)
    except ValueError:
        raise ValueError(f"PublicIP is {shown(value)}, not an IPv4 address") from None
    return IPv4Address(number) if number else None


def _public_v6(value: Any) -> IPv6Address:
    try:
        # A zone (`fe80::1%eth0`) names a link of the writer, and would make one address look like another.
        return IPv6Address(_text(value).replace("%", " "))
    except ValueError:
        raise ValueError(f"PublicIPv6 is {shown(value)}, not an IPv6 address") from None


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"BackendType is {shown(value)}, not a text")  # noqa: TRY004 a bad value, not a bad call
    return value


def v4_number(text: Any) -> int:
    """An IPv4 address as a number, or `ValueError`; four times as fast as `IPv4Address(text)`."""
    try:
        a, b, c, d = text.split(".")
        return _OCTETS[a] << 24 | _OCTETS[b] << 16 | _OCTETS[c] << 8 | _OCTETS[d]
    except (AttributeError, KeyError, ValueError):
        raise ValueError(f"{shown(text)} is not an IPv4 address") from None


def shown(value: Any) -> str:
    """A stranger's value, short enough for a log line."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def unusable(where: str, seen: str, expected: str = "") -> PeerError:
    return PeerError(Problem(code="ADDR-002", where=f"lease {where[:100]}", seen=seen, expected=expected))


def too_long(where: str, size: str) -> PeerError:
    return unusable(where, f"the value has {size}", f"a lease, in {LONGEST} bytes at most")
