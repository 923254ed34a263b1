"""`weft ipam`: who has which address on this node, and freeing what is proved to be leaked.

Needs no daemon, and takes the same locks as it. What is listed is found in `weft.cni.commands.ipamlist`, what is
freed is freed by `weft.cni.leaks.sweep`; here stands what people say and see.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any, Final, TypeVar

import click

from weft.cni.commands import ipamlist
from weft.cni.commands.install import STATE_DIR
from weft.cni.commands.ipamlist import Reservation
from weft.cni.host.descriptors import open_node
from weft.cni.leaks import sweep
from weft.cni.leaks.sweeper import node_host
from weft.cni.plugins.hostlocal import conf as ipamconf
from weft.cni.sdk.host import Host
from weft.desired.leaks import State
from weft.kernel.rtnetlink.netlink import NetlinkError
from weft.model.attachment import Attachment
from weft.model.errors import ConfigError, Problem
from weft.model.table import table
from weft.screen.documents import DOCUMENTS, document, output_option, show_report
from weft.screen.groups import Group
from weft.screen.nodeoptions import need_root
from weft.screen.say import say
from weft.wire.cni import CniError
from weft.wire.cnijson import JsonError

_UNKNOWN: Final = "another program's, or made before weft kept records"

Command = TypeVar("Command", bound=Callable[..., Any])


@click.group(cls=Group)
def ipam() -> None:
    """Which addresses of this node are reserved, for whom, and which are leaked.

    Leaked is what is proved to be: made before the last boot, or by weft's plugins for an interface that is gone.
    """


def _common(command: Command) -> Command:
    """Add the options of both commands."""
    options = (
        output_option,
        click.option(
            "--data-dir",
            default="",
            show_default=f"{ipamconf.DATA_DIR}, and where weft's records lead",
            help="Where host-local keeps reservations.",
        ),
        STATE_DIR,
    )
    for option in reversed(options):
        command = option(command)
    return command


@ipam.command("list")
@click.option("--leaked", is_flag=True, help="Only those that are proved to be leaked.")
@_common
def list_reservations(leaked: bool, output: str, data_dir: str, state_dir: str) -> None:  # noqa: FBT001 - click's way
    """List the reserved addresses of each network, their owners, and what is known of them.

    \b
      weft ipam list
      weft ipam list --leaked -o json

    `attached`: the host's end of the pair is there. `leaked`: proved, with the proof. `unknown`: reserved by another
    program, which leaves no proof; only a runtime's GC or your own hand frees it.
    """  # noqa: D301 - click's mark for a paragraph that stays as it is
    with _node("weft ipam list", state_dir, data_dir) as host:
        found = ipamlist.reservations(host, data_dir)
    shown = [one for one in found if not leaked or one.verdict.state is State.LEAKED]
    rows = [(one.network, str(one.address), one.container_id, one.ifname, _describe(one)) for one in shown]
    text = table(("NETWORK", "ADDRESS", "CONTAINER", "INTERFACE", "STATE"), rows)
    nothing = f"no {'leaked address' if leaked else 'address is reserved'}\n"
    show_report(output, {"reservations": [_as_json(one) for one in shown]}, text if shown else nothing)


@ipam.command()
@click.option("--dry-run", is_flag=True, help="List what would be freed, and free nothing.")
@_common
def gc(dry_run: bool, output: str, data_dir: str, state_dir: str) -> int:  # noqa: FBT001 - click's way
    """Free what leaked attachments hold: addresses, state files, rules and records.

    The daemon does so at its start, when a range is full, and every five minutes. Nothing is freed without proof.

    \b
      weft ipam gc --dry-run
      weft ipam gc -o json

    Exits 1 if something that is leaked could not be freed.
    """  # noqa: D301 - as above
    freed: list[dict[str, Any]] = []
    failed: list[dict[str, Any]] = []
    with _node("weft ipam gc", state_dir, data_dir) as host:
        held = ipamlist.reservations(host, data_dir)
        for attachment in list(sweep.attachments(host, data_dir=data_dir)):
            verdict = sweep.judge(host, attachment)
            if verdict.state is not State.LEAKED:
                continue
            said = {**_who(attachment), "addresses": _addresses(held, attachment), "proof": verdict.proof}
            problem = "" if dry_run else _free(host, attachment)
            if problem:
                failed.append({**said, "error": problem})
            else:
                freed.append(said)
    unknown = sum(one.verdict.state is State.UNKNOWN for one in held)
    if output in DOCUMENTS:
        answer = {"dry_run": dry_run, "freed": freed, "failed": failed, "unknown": unknown}
        click.echo(document(output, answer), nl=False)
    else:
        for one in freed:
            say(f"{'would free' if dry_run else 'freed'} {_line(one)}")
        for one in failed:
            say(f"weft: IPAM-001 {_line(one)}: {one['error']}", err=True)
        say(f"{len(freed)} leaked, {unknown} addresses unknown ({_UNKNOWN})" if unknown else f"{len(freed)} leaked")
    return 1 if failed else 0


@contextmanager
def _node(command: str, state_dir: str, data_dir: str) -> Iterator[Host]:
    """Give this machine as a host; without root rights, to whom all would look empty, an error."""
    need_root(command)
    if data_dir and not os.path.isdir(data_dir):
        expected = "a directory of networks"
        raise ConfigError(Problem(code="FLAG-001", where="--data-dir", seen=data_dir, expected=expected))
    retired: list[int] = []
    node = open_node(state_dir, retire=retired.append, lease_problem=lambda: "")
    with closing(node), node_host(node) as host:
        yield host
        for index in retired:  # no daemon will do it later
            with suppress(NetlinkError):
                host.rtnl.delete_link(index)


def _free(host: Host, attachment: Attachment) -> str:
    """Free an attachment; return why that was not possible."""
    try:
        if sweep.free(host, attachment) or sweep.judge(host, attachment).state is not State.LEAKED:
            return ""
        return "a request of this container is running; try again"
    except (OSError, CniError, JsonError) as error:
        return str(error)


def _addresses(held: list[Reservation], attachment: Attachment) -> list[str]:
    leaked = [one for one in held if one.attachment == attachment and one.verdict.state is State.LEAKED]
    return [str(one.address) for one in leaked]


def _who(attachment: Attachment) -> dict[str, Any]:
    return {"network": attachment.network, "container": attachment.container_id, "interface": attachment.ifname}


def _line(said: dict[str, Any]) -> str:
    addresses = ", ".join(said["addresses"]) or "no address"
    return f"{said['network']} {said['container']} {said['interface']}: {addresses} ({said['proof']})"


def _describe(one: Reservation) -> str:
    return f"{one.verdict.state.value}: {one.verdict.proof}" if one.verdict.proof else one.verdict.state.value


def _as_json(one: Reservation) -> dict[str, str]:
    return {
        "network": one.network,
        "directory": one.directory,
        "address": str(one.address),
        "container": one.container_id,
        "interface": one.ifname,
        "state": one.verdict.state.value,
        "proof": one.verdict.proof,
    }
