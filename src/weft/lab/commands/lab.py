"""`weft lab …`: the commands by name, each imported when it is called."""

from typing import Final

import click

from weft.screen.groups import Late, LateGroup

# Where each is, in this package.
_PLACES: Final = {
    "break": "breaking:break_node",
    "capture": "capture:capture",
    "check": "check:check",
    "clean": "lifecycle:clean",
    "config": "changes.configuring:config",
    "cp": "using.copying:copy",
    "demo": "demo:demo",
    "down": "lifecycle:down",
    "exec": "using.executing:execute",
    "export": "lifecycle:export",
    "expose": "exposing:expose",
    "graph": "using.graph:graph",
    "heal": "changes.links:heal",
    "iperf": "using.iperf:iperf",
    "kill": "changes.stopping:kill",
    "link": "changes.links:link",
    "list": "lifecycle:list_labs",
    "logs": "using.logs:logs",
    "monitor": "monitor:monitor",
    "partition": "changes.links:partition",
    "ping": "pods:ping",
    "pingall": "pods:pingall",
    "ps": "pods:ps",
    "quiz": "quiz:quiz",
    "restart": "changes.stopping:restart",
    "rm": "pods:remove",
    "run": "pods:run",
    "scale": "changes.scaling:scale",
    "schema": "lifecycle:schema",
    "services": "exposing:services",
    "sh": "using.shell:shell",
    "start": "changes.stopping:start_again",
    "status": "daemons:status",
    "stop": "changes.stopping:stop",
    "top": "top:top",
    "trace": "trace:trace",
    "tutorial": "tutorial:tutorial",
    "unexpose": "exposing:unexpose",
    "up": "lifecycle:up",
}


@click.group(cls=LateGroup, late={name: Late(place=f"{__package__}.{place}") for name, place in _PLACES.items()})
def lab() -> None:
    """A multi-node cluster network on this machine.

    Real daemons and real plugins on a real etcd, in namespaces that end with the lab. The machine's own network,
    rules and settings stay untouched.
    """
