"""`weft mesh`: the mesh of a weftd with `--mesh`: what it knows, and what operators have it do."""

import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import click

from weft.daemon.commands.meshtexts import owner_table, peer_table, status_lines, way_table
from weft.kernel import daemons
from weft.model.errors import ConfigError, Problem, Unavailable, WeftError, typed
from weft.model.node.meshstate import MeshAsk, MeshDone, MeshOwner, MeshOwners, MeshPeer, MeshState
from weft.model.text import one_line
from weft.model.value import replace
from weft.screen.documents import DOCUMENTS, PEOPLE, output_option, redraw, show_report, watch_option
from weft.screen.groups import INSTANCE, Group, need_root
from weft.screen.say import say
from weft.wire.meshpassword import SIZE, made

Command = TypeVar("Command", bound=Callable[..., Any])


@click.group(cls=Group)
def mesh() -> None:
    """The mesh of this node: its peers, and who owns which subnets, without a store.

    It is that of a weftd with `--mesh`. What changes the ring says what it will do, and asks.
    """


def _state(instance: str | None) -> MeshState:
    need_root("weft mesh")
    name = daemons.choose(instance)
    state = daemons.state(name).mesh
    if state is None:
        seen, hint = "it keeps its leases in no mesh", "Start it with --mesh; with that it may still read its disk"
        raise Unavailable(Problem(code="MESH-001", where=f"weftd of instance {name}", seen=seen, hint=hint))
    return state


@mesh.command()
@watch_option
@output_option
@INSTANCE
def status(output: str, instance: str | None, *, watch: bool) -> int:
    """Show how this node stands in its mesh: the ring, its subnets, its links, and what is wrong.

    As JSON that is all that this node knows of its mesh, without secrets: for a report of a fault, too.

    \b
      weft mesh status
      weft mesh status -w
      weft mesh status -o json | jq .ring.id

    Exits 0 when this node has a subnet and knows what a neighbour knows, else 1.
    """

    def rendered(state: MeshState) -> tuple[MeshState, str]:
        return state, "".join(f"{one_line(line)}\n" for line in status_lines(state))

    if watch:
        redraw(output, lambda: _state(instance), rendered)
    state = _state(instance)
    show_report(output, *rendered(state))
    return 0 if state.usable and state.agreed else 1


@mesh.command()
@watch_option
@output_option
@INSTANCE
def peers(output: str, instance: str | None, *, watch: bool) -> None:
    """Show the peers of this node's ring: their subnets, the ways to them, where they can be dialled, and their links.

    A peer that is away keeps its subnet: it goes by `weft mesh leave` there, or `weft mesh rmpeer` here.

    \b
      weft mesh peers
      weft mesh peers -w
      weft mesh peers -o json | jq '.[] | select(.linked | not).name'
    """

    def rendered(found: tuple[MeshPeer, ...]) -> tuple[object, str]:
        return found, peer_table(found)

    if watch:
        redraw(output, lambda: _state(instance).peers, rendered)
    show_report(output, *rendered(_state(instance).peers))


def _ids(_context: click.Context, _argument: click.Parameter, begun: str) -> list[str]:
    """For completion: of the peers, where this user may ask for them."""
    try:
        return [peer.id for peer in _state(None).peers if peer.id.startswith(begun) and not peer.us]
    except WeftError:
        return []


@mesh.command()
@click.argument("peers", metavar="[PEER]…", nargs=-1, shell_complete=_ids)
@watch_option
@output_option
@INSTANCE
def ways(peers: tuple[str, ...], output: str, instance: str | None, *, watch: bool) -> None:
    """Show how packets go to peers, all or some, and each path that leads there: whether it answers, and why not.

    A path is `taken` by packets of pods, or `answers` and could be; it is `silent`, `unknown`, or `barred` because one
    of the two nodes does not have it. LAST is when an echo came back last, MTU the largest packet that passes, if that
    is less than pods send.

    \b
      weft mesh ways
      weft mesh ways node3 -w
      weft mesh ways -o json | jq '.[] | {id, way, relays, paths}'
    """

    def found() -> tuple[MeshPeer, ...]:
        state = _state(instance)
        named = [peer for name in peers for peer in state.named(name) or _nobody(name)]
        return tuple(named) if peers else tuple(peer for peer in state.peers if not peer.us)

    def rendered(found: tuple[MeshPeer, ...]) -> tuple[object, str]:
        return found, way_table(found)

    if watch:
        redraw(output, found, rendered)
    show_report(output, *rendered(found()))


def _nobody(name: str) -> NoReturn:
    hint = f"'{typed('mesh peers')}' lists them"
    raise ConfigError(Problem("FLAG-001", "weft mesh ways", f"no peer is called {name}", hint=hint))


@mesh.command()
@output_option
@INSTANCE
def ring(output: str, instance: str | None) -> None:
    """Show who owns the blocks of the ring, a block being the subnet of a node.

    HOME is the subnet of the node's pods, RESERVE what it gives to others. What a removed peer had is its heir's.

    \b
      weft mesh ring
      weft mesh ring -o json | jq '.owners[] | {id, reserve}'
    """
    state = _state(instance)
    if state.ring is None:
        seen, hint = "this node is in no ring", f"See '{typed('mesh status')}'"
        raise Unavailable(state.waits or Problem("MESH-001", "the mesh", seen, hint=hint))
    owners = tuple(
        MeshOwner(id=peer.id, home=peer.subnets, reserve=max(0, peer.blocks - bool(peer.subnets)))
        for peer in state.peers
    )
    text = owner_table(state.ring, owners)
    show_report(output, MeshOwners(ring=state.ring, owners=owners), text)


