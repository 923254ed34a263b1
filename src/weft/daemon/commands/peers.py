"""`weft peers`: the other nodes, what became of each one's lease, and for how long."""

from collections.abc import Iterable, Iterator, Mapping
from ipaddress import ip_network
from pathlib import Path
from typing import Final

import click

from weft.diag.bundle.offline import bundle_at, state_in
from weft.kernel import daemons
from weft.model.node.nodestate import NodeState, PeerState, RefusedState
from weft.model.text import one_line, shortly, shown_amount, table
from weft.model.value import Value, field, fields_of, replace
from weft.screen.documents import DOCUMENTS, output_with, piece, show_report, watched
from weft.screen.groups import FROM, INSTANCE, need_root
from weft.screen.say import say

_LOOK_AGAIN: Final = 1.0  # seconds between two questions of a watch
_AT_LEAST: Final = 10  # questions: that an object is not there yet is no event


class Row(Value):
    """One peer. `state` is `served`, `lacks`, `unusable` or `refused`; `why` says what is wrong, `seconds` how long."""

    id: str
    subnets: list[str]
    public: list[str]
    backend: str
    state: str
    why: list[str] = field(default_factory=list)
    seconds: float | None = None
    sent: int | None = None
    received: int | None = None
    sent_bytes: int | None = None
    received_bytes: int | None = None
    heard: float | None = None
    way: str = ""

    @property
    def name(self) -> str:
        """By which people know it."""
        return " ".join(self.subnets) or self.id


