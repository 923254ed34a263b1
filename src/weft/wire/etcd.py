"""Keys and values in etcd, byte for byte as flannel writes them (flannel.md §4.2).

Pure: text and bytes in, values out. Nothing here knows how etcd is reached. Whoever may write to the store may
write anything, so every reader here answers with a value or with `PeerError`, whatever the bytes.
"""

import json
import re
import sys
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Any, Final

from msgspec import MsgspecError
from msgspec.json import Decoder

from weft.model.errors import PeerError, Problem
from weft.model.lease import Lease, LeaseAttrs

Subnets = tuple[IPv4Network | None, IPv6Network | None]

# Upstream's recogniser: open to the left, closed on the right, lower-case hex only.
_ID: Final = re.compile(r"(\d+\.\d+\.\d+\.\d+)-(\d+)(?:&([a-f\d:]+)-(\d+))?\Z", re.ASCII)
_LONGEST_ID: Final = 200
# Every spelling of an octet that counts: no leading zeros, signs or blanks, which `int` would let pass.
_OCTETS: Final = {str(octet): octet for octet in range(256)}
_FIELDS: Final = ("PublicIP", "PublicIPv6", "BackendType", "BackendData", "BackendV6Data")
_KNOWN: Final = frozenset(_FIELDS)
_FOLDED: Final = {name.casefold(): name for name in _FIELDS}
# A lease's value takes some 200 bytes. Whoever may write to the store may put 1.5 MB under each of thousands of keys.
_LONGEST_VALUE: Final = 4096
# What decodes may still be too deep to be compared. Lease data are two objects deep.
_MOST_NESTED: Final = 64
# What Go's encoder escapes beyond JSON's own rules. These only ever stand inside JSON strings.
_ESCAPES: Final = str.maketrans({char: f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"})
# It takes no more than Go's: no NaN, no number that would become infinite, no half of a surrogate pair. Names that
# come again are one text, which saves a megabyte with 5,000 leases.
_JSON: Final[Decoder[Any]] = Decoder()


def config_key(prefix: str) -> str:
    """The key of the network configuration."""
    return _join(prefix, "config")


def subnets_prefix(prefix: str) -> str:
    """What the key of every lease starts with; the rest is the lease's id."""
    return _join(prefix, "subnets") + "/"


def short_id(text: str) -> str:
    """A key's last part, or what a message needs of one that is too long to name a lease: what is kept stays small."""
    return text if len(text) <= _LONGEST_ID else f"{text[:_LONGEST_ID]}…"


def lease_id(v4: IPv4Network | None, v6: IPv6Network | None) -> str:
    """The last part of a lease's key. A lease without IPv4 says `0.0.0.0-0` there."""
    text = "0.0.0.0-0" if v4 is None else f"{v4.network_address}-{v4.prefixlen}"
    return text if v6 is None else f"{text}&{v6.network_address.compressed}-{v6.prefixlen}"


def parse_id(text: str) -> Subnets:
    """The subnets that a key names; `0.0.0.0-0` and `::-0` mean none of that family.

    Raises `PeerError` for a key that names none at all, and for one with host bits, which no node can use.
    """
    # Far more than any subnet takes. The pattern, open to the left, would look at a million digits a million times.
    found = _ID.search(text) if len(text) <= _LONGEST_ID else None
    if found is None:
        raise _unusable(text, "the key is no subnet", "A.B.C.D-LEN or A.B.C.D-LEN&IPV6-LEN")
    base, length, base6, length6 = found.groups()
    try:
        # Upstream reads the lengths into 5 and 7 bits, so a single address cannot be leased.
        v4 = IPv4Network((_v4_number(base), _length(length, 31)))
        v6 = None if base6 is None else IPv6Network((int(IPv6Address(base6)), _length(length6, 127)))
    except ValueError as error:
        raise _unusable(text, f"the key is no subnet: {error}") from None
    if v6 is not None and not v6.prefixlen:
        v6 = None
    if v4.prefixlen:
        return v4, v6
    if v6 is None:
        raise _unusable(text, "the key names no subnet")
    return None, v6


def encode_attrs(attrs: LeaseAttrs) -> bytes:
    """A lease's value: compact JSON, keys in upstream's order, empty ones left out."""
    fields: dict[str, Any] = {
        "PublicIP": str(attrs.public_ip or "0.0.0.0"),  # noqa: S104 what "none" looks like, not a socket
        "PublicIPv6": None if attrs.public_ipv6 is None else attrs.public_ipv6.compressed,
    }
    optional = (("BackendType", attrs.backend or None), ("BackendData", attrs.data), ("BackendV6Data", attrs.data_v6))
    fields.update((name, value) for name, value in optional if value is not None)
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).translate(_ESCAPES).encode()


def decode_attrs(value: bytes, where: str) -> LeaseAttrs:
    """Read a lease's value as upstream does: names in any case, the last duplicate counts, the unknown ignored.

    Raises `PeerError` naming `where` for everything that upstream rejects.
    """
    fields = _fields(value, where)
    public, public6, backend = fields.get("PublicIP"), fields.get("PublicIPv6"), fields.get("BackendType")
    try:
        return LeaseAttrs(
            public_ip=_public_v4(public) if "PublicIP" in fields else None,
            public_ipv6=None if public6 is None else _public_v6(public6),
            backend="" if backend is None else sys.intern(_text(backend)),
            data=fields.get("BackendData"),
            data_v6=fields.get("BackendV6Data"),
        )
    except ValueError as error:
        raise _unusable(where, str(error)) from None


def decode_lease(lease_id: str, value: bytes, created: int) -> Lease:
    """One entry of the store as a lease; `created` is its create_revision. Raises `PeerError`."""
    v4, v6 = parse_id(lease_id)
    return Lease(id=lease_id, v4=v4, v6=v6, attrs=decode_attrs(value, lease_id), created=created)


def too_long(where: str, size: str) -> PeerError:
    """What is said of a value that no lease can need."""
    return _unusable(where, f"the value has {size}", f"a lease, in {_LONGEST_VALUE} bytes at most")


def _fields(value: bytes, where: str) -> dict[str, Any]:
    """The value's fields under their proper names."""
    if len(value) > _LONGEST_VALUE:
        raise too_long(where, f"{len(value)} bytes")
    if value.count(b"[") + value.count(b"{") > _MOST_NESTED:
        raise _unusable(where, "the value is not a lease: it is nested too deeply", "backend data of an object or two")
    try:
        fields = _JSON.decode(value)
        if isinstance(fields, dict) and not fields.keys() <= _KNOWN:
            # Rare, so slow: which of `publicIP` and `PublicIP` came last only the order of the text tells.
            fields = _canonical(json.loads(value, object_pairs_hook=_last_wins))
    except (MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _unusable(where, f"the value is not JSON: {error}") from None
    if fields is None:
        return {}
    if not isinstance(fields, dict):
        raise _unusable(where, f"the value is a JSON {type(fields).__name__}", "a JSON object")
    return fields


def _canonical(fields: dict[str, Any]) -> dict[str, Any]:
    named = ((_FOLDED.get(name.casefold()), field) for name, field in fields.items())
    return {name: field for name, field in named if name is not None}


def _last_wins(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """A dict whose order is that of each name's last occurrence."""
    fields: dict[str, Any] = {}
    for name, field in pairs:
        fields.pop(name, None)
        fields[name] = field
    return fields


def _public_v4(value: Any) -> IPv4Address | None:
    try:
        number = _v4_number(value)
    except ValueError:
        raise ValueError(f"PublicIP is {_shown(value)}, not an IPv4 address") from None
    return IPv4Address(number) if number else None


def _public_v6(value: Any) -> IPv6Address:
    try:
        # A zone (`fe80::1%eth0`) names a link of whoever wrote it, and would make one address look like another.
        return IPv6Address(_text(value).replace("%", " "))
    except ValueError:
        raise ValueError(f"PublicIPv6 is {_shown(value)}, not an IPv6 address") from None


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"BackendType is {_shown(value)}, not a text")  # noqa: TRY004 a bad value, not a bad call
    return value


def _v4_number(text: Any) -> int:
    """An IPv4 address as a number, or `ValueError`; a quarter of the time that `IPv4Address(text)` takes."""
    try:
        a, b, c, d = text.split(".")
        return _OCTETS[a] << 24 | _OCTETS[b] << 16 | _OCTETS[c] << 8 | _OCTETS[d]
    except (AttributeError, KeyError, ValueError):
        raise ValueError(f"{_shown(text)} is not an IPv4 address") from None


def _length(text: str, most: int) -> int:
    length = int(text)
    if length > most:
        raise ValueError(f"prefix length {_shown(length)} is above {most}")
    return length


def _shown(value: Any) -> str:
    """A stranger's value, short enough for a log line."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _unusable(where: str, seen: str, expected: str = "") -> PeerError:
    return PeerError(Problem(code="ADDR-002", where=f"lease {where[:100]}", seen=seen, expected=expected))


def _join(prefix: str, name: str) -> str:
    """Join and clean like Go's `path.Join`: no empty parts, no dots; a missing leading slash stays missing."""
    parts: list[str] = []
    for part in (*prefix.split("/"), name):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return "/" * prefix.startswith("/") + "/".join(parts)
