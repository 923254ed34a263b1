"""A Service, an address that no link has, and a network policy, decided at a pod's own port of the bridge."""

from collections.abc import Iterator
from typing import Final

from weft.lab.tutorial import demands
from weft.lab.tutorial.demands import Demand
from weft.lab.tutorial.lesson import Attempt, Lesson, Typed, look, ping
from weft.lab.tutorial.seen import Seen

_RULE: Final = "nft 'add rule ip services prerouting ip daddr 10.96.0.10 tcp dport 80 dnat to %s'"
_FETCH: Final = "ip netns exec green curl -sSm 3 http://%s"

_SERVERS: Final = """\
for pod in red blue; do
    mkdir -p /run/www/$pod
    echo $pod >/run/www/$pod/index.html
    ip netns exec $pod busybox httpd -h /run/www/$pod
done"""


def _judge_services(seen: Seen) -> Iterator[Demand]:
    for pod, address in (("red", "10.244.1.2"), ("blue", "10.244.1.3")):
        what = f"the server of {pod} answers green"
        yield demands.answered(seen, pod, what, f"nothing came from http://{address}")
    yield demands.answered(seen, "rules", "node2 has a rule for 10.96.0.10", "'nft list ruleset' does not name it")
    yield demands.answered(seen, "service", "green gets an answer from 10.96.0.10", "none of four requests had one")
    by = set((seen.answers["service"] or "").split())
    missing = sorted({"red", "blue"} - by)
    what = "of four requests to 10.96.0.10 red answers some, and blue the others"
    yield Demand(what, f"{' and '.join(sorted(by))} answered all" if missing else "")


SERVICES: Final = Lesson(
    name="services",
    title="A Service",
    question="Where is the address of a Service?",
    why="""\
Pods come and go, and their addresses with them.
A Service is an address that stays, here 10.96.0.10: a client that connects to it reaches one of the pods behind it.
No link of any node has it.
""",
    typed=(
        Typed("node1", _SERVERS, "red and blue are web servers now, each with its own name as the page."),
        look("node2", _FETCH % "10.244.1.2", "red: a pod of node2 reaches it by its own address."),
        look("node2", _FETCH % "10.96.0.10", "Nothing: no link has this address, and no rule knows it.", fails=True),
        Typed("node2", "nft add table ip services"),
        Typed(
            "node2",
            "nft 'add chain ip services prerouting { type nat hook prerouting priority dstnat; }'",
            "A place for rules that change where packets go, before the node looks for a route.",
        ),
        Typed("node2", _RULE % "10.244.1.2", "A connection to 10.96.0.10 now goes to red."),
        look("node2", _FETCH % "10.96.0.10", "red, by way of the Service."),
    ),
    task="Have red and blue answer in turns.",
    rest=(
        Typed("node2", "nft flush chain ip services prerouting"),
        Typed("node2", _RULE % "numgen inc mod 2 map { 0 : 10.244.1.2, 1 : 10.244.1.3 }"),
    ),
    hints="""\
A rule may compute what it translates to: `dnat to numgen inc mod 2 map { 0 : …, 1 : … }` counts 0, 1, 0, 1.

The first rule that fits translates, so the old one must go: `nft flush chain ip services prerouting` empties the
chain.
""",
    judge=_judge_services,
    answer="""\
Nowhere but in a rule of the client's node, which puts a pod's address in its place before the packet is routed.
kube-proxy writes such rules on every node, for each Service.

The choice is made once for each connection.
The kernel remembers it (`conntrack -L`, where that is installed) and translates back the source of each answer, so
that green sees 10.96.0.10.

So answers must come back through this node.
When client and server are two pods of one bridge they do not: the bridge sends the answer straight to the client,
which knows nothing of that server.
That is what net.bridge.bridge-nf-call-iptables is for: it has bridged packets pass the rules, too.
""",
    attempts=(
        Attempt("red", "node2", _FETCH % "10.244.1.2"),
        Attempt("blue", "node2", _FETCH % "10.244.1.3"),
        Attempt("rules", "node2", "nft list ruleset | grep 10.96.0.10"),
        Attempt("service", "node2", f"for n in 1 2 3 4; do {_FETCH % '10.96.0.10'} || exit; done"),
    ),
)


_PAGE: Final = "ip netns exec %s curl -sSm 3 http://%s"
_NOT: Final = "ip netns exec %s curl -sSm 1 http://%s"


def _judge_policy(seen: Seen) -> Iterator[Demand]:
    yield demands.answered(seen, "green", "green gets the page of red", "nothing came from http://10.244.1.2")
    for pod in ("blue", "yellow"):
        yield Demand(f"{pod} does not get it", "" if seen.answers[pod] is None else "red answered it")
    yield demands.answered(
        seen, "ping", "blue pings red: the policy is about port 80 alone", "no answer from 10.244.1.2"
    )
    yield demands.answered(seen, "other", "red gets the page of blue", "nothing came from http://10.244.1.3")


POLICY: Final = Lesson(
    name="policy",
    title="A policy",
    question="How is a pod kept from another on the same bridge?",
    why="""\
Every pod reaches every pod until a policy says otherwise.
Here is one: red takes connections to port 80 from green, and from no other pod.

Where can that be decided?
Not in red, whose namespace belongs to the pod.
Nor where node1 forwards: packets from blue to red stay on the bridge and pass no forward rule, unless
net.bridge.bridge-nf-call-iptables is on.
But all that reaches red goes out of one port of the bridge, vethred.
""",
    typed=(
        look("node1", _PAGE % ("blue", "10.244.1.2"), "red: as yet, blue gets the page."),
        Typed("node1", "nft add table bridge guard", "A table of the family bridge: its chains see frames on bridges."),
        Typed(
            "node1",
            "nft 'add chain bridge guard leaving { type filter hook postrouting priority 0; }'",
            "What leaves by any port, whether it came from another port or was routed here from another node.",
        ),
    ),
    task="Add the rule: what leaves by vethred to TCP port 80 of 10.244.1.2, and does not come from 10.244.2.2, is "
    "dropped.",
    rest=(
        Typed(
            "node1",
            "nft 'add rule bridge guard leaving oifname vethred ip daddr 10.244.1.2 tcp dport 80"
            " ip saddr != 10.244.2.2 drop'",
        ),
        look("node1", _NOT % ("blue", "10.244.1.2"), "Nothing, after a second: it is dropped.", fails=True),
    ),
    hints="""\
`nft 'add rule bridge guard leaving MATCHES drop'`.
The port by which a frame leaves is `oifname`.

`ip saddr != ADDRESS` fits all others; `tcp dport 80` fits requests alone, and no answers.
""",
    judge=_judge_policy,
    answer="""\
At the port of the bridge that leads to the pod.
All that is sent to it passes there, from this node and from others, and the pod cannot remove the rule.

The rule reads sender's addresses.
That is sound because nothing on the way changes them: pod to pod there is no translation.
Were pods masqueraded behind their node, red could not tell them apart.

That is the whole ladder: namespace, cable, switch, routes, overlay, plugin, Service, policy.
The nodes of `weft lab up` have daemons and plugins that build what you have built, and keep it so.
""",
    attempts=(
        Attempt("green", "node2", _PAGE % ("green", "10.244.1.2")),
        Attempt("blue", "node1", _NOT % ("blue", "10.244.1.2")),
        Attempt("yellow", "node1", _NOT % ("yellow", "10.244.1.2")),
        ping("ping", "node1", "blue", "10.244.1.2"),
        Attempt("other", "node1", _PAGE % ("red", "10.244.1.3")),
    ),
)
