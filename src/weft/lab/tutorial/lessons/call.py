"""A CNI plugin, called by hand as a container runtime calls it."""

from collections.abc import Iterator
from typing import Final

from weft.lab.tutorial import demands
from weft.lab.tutorial.demands import Demand
from weft.lab.tutorial.lesson import Attempt, Lesson, Typed, look, ping
from weft.lab.tutorial.seen import Seen

_CONF: Final = "/etc/cni/net.d/10-hand.conf"


def _configured(number: int) -> str:
    return f"""\
cat >{_CONF} <<END
{{
  "cniVersion": "1.0.0",
  "name": "hand",
  "type": "bridge",
  "bridge": "cni0",
  "isGateway": true,
  "mtu": 1450,
  "ipam": {{
    "type": "host-local",
    "ranges": [[{{"subnet": "10.244.{number}.0/24", "rangeStart": "10.244.{number}.10"}}]],
    "routes": [{{"dst": "0.0.0.0/0"}}]
  }}
}}
END"""


def _add(pod: str) -> str:
    return (
        f"CNI_COMMAND=ADD CNI_CONTAINERID={pod} CNI_NETNS=/run/netns/{pod} CNI_IFNAME=eth0 CNI_PATH=/opt/cni/bin"
        f" /opt/cni/bin/bridge <{_CONF}"
    )


def _judge(seen: Seen) -> Iterator[Demand]:
    for node, pod, subnet in (("node1", "yellow", "10.244.1"), ("node2", "pink", "10.244.2")):
        yield demands.space(seen, node, pod)
        yield _attached(seen, node, pod, subnet)
        what = f"host-local on {node} has noted who has the address of {pod}"
        yield demands.answered(seen, pod, what, f"no file of /var/lib/cni/networks/hand names the container {pod}")
        yield demands.route(seen, node, "default", f"{subnet}.1", inside=pod)
    yield demands.answered(seen, "red", "pink pings red on node1", "no answer from 10.244.1.2")


def _attached(seen: Seen, node: str, pod: str, subnet: str) -> Demand:
    what, link = f"eth0 of {pod} on {node} has an address of {subnet}.0/24", seen.link(node, "eth0", pod)
    if link is None:
        return Demand(what, f"{pod} has no eth0: it is not attached")
    if any(address.startswith(f"{subnet}.") for address in link.addresses):
        return Demand(what)
    return Demand(what, f"it has {' and '.join(link.addresses) or 'none'}")


def _reserved(node: str, pod: str) -> Attempt:
    return Attempt(pod, node, f"grep -l ^{pod} /var/lib/cni/networks/hand/10.244.*")


LESSON: Final = Lesson(
    name="cni",
    title="A CNI plugin by hand",
    question="Who types all this when Kubernetes starts a pod?",
    why="""\
A plugin does: a program that the container runtime runs for each pod.
Environment variables tell it what to do and to which namespace; it reads its configuration from standard input,
and prints what it has made.
That is all of CNI.

The plugin bridge does what you did in the first three lessons.
For the address it calls a second one, host-local, which notes in files who has which.
""",
    typed=(
        Typed("node1", _configured(1), "In real nodes, too, /etc/cni/net.d is where runtimes look for networks."),
        Typed("node1", "ip netns add yellow", "The container: as yet a bare namespace."),
        Typed("node1", _add("yellow"), "The result: links, and the address 10.244.1.10, the first from rangeStart on."),
        look("node1", "ip -n yellow address show eth0", "eth0 with that address, and MTU 1450 as configured."),
        look("node1", "bridge link", "The other end has a random name, veth…, and is a port of cni0."),
        look("node1", "grep -r yellow /var/lib/cni/networks/hand", "The note: a file named by the address."),
    ),
    task="Have the plugin attach a pod pink on node2, with an address of 10.244.2.0/24. Then pink reaches the pods of "
    "node1, too.",
    rest=(
        Typed("node2", _configured(2)),
        Typed("node2", "ip netns add pink"),
        Typed("node2", _add("pink")),
    ),
    hints="""\
Each node has a configuration of its own, because each has a subnet of its own: node2 has none yet.

Write /etc/cni/net.d/10-hand.conf on node2 with 10.244.2 in place of 10.244.1, make the namespace, and call
/opt/cni/bin/bridge with the five CNI_ variables.
""",
    judge=_judge,
    answer="""\
The runtime calls a plugin, with the words that you have typed: containerd and CRI-O do just this.
ADD when a pod starts, DEL when it ends.

A second ADD of a container is an error; DEL never is, however often it comes, so that a runtime can always clean
up.

flannel's own plugin is thinner still: it reads the node's subnet from /run/flannel/subnet.env, writes such a
configuration, and calls bridge with it.
""",
    attempts=(
        _reserved("node1", "yellow"),
        _reserved("node2", "pink"),
        ping("red", "node2", "pink", "10.244.1.2"),
    ),
)
