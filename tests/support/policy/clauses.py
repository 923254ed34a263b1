"""Small worlds to show one clause each, and whether all that judges them agrees."""

from ipaddress import ip_address

from tests.support.policy import reference
from tests.support.policy.deciding import decided, judging
from tests.support.policy.nftreader import Packet, Reader
from tests.support.policy.worlds import NETWORKS, named
from weft.desired.policy.judge import judged
from weft.desired.policy.verdict import Asked

# Pods here, by their names; `x` is in another namespace.
ADDRESSES = {
    "web": ("10.244.1.2", "fd00:244:0:1::2"),
    "db": ("10.244.1.3", "fd00:244:0:1::3"),
    "x": ("10.244.1.4", "fd00:244:0:1::4"),
    "v4": ("10.244.1.5",),
    "outside": ("192.0.2.7", "2001:db8::7"),
    "far node": ("10.244.2.0", "fd00:244:0:2::"),
}
PORTS = [{"name": "http", "containerPort": 8080}]


def world(*specs, namespace="a", **changes):
    """Policies of these specs; `changes` are of pods' status, labels or spec: `db={"labels": {}}`."""
    return {
        "namespaces": [
            named("Namespace", "a", labels={"team": "one"}),
            named("Namespace", "b", labels={"team": "two"}),
        ],
        "pods": [pod(name, **changes.get(name, {})) for name in ("web", "db", "x", "v4")],
        "policies": [
            {"kind": "NetworkPolicy", "metadata": {"name": f"p{number}", "namespace": namespace}, "spec": spec}
            for number, spec in enumerate(specs)
        ],
        "networks": NETWORKS,
    }


def ruled(*specs, policies=(), **changes):
    """ClusterNetworkPolicies `c0`, `c1` of these specs, beside NetworkPolicies; tier and priority as they are said."""
    made = world(*policies, **changes)
    everyone = {"namespaces": {}}
    made["cluster"] = [
        {
            "kind": "ClusterNetworkPolicy",
            "metadata": {"name": f"c{number}"},
            "spec": {"tier": "Admin", "priority": 10, "subject": everyone, **spec},
        }
        for number, spec in enumerate(specs)
    ]
    return made


def pod(name, *, phase="Running", labels=None, **spec):
    made = named("Pod", name, "b" if name == "x" else "a", labels={"app": name} if labels is None else labels)
    made["spec"] = {"nodeName": "node1", "containers": [{"ports": PORTS if name == "web" else []}], **spec}
    made["status"] = {"phase": phase, "podIPs": [{"ip": ip} for ip in ADDRESSES[name]]}
    return made


def passes(world, source, target, protocol="TCP", port=80, *, family=4):
    """Whether the flow passes, by the reference, by the wanted objects and by what explains."""
    known, reader = judging(world), Reader(decided(world).wanted.values())
    ends = [ADDRESSES[name][family == 6] for name in (source, target)]
    flow = (*ends, protocol, port)
    right = reference.allowed(world, flow)
    assert reader.passes(Packet(flow, iifname="eth0" if source in ("outside", "far node") else "cni0")) == right
    found = judged(
        Asked(
            source=known.at(ip_address(ends[0])),
            target=known.at(ip_address(ends[1])),
            protocol=protocol.lower(),
            port=port,
        ),
        known,
    )
    assert found.allowed == right
    return right
