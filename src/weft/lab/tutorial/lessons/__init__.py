"""The tutorial's lessons, in order; a lesson knows only what the one before leaves."""

from typing import Final

from weft.lab.tutorial.lesson import Lesson
from weft.lab.tutorial.lessons.links import BRIDGE, NAMESPACE, VETH
from weft.lab.tutorial.lessons.nodes import NODES, VXLAN
from weft.lab.tutorial.lessons.plugins import CALL, PLUGIN
from weft.lab.tutorial.lessons.services import POLICY, SERVICES

LESSONS: Final[tuple[Lesson, ...]] = (NAMESPACE, VETH, BRIDGE, NODES, VXLAN, CALL, PLUGIN, SERVICES, POLICY)
