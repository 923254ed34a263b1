"""`weft lab link`, `partition` and `heal`: links that lose packets, and ways between nodes that are cut."""

import shlex
from typing import Any

import click

from weft.lab import protocol
from weft.lab.commands import show
from weft.lab.commands.choose import ask, find, lab_and_output, nodes, nodes_and_store, within
from weft.lab.links import Change, read_delay, read_loss, read_rate
from weft.model.errors import ConfigError, Problem
from weft.screen.documents import next_commands, show_report
from weft.screen.groups import read_by


@click.command()
@click.argument("which", nargs=-1, metavar="[NODE]…", shell_complete=nodes)
@click.option(
    "--delay", metavar="TIME", callback=read_by(read_delay), help="How much later packets arrive, as 20ms; 0 ends it."
)
@click.option(
    "--loss", metavar="SHARE", callback=read_by(read_loss), help="How many packets are lost, as 5%; 0 ends it."
)
@click.option(
    "--rate", metavar="RATE", callback=read_by(read_rate), help="Bits a second at most, as 50mbit; 0 ends it."
)
@click.option("--up/--down", default=None, help="Plug the cable in, or pull it.")
@click.option("--clear", is_flag=True, help="Reset the link to what it is in a new lab.")
@lab_and_output
def link(which: tuple[str, ...], lab: str, output: str, **wanted: Any) -> None:
    """Show or change the link of each NODE to the other nodes; without NODE, of all nodes.

    What is not named stays as it is. Delay, loss and rate hold in each direction: a ping of a link that loses 5 % is
    lost one time in ten. All of it is done at the switch: the node sees its link, and no rule or queue.

    \b
      weft lab link
      weft lab link node2 --loss 5% --rate 50mbit
      weft lab link 'rack1-*' --delay 2ms
      weft lab link node2 --down
      weft lab link --clear
    """
    change = Change(**wanted)
    if change.clear and change != Change(clear=True):
        seen, expected = "--clear beside what is to be set", "one or the other"
        raise ConfigError(Problem("FLAG-001", "weft lab link", seen, expected=expected))
    place = find(lab)
    report = ask(place, protocol.SetLinks(nodes=list(which), change=change))
    show_report(output, report, show.links(report))
    name, option = next(iter(report.links)), within(place)
    if change == Change():
        next_commands(output, f"weft lab link{option} {name} --loss 5%", "weft lab partition --help")
    elif not change.clear:
        next_commands(output, f"weft lab pingall{option}", f"weft lab link{option} {shlex.join([*which, '--clear'])}")


@click.command()
@click.argument("source", metavar="A", shell_complete=nodes_and_store)
@click.argument("target", metavar="B", shell_complete=nodes_and_store)
@click.option("--one-way", is_flag=True, help="Only what A sends to B is lost.")
@lab_and_output
def partition(source: str, target: str, *, one_way: bool, lab: str, output: str) -> None:
    """Cut the way between A and B: two nodes, or a node and the `store`; or each way between two groups of them.

    It is cut at the switch, for IPv4 and IPv6: other nodes still reach both. A group is written as node1,node2 or
    'rack1-*'.

    \b
      weft lab partition node1 node2
      weft lab partition node1 node2 --one-way
      weft lab partition node1 store
      weft lab partition 'rack1-*' 'rack2-*,store'
      weft lab heal
    """
    place = find(lab)
    report = ask(place, protocol.Partition(source=source, target=target, one_way=one_way))
    option = within(place)
    show_report(output, report, show.links(report))
    next_commands(output, f"weft lab pingall{option}", f"weft lab heal{option} {shlex.join([source, target])}")


@click.command()
@click.argument("places", nargs=-1, metavar="[A B]", shell_complete=nodes_and_store)
@lab_and_output
def heal(places: tuple[str, ...], lab: str, output: str) -> None:
    """End the partition between A and B, nodes or groups, both ways; without them, all partitions.

    Links that are down, slow or lose packets stay so: `weft lab link --clear` ends that.

    \b
      weft lab heal
      weft lab heal node1 store
    """
    if len(places) not in (0, 2):
        raise click.UsageError("two places are needed, or none")
    place = find(lab)
    report = ask(place, protocol.Heal(places=list(places)))
    show_report(output, report, show.links(report))
    next_commands(output, f"weft lab pingall{within(place)}")
