"""Drawn worlds: namespaces, pods and policies as the API has them, with every clause, and flows in them."""

from random import Random

NETWORKS = (("10.244.0.0/16", 24), ("fd00:244::/48", 64))
HERE = ("10.244.1.0/24", "fd00:244:0:1::/64")
LABELS = {"app": ("web", "db"), "tier": ("1", "2")}
NAMES = {"http": (80, 8080), "dns": (53, 5353), "metrics": (9090, 9091)}
PROTOCOLS = ("TCP", "UDP", "SCTP")
PORTS = (53, 80, 81, 8080, 8090, 9090)
BLOCKS = {
    "0.0.0.0/0": ("192.0.2.0/24", "10.244.0.0/16"),
    "192.0.2.0/24": ("192.0.2.128/25", "192.0.2.7/32"),
    "10.244.0.0/16": ("10.244.1.0/24",),
    "10.244.2.0/23": (),
    "10.244.1.3/32": (),
    "::/0": ("2001:db8::/32", "fd00:244::/48"),
    "2001:db8::/32": ("2001:db8::/33",),
    "fd00:244:0:2::/64": ("fd00:244:0:2::4/128",),
}
# No pod has these: outside, a node's own and an unknown one of another node and of this.
STRANGERS = (
    ("192.0.2.7", "192.0.2.9", "192.0.2.200", "10.244.2.0", "10.244.2.1", "10.244.2.200"),
    ("2001:db8::7", "2001:db8:8000::7", "fd00:244:0:2::", "fd00:244:0:2::200"),
)


def drawn(random: Random):
    namespaces = [named("Namespace", f"ns{number}", labels=labels(random, "team")) for number in range(3)]
    pods = [pod(random, number, namespaces) for number in range(random.randrange(2, 9))]
    policies = [policy(random, number, namespaces) for number in range(random.randrange(7))]
    cluster = [cluster_policy(random, number) for number in range(random.choice((0, 0, 1, 2, 3)))]
    return {"namespaces": namespaces, "pods": pods, "policies": policies, "cluster": cluster, "networks": NETWORKS}


def named(kind, name, namespace=None, **meta):
    place = {} if namespace is None else {"namespace": namespace}
    return {"kind": kind, "metadata": {"name": name, **place, **meta}}


def labels(random, *more):
    keys = (*LABELS, *more)
    return {key: random.choice(LABELS.get(key, ("a", "b"))) for key in keys if random.random() < 0.7}


def pod(random, number, namespaces):
    made = named("Pod", f"pod{number}", random.choice(namespaces)["metadata"]["name"], labels=labels(random))
    node = random.choice((1, 1, 2))
    ips = [f"10.244.{node}.{number + 2}", f"fd00:244:0:{node}::{number + 2:x}"]
    kept = random.choice((ips, ips, ips[:1], ips[1:]))
    made["spec"] = {"nodeName": f"node{node}", "containers": [{"ports": container_ports(random)}]}
    made["status"] = {
        "phase": random.choices(("Running", "Succeeded"), (9, 1))[0],
        "podIPs": [{"ip": ip} for ip in kept],
    }
    if random.random() < 0.05:
        made["spec"]["hostNetwork"] = True
    return made


def container_ports(random):
    some = [name for name in NAMES if random.random() < 0.4]
    return [
        {"name": name, "containerPort": random.choice(NAMES[name]), "protocol": random.choice(("TCP", "TCP", "UDP"))}
        for name in some
    ]


def policy(random, number, namespaces):
    made = named("NetworkPolicy", f"policy{number}", random.choice(namespaces)["metadata"]["name"])
    spec = made["spec"] = {"podSelector": selector(random)}
    if random.random() < 0.7:
        spec["policyTypes"] = random.choice((["Ingress"], ["Egress"], ["Ingress", "Egress"], []))
    for key, peers in (("ingress", "from"), ("egress", "to")):
        if random.random() < 0.7:
            spec[key] = [rule(random, peers) for _ in range(random.randrange(3))]
    return made


