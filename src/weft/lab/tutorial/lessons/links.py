"""A pod's own network: a namespace, the cable to its node, and the bridge that is the switch of a node."""

from collections.abc import Iterator
from typing import Final

from weft.lab.tutorial import demands
from weft.lab.tutorial.demands import Demand
from weft.lab.tutorial.lesson import Lesson, Typed, look, ping
from weft.lab.tutorial.seen import Seen


def _judge_namespace(seen: Seen) -> Iterator[Demand]:
    yield demands.space(seen, "node1", "red")
    yield demands.up(seen, "node1", "lo", "red")
    yield demands.answered(seen, "itself", "red pings itself at 127.0.0.1", "no answer")


NAMESPACE: Final = Lesson(
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
    judge=_judge_namespace,
    answer="""\
Nothing: a new network namespace has a loopback link, which is down, and no other link, no address, no route and no
firewall rule.

Its 127.0.0.1 is not the node's: each namespace has a lo of its own.
That is why a server that listens on localhost in one pod is not seen by another.
""",
    attempts=(ping("itself", "node1", "red", "127.0.0.1"),),
)


def _judge_veth(seen: Seen) -> Iterator[Demand]:
    yield demands.space(seen, "node1", "red")
    yield demands.pair(seen, "node1", "vethred", "red")
    yield demands.address(seen, "node1", "eth0", "10.244.1.2/24", "red")
    yield demands.up(seen, "node1", "eth0", "red")
    yield demands.address(seen, "node1", "vethred", "10.244.1.1/24")
    yield demands.up(seen, "node1", "vethred")
    yield demands.answered(seen, "red", "node1 pings red at 10.244.1.2", "no answer")


VETH: Final = Lesson(
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
    judge=_judge_veth,
    answer="""\
Through a veth pair.
Every pod's eth0 is one end of such a pair, and the other end stays on the node.

The route came with the address on both sides: `ip route get 10.244.1.2` on node1 says dev vethred.
""",
    attempts=(ping("red", "node1", "", "10.244.1.2"),),
)


def _judge_bridge(seen: Seen) -> Iterator[Demand]:
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


BRIDGE: Final = Lesson(
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
    judge=_judge_bridge,
    answer="""\
Through the bridge: the cables of all pods end in one switch.
`bridge fdb show br cni0` lists which MAC it has seen behind which port.

A packet from red to blue never meets node1's routing table.
A packet for any other address goes to 10.244.1.1, the bridge's own address, and node1 routes it from there.
""",
    attempts=(
        ping("blue", "node1", "red", "10.244.1.3"),
        ping("gateway", "node1", "blue", "10.244.1.1"),
    ),
)
