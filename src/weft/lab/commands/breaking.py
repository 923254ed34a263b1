"""`weft lab break`: breaks a node on purpose, so that its diagnosis can be tried."""

from difflib import get_close_matches
from ipaddress import ip_interface, ip_network

import click
import msgspec
from click.shell_completion import CompletionItem

from weft.lab import protocol
from weft.lab.commands import terminal
from weft.lab.commands.choose import ask, find, lab_and_output, nodes, within
from weft.lab.fault import Fault
from weft.lab.faults import FAULTS
from weft.lab.links import DAEMON
from weft.lab.places import Place
from weft.lab.report import LabReport, NodeReport
from weft.model.errors import ConfigError, Problem, Unavailable
from weft.model.text import table
from weft.model.value import replace
from weft.screen.documents import next_commands, show_report

_DISK = "cat /var/lib/weft/*/store/mesh.json | base64 -w0"


def _faults(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(each.name, help=each.about) for each in FAULTS if each.name.startswith(incomplete)]


@click.command("break")
@click.argument("node", required=False, shell_complete=nodes)
@click.argument("fault", required=False, shell_complete=_faults)
@click.option("--mend", is_flag=True, help="Undo it.")
@lab_and_output
def break_node(node: str | None, fault: str | None, mend: bool, lab: str, output: str) -> None:  # noqa: FBT001 - click's way
    """Break NODE of a lab by a FAULT, to see what the daemon does about it and what a diagnosis says.

    Without arguments, list the faults there are, with the code of each.

    \b
      weft lab break
      weft lab break node1 port-blocked
      weft lab exec node1 weft doctor
      weft lab break node1 port-blocked --mend
    """
    if node is None or fault is None:
        rows = ((each.name, each.code, each.about, _ends(each)) for each in FAULTS)
        listed = [{"name": each.name, "code": each.code, "about": each.about, "ends": _ends(each)} for each in FAULTS]
        show_report(output, {"faults": listed}, table(("FAULT", "CODE", "WHAT IT IS", "WHAT ENDS IT"), rows))
        return
    wanted = named(fault)
    if mend and not (wanted.mends or wanted.kills):
        raise ConfigError(
            _problem(wanted.name, f"--mend does not undo this fault; what ends it: {_ends(wanted)}", "no --mend")
        )
    place = find(lab)
    report = ask(place, protocol.Ps())
    change(place, report, node, wanted, mend=mend)
    done = "mended" if mend else "broken"
    show_report(
        output,
        {"node": node, "fault": fault, done: True},
        f"{node}: {f'mended: {wanted.name}' if mend else wanted.about}\n",
    )
    option = within(place)
    looks = witness(report, node, wanted)
    undo = () if mend or _ends(wanted) != "--mend" else (f"weft lab break{option} {node} {fault} --mend",)
    next_commands(output, f"weft lab exec{option} {looks} weft doctor", *undo)


def _ends(fault: Fault) -> str:
    if fault.repaired:
        return "weftd, at once"
    return "--mend" if fault.mends or fault.kills else "a new lab"


def named(name: str) -> Fault:
    """`ConfigError` guesses which was meant."""
    for fault in FAULTS:
        if fault.name == name:
            return fault
    near = get_close_matches(name, [fault.name for fault in FAULTS], n=3)
    hint = f"Did you mean {' or '.join(near)}?" if near else "'weft lab break' lists them."
    raise ConfigError(Problem("FLAG-001", "weft lab break", f"no fault {name!r}", hint=hint))


def witness(report: LabReport, node: str, fault: Fault) -> str:
    other = next((each.name for each in report.nodes if each.name != node), node)
    return other if fault.elsewhere else node


def change(place: Place, report: LabReport, node: str, fault: Fault, *, mend: bool, in_secret: bool = False) -> None:
    """`Unavailable` if the fault's script fails, `ConfigError` as `variables`.

    `in_secret`: it is not in the lab's history.
    """
    known = variables(report, node, fault)
    done = protocol.Broke(node=node, fault=fault.name, mend=mend)
    if not in_secret:
        ask(place, done)  # first: the daemon may tell of its repair before the script has ended
    script = fault.mends if mend else fault.breaks
    try:
        if "'DISK'" in script:
            known["DISK"] = _captured(place, _other(report, node).name, _DISK, {})
        _captured(place, node, script, known)
    except Unavailable as error:
        if not in_secret:
            ask(place, replace(done, failed=error.problems[0].seen))
        raise
    if fault.restarts or (mend and fault.kills):
        policed = mend if fault.unpoliced else None
        ask(place, protocol.Turn(verb="start", things=[f"{node}/{DAEMON}"], policed=policed))


def variables(report: LabReport, name: str, fault: Fault) -> dict[str, str]:
    """The variables of a fault's script. `ConfigError` where the lab lacks what it breaks."""
    own = next((each for each in report.nodes if each.name == name), None)
    if own is None:
        raise ConfigError(_problem(name, "no node of this name", ", ".join(each.name for each in report.nodes)))
    if fault.backends and report.backend not in fault.backends:
        expected = f"back end {' or '.join(fault.backends)}"
        raise ConfigError(_problem(fault.name, f"a lab of back end {report.backend}", expected))
    if fault.policies and report.policies is None:
        expected = "one of 'weft lab up --policy FILE'"
        raise ConfigError(_problem(fault.name, "a lab whose nodes enforce no policies of its own", expected))
    if len(report.nodes) == 1:
        raise ConfigError(_problem(fault.name, "a lab of one node", "two nodes at least"))
    far = _other(report, name)
    if own.daemon == "none":
        raise ConfigError(_problem(name, "a bare node, on which nothing runs", "a lab of 'weft lab up'"))
    if 4 not in report.families:
        raise ConfigError(_problem(fault.name, "a lab without IPv4", "a lab with IPv4"))
    subnet = ip_network(_v4(own))
    return {
        "UPLINK": "eth0",
        "DEVICE": "flannel.1",
        "BRIDGE": "cni0",
        "SUBNET": str(subnet),
        "GATEWAY": f"{subnet.network_address + 1}/{subnet.prefixlen}",
        "NETWORK": msgspec.json.decode(report.network)["Network"].partition("/")[0],
        "PEER": _v4(far),
        "FAR": str(ip_interface(far.underlay[0]).ip),
        "STORE": report.store.rpartition(":")[2],
        "CNI": "cbr0",
    }


def _other(report: LabReport, name: str) -> NodeReport:
    """One that the node reaches, if there is one."""
    cut = {each.target for each in report.cuts if each.source == name}
    return min((each for each in report.nodes if each.name != name), key=lambda each: each.name in cut)


def _v4(node: NodeReport) -> str:
    return next((subnet for subnet in node.subnets if ip_network(subnet).version == 4), "0.0.0.0/0")


def _captured(place: Place, node: str, script: str, environ: dict[str, str]) -> str:
    """What it prints."""
    # As its input: a list of processes would show it to a player of the quiz.
    status, stdout, stderr = terminal.captured(terminal.command(place, node, ["sh", "-e"], environ), given=script)
    if status:
        hint = f"It may be broken already: 'weft lab exec{within(place)} {node} weft doctor' shows what is wrong."
        seen = f"exit {status}: {' '.join(stderr.split())[:300]}"
        raise Unavailable(Problem("LAB-002", f"weft lab break {node}", seen, hint=hint))
    return stdout


def _problem(where: str, seen: str, expected: str) -> Problem:
    return Problem("LAB-001", f"weft lab break: {where}", seen, expected=expected)
