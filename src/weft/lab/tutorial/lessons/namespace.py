"""A network namespace: what a pod's own network is, before anything is in it."""

from collections.abc import Iterator
from typing import Final

from weft.lab.tutorial import demands
from weft.lab.tutorial.demands import Demand
from weft.lab.tutorial.lesson import Lesson, Typed, look, ping
from weft.lab.tutorial.seen import Seen


def _judge(seen: Seen) -> Iterator[Demand]:
    yield demands.space(seen, "node1", "red")
    yield demands.up(seen, "node1", "lo", "red")
    yield demands.answered(seen, "itself", "red pings itself at 127.0.0.1", "no answer")


LESSON: Final = Lesson(
    name="namespace",
    title="A network namespace",
    question="What does a pod see of the network before anybody has attached it?",
    why="""\
A container runtime starts a pod in a network namespace of its own.
Here you make one with nothing in it, and look around.
""",
    typed=(
        Typed("node1", "ip netns add red", "Nothing is printed: the file /run/netns/red now holds a namespace."),
        look("node1", "ip -n red address", "One link, lo, and it is DOWN. The eth0 of node1 is not there."),
        look("node1", "ip -n red route", "Nothing is printed: red has a routing table of its own, and it is empty."),
        look(
            "node1",
            "ip netns exec red ping -c 1 127.0.0.1",
            "Network is unreachable: while lo is down, red does not even reach itself.",
            fails=True,
        ),
    ),
    task="Let red reach itself.",
    rest=(Typed("node1", "ip -n red link set lo up"),),
    hints="""\
`ip -n red …` does in red what `ip …` does on the node.
Which of red's links is down?

`ip link set LINK up` sets a link up.
""",
    judge=_judge,
    answer="""\
Nothing: a new network namespace has a loopback link, which is down, and no other link, no address, no route and no
firewall rule.

Its 127.0.0.1 is not the node's: each namespace has a lo of its own.
That is why a server that listens on localhost in one pod is not seen by another.
""",
    attempts=(ping("itself", "node1", "red", "127.0.0.1"),),
)
