"""`weft status`: what a node's daemon says of itself, on one screen."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import msgspec

from weft.cni.commands.install import need_root
from weft.daemon.commands.watching import INSTANCE, OUTPUT
from weft.diag.commands.offline import FROM, bundle_at, state_in
from weft.kernel import asking, daemons
from weft.model.nodestate import LoopState, NodeState, PeerState
from weft.model.text import counted, one_line, shortly

_NAMED: Final = 10  # peers that lack something, and leases that are refused, one by one


@click.command()
@OUTPUT
@INSTANCE
@FROM
def status(output: str, wanted: str | None, file: Path | None) -> int:
    """Show how this node's daemon is: its network, uplink, lease, peers, and what is wrong.

    \b
      weft status
      weft status -o json | jq '.peers[] | select(.lacks != [])'
      weft lab exec node1 weft status
      weft status --from weft-bundle-node1.tar.gz

    Exits 0 when the node is ready, 1 when it is not or no daemon answers.
    """  # noqa: D301 - click's mark for a paragraph that stays as it is
    answer = _asked(wanted) if file is None else msgspec.json.encode(state_in(bundle_at(file, "wanted"), file))
    if output == "json":
        click.echo(msgspec.json.format(answer, indent=2).decode())
    state = msgspec.json.decode(answer, type=NodeState)
    if output == "text":
        for line in lines(state):
            click.echo(one_line(line))
    return 0 if state.ready else 1


def _asked(wanted: str | None) -> bytes:
    need_root("weft status")
    return asking.ask(asking.choose(wanted), daemons.ASK_STATE)


def lines(state: NodeState) -> Iterator[str]:
    """The state in lines for people: what is, and behind `!` what is wrong."""
    network, uplink, lease = state.network, state.uplink, state.lease
    ready = "ready" if state.ready else "not ready"
    yield f"weftd      {state.version}, {ready}, up {shortly(state.seconds)}, instance {state.instance}"
    if network is not None:
        devices = f", {' '.join(network.devices)}" if network.devices else ""
        yield f"network    {' '.join(network.networks)}, {network.backend}{devices}, MTU of pods {network.mtu}"
    if uplink is not None:
        yield f"uplink     {uplink.name} (index {uplink.index}), {' '.join(uplink.addresses)}, MTU {uplink.mtu}"
        yield f"           {uplink.why}"
    if lease is not None:
        source = "the store's" if lease.confirmed else "from an earlier run, until the store answers"
        yield f"lease      {' '.join(lease.subnets)}, public IP {' '.join(lease.public)}, {source}"
    if network is not None:
        lacking, refused = len(_lacking(state)), len(state.refused)
        yield f"peers      {len(state.peers) - lacking} served, {lacking} not or not whole, {refused} refused"
    for name, loop in state.loops.items():
        yield f"{name:10} {_loop(loop)}"
    for kind, calls in state.calls.items():
        failed = f" ({calls.failed} failed)" if calls.failed else ""
        yield f"calls      {kind} {calls.count}{failed}, {calls.median_ms:g} ms, {calls.worst_ms:g} at worst"
    if state.faults:
        yield f"faults     {counted(state.faults, 'part')} ended by a fault of weft's and started again: see the log"
    yield from (f"! {line}" for line in wrong(state))


def wrong(state: NodeState) -> Iterator[str]:
    """What is wrong, the worst first: parts of readiness, the store, what pods lost, peers, refused leases."""
    yield from (f"{name}: {problem}" for name, problem in state.parts.items() if problem is not None)
    if state.store is not None:
        yield f"store: {state.store}"
    yield from (f"{name}: {problem}" for name, problem in state.losses.items())
    yield from _some([f"peer {peer.id}: {peer.trouble or '; '.join(peer.lacks)}" for peer in _lacking(state)])
    yield from _some([f"refused: {refused.trouble}" for refused in state.refused])


def _lacking(state: NodeState) -> list[PeerState]:
    return [peer for peer in state.peers if peer.lacks or peer.trouble]


def _some(said: list[str]) -> Iterator[str]:
    yield from said[:_NAMED]
    if len(said) > _NAMED:
        yield f"and {len(said) - _NAMED} more like that; -o json names them all"


def _loop(loop: LoopState) -> str:
    repairs = ", ".join(f"{code} {count}" for code, count in sorted(loop.repairs.items()))
    failing = f", {len(loop.failing)} refused now" if loop.failing else ""
    counts = "".join(f"; {name} {number}" for name, number in loop.counts.items())
    return f"{counted(sum(loop.repairs.values()), 'repair')}{f' ({repairs})' if repairs else ''}{failing}{counts}"
