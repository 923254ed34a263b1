"""`weft cni handback`: attached pods become upstream's, so that its plugins can end them (settled.md §8)."""

from contextlib import closing
from pathlib import Path

import click

from weft.cni.commands import install as installcommands
from weft.cni.install import giveback
from weft.cni.install.inventory import Inventory
from weft.model.errors import Problem, WeftError
from weft.model.value import fields_of
from weft.screen.documents import output_option
from weft.screen.nodeoptions import need_root
from weft.wire.cni import CniError


@click.command("handback")
@installcommands.BIN_DIR
@installcommands.STATE_DIR
@click.option(
    "--remove-network",
    is_flag=True,
    help="Remove weft's list of the network, too: the runtime starts and ends no pod until there is another list.",
)
@output_option
def handback_command(bin_dir: Path, state_dir: str, *, remove_network: bool, output: str) -> None:
    """Leave attached pods to the reference plugins.

    They go on, and upstream's plugins can detach them. Programs that weft's have replaced come back, then the port
    maps of running pods are written as upstream's portmap does; addresses and links are upstream's already. A name
    under which there was no program before stays weft's until another program takes it. A program that somebody has
    put there since stays, if it is the plugin of that name. May be repeated, with the daemon running or not.

    \b
      weft cni handback
      weft cni handback --remove-network
    """  # noqa: D301 - as above
    from weft.cni.host.host import open_node
    from weft.cni.leaks.sweeper import node_host
    from weft.cni.plugins.portmap.forms import hand_back

    need_root("weft cni handback")
    programs = giveback.hand_back(Inventory.found(bin_dir.absolute()), networks=remove_network)
    kept = [name for name, how in programs.items() if how in ("still weft's", "weft's again")]
    done = {name: how for name, how in programs.items() if how != "still weft's" and "/" not in name}
    networks = {name: how for name, how in programs.items() if "/" in name}
    node = open_node(state_dir, retire=lambda _: None, lease_problem=str)
    try:
        with closing(node), node_host(node) as host:
            rewritten = hand_back(host)
    except CniError as error:
        hint = "Ports that are left work on; repeat it when the cause is gone."
        raise WeftError(Problem(code="CNI-003", where="weft cni handback", seen=str(error), hint=hint)) from error
    data = {
        "networks": networks,
        "programs": done,
        "still_weft": kept,
        "port_maps": [fields_of(attachment) for attachment in rewritten],
    }
    lines = [installcommands.names(each) for each in (networks, done) if each]
    lines += [f"port maps of {each.container_id} {each.ifname} in {each.network}: upstream's" for each in rewritten]
    if kept:
        lines.append(f"still weft's, until you put other programs there: {', '.join(kept)}")
    installcommands.report(output, data, "\n".join(lines) or "nothing of weft's had to be handed back")
