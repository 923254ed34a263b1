"""What can be broken on a lab's node, each fault with the code by which a diagnosis names it. Pure.

A fault is a shell script for the node, with the variables UPLINK, DEVICE, BRIDGE, SUBNET, GATEWAY (the subnet's first
address), NETWORK (the pods'), PEER (another node's subnet) and FAR (its address).
"""

from typing import Final

from weft.model.value import Value

_DROPPING: Final = 'nft add table inet %s; nft "add chain inet %s %s { type filter hook %s priority %s; %s}"; %s'
VXLAN: Final = ("vxlan",)


class Fault(Value):
    """`repaired`: a running daemon undoes it at once. `kills`: it ends the daemon, which the lab starts again.

    `backends` are those that have what it breaks; all if empty.
    """

    name: str
    code: str
    about: str
    breaks: str
    mends: str = ""
    repaired: bool = False
    kills: bool = False
    backends: tuple[str, ...] = ()


def chain(table: str, hook: str, *rules: str, policy: str = "", priority: int = 0) -> str:
    """A script that makes a table with these rules at a hook."""
    named = "filter_FORWARD" if table == "firewalld" else hook
    added = "; ".join(f"nft 'add rule inet {table} {named} {rule}'" for rule in rules) or ":"
    return _DROPPING % (table, table, named, hook, priority, f"policy {policy}; " if policy else "", added)


def ingress(rule: str) -> str:
    """A script for a rule that sees what arrives at the uplink, before all else does."""
    chain = "{ type filter hook ingress device $UPLINK priority 0; }"
    made = f'nft add table netdev somebody; nft "add chain netdev somebody arriving {chain}"'
    return f"{made}; nft add rule netdev somebody arriving {rule}"
