"""What the page shows, as pieces of JSON by name: a pure function of what the lab and its daemons say.

A changed piece is sent again, so times are rounded Unix times, not ages.
"""

from collections.abc import Iterable, Mapping
from signal import Signals
from typing import Any, Final

from weft.daemon.commands.peers import Row, rows
from weft.lab.report import LabReport, NodeReport, TrafficReport, serves
from weft.model.node.nodestate import NodeState, wrong
from weft.model.value import Value, field, fields_of, replace
from weft.ui.measuring import Measured, Pair
from weft.ui.words import cuts, notes, segment, services, traffic

Piece = dict[str, Any]
Picture = dict[str, Piece]

_HEALTH: Final = {"served": "well", "lacks": "poor", "unusable": "down", "refused": "down"}
_WORST: Final = ("down", "poor", "unknown", "well")


class NodeView(Value):
    """`sees` is what it knows of other nodes, by name; None if nothing."""

    name: str
    piece: Piece
    sees: dict[str, Row] | None = None


class View(Value):
    """All but the measurements.

    `more` are the pieces of pods and Services; `cuts` what the lab itself keeps apart, in words.
    """

    lab: Piece
    nodes: list[NodeView]
    more: Picture = field(default_factory=dict)
    pairs: list[Pair] = field(default_factory=list)
    cuts: dict[Pair, list[str]] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)  # of nodes, by all that events call them


def of_lab(
    report: LabReport,
    states: Mapping[str, NodeState | None],
    *,
    unix: float,
    carried: TrafficReport | None = None,
) -> View:
    """At that Unix time. `carried` is the traffic in each second."""
    names = {word: node.name for node in report.nodes for word in _words(node.subnets, node.underlay)}
    pods: dict[str, list[str]] = {node.name: [] for node in report.nodes}
    for pod in report.pods:
        pods[pod.node].append(pod.name)
    nodes = []
    for number, node in enumerate(report.nodes):
        state = states.get(node.name)
        sees = None if state is None else _named(state, names)
        piece = {
            **_base(node.name, number, addresses=node.underlay, subnets=node.subnets),
            "mtu": node.mtu,
            "daemon": node.daemon,
            "health": _node_health(node, state),
            "wrong": [*wrong(state)] if state is not None else node.problems or [_ended(node.daemon)],
            "pods": pods[node.name],
            "place": segment(report, node),
            "notes": notes(report, node),
            "detail": None if state is None else _detail(state, sees or {}, unix),
        }
        nodes.append(NodeView(name=node.name, piece=piece, sees=sees))
    order = [node.name for node in report.nodes]
    return View(
        lab=_lab(report),
        nodes=nodes,
        more={
            **{
                f"pod/{pod.name}": {"name": pod.name, "node": pod.node, "addresses": pod.addresses}
                for pod in report.pods
            },
            **services(report),
            **({} if carried is None else {"traffic": traffic(carried)}),
        },
        pairs=[(a, b) for number, a in enumerate(order) for b in order[number + 1 :]],
        cuts=cuts(report),
        names=names,
    )


def of_node(name: str, state: NodeState, *, unix: float) -> View:
    """What one node's daemon knows: itself, and its peers by their public IPs."""
    found = rows(state)
    peers = {row.id: " ".join(row.public) or row.name for row in found.values()}
    names = {word: peers[row.id] for row in found.values() for word in _words(row.subnets, row.public)}
    sees = {peers[row.id]: row for row in found.values()}
    lease, network, uplink = state.lease, state.network, state.uplink
    own = {
        **_base(name, 0, addresses=[] if uplink is None else uplink.addresses, subnets=lease.subnets if lease else []),
        "mtu": 0 if network is None else network.mtu,
        "daemon": "ready" if state.ready else "not ready",
        "health": _state_health(state),
        "wrong": [*wrong(state)],
        "detail": _detail(state, sees, unix),
    }
    others = [
        NodeView(
            name=peer,
            piece={
                **_base(peer, number, addresses=row.public, subnets=row.subnets),
                "daemon": row.state,
                "health": _HEALTH[row.state],
                "wrong": row.why,
            },
        )
        for number, (peer, row) in enumerate(sees.items(), 1)
    ]
    networks, backend = ([], "") if network is None else (network.networks, network.backend)
    store = "ready" if state.store is None else str(state.store)
    lab = {"kind": "node", "name": name, "backend": backend, "networks": networks, "store": "", "store_state": store}
    return View(
        lab=lab,
        nodes=[NodeView(name=name, piece=own, sees=sees), *others],
        pairs=[(name, peer) for peer in sees],
        names=names | (dict.fromkeys(_words(lease.subnets, lease.public), name) if lease else {}),
    )


def picture(view: View, measured: Mapping[Pair, Measured]) -> Picture:
    nodes = {node.name: node for node in view.nodes}
    return {
        "lab": view.lab,
        **{f"node/{node.name}": node.piece for node in view.nodes},
        **view.more,
        **{
            edge_name(pair): edge(nodes[pair[0]], nodes[pair[1]], measured.get(pair), view.cuts.get(pair))
            for pair in view.pairs
        },
    }


def edge_name(pair: Pair) -> str:
    return f"edge/{pair[0]}/{pair[1]}"


def edge(one: NodeView, other: NodeView, measured: Measured | None, cuts: list[str] | None = None) -> Piece:
    """Pings count before the daemons' words; where the lab has cut the link, no ping passes."""
    found = _uncut(one, other, measured)
    return {**found, "health": "down", "cut": True, "words": [*cuts, *found["words"]]} if cuts else found


