"""`weft ipam`: who has which address on this node, and freeing what is proved to be leaked.

Needs no daemon, and takes the same locks as it. What is freed is freed by `weft.cni.leaks.sweep`.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any, Final

import click

from weft.cni.commands.install import STATE_DIR
from weft.cni.host.host import Host, open_node
from weft.cni.leaks import sweep
from weft.cni.leaks.sweeper import node_host
from weft.cni.plugins.hostlocal import conf as ipamconf
from weft.cni.plugins.hostlocal import store
from weft.cni.sdk import record
from weft.desired.leaks import State, Verdict
from weft.kernel.rtnetlink.netlink import NetlinkError
from weft.model.attachment import Attachment
from weft.model.errors import ConfigError, Problem
from weft.model.net import Ip
from weft.model.text import table
from weft.model.value import Value
from weft.screen.documents import DOCUMENTS, document, output_option, show_report
from weft.screen.groups import Group, need_root, together
from weft.screen.say import say
from weft.wire.cni import CniError
from weft.wire.cnijson import JsonError

_UNKNOWN: Final = Verdict(state=State.UNKNOWN)
_WHY_UNKNOWN: Final = "another program's, or made before weft kept records"


class Reservation(Value):
    """`ifname` is empty in the old format, `container_id` too in a torn file."""

    network: str
    directory: str
    address: Ip
    container_id: str
    ifname: str
    verdict: Verdict

    @property
    def attachment(self) -> Attachment:
        return Attachment(network=self.network, container_id=self.container_id, ifname=self.ifname)


def reservations(host: Host, data_dir: str) -> list[Reservation]:
    """Without `data_dir` under the default and wherever records lead."""
    records = dict(record.all_of(host, record.ADDRESSES))
    led = (str(known.get("dataDir")) for known in records.values())
    directories = {data_dir} if data_dir else {ipamconf.DATA_DIR, *led}
    given = {attachment: set(store.recorded_addresses(known)) for attachment, known in records.items()}
    found = [
        Reservation(
            network=network,
            directory=directory,
            address=ip,
            container_id=attachment.container_id,
            ifname=attachment.ifname,
            # One that another plugin gave to the same attachment is not for our records to judge.
            verdict=sweep.judge(host, attachment) if ip in given.get(attachment, ()) else _UNKNOWN,
        )
        for network, directory in _networks(host, directories)
        for ip, attachment in _owners(host, network, directory)
    ]
    return sorted(found, key=lambda one: (one.network, one.directory, one.address.version, int(one.address)))


def _networks(host: Host, data_dirs: Iterable[str]) -> Iterator[tuple[str, str]]:
    for data_dir in data_dirs:
        with suppress(FileNotFoundError, NotADirectoryError):
            for name in host.files.list(data_dir):
                yield name, f"{data_dir.rstrip('/')}/{name}"


def _owners(host: Host, network: str, directory: str) -> list[tuple[Ip, Attachment]]:
    try:
        with store.opened(host, directory) as reserved:
            contents = reserved.all()
    except (FileNotFoundError, NotADirectoryError):  # gone meanwhile, or a stray file
        return []
    found = []
    for ip, content in contents.items():
        container_id, ifname = store.parse_owner(content)
        found.append((ip, Attachment(network=network, container_id=container_id, ifname=ifname)))
    return found


@click.group(cls=Group)
def ipam() -> None:
    """Which addresses of this node are reserved, for whom, and which are leaked.

    Leaked is what is proved to be: made before the last boot, or by weft's plugins for an interface that is gone.
    """


_common = together(
    output_option,
    click.option(
        "--data-dir",
        default="",
        show_default=f"{ipamconf.DATA_DIR}, and where weft's records lead",
        help="Where host-local keeps reservations.",
    ),
    STATE_DIR,
)


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
    """
    with _node("weft ipam list", state_dir, data_dir) as host:
        found = reservations(host, data_dir)
    shown = [one for one in found if not leaked or one.verdict.state is State.LEAKED]
    proofs = [f": {one.verdict.proof}" if one.verdict.proof else "" for one in shown]
    rows = [
        (one.network, str(one.address), one.container_id, one.ifname, f"{one.verdict.state.value}{proof}")
        for one, proof in zip(shown, proofs, strict=True)
    ]
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
    """
    freed: list[dict[str, Any]] = []
    failed: list[dict[str, Any]] = []
    with _node("weft ipam gc", state_dir, data_dir) as host:
        held = reservations(host, data_dir)
        for attachment in list(sweep.attachments(host, data_dir=data_dir)):
            verdict = sweep.judge(host, attachment)
            if verdict.state is not State.LEAKED:
                continue
            leaked = (one for one in held if one.attachment == attachment and one.verdict.state is State.LEAKED)
            said = {
                "network": attachment.network,
                "container": attachment.container_id,
                "interface": attachment.ifname,
                "addresses": [str(one.address) for one in leaked],
                "proof": verdict.proof,
            }
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
        say(f"{len(freed)} leaked, {unknown} addresses unknown ({_WHY_UNKNOWN})" if unknown else f"{len(freed)} leaked")
    return 1 if failed else 0


@contextmanager
def _node(command: str, state_dir: str, data_dir: str) -> Iterator[Host]:
    """Give this machine as a host; refuse users who are not root, to whom all would look empty."""
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
    try:
        if sweep.free(host, attachment) or sweep.judge(host, attachment).state is not State.LEAKED:
            return ""
        return "a request of this container is running; try again"
    except (OSError, CniError, JsonError) as error:
        return str(error)


def _line(said: dict[str, Any]) -> str:
    addresses = ", ".join(said["addresses"]) or "no address"
    return f"{said['network']} {said['container']} {said['interface']}: {addresses} ({said['proof']})"


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
