"""What NetworkPolicies allow, as plain as can be: read from the API's objects, clause by clause, by nothing of weft.

A world is a dictionary of lists: `namespaces`, `pods` and `policies`, as the API has them. A flow is the first packet
of a connection: source and target address, protocol and the target's port.
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
    source, target, protocol, port = flow
    mine, other = (source, target) if direction == "Egress" else (target, source)
    pod = pod_at(world, mine)
    if pod is None or source == target:  # no policy speaks of it; a pod cannot be kept from itself
        return True
    policies = [each for each in world["policies"] if direction in types(each) and is_selected(each, pod)]
    if not policies:
        return True
    rules = [(each, rule) for each in policies for rule in each["spec"].get(direction.lower()) or []]
    return any(
        peers_have(world, each, rule.get("from" if direction == "Ingress" else "to"), other)
        and ports_have(world, rule.get("ports"), target, protocol, port)
        for each, rule in rules
    )


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
    for namespace in world["namespaces"]:
        if namespace["metadata"]["name"] == pod["metadata"]["namespace"]:
            labels = {**labels_of(namespace), NAME: namespace["metadata"]["name"]}
            return selects(peer["namespaceSelector"], labels)
    return False


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
