"""What a node remembers of the cluster, so that it can start without the store (settled.md §6).

One file: a line with the network configuration and the own lease, then one per lease of others: subnets and attributes
as in etcd, creation, until when it is kept unproven, its id if that is not the subnets, and the way there.

Times are Unix times; `written` has the moment in both clocks. In the same boot they are read by the clock that cannot
be set, else by the wall clock; if that is plainly behind, all has expired.
"""

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from ipaddress import ip_address
from math import isfinite
from pathlib import Path
from typing import Any, Final, get_args

from weft.daemon.disk import files
from weft.daemon.disk.files import Latest
from weft.daemon.world import Moment
from weft.model.cluster import OwnLease, Token
from weft.model.lease import LEASE_TTL, Lease, Tunnel, Way, WayKind
from weft.model.net import Endpoint
from weft.model.value import Value, field, fields_of, replace
from weft.wire.etcd import decode_lease, encode_attrs, lease_id

log = logging.getLogger(__name__)

_FILE: Final = "cluster.jsonl"
# 100,000 leases take a fifth of it.
_MAX_BYTES: Final = 256 << 20
_WORDS: Final = 200
_WAYS: Final = frozenset(get_args(WayKind))


class Memory(Value):
    """The cluster as it was last known; `leases` are those of others, at `mark` in the store's history.

    `unproven` says of those that the store has lost until when each is kept, by the clock that cannot be set.
    """

    net_conf: str
    own: OwnLease | None = None
    leases: tuple[Lease, ...] = ()
    mark: Token | None = None
    unproven: Mapping[str, float] = field(default_factory=dict)


def load(directory: Path, moment: Moment, *, aside: bool = True) -> Memory | None:
    """Read at `moment` what this instance remembers (`files.load`)."""
    path = directory / _FILE

    def parse(content: bytes) -> Memory:
        head, *lines = content.splitlines()
        data: Any = json.loads(head)
        own, clock = data["own"], _Clock(data.get("written"), moment)
        mark, unproven = data.get("mark"), dict[str, float]()
        return Memory(
            net_conf=str(data["net_conf"]),
            own=None if own is None else _own(own, clock),
            leases=tuple(_leases(path, lines, clock, unproven)),
            mark=None if mark is None else _token(mark),
            unproven=unproven,
        )

    return files.load(path, parse, limit=_MAX_BYTES, aside=aside)


def file(directory: Path, memory: Callable[[], Memory], moment: Callable[[], Moment]) -> Latest:
    """The file of what `memory` returns."""
    return Latest(directory / _FILE, lambda: encode(memory(), moment()), mode=0o600)


def encode(memory: Memory, moment: Moment) -> bytes:
    own = memory.own
    head = {
        "net_conf": memory.net_conf,
        "written": fields_of(moment),
        "mark": memory.mark,
        "own": own
        and {
            "lease": _entry(own.lease),
            "token": own.token,
            "expires": None if own.expires is None else own.expires - moment.now + moment.unix,
        },
    }
    # Line by line: the text of 5,000 leases in small pieces at once would stay in the process's memory for good.
    data = bytearray(json.dumps(head).encode())
    for lease in memory.leases:
        data += b"\n"
        until = memory.unproven.get(lease.id)
        data += json.dumps(_entry(lease, None if until is None else until - moment.now + moment.unix)).encode()
    return bytes(data)


def _leases(path: Path, lines: Iterable[bytes], clock: "_Clock", unproven: dict[str, float]) -> Iterator[Lease]:
    """The leases that can be read. Fills `unproven`."""
    unread: list[str] = []
    for number, line in enumerate(lines, 2):
        try:
            lease, until = _lease(json.loads(line))
            if until is not None and isfinite(until):
                unproven[lease.id] = clock.read(until) or clock.now + LEASE_TTL
            yield lease
        except Exception as error:  # noqa: BLE001 - no content of a line is worth more than a start
            unread.append(f"line {number} cannot be read ({error})")
    if unread:
        more = f" and {len(unread) - 1} more" if unread[1:] else ""
        log.warning("STATE-001 %s: %s%s: starting without those peers", path, unread[0][:_WORDS], more)


def _entry(lease: Lease, until: float | None = None) -> list[Any]:
    """As short as it can be."""
    subnets = lease_id(lease.v4, lease.v6)
    name, way = None if lease.id == subnets else lease.id, lease.way and _way_entry(lease.way)
    entry = [subnets, encode_attrs(lease.attrs).decode(), lease.created, until, name, way]
    while entry[-1] is None:
        entry.pop()
    return entry


def _way_entry(way: Way) -> dict[str, Any]:
    """What is as by default is left out."""
    entry = {name: value for name, value in fields_of(way).items() if value}
    for name in entry.keys() & {"bases", "remotes"}:
        entry[name] = [str(ip) for ip in entry[name]]
    if way.tunnel is not None:
        end = way.tunnel.endpoint
        entry["tunnel"] = [way.tunnel.key, None if end is None else str(end), way.tunnel.keepalive]
    return entry


def _lease(entry: Any) -> tuple[Lease, float | None]:
    subnets, value, created, *more = entry
    until, name, way = (*more, None, None, None)[:3]
    lease = decode_lease(str(subnets), str(value).encode(), int(created))
    lease = replace(lease, id=lease.id if name is None else str(name), way=None if way is None else _way(way))
    return lease, None if until is None else float(until)


def _way(data: Any) -> Way:
    if data["kind"] not in _WAYS:
        raise ValueError("no way")
    read: dict[str, Any] = {name: tuple(map(ip_address, data[name])) for name in data.keys() & {"bases", "remotes"}}
    if "tunnel" in data:
        key, end, keepalive = data["tunnel"]
        endpoint = None if end is None else Endpoint.parse(end)
        read["tunnel"] = Tunnel(key=key, endpoint=endpoint, keepalive=keepalive)
    return Way(**{**data, **read})


def _token(value: Any) -> Token:
    """Files that etcd alone wrote have an object in its place."""
    each = tuple(value.values() if isinstance(value, dict) else value)
    if not all(isinstance(part, int | str) for part in each):
        raise ValueError("no token")
    return each


class _Clock:
    """Reads times of a file that was written at `written`, if it says so, at `moment`."""

    def __init__(self, written: Any, moment: Moment) -> None:
        self._moment = moment
        self._written = (
            moment
            if written is None
            else Moment(unix=float(written["unix"]), now=float(written["now"]), boot=str(written["boot"]))
        )

    @property
    def now(self) -> float:
        return self._moment.now

    def read(self, unix: float) -> float:
        """A Unix time by the present boot's clock; 0 when the wall clock cannot be right."""
        written, now = self._written, self._moment
        if written.boot == now.boot and written is not now:
            return unix - written.unix + written.now
        if now.unix < written.unix or unix - now.unix > LEASE_TTL:
            return 0.0
        return unix - now.unix + now.now


def _own(data: Any, clock: _Clock) -> OwnLease:
    expires = None if data["expires"] is None else clock.read(float(data["expires"]))
    if expires is not None and not isfinite(expires):
        raise ValueError("no time")
    token = data["token"] if "token" in data else (data["etcd_lease"], data["mod_revision"])  # before there were others
    return OwnLease(lease=_lease(data["lease"])[0], expires=expires, token=_token(token))
