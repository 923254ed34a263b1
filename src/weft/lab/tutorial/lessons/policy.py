"""A network policy: who may connect to a pod, decided at its own port of the bridge."""

from collections.abc import Iterator
from typing import Final

from weft.lab.tutorial import demands
from weft.lab.tutorial.demands import Demand
from weft.lab.tutorial.lesson import Attempt, Lesson, Typed, look, ping
from weft.lab.tutorial.seen import Seen

_FETCH: Final = "ip netns exec %s curl -sSm 3 http://%s"
_NOT: Final = "ip netns exec %s curl -sSm 1 http://%s"


def _judge(seen: Seen) -> Iterator[Demand]:
    yield demands.answered(seen, "green", "green gets the page of red", "nothing came from http://10.244.1.2")
    for pod in ("blue", "yellow"):
        yield Demand(f"{pod} does not get it", "" if seen.answers[pod] is None else "red answered it")
    yield demands.answered(
        seen, "ping", "blue pings red: the policy is about port 80 alone", "no answer from 10.244.1.2"
    )
    yield demands.answered(seen, "other", "red gets the page of blue", "nothing came from http://10.244.1.3")


LESSON: Final = Lesson(
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
        look("node1", _FETCH % ("blue", "10.244.1.2"), "red: as yet, blue gets the page."),
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
    judge=_judge,
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
        Attempt("green", "node2", _FETCH % ("green", "10.244.1.2")),
        Attempt("blue", "node1", _NOT % ("blue", "10.244.1.2")),
        Attempt("yellow", "node1", _NOT % ("yellow", "10.244.1.2")),
        ping("ping", "node1", "blue", "10.244.1.2"),
        Attempt("other", "node1", _FETCH % ("red", "10.244.1.3")),
    ),
)
