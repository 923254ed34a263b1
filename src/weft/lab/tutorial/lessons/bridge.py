"""A bridge: the switch of a node, with a port for each pod."""

from collections.abc import Iterator
from typing import Final

from weft.lab.tutorial import demands
from weft.lab.tutorial.demands import Demand
from weft.lab.tutorial.lesson import Lesson, Typed, look, ping
from weft.lab.tutorial.seen import Seen


def _judge(seen: Seen) -> Iterator[Demand]:
    yield demands.kind(seen, "node1", "cni0", "bridge")
    yield demands.up(seen, "node1", "cni0")
    yield demands.address(seen, "node1", "cni0", "10.244.1.1/24")
    for pod, address in (("red", "10.244.1.2/24"), ("blue", "10.244.1.3/24")):
        yield demands.space(seen, "node1", pod)
        yield demands.pair(seen, "node1", f"veth{pod}", pod)
        yield demands.port(seen, "node1", f"veth{pod}", "cni0")
        yield demands.up(seen, "node1", f"veth{pod}")
        yield demands.address(seen, "node1", "eth0", address, pod)
        yield demands.up(seen, "node1", "eth0", pod)
        yield demands.route(seen, "node1", "default", "10.244.1.1", inside=pod)
    yield demands.answered(seen, "blue", "red pings blue", "no answer from 10.244.1.3")
    yield demands.answered(seen, "gateway", "blue pings the bridge", "no answer from 10.244.1.1")


LESSON: Final = Lesson(
    name="bridge",
    title="A bridge",
    question="How do two pods of a node reach each other, when each has a cable of its own?",
    why="""\
A bridge is a switch in the kernel.
Links become its ports, and it sends each frame to the port behind which it has seen the frame's destination MAC.

A port has no use for an address of its own: all that comes in goes to the bridge.
So the node's address moves from the cable to the bridge, which is the node's own place at the switch.
""",
    typed=(
        Typed("node1", "ip link add cni0 type bridge"),
        Typed("node1", "ip link set cni0 up"),
        Typed("node1", "ip address del 10.244.1.1/24 dev vethred"),
        Typed("node1", "ip address add 10.244.1.1/24 dev cni0"),
        Typed("node1", "ip link set vethred master cni0", "vethred is a port of cni0 now."),
        look("node1", "bridge link", "The ports of all bridges: vethred, master cni0, state forwarding."),
        look("node1", "ping -c 1 10.244.1.2", "red still answers, now by way of cni0."),
    ),
    task="Make a second pod: a namespace blue with lo up, and the address 10.244.1.3/24 on its eth0, whose other end "
    "vethblue is a port of cni0. All links are up. Then give red and blue the default route via 10.244.1.1.",
    rest=(
        Typed("node1", "ip netns add blue"),
        Typed("node1", "ip -n blue link set lo up"),
        Typed("node1", "ip link add vethblue type veth peer name eth0 netns blue"),
        Typed("node1", "ip link set vethblue master cni0 up"),
        Typed("node1", "ip -n blue address add 10.244.1.3/24 dev eth0"),
        Typed("node1", "ip -n blue link set eth0 up"),
        Typed("node1", "ip -n blue route add default via 10.244.1.1"),
        Typed("node1", "ip -n red route add default via 10.244.1.1"),
    ),
    hints="""\
It is what you did for red in the lessons before, with blue's names, and `master cni0` for its port.

A default route can only be added when the address is there and the link is up: the gateway must be in reach.
`ip -n POD route add default via ADDRESS`.
""",
    judge=_judge,
    answer="""\
Through the bridge: the cables of all pods end in one switch.
`bridge fdb show br cni0` lists which MAC it has seen behind which port.

A packet from red to blue never meets node1's routing table.
What is for anybody else goes to 10.244.1.1, the bridge's own address, and from there node1 routes it.
""",
    attempts=(
        ping("blue", "node1", "red", "10.244.1.3"),
        ping("gateway", "node1", "blue", "10.244.1.1"),
    ),
)
