"""The steps of the tutorial, in order. A file each; they know nothing of each other but what the one before leaves."""

from typing import Final

from weft.lab.tutorial.step import Step
from weft.lab.tutorial.steps import bridge, call, namespace, nodes, plugin, policy, services, veth, vxlan

STEPS: Final[tuple[Step, ...]] = (
    namespace.STEP,
    veth.STEP,
    bridge.STEP,
    nodes.STEP,
    vxlan.STEP,
    call.STEP,
    plugin.STEP,
    services.STEP,
    policy.STEP,
)
