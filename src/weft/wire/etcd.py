"""Keys and values in etcd, byte for byte as flannel writes them (flannel.md §4.2).

The store may hold anything, so readers return a value or raise `PeerError`, whatever the bytes.
"""

import json
import re
from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Address, IPv6Network
from typing import Any, Final

from weft.model.lease import Lease, LeaseAttrs
from weft.model.net import Subnets
from weft.wire import leasedata
from weft.wire.leasedata import decode_json, encode_json, shown, unusable, v4_number

# Upstream's recogniser: open to the left, closed on the right, lower-case hex only.
_ID: Final = re.compile(r"(\d+\.\d+\.\d+\.\d+)-(\d+)(?:&([a-f\d:]+)-(\d+))?\Z", re.ASCII)
_LONGEST_ID: Final = 200
_FIELDS: Final = ("PublicIP", "PublicIPv6", "BackendType", "BackendData", "BackendV6Data", "NetworkPolicy")
_KNOWN: Final = frozenset(_FIELDS)
_FOLDED: Final = {name.casefold(): name for name in _FIELDS}


def config_key(prefix: str) -> str:
    return _join(prefix, "config")


def subnets_prefix(prefix: str) -> str:
    """The start of every lease's key; the rest is the lease's id."""
    return _join(prefix, "subnets") + "/"


def short_id(text: str) -> str:
    """A key's last part, shortened for messages."""
    return text if len(text) <= _LONGEST_ID else f"{text[:_LONGEST_ID]}…"


def lease_id(v4: IPv4Network | None, v6: IPv6Network | None) -> str:
    """A lease without IPv4 begins with `0.0.0.0-0`."""
    text = "0.0.0.0-0" if v4 is None else f"{v4.network_address}-{v4.prefixlen}"
    return text if v6 is None else f"{text}&{v6.network_address.compressed}-{v6.prefixlen}"


def parse_id(text: str) -> Subnets:
    """The subnets of a key; length 0 (`0.0.0.0-0`, `::-0`) means none of that family.

    Keys without a subnet, or with host bits, are refused: no node can use them.
    """
    # Far more than any subnet takes. The pattern, open to the left, would look at a million digits a million times.
    found = _ID.search(text) if len(text) <= _LONGEST_ID else None
    if found is None:
        raise unusable(text, "the key is no subnet", "A.B.C.D-LEN or A.B.C.D-LEN&IPV6-LEN")
    base, length, base6, length6 = found.groups()
    try:
        # Upstream reads the lengths into 5 and 7 bits, so a single address cannot be leased.
        number, prefixlen = v4_number(base), _length(length, 31)
        # Without IPv4 upstream may write an address there all the same: where its search would have begun.
        v4 = IPv4Network((number, prefixlen)) if prefixlen else None
        v6 = None if base6 is None else IPv6Network((int(IPv6Address(base6)), _length(length6, 127)))
    except ValueError as error:
        raise unusable(text, f"the key is no subnet: {error}") from None
    if v6 is not None and not v6.prefixlen:
        v6 = None
    if v4 is None and v6 is None:
        raise unusable(text, "the key names no subnet")
    return v4, v6


def encode_attrs(attrs: LeaseAttrs) -> bytes:
    """Compact JSON, keys in upstream's order, without empty ones; the last is ours, which upstream passes over."""
    fields: dict[str, Any] = {
        "PublicIP": str(attrs.public_ip or "0.0.0.0"),  # noqa: S104 what "none" looks like, not a socket
        "PublicIPv6": None if attrs.public_ipv6 is None else attrs.public_ipv6.compressed,
    }
    optional = (
        ("BackendType", attrs.backend or None),
        ("BackendData", attrs.data),
        ("BackendV6Data", attrs.data_v6),
        ("NetworkPolicy", attrs.policies or None),
    )
    fields.update((name, value) for name, value in optional if value is not None)
    return encode_json(fields).encode()


def decode_attrs(value: bytes, where: str) -> LeaseAttrs:
    """As upstream: names in any case, the last duplicate counts, unknown ones are ignored."""
    return leasedata.decode_attrs(_fields(value, where), where)


def decode_lease(lease_id: str, value: bytes, created: int) -> Lease:
    """`created` is the entry's create_revision."""
    v4, v6 = parse_id(lease_id)
    return Lease(id=lease_id, v4=v4, v6=v6, attrs=decode_attrs(value, lease_id), created=created)


def _fields(value: bytes, where: str) -> dict[str, Any]:
    fields = decode_json(value, where)
    if isinstance(fields, dict) and not fields.keys() <= _KNOWN:
        # Rare, so slow: which of `publicIP` and `PublicIP` came last only the order of the text tells.
        fields = _canonical(json.loads(value, object_pairs_hook=_last_wins))
    if fields is None:
        return {}
    if not isinstance(fields, dict):
        raise unusable(where, f"the value is a JSON {type(fields).__name__}", "a JSON object")
    return fields


def _canonical(fields: dict[str, Any]) -> dict[str, Any]:
    named = ((_FOLDED.get(name.casefold()), field) for name, field in fields.items())
    return {name: field for name, field in named if name is not None}


def _last_wins(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """In the order of each name's last occurrence."""
    fields: dict[str, Any] = {}
    for name, field in pairs:
        fields.pop(name, None)
        fields[name] = field
    return fields


def _length(text: str, most: int) -> int:
    length = int(text)
    if length > most:
        raise ValueError(f"prefix length {shown(length)} is above {most}")
    return length


def _join(prefix: str, name: str) -> str:
    """Like Go's `path.Join`: no empty parts, no dots; a missing leading slash stays missing."""
    parts: list[str] = []
    for part in (*prefix.split("/"), name):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return "/" * prefix.startswith("/") + "/".join(parts)
