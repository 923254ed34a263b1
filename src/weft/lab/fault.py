"""A fault of a lab's node: shell scripts that break and mend it, and what they are made of. Pure.

Scripts have the variables UPLINK, DEVICE, BRIDGE, SUBNET, GATEWAY (the subnet's first address), NETWORK (the pods'),
PEER (another node's subnet), FAR (its address), STORE (the store's port), CNI (the network's name) and, in a mesh, DISK
(the file mesh.json of that other node, in base64).
"""

from typing import Final

from weft.model.value import Value

_DROPPING: Final = 'nft add table inet %s; nft "add chain inet %s %s { type filter hook %s priority %s; %s}"; %s'


# Ends the daemon at once.
END: Final = "kill -9 $(pgrep -x weftd); while pgrep -x weftd >/dev/null; do sleep 0.01; done"


class Fault(Value):
    """`repaired`: a running daemon undoes it at once. `kills`: it ends the daemon, which the lab starts again.

    `restarts`: both scripts end the daemon, and the lab starts it after them; `unpoliced`: without policies until it is
    mended. `elsewhere`: other nodes notice it. `policies`: nodes have to enforce some. `backends` are those that have
    what it breaks; all if empty.
    """

    name: str
    code: str
    about: str
    breaks: str
    mends: str = ""
    repaired: bool = False
    kills: bool = False
    restarts: bool = False
    elsewhere: bool = False
    policies: bool = False
    unpoliced: bool = False
    backends: tuple[str, ...] = ()


def chain(table: str, hook: str, *rules: str, policy: str = "", priority: int = 0) -> str:
    """A script that makes a table with these rules at a hook; variables in them mean nothing."""
    named = "filter_FORWARD" if table == "firewalld" else hook
    added = "; ".join(f"nft 'add rule inet {table} {named} {rule}'" for rule in rules) or ":"
    return _DROPPING % (table, table, named, hook, priority, f"policy {policy}; " if policy else "", added)


def ingress(rule: str) -> str:
    """A script for a rule that sees what arrives at the uplink, before all else does."""
    chain = "{ type filter hook ingress device $UPLINK priority 0; }"
    made = f'nft add table netdev somebody; nft "add chain netdev somebody arriving {chain}"'
    return f'{made}; nft "add rule netdev somebody arriving {rule}"'


def note(what: str, command: str) -> str:
    """Note on the node what a command prints, once: a fault may be made twice."""
    return f"[ -e /run/before-{what} ] || {command} >/run/before-{what}"


def noted(what: str) -> str:
    """What was noted, as a word of a script; it is forgotten then."""
    return f"$(cat /run/before-{what}; rm /run/before-{what})"
