"""CNI plugins: one called by hand as a container runtime calls it, and one of the learner's own behind it."""

from collections.abc import Iterator
from typing import Final

from weft.lab.tutorial import demands
from weft.lab.tutorial.demands import Demand
from weft.lab.tutorial.lesson import Attempt, Lesson, Typed, look, ping
from weft.lab.tutorial.seen import Link, Seen

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


def _judge_call(seen: Seen) -> Iterator[Demand]:
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


CALL: Final = Lesson(
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
    judge=_judge_call,
    answer="""\
The container runtime calls a plugin, as you have just done: containerd and CRI-O do exactly this.
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


_PLUGIN: Final = "/run/plugins/label"
_VERSION: Final = f"echo {{}} | CNI_COMMAND=VERSION {_PLUGIN}"
_ALTNAME: Final = "pod-purple"


def _written(add: str) -> str:
    return f"""\
mkdir -p /run/plugins
cat >{_PLUGIN} <<'END'
#!/usr/bin/env python3
import json, os, subprocess, sys

conf = json.load(sys.stdin)
verb = os.environ["CNI_COMMAND"]
if verb == "VERSION":
    print(json.dumps({{"cniVersion": "1.0.0", "supportedVersions": ["1.0.0"]}}))
if verb == "ADD":
    result = conf["prevResult"]
{add}    print(json.dumps(result))
END
chmod +x {_PLUGIN}"""


_LABEL: Final = """\
    pod = os.path.basename(os.environ["CNI_NETNS"])
    for link in result["interfaces"]:
        if link["name"].startswith("veth"):
            command = ["ip", "link", "property", "add", "dev", link["name"], "altname", "pod-" + pod]
            subprocess.run(command, check=True)
"""

_LIST: Final = """\
cat >/etc/cni/net.d/20-labelled.conflist <<END
{
  "cniVersion": "1.0.0",
  "name": "labelled",
  "plugins": [
    {"type": "bridge", "bridge": "cni0", "isGateway": true, "mtu": 1450, "ipam": {
      "type": "host-local",
      "ranges": [[{"subnet": "10.244.1.0/24", "rangeStart": "10.244.1.20", "rangeEnd": "10.244.1.29"}]],
      "routes": [{"dst": "0.0.0.0/0"}]
    }},
    {"type": "label"}
  ]
}
END"""


def _judge_plugin(seen: Seen) -> Iterator[Demand]:
    yield demands.answered(seen, "version", f"{_PLUGIN} on node1 answers VERSION", f"'{_VERSION}' fails")
    yield demands.space(seen, "node1", "purple")
    yield demands.up(seen, "node1", "eth0", "purple")
    yield _labelled(seen)
    yield demands.answered(seen, "green", "purple pings green on node2", "no answer from 10.244.2.2")


def _labelled(seen: Seen) -> Demand:
    inner = seen.link("node1", "eth0", "purple")
    outer = None if inner is None else _by_index(seen, inner.link_index)
    what = f"{'the other end of it' if outer is None else outer.ifname} has the altname {_ALTNAME}"
    if outer is None:
        return Demand(what, "eth0 of purple is no end of a veth pair")
    return Demand(what, "" if _ALTNAME in outer.altnames else f"it has {', '.join(outer.altnames) or 'none'}")


def _by_index(seen: Seen, index: int) -> Link | None:
    return next((link for link in seen.space("node1").links.values() if link.ifindex == index), None)


PLUGIN: Final = Lesson(
    name="plugin",
    title="A plugin of your own",
    question="How much does it take to write a plugin?",
    why="""\
A runtime calls a list of plugins for a pod, and hands each the result of the one before as prevResult.
So a plugin need not attach anything: it can do one small thing more, and pass the result on.

The name veth1a2b3c4d does not say whose cable it is.
Your plugin gives it a second name, which says so: links may have several.
""",
    typed=(
        Typed("node1", _written(""), "A plugin that does nothing: it answers VERSION, and passes the result on."),
        look("node1", _VERSION, "Runtimes ask this first."),
        Typed("node1", _LIST, "A list: first bridge, with other addresses than in the lesson before, then yours."),
    ),
    task="Have ADD give the node's end of the pair, the one in prevResult whose name begins with veth, the altname "
    "pod-NAME, where NAME is the last part of the path in CNI_NETNS. Then make a namespace purple, and attach it "
    "by the list labelled: `weft cni add` is a runtime for one call.",
    rest=(
        Typed("node1", _written(_LABEL)),
        Typed("node1", "ip netns add purple"),
        Typed("node1", "weft cni add --path /run/plugins:/opt/cni/bin labelled /run/netns/purple"),
        look("node1", f"ip link show {_ALTNAME}", "The link answers to its second name."),
    ),
    hints="""\
`ip link property add dev LINK altname NAME` gives a link an altname, a second name.
The links are in the list interfaces of prevResult.

`weft cni add --path /run/plugins:/opt/cni/bin labelled /run/netns/purple` attaches purple, `weft cni del` with the
same words detaches it: a plugin that is changed after ADD is not called again by itself.
""",
    judge=_judge_plugin,
    answer="""\
A dozen lines, in any language: read JSON, do something, print JSON.

DEL has nothing to do here, because the second name goes with the link.
A plugin that keeps something elsewhere, as host-local does, must give it up in DEL, and must not fail when it is
called twice.
""",
    attempts=(
        Attempt("version", "node1", f"{_VERSION} | grep supportedVersions"),
        ping("green", "node1", "purple", "10.244.2.2"),
    ),
)
