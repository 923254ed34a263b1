"""What can be broken on a lab's node, each fault with the code by which a diagnosis names it. Pure.

A fault is a script for a node's shell; what it needs of the node comes as variables: NODE's UPLINK, DEVICE, BRIDGE,
SUBNET and GATEWAY (the subnet's first address), the pods' NETWORK, and another node's PEER (its subnet) and FAR (its
address).
"""

from typing import Final

from weft.model.value import Value

_DROPPING: Final = 'nft add table inet %s; nft "add chain inet %s %s { type filter hook %s priority %s; %s}"; %s'
VXLAN: Final = ("vxlan",)


class Fault(Value):
    """A fault: `breaks` makes it, `mends` undoes it. `repaired`: a daemon that runs undoes it by itself, at once.

    `kills` tells that it ends the daemon, which is then to be started again, by the lab.
    `backends` are those that have what it breaks; all if there are none.
    """

    name: str
    code: str
    about: str
    breaks: str
    mends: str
    repaired: bool = False
    kills: bool = False
    backends: tuple[str, ...] = ()


def chain(table: str, hook: str, *rules: str, policy: str = "", priority: int = 0) -> str:
    """A script that makes a table with a chain of these rules at a hook."""
    named = "filter_FORWARD" if table == "firewalld" else hook
    added = "; ".join(f"nft 'add rule inet {table} {named} {rule}'" for rule in rules) or ":"
    return _DROPPING % (table, table, named, hook, priority, f"policy {policy}; " if policy else "", added)


def ingress(rule: str) -> str:
    """A script that has a rule see what arrives at the uplink, before all else does."""
    chain = "{ type filter hook ingress device $UPLINK priority 0; }"
    made = f'nft add table netdev somebody; nft "add chain netdev somebody arriving {chain}"'
    return f"{made}; nft add rule netdev somebody arriving {rule}"
