"""All faults that a lab's node can have. Pure."""

from typing import Final

from weft.lab.faults.between import BETWEEN
from weft.lab.faults.fault import Fault
from weft.lab.faults.nodes import NODES
from weft.lab.faults.packets import PACKETS
from weft.lab.faults.pods import PODS

FAULTS: Final[tuple[Fault, ...]] = (*PACKETS, *BETWEEN, *PODS, *NODES)
