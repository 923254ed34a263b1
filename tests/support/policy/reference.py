"""What NetworkPolicies allow, as plain as can be: read from the API's objects, clause by clause, by nothing of weft.

A world is a dictionary of lists: `namespaces`, `pods`, `policies` and `cluster`, as the API has them. A flow is the
first packet of a connection: source and target address, protocol and the target's port.
"""

from ipaddress import ip_address, ip_network

NAME = "kubernetes.io/metadata.name"


def allowed(world, flow):
    """Whether both ends' policies allow the flow, each asked at its own node."""
    return leaves(world, flow) and enters(world, flow)


def leaves(world, flow):
    """Whether the policies of the pod that sends allow it."""
    return may(world, "Egress", flow)


def enters(world, flow):
    """Whether the policies of the pod that is reached allow it."""
    return may(world, "Ingress", flow)


def may(world, direction, flow):
    source, target, *_ = flow
    pod = pod_at(world, source if direction == "Egress" else target)
    if pod is None:  # no policy speaks of it
        return True
    said = tier(world, "Admin", direction, pod, flow)
    if said in ("Accept", "Deny"):
        return said == "Accept"
    policies = [each for each in world["policies"] if direction in types(each) and is_selected(each, pod)]
    if policies:
        return source == target or is_allowed(world, policies, direction, flow)  # a pod cannot be kept from itself
    return tier(world, "Baseline", direction, pod, flow) != "Deny"


def is_allowed(world, policies, direction, flow):
    source, target, protocol, port = flow
    key, other = ("to", target) if direction == "Egress" else ("from", source)
    return any(
        peers_have(world, policy, rule.get(key), other) and ports_have(world, rule.get("ports"), target, protocol, port)
        for policy in policies
        for rule in policy["spec"].get(direction.lower()) or []
    )


def tier(world, name, direction, pod, flow):
    """The action of the tier's first rule that fits, in the order of priorities, then of names."""
    policies = [each for each in world.get("cluster", []) if each["spec"]["tier"] == name]
    for policy in sorted(policies, key=lambda each: (each["spec"]["priority"], each["metadata"]["name"])):
        if not is_of(world, policy["spec"]["subject"], pod):
            continue
        for rule in policy["spec"].get(direction.lower()) or []:
            if fits(world, rule, direction, flow):
                return rule["action"]
    return None


def is_of(world, said, pod):
    """Whether `namespaces` or `pods` of a ClusterNetworkPolicy mean the pod."""
    if "namespaces" in said:
        return selects(said["namespaces"], namespace_labels(world, pod))
    both = said["pods"]
    place = selects(both.get("namespaceSelector", {}), namespace_labels(world, pod))
    return place and selects(both["podSelector"], labels_of(pod))


def fits(world, rule, direction, flow):
    source, target, *_ = flow
    key, other = ("to", target) if direction == "Egress" else ("from", source)
    if not any(cluster_peer_has(world, peer, other) for peer in rule[key]):
        return False
    return "protocols" not in rule or any(has_port(world, each, flow) for each in rule["protocols"])


def cluster_peer_has(world, peer, address):
    if "networks" in peer:
        return any(is_in(address, each) for each in peer["networks"])
    selectors = [peer["namespaces"]] if "namespaces" in peer else list(peer["pods"].values())
    if all(is_everything(each) for each in selectors):
        return is_some_pods(world, address)
    pod = pod_at(world, address)
    return pod is not None and is_of(world, peer, pod)


def has_port(world, said, flow):
    _, target, protocol, port = flow
    if "destinationNamedPort" in said:
        name = said["destinationNamedPort"]
        return port_has(world, {"protocol": protocol, "port": name}, target, protocol, port)
    ((name, found),) = said.items()
    if name.upper() != protocol:
        return False
    numbers = found.get("destinationPort")
    if numbers is None:
        return True
    ends = numbers.get("range") or {"start": numbers["number"], "end": numbers["number"]}
    return ends["start"] <= port <= ends["end"]


def namespace_labels(world, pod):
    for namespace in world["namespaces"]:
        if namespace["metadata"]["name"] == pod["metadata"]["namespace"]:
            return {**labels_of(namespace), NAME: namespace["metadata"]["name"]}
    return {}


def types(policy):
    given = policy["spec"].get("policyTypes")
    if given:
        return given
    return ["Ingress", "Egress"] if policy["spec"].get("egress") else ["Ingress"]


def is_selected(policy, pod):
    same = policy["metadata"]["namespace"] == pod["metadata"]["namespace"]
    return same and selects(policy["spec"]["podSelector"], labels_of(pod))


def pod_at(world, address):
    """The pod that has the address, if policies speak of it."""
    for pod in world["pods"]:
        addresses = [each["ip"] for each in pod["status"].get("podIPs", [])]
        ended = pod["status"].get("phase") in ("Succeeded", "Failed")
        if address in addresses and not ended and not pod["spec"].get("hostNetwork"):
            return pod
    return None


def labels_of(thing):
    return thing["metadata"].get("labels") or {}


def selects(selector, labels):
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    for each in selector.get("matchExpressions") or []:
        key, operator = each["key"], each["operator"]
        if operator == "In" and labels.get(key) not in each["values"]:
            return False
        if operator == "NotIn" and key in labels and labels[key] in each["values"]:
            return False
        if operator == "Exists" and key not in labels:
            return False
        if operator == "DoesNotExist" and key in labels:
            return False
    return True


def is_everything(selector):
    return not any(selector.values())


def peers_have(world, policy, peers, address):
    return not peers or any(peer_has(world, policy, peer, address) for peer in peers)


def peer_has(world, policy, peer, address):
    if "ipBlock" in peer:
        block = peer["ipBlock"]
        excepted = any(is_in(address, each) for each in block.get("except") or [])
        return is_in(address, block["cidr"]) and not excepted
    everywhere = "namespaceSelector" in peer and is_everything(peer["namespaceSelector"])
    if everywhere and is_everything(peer.get("podSelector") or {}):
        return is_some_pods(world, address)
    pod = pod_at(world, address)
    if pod is None or not selects(peer.get("podSelector") or {}, labels_of(pod)):
        return False
    if "namespaceSelector" not in peer:
        return pod["metadata"]["namespace"] == policy["metadata"]["namespace"]
    return selects(peer["namespaceSelector"], namespace_labels(world, pod))


def is_some_pods(world, address):
    """All pods of all namespaces: an address of the pod network, but for the first two of a node."""
    for network, bits in world["networks"]:
        if is_in(address, network):
            behind = int(ip_address(address)) % 2 ** (ip_network(network).max_prefixlen - bits)
            return behind not in (0, 1)
    return False


def is_in(address, cidr):
    return ip_address(address) in ip_network(cidr, strict=False)


def ports_have(world, ports, target, protocol, port):
    return not ports or any(port_has(world, each, target, protocol, port) for each in ports)


def port_has(world, said, target, protocol, port):
    if said.get("protocol", "TCP") != protocol:
        return False
    wanted = said.get("port")
    if wanted is None:
        return True
    if isinstance(wanted, int):
        return wanted <= port <= said.get("endPort", wanted)
    pod = pod_at(world, target)
    containers = [] if pod is None else pod["spec"]["containers"]
    return any(
        (each.get("name"), each.get("protocol", "TCP"), each["containerPort"]) == (wanted, protocol, port)
        for container in containers
        for each in container.get("ports", [])
    )
