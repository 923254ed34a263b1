"""`weft status`: what a node's daemon says of itself, on one screen."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import click
import msgspec

from weft.kernel import daemons
from weft.model.node.nodestate import LoopState, NodeState, PolicyState, ailing_peers, wrong
from weft.model.text import counted, one_line, shortly
from weft.screen.documents import output_option, show_report, watch_option
from weft.screen.groups import FROM, INSTANCE, need_root
from weft.screen.ineffect import in_effect


@click.command()
@watch_option
@output_option
@INSTANCE
@FROM
def status(output: str, instance: str | None, file: Path | None, *, watch: bool) -> int:
    """Show how this node's daemon is: its network, uplink, lease, peers, and what is wrong.

    \b
      weft status
      weft status -w
      weft status -o json | jq '.peers[] | select(.lacks != [])'
      weft lab exec node1 weft status
      weft status --from weft-bundle-node1.tar.gz

    Exits 0 when the node is ready, 1 when it is not or no daemon answers.
    """
    if file is None:
        need_root("weft status")
        look = partial(daemons.ask, daemons.choose(instance), daemons.ASK_STATE)
    else:
        from weft.diag.bundle.offline import bundle_at, state_in

        look = partial(msgspec.json.encode, state_in(bundle_at(file, "instance", "watch"), file))
    if watch:
        from weft.screen.documents import redraw

        redraw(output, look, _rendered)
    answer = look()
    show_report(output, *_rendered(answer))
    return 0 if msgspec.json.decode(answer, type=NodeState).ready else 1


def _rendered(answer: bytes) -> tuple[msgspec.Raw, str]:
    """What is printed: for programs all that the daemon says, which may be of another version."""
    state = msgspec.json.decode(answer, type=NodeState)
    return msgspec.Raw(answer), "".join(f"{one_line(line)}\n" for line in lines(state))


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
        source = "held by the store" if lease.confirmed else "from an earlier run, until the store answers"
        lasts = "" if lease.seconds is None else f", for {shortly(lease.seconds)} more"
        yield f"lease      {' '.join(lease.subnets)}, public IP {' '.join(lease.public)}, {source}{lasts}"
    if network is not None:
        lacking, refused = len(ailing_peers(state)), len(state.refused)
        yield f"peers      {len(state.peers) - lacking} served, {lacking} not served or only in part, {refused} refused"
    if state.policy is not None:
        yield from (f"policies   {line}" for line in _policies(state.policy))
    for name, loop in state.loops.items():
        yield f"{name:10} {_loop(loop)}"
    for kind, calls in state.calls.items():
        failed = f" ({calls.failed} failed)" if calls.failed else ""
        yield f"calls      {kind} {calls.count}{failed}, {calls.median_ms:g} ms, {calls.worst_ms:g} at worst"
    if state.faults:
        yield f"faults     {counted(state.faults, 'part')} ended by a fault of weft's and started again: see the log"
    if state.versions:
        yield f"versions   {', '.join(f'{name} {version}' for name, version in state.versions.items())}"
    yield from (f"! {line}" for line in wrong(state))


def _policies(state: PolicyState) -> Iterator[str]:
    restricted = " and ".join(f"{count} in {direction}" for direction, count in state.isolated.items())
    audit = ", in an audit" if state.mode == "audit" else ""
    yield f"{counted(state.policies, 'policy object')}{audit}; of {counted(state.pods, 'pod')} restricted: {restricted}"
    yield from in_effect(state.effect)


def _loop(loop: LoopState) -> str:
    repairs = ", ".join(f"{code} {count}" for code, count in sorted(loop.repairs.items()))
    failing = f", {len(loop.failing)} refused now" if loop.failing else ""
    counts = "".join(f"; {name} {number}" for name, number in loop.counts.items())
    return f"{counted(sum(loop.repairs.values()), 'repair')}{f' ({repairs})' if repairs else ''}{failing}{counts}"