def _changes(command: Command) -> Command:
    """What all commands have that change the ring."""
    yes = click.option("--yes", is_flag=True, help="Do it without asking.")
    return yes(output_option(INSTANCE(command)))


@mesh.command()
@_changes
def create(output: str, instance: str | None, *, yes: bool) -> int:
    """Make a ring, on one node, once: then nodes without a ring that it is linked with join it.

    Its network configuration is that of weftd's `--net-config-path`; without that pods are in 10.32.0.0/12, with 254
    addresses a node. It stays as long as the ring.

    \b
      weft mesh create
      weft mesh create --yes
    """
    return _ask_and_do(MeshAsk(verb="create"), output=output, instance=instance, yes=yes)


@mesh.command()
@click.argument("address", metavar="HOST[:PORT]")
@output_option
@INSTANCE
def connect(address: str, output: str, instance: str | None) -> int:
    """Dial another node from now on, as a `--peer` of weftd, until weftd ends or `weft mesh forget`.

    \b
      weft mesh connect 10.0.0.7
      weft mesh connect node7.example:7000
    """
    return _do(MeshAsk(verb="connect", names=(address,)), output=output, instance=instance)


@mesh.command()
@click.argument("address", metavar="HOST[:PORT]")
@output_option
@INSTANCE
def forget(address: str, output: str, instance: str | None) -> int:
    """Dial a node no more that `--peer` or `weft mesh connect` named; a link that is up stays.

    \b
      weft mesh forget 10.0.0.7
    """
    return _do(MeshAsk(verb="forget", names=(address,)), output=output, instance=instance)


@mesh.command()
@_changes
def leave(output: str, instance: str | None, *, yes: bool) -> int:
    """Give all blocks of this node to other peers, its own subnet last, before it is taken away for good.

    End its pods first: they lose their network. `weft mesh status` shows when nothing is left; then stop weftd.

    \b
      weft mesh leave
    """
    return _ask_and_do(MeshAsk(verb="leave"), output=output, instance=instance, yes=yes)


@mesh.command()
@click.argument("peers", metavar="PEER…", nargs=-1, shell_complete=_ids)
@click.option("--force", is_flag=True, help="Do not wait for peers that are away: two pods may get one address.")
@click.option("--withdraw", is_flag=True, help="Give up the removal by this node that still waits for others.")
@_changes
def rmpeer(peers: tuple[str, ...], output: str, instance: str | None, *, force: bool, withdraw: bool, yes: bool) -> int:
    """Take over the blocks of peers that are gone for good, once all other peers have agreed.

    PEER is a name or an id, as `weft mesh peers` shows them. Name all that are gone at once: a peer that is away and
    not named is waited for. A peer that was removed and comes back gets another subnet.

    \b
      weft mesh rmpeer node3
      weft mesh rmpeer node3 node4-1f2e3d4c --yes
      weft mesh rmpeer --withdraw
    """
    if withdraw == bool(peers):
        raise click.UsageError("Name the peers that are gone, or say --withdraw.")
    ask = MeshAsk(verb="withdraw") if withdraw else MeshAsk(verb="rmpeer", names=peers, force=force)
    return _ask_and_do(ask, output=output, instance=instance, yes=yes)


@mesh.command()
@click.argument("ring", metavar="RING")
@_changes
def adopt(ring: str, output: str, instance: str | None, *, yes: bool) -> int:
    """Drop this node's ring, and join that of a neighbour; RING is the beginning of its id, as `status` shows it.

    For two rings that were made by mistake. Pods with an address of this node's subnet must be started again.

    \b
      weft mesh adopt 4f2a91c3
    """
    return _ask_and_do(MeshAsk(verb="adopt", names=(ring,)), output=output, instance=instance, yes=yes)


@mesh.command()
def password() -> None:
    """Make a password for the file of weftd's `--password-file`, and print it.

    \b
      (umask 077; weft mesh password > /etc/weft/password)
    """
    click.echo(made(os.urandom(SIZE)).reveal())


def _ask_and_do(ask: MeshAsk, *, output: str, instance: str | None, yes: bool) -> int:
    """Say what would be done, and do it when that is agreed to. Raises `ConfigError` where nobody can be asked."""
    need_root(f"weft mesh {ask.verb}")
    for line in daemons.mesh(daemons.choose(instance), ask):
        if output in PEOPLE:
            say(one_line(line))
    if not (yes or _agreed(ask.verb, output)):
        return 1
    return _do(ask, output=output, instance=instance)


def _agreed(verb: str, output: str) -> bool:
    if output in DOCUMENTS or not sys.stdin.isatty():
        seen = "nobody can be asked here"
        raise ConfigError(Problem(code="FLAG-001", where=f"weft mesh {verb}", seen=seen, hint="Say --yes to agree"))
    return click.confirm("Do it?", default=False)


def _do(ask: MeshAsk, *, output: str, instance: str | None) -> int:
    need_root(f"weft mesh {ask.verb}")
    lines = daemons.mesh(daemons.choose(instance), replace(ask, sure=True))
    show_report(output, MeshDone(lines=lines), f"weftd does so; {typed('mesh status')} shows what comes of it\n")
    return 0
