"""A veth pair: the cable from a pod to its node."""

from collections.abc import Iterator
from typing import Final

from weft.lab.tutorial import demands
from weft.lab.tutorial.demands import Demand
from weft.lab.tutorial.lesson import Lesson, Typed, look, ping
from weft.lab.tutorial.seen import Seen


def _judge(seen: Seen) -> Iterator[Demand]:
    yield demands.space(seen, "node1", "red")
    yield demands.pair(seen, "node1", "vethred", "red")
    yield demands.address(seen, "node1", "eth0", "10.244.1.2/24", "red")
    yield demands.up(seen, "node1", "eth0", "red")
    yield demands.address(seen, "node1", "vethred", "10.244.1.1/24")
    yield demands.up(seen, "node1", "vethred")
    yield demands.answered(seen, "red", "node1 pings red at 10.244.1.2", "no answer")


LESSON: Final = Lesson(
    name="veth",
    title="A veth pair",
    question="How does a packet get from one namespace into another?",
    why="""\
A link is in one namespace at a time.
A veth pair is two links that are made together, like the two ends of a cable: what is sent into one end comes out
of the other, whichever namespaces they are in.
""",
    typed=(
        Typed(
            "node1",
            "ip link add vethred type veth peer name eth0 netns red",
            "Two links at once: vethred on node1, and eth0 in red.",
        ),
        look(
            "node1",
            "ip link show vethred",
            "vethred@if2 and link-netns red: the other end is link number 2 of red.",
        ),
        Typed("node1", "ip -n red address add 10.244.1.2/24 dev eth0"),
        Typed("node1", "ip -n red link set eth0 up"),
        look(
            "node1",
            "ip -n red link show eth0",
            "NO-CARRIER: eth0 is up, but at the other end of the cable nothing is.",
        ),
        look(
            "node1",
            "ip -n red route",
            "A route to 10.244.1.0/24 that nobody typed: it came with the /24 of the address.",
        ),
    ),
    task="Give node1's end of the cable the address 10.244.1.1/24 and set it up, so that node1 can ping 10.244.1.2.",
    rest=(
        Typed("node1", "ip address add 10.244.1.1/24 dev vethred"),
        Typed("node1", "ip link set vethred up"),
    ),
    hints="""\
vethred wants what you gave eth0.
It is on the node itself, so leave out `-n red`.

`ip address add ADDRESS/24 dev LINK`, then `ip link set LINK up`.
""",
    judge=_judge,
    answer="""\
Through a veth pair.
Every pod's eth0 is one end of such a pair, and the other end stays on the node.

The route came with the address on both sides: `ip route get 10.244.1.2` on node1 says dev vethred.
""",
    attempts=(ping("red", "node1", "", "10.244.1.2"),),
)
