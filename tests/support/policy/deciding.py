"""A world of the API's objects, decided for one node, and what that node is to let through."""

from ipaddress import ip_address, ip_network

import msgspec

from tests.support.policy import reference
from tests.support.policy.worlds import HERE, NETWORKS
from weft.desired.policy.decide import PolicyDecider
from weft.desired.policy.inputs import Attached, PolicySettings
from weft.desired.policy.verdict import World
from weft.model.policy import ClusterPolicy, Namespace, Pod, Policy
from weft.wire.clusterpolicy import read_cluster_policy
from weft.wire.policy import read_policy
from weft.wire.policyobjects import NamespaceObject, PodObject, namespace_of, pod_of

SETTINGS = PolicySettings(
    mode="enforce",
    networks=tuple(ip_network(network) for network, _ in NETWORKS),
    subnets=tuple(map(ip_network, HERE)),
    subnet_lens={4: 24, 6: 64},
)


def values(world):
    policies = [read_policy(each) for each in world["policies"]]
    cluster = [read_cluster_policy(each) for each in world.get("cluster", [])]
    assert not [problem for _, problems in (*policies, *cluster) for problem in problems]
    return [
        *(namespace_of(msgspec.convert(each, NamespaceObject)) for each in world["namespaces"]),
        *(pod_of(msgspec.convert(each, PodObject)) for each in world["pods"]),
        *(policy for policy, _ in policies),
        *(policy for policy, _ in cluster),
    ]


def is_here(address):
    return any(reference.is_in(address, subnet) for subnet in HERE)


def expected(world, flow):
    """On this node: it asks the policies of its own pods, and refuses addresses of its subnet that no pod has."""
    source, target, *_ = flow
    if any(is_here(each) and reference.pod_at(world, each) is None for each in (source, target)):
        return False
    out = not is_here(source) or reference.leaves(world, flow)
    return out and (not is_here(target) or reference.enters(world, flow))


def attachments(world, node="node1", *, bridge="cni0"):
    """Without a bridge each pod's packets come from its own link."""
    return {
        f"net {each['metadata']['name']}": Attached(
            pod=f"{each['metadata']['namespace']}/{each['metadata']['name']}",
            ips=tuple(ip_address(ip["ip"]) for ip in each["status"]["podIPs"]),
            port=f"veth-{each['metadata']['name']}",
            link=bridge or f"veth-{each['metadata']['name']}",
        )
        for each in world["pods"]
        if each["spec"]["nodeName"] == node
    }


def decided(world, settings=SETTINGS, *, bridge="cni0"):
    decider = PolicyDecider(settings)
    decider.change(values(world))
    for key, attached in attachments(world, bridge=bridge).items():
        decider.attached(key, attached)
    return decider


def judging(world):
    known = values(world)
    return World(
        namespaces={each.name: each for each in known if isinstance(each, Namespace)},
        pods=tuple(each for each in known if isinstance(each, Pod)),
        policies=tuple(each for each in known if isinstance(each, Policy)),
        cluster=tuple(each for each in known if isinstance(each, ClusterPolicy)),
        networks=SETTINGS.networks,
        subnet_lens=SETTINGS.subnet_lens,
    )
