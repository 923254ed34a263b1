"""The tutorial's lessons, in order; a lesson knows only what the one before leaves."""

from typing import Final

from weft.lab.tutorial.lesson import Lesson
from weft.lab.tutorial.lessons import bridge, call, namespace, nodes, plugin, policy, services, veth, vxlan

LESSONS: Final[tuple[Lesson, ...]] = (
    namespace.LESSON,
    veth.LESSON,
    bridge.LESSON,
    nodes.LESSON,
    vxlan.LESSON,
    call.LESSON,
    plugin.LESSON,
    services.LESSON,
    policy.LESSON,
)
