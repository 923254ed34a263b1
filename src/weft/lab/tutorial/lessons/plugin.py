"""A CNI plugin of the learner's own, chained behind bridge."""

from collections.abc import Iterator
from typing import Final

from weft.lab.tutorial import demands
from weft.lab.tutorial.demands import Demand
from weft.lab.tutorial.lesson import Attempt, Lesson, Typed, look, ping
from weft.lab.tutorial.seen import Link, Seen

_PLUGIN: Final = "/run/plugins/label"
_VERSION: Final = f"echo {{}} | CNI_COMMAND=VERSION {_PLUGIN}"
_NAME: Final = "pod-purple"


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


def _judge(seen: Seen) -> Iterator[Demand]:
    yield demands.answered(seen, "version", f"{_PLUGIN} on node1 answers VERSION", f"'{_VERSION}' fails")
    yield demands.space(seen, "node1", "purple")
    yield demands.up(seen, "node1", "eth0", "purple")
    yield _labelled(seen)
    yield demands.answered(seen, "green", "purple pings green on node2", "no answer from 10.244.2.2")


def _labelled(seen: Seen) -> Demand:
    inner = seen.link("node1", "eth0", "purple")
    outer = None if inner is None else _by_index(seen, inner.link_index)
    what = f"{'the other end of it' if outer is None else outer.ifname} has the altname {_NAME}"
    if outer is None:
        return Demand(what, "eth0 of purple is no end of a veth pair")
    return Demand(what, "" if _NAME in outer.altnames else f"it has {', '.join(outer.altnames) or 'none'}")


def _by_index(seen: Seen, index: int) -> Link | None:
    return next((link for link in seen.space("node1").links.values() if link.ifindex == index), None)


LESSON: Final = Lesson(
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
        look("node1", f"ip link show {_NAME}", "The link answers to its second name."),
    ),
    hints="""\
`ip link property add dev LINK altname NAME` gives a link an altname, a second name.
The links are in the list interfaces of prevResult.

`weft cni add --path /run/plugins:/opt/cni/bin labelled /run/netns/purple` attaches purple, `weft cni del` with the
same words detaches it: a plugin that is changed after ADD is not called again by itself.
""",
    judge=_judge,
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
