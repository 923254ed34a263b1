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
    "config": "changing:config",
    "cp": "using.copying:copy",
    "demo": "demo:demo",
    "down": "lifecycle:down",
    "exec": "using.executing:execute",
    "export": "lifecycle:export",
    "expose": "pods:expose",
    "graph": "using.graph:graph",
    "heal": "links:heal",
    "iperf": "using.iperf:iperf",
    "kill": "changing:kill",
    "link": "links:link",
    "list": "lifecycle:list_labs",
    "logs": "using.logs:logs",
    "monitor": "daemons:monitor",
    "partition": "links:partition",
    "ping": "pods:ping",
    "pingall": "pods:pingall",
    "policy": "policy:policy",
    "ps": "pods:ps",
    "quiz": "quiz:quiz",
    "restart": "changing:restart",
    "rm": "pods:remove",
    "run": "pods:run",
    "scale": "changing:scale",
    "schema": "lifecycle:schema",
    "services": "pods:services",
    "sh": "using.shell:shell",
    "start": "changing:start_again",
    "status": "daemons:status",
    "stop": "changing:stop",
    "top": "top:top",
    "trace": "trace:trace",
    "tutorial": "tutorial:tutorial",
    "unexpose": "pods:unexpose",
    "up": "lifecycle:up",
}


@click.group(cls=LateGroup, late={name: Late(place=f"{__package__}.{place}") for name, place in _PLACES.items()})
def lab() -> None:
    """A multi-node cluster network on this machine.

    Real daemons and real plugins on a real etcd, in namespaces that end with the lab. The machine's own network,
    rules and settings stay untouched.

    \b
      weft lab demo                       # a first look, ten seconds
      weft lab up                         # three nodes with two pods each
      weft lab ps
      weft lab ping pod1-1 pod2-1
      weft lab down
    """
