"""The checks, in the order in which a node's parts rest on each other. Pure: a sight in, findings out."""

from typing import Final

from weft.diag.checks import addresses, daemon, links, mesh, node, others, packetfilter, packets, peers, pods, ways
from weft.diag.finding import Check

CHECKS: Final[tuple[Check, ...]] = (
    *node.CHECKS,
    *daemon.CHECKS,
    *links.CHECKS,
    *pods.CHECKS,
    *addresses.CHECKS,
    *packetfilter.CHECKS,
    *ways.CHECKS,
    *peers.CHECKS,
    *mesh.CHECKS,
    *others.CHECKS,
    *packets.CHECKS,
)
EACH_MINUTE: Final = tuple(check for check in CHECKS if check.each_minute)
