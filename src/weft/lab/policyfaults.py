"""Faults of a node that enforces policies: of what it reads, and of what enforces beside it. Pure."""

import json
from typing import Final

from weft.lab.fault import END, Fault, chain

_PLACE: Final = "/etc/kube-flannel/policies"  # the lab's directory, which all nodes see
_ASIDE: Final = "/run/policies"
# A rule that denies and is not understood denies all.
_MISSPELT: Final = {
    "apiVersion": "policy.networking.k8s.io/v1beta1",
    "kind": "ClusterNetworkPolicy",
    "metadata": {"name": "no-guests"},
    "spec": {
        "tier": "Admin",
        "priority": 1,
        "subject": {"namespaces": {}},
        "ingress": [{"action": "Deny", "from": [{"namespace": {"matchLabels": {"team": "guests"}}}]}],
    },
}


def _until(look: str) -> str:
    """A script that waits for what a daemon makes of its files: what a quiz tries next is to meet the fault."""
    return f"for n in $(seq 100); do {look} && break; sleep 0.1; done"


POLICED: Final = (
    Fault(
        name="unenforced",
        code="POL-001",
        about="weftd was started without --network-policy, and took the tables of policies away",
        breaks=END,
        mends=END,
        restarts=True,
        policies=True,
        unpoliced=True,
    ),
    Fault(
        name="bridge-unfiltered",
        code="POL-002",
        about="packets between pods of the node pass no policies",
        breaks="sysctl -qw net.bridge.bridge-nf-call-iptables=0",
        repaired=True,
        policies=True,
    ),
    Fault(
        name="pods-unknown",
        code="POL-003",
        about="the node has lost the file of policies, and with it the pods that they speak of",
        breaks=f"[ -e {_PLACE}/lab.json ]; mount -t tmpfs none {_PLACE};"  # not twice
        f" {_until('! nft list map inet weft-policy in4 | grep -q comment')}",
        mends=f"umount -l {_PLACE}",
        policies=True,
    ),
    Fault(
        name="enforced-twice",
        code="POL-004",
        about="another program enforces policies, too",
        breaks=chain("kube-network-policies", "forward", "accept"),
        mends="nft delete table inet kube-network-policies",
        policies=True,
    ),
    Fault(
        name="policy-misspelt",
        code="POL-005",
        about="a word is misspelt in a policy that denies some pods, so it denies all",
        # Beside the lab's own file, which goes on being read: other nodes do not see it.
        breaks=f"mkdir {_ASIDE}; mount --bind {_PLACE} {_ASIDE}; mount -t tmpfs none {_PLACE};"
        f" ln -s {_ASIDE}/lab.json {_PLACE}/lab.json; echo '{json.dumps(_MISSPELT)}' >{_PLACE}/guests.json;"
        f" {_until('nft list table inet weft-policy | grep -q no-guests')}",
        mends=f"umount -l {_PLACE}; umount -l {_ASIDE}; rmdir {_ASIDE}",
        policies=True,
    ),
)