def selector(random):
    made = {}
    if random.random() < 0.4:
        made["matchLabels"] = {key: random.choice(values) for key, values in LABELS.items() if random.random() < 0.5}
    if random.random() < 0.4:
        operator = random.choice(("In", "NotIn", "Exists", "DoesNotExist"))
        key = random.choice(("app", "tier", "team"))
        values = random.sample((*LABELS.get(key, ("a", "b")), "x"), random.randrange(1, 3))
        more = {"values": values} if operator in ("In", "NotIn") else {}
        made["matchExpressions"] = [{"key": key, "operator": operator, **more}]
    return made


def rule(random, peers):
    made = {}
    if random.random() < 0.7:
        made[peers] = [peer(random) for _ in range(random.randrange(3))]
    if random.random() < 0.6:
        made["ports"] = [port(random) for _ in range(random.randrange(3))]
    return made


def peer(random):
    kind = random.random()
    if kind < 0.3:
        cidr = random.choice(list(BLOCKS))
        less = [each for each in BLOCKS[cidr] if random.random() < 0.6]
        return {"ipBlock": {"cidr": cidr, **({"except": less} if less else {})}}
    if kind < 0.55:
        return {"podSelector": selector(random)}
    if kind < 0.8:
        return {"namespaceSelector": random.choice(({}, {"matchLabels": {"team": "a"}}, selector(random)))}
    return {"podSelector": selector(random), "namespaceSelector": selector(random)}


def port(random):
    made = {"protocol": random.choice(PROTOCOLS)} if random.random() < 0.7 else {}
    kind = random.random()
    if kind < 0.4:
        made["port"] = random.choice(PORTS)
    elif kind < 0.6:
        made["port"] = random.choice((53, 80, 8000))
        made["endPort"] = random.choice((80, 8089, 9090))
    elif kind < 0.85:
        made["port"] = random.choice(list(NAMES))
    if "endPort" in made and made["endPort"] < made["port"]:
        del made["endPort"]
    return made


def cluster_policy(random, number):
    made = named("ClusterNetworkPolicy", f"cluster{number}")
    spec = {"tier": random.choice(("Admin", "Baseline")), "priority": random.randrange(3), "subject": some_pods(random)}
    for key, peers in (("ingress", "from"), ("egress", "to")):
        if random.random() < 0.7:
            spec[key] = [cluster_rule(random, peers) for _ in range(random.randrange(1, 4))]
    return {**made, "spec": spec}


def some_pods(random):
    if random.random() < 0.5:
        return {"namespaces": random.choice(({}, {"matchLabels": {"team": "a"}}, selector(random)))}
    place = random.choice(({}, {"namespaceSelector": {}}, {"namespaceSelector": selector(random)}))
    return {"pods": {**place, "podSelector": selector(random)}}


def cluster_rule(random, peers):
    made = {"action": random.choice(("Accept", "Deny", "Pass"))}
    made[peers] = [cluster_peer(random, peers) for _ in range(random.randrange(1, 3))]
    if random.random() < 0.6:
        made["protocols"] = [protocol(random) for _ in range(random.randrange(1, 3))]
    return made


def cluster_peer(random, peers):
    if peers == "to" and random.random() < 0.4:
        return {"networks": random.sample(list(BLOCKS), random.randrange(1, 3))}
    return some_pods(random)


def protocol(random):
    if random.random() < 0.2:
        return {"destinationNamedPort": random.choice(list(NAMES))}
    ports = random.choice(
        ({}, {"number": random.choice(PORTS)}, {"range": {"start": 60, "end": random.choice(PORTS[2:])}})
    )
    return {random.choice(PROTOCOLS).lower(): {"destinationPort": ports} if ports else {}}


def flows(random, world, count):
    """Source, target, protocol and port, all of them drawn: half of them between pods."""
    ips = [each["ip"] for pod in world["pods"] for each in pod["status"]["podIPs"]]
    for _ in range(count):
        v6 = random.random() < 0.4
        mine = [ip for ip in ips if (":" in ip) == v6]
        others = [*mine, *mine, *STRANGERS[v6]]
        protocol = random.choice((*PROTOCOLS, "TCP", "ICMP"))
        yield random.choice(others), random.choice(others), protocol, 0 if protocol == "ICMP" else random.choice(PORTS)