class Asked:
    """Asks a daemon for its peers, of which there may be thousands, after an event, or now and then."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._last = 0
        self._questions = 0
        self._seen: dict[str, Row] = {}

    def look(self) -> dict[str, Row]:
        self._last = self._number()
        self._questions = 0
        self._seen = rows(daemons.state(self._name))
        return self._seen

    def look_if_needed(self) -> dict[str, Row]:
        """The peers of the last look, if nothing has happened since."""
        self._questions += 1
        return self.look() if self._questions >= _AT_LEAST or self._number() != self._last else self._seen

    def _number(self) -> int:
        return daemons.events(self._name, self._last).last


@click.command()
@output_with("wide")
@click.option("-w", "--watch", is_flag=True, help="Then print a line for each change, until Ctrl-C.")
@INSTANCE
@FROM
def peers(output: str, watch: bool, instance: str | None, file: Path | None) -> int:  # noqa: FBT001 - click's way
    """Show the other nodes: how each is reached, whether it is served, and for how long.

    A peer is `served`; or it `lacks` objects that the kernel refuses or has not yet; or its lease is `unusable`, or
    `refused`, with the code of the reason. SENT and RECEIVED are packets that the relay of back end udp has carried, or
    bytes where wireguard counts these; HEARD is its last handshake. In a mesh WAY says how a peer is reached, and
    PUBLIC IP where that way leads.

    \b
      weft peers
      weft peers -w
      weft peers -o wide
      weft peers -o json | jq '.[] | select(.state != "served")'
      weft peers --from weft-bundle-node1.tar.gz

    Exits 1 when no daemon answers.
    """
    if file is not None:
        _print(rows(state_in(bundle_at(file, "instance", "watch"), file)), output)
        return 0
    need_root("weft peers")
    asked = Asked(daemons.choose(instance))
    now = asked.look()
    _print(now, output)
    for seen in watched(asked.look_if_needed, _LOOK_AGAIN) if watch else ():
        before, now = now, seen
        for was, row in changed(before, now):
            if output in DOCUMENTS:
                click.echo(piece(output, {"was": was, "now": row}), nl=False)
            else:
                say(one_line(change(was, row)))
    return 0


def _print(found: Mapping[str, Row], output: str) -> None:
    show_report(output, list(found.values()), text(found.values(), wide=output == "wide"))


def rows(state: NodeState) -> dict[str, Row]:
    """By id, in the order of the subnets."""
    found = [*map(_peer, state.peers), *map(_refused, state.refused)]
    return {row.id: row for row in sorted(found, key=_place)}


def text(found: Iterable[Row], *, wide: bool) -> str:
    """What is known of no peer has no column; what is wrong comes last, since it may be long."""
    listed = list(found)
    columns = {
        "SUBNET": [row.name for row in listed],
        "PUBLIC IP": [" ".join(row.public) or "-" for row in listed],
        "BACK END": [row.backend or "-" for row in listed],
        "WAY": [row.way or "-" for row in listed],
        "FOR": [_ago(row.seconds) for row in listed],
        "SENT": [_carried(row.sent, row.sent_bytes) for row in listed],
        "RECEIVED": [_carried(row.received, row.received_bytes) for row in listed],
        "HEARD": [f"{_ago(row.heard)} ago" if row.heard is not None else "-" for row in listed],
        "LEASE": [row.id for row in listed],
        "STATE": [one_line(_state(row, wide=wide)) for row in listed],
    }
    optional = {name for name in ("WAY", "SENT", "RECEIVED", "HEARD") if not any(cell != "-" for cell in columns[name])}
    shown = {name: cells for name, cells in columns.items() if name not in optional and (wide or name != "LEASE")}
    return table(list(shown), zip(*shown.values(), strict=True))


def changed(before: Mapping[str, Row], now: Mapping[str, Row]) -> Iterator[tuple[Row | None, Row | None]]:
    """The peers that came, went or changed: as they were and as they are."""
    for name, row in now.items():
        was = before.get(name)
        if was is None or _lasting(was) != _lasting(row):
            yield was, row
    yield from ((row, None) for name, row in before.items() if name not in now)


def change(was: Row | None, row: Row | None) -> str:
    if was is None or row is None:
        [there] = [each for each in (was, row) if each is not None]
        return f"{there.name}  {'went' if row is None else f'came, public IP {_publics(there)}, {_state(there)}'}"
    said = [
        f"{name} {new}, was {old}"
        for name, old, new in (
            ("subnet", was.name, row.name),
            ("public IP", _publics(was), _publics(row)),
            ("back end", was.backend, row.backend),
            ("way", was.way or "none", row.way or "none"),
            ("state", _state(was, wide=True), _state(row, wide=True)),
        )
        if new != old
    ]
    return f"{row.name}  {'; '.join(said)}"


def _peer(peer: PeerState) -> Row:
    state = "unusable" if peer.trouble else "lacks" if peer.lacks else "served"
    why = peer.lacks if peer.trouble is None else [str(peer.trouble)]
    if peer.doubt is not None:
        why = [*why, f"served by what it said before: {peer.doubt}"]
    same = {name: value for name, value in fields_of(peer).items() if name not in ("lacks", "trouble", "doubt")}
    return Row(**same, state=state, why=why)


def _refused(lease: RefusedState) -> Row:
    same = {name: value for name, value in fields_of(lease).items() if name != "trouble"}
    return Row(**same, state="refused", why=[str(lease.trouble)])


def _place(row: Row) -> tuple[object, ...]:
    """By numbers; what has no subnet comes last."""
    if not row.subnets:
        return (9, 0, row.id)
    net = ip_network(row.subnets[0])
    return (net.version, int(net.network_address), row.id)


def _lasting(row: Row) -> Row:
    """Without what differs at each look."""
    return replace(row, seconds=None, sent=None, received=None, sent_bytes=None, received_bytes=None, heard=None)


def _state(row: Row, *, wide: bool = False) -> str:
    if not row.why:
        return row.state
    if wide or len(row.why) == 1:
        return f"{row.state} {'; '.join(row.why)}"
    return f"{row.state} {row.why[0]}; and {len(row.why) - 1} more"


def _publics(row: Row) -> str:
    return " ".join(row.public) or "none"


def _ago(seconds: float | None) -> str:
    return "-" if seconds is None else shortly(seconds)


def _carried(packets: int | None, octets: int | None) -> str:
    """Packets where they are counted, else bytes."""
    return str(packets) if packets is not None else f"{shown_amount(octets)}B" if octets is not None else "-"