def _uncut(one: NodeView, other: NodeView, measured: Measured | None) -> Piece:
    sides = [_side(one, other), _side(other, one)]
    words = [text for health, text in sides if health not in ("well", "unknown")]
    health = min((health for health, _ in sides), key=_WORST.index)
    if measured is None:
        return {"a": one.name, "b": other.name, "health": health, "words": words}
    if measured.lost:
        words.insert(0, f"{measured.lost} of the last {len(measured.probes)} probes lost")
    if measured.words:
        words.insert(0, measured.words)
    said = health in ("well", "unknown")
    health = "down" if measured.is_cut else "well" if said and not measured.lost else "poor"
    return {
        "a": one.name,
        "b": other.name,
        "health": health,
        "words": words,
        "ms": measured.milliseconds,
        "lost": measured.lost,
        "tried": len(measured.probes),
        "at": int(measured.at),
    }


def with_last(view: View, last: dict[str, tuple[Piece, int]], unix: float) -> View:
    """Add the last words of daemons that do not answer now, and when; updates `last`."""
    known = {node.name: node.piece["detail"] for node in view.nodes}
    for name in [name for name in last if name not in known]:
        del last[name]
    last |= {name: (detail, int(unix)) for name, detail in known.items() if detail is not None}
    nodes = []
    for node in view.nodes:
        old = last.get(node.name) if known[node.name] is None else None
        said = {"detail": old[0], "heard": old[1]} if old else {}
        nodes.append(replace(node, piece=node.piece | said))
    return replace(view, nodes=nodes)


def changes(before: Mapping[str, Piece], now: Mapping[str, Piece]) -> dict[str, Any]:
    return {
        "put": {name: piece for name, piece in now.items() if before.get(name) != piece},
        "gone": [name for name in before if name not in now],
    }


def _base(name: str, number: int, *, addresses: list[str], subnets: list[str]) -> Piece:
    known = {"name": name, "order": number, "addresses": addresses, "subnets": subnets}
    return {**known, "mtu": 0, "pods": [], "place": [], "notes": [], "detail": None}


def _lab(report: LabReport) -> Piece:
    families = " and ".join(f"IPv{family}" for family in report.families)
    return {
        "kind": "lab",
        "name": report.name,
        "backend": report.backend,
        "networks": [families],
        "store": report.store,
        "store_state": report.store_state,
    }


def _words(subnets: Iterable[str], addresses: Iterable[str]) -> Iterable[str]:
    """All names of a node in events."""
    yield from addresses
    listed = list(subnets)
    for subnet in listed:
        yield from (subnet, subnet.partition("/")[0])
    short = [subnet.replace("/", "-").replace(":", "-") for subnet in listed]
    yield from short
    yield "&".join(short)


def _named(state: NodeState, names: Mapping[str, str]) -> dict[str, Row]:
    """By the names of nodes; by subnets where the lab lacks the node."""
    found = {}
    for row in rows(state).values():
        name = next((names[word] for word in (*row.public, *row.subnets) if word in names), row.name)
        found[name] = row
    return found


def _node_health(node: NodeReport, state: NodeState | None) -> str:
    if not serves(node.daemon):
        return "down"
    return "unknown" if state is None else _state_health(state)


def _state_health(state: NodeState) -> str:
    if not state.ready:
        return "down"
    return "poor" if any(True for _ in wrong(state)) else "well"


def _side(one: NodeView, other: NodeView) -> tuple[str, str]:
    """What one node's daemon says of another."""
    if one.sees is None:
        return "unknown", ""
    row = one.sees.get(other.name)
    if row is None:
        return "down", f"{one.name} knows no lease of {other.name}"
    return _HEALTH[row.state], f"{one.name} says of {other.name}: {row.state} {'; '.join(row.why)}".rstrip()


def _detail(state: NodeState, sees: Mapping[str, Row], unix: float) -> Piece:
    lease = state.lease
    until = None if lease is None or lease.seconds is None else _since(unix, -lease.seconds)
    return {
        "version": state.version,
        "instance": state.instance,
        "pid": state.pid,
        "since": _since(unix, state.seconds),
        "network": None if state.network is None else fields_of(state.network),
        "uplink": None if state.uplink is None else fields_of(state.uplink),
        "lease": None if lease is None else {**fields_of(lease), "seconds": None, "until": until},
        "faults": state.faults,
        "versions": state.versions,
        "peers": [_peer(name, row, unix) for name, row in sees.items()],
        "loops": [
            {"name": name, "repairs": loop.repairs, "failing": loop.failing, "counts": loop.counts}
            for name, loop in state.loops.items()
        ],
        "calls": [{"kind": kind, **fields_of(calls)} for kind, calls in state.calls.items()],
    }


def _peer(name: str, row: Row, unix: float) -> Piece:
    return {
        "name": name,
        "subnets": row.subnets,
        "public": row.public,
        "backend": row.backend,
        "state": row.state,
        "why": row.why,
        "since": _since(unix, row.seconds),
        "sent": row.sent,
        "received": row.received,
        "heard": _since(unix, row.heard),
    }


def _since(unix: float, seconds: float | None) -> int | None:
    """The Unix time so many seconds ago, to ten seconds: the next look gives the same."""
    return None if seconds is None else round((unix - seconds) / 10) * 10


def _ended(daemon: str) -> str:
    """Empty if ready; the lab says `exited -9` of a killed one."""
    word, _, status = daemon.partition(" ")
    if word != "exited":
        return f"weftd: {daemon}"
    number = int(status)
    return f"weftd was killed ({Signals(-number).name})" if number < 0 else f"weftd has ended with status {number}"
