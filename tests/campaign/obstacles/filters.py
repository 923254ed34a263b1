"""Rules of nf_tables: each family, its hooks, verdicts, and whether the packet is met bare or wrapped."""

from tests.campaign.obstacles.obstacle import Constructor, Obstacle, Scene, other
from tests.campaign.obstacles.world import device, host_end, node_of, pod_address, public, subnet

_ELSEWHERE = {4: "198.51.100.0/24", 6: "2001:db8::/32"}
_HOOKS = ("prerouting", "forward", "postrouting")
_OUTER = ("prerouting", "input", "output", "postrouting")
_PRIORITIES = {
    "prerouting": (-300, -150, 0),
    "input": (-10, 0),
    "forward": (-10, 0, 50),
    "output": (0,),
    "postrouting": (0, 50),
}


def _table(scene: Scene) -> str:
    return f"t{scene.chance.randrange(1 << 24):06x}"


def _rules(scene: Scene, place: str, family: str, hook: str, match: str) -> Obstacle:
    """A chain with a rule that drops what it matches; a harmless one accepts it, or matches nothing."""
    table, chance = _table(scene), scene.chance
    verdict = chance.choice(
        ("drop", "reject" if family in ("ip", "ip6", "inet") and hook in ("input", "forward", "output") else "drop")
    )
    if scene.harmless:
        match, verdict = chance.choice(((match, "accept"), (match, "counter"), (_never(scene, family), "drop")))
    where = hook.partition(" ")[0]
    priority = chance.choice(_PRIORITIES.get(where, (0,)))
    lines = (
        f"add table {family} {table}",
        f"add chain {family} {table} c {{ type filter hook {hook} priority {priority}; }}",
        f"add rule {family} {table} c {match} {verdict}",
    )
    return Obstacle(
        name=f"nft {family} {where} {verdict}", place=place, commands=f"nft '{'; '.join(lines)}'", cause=table
    )


def _never(scene: Scene, family: str) -> str:
    word = "ip" if scene.family == 4 else "ip6"
    return "tcp dport 9" if family == "inet" else f"{word} saddr {_ELSEWHERE[scene.family]}"


def _bare(scene: Scene, node: str) -> str:
    word, net = "ip" if scene.family == 4 else "ip6", scene.chance.choice((node, other(node)))
    return f"{word} {scene.chance.choice(('saddr', 'daddr'))} {subnet(net, scene.family)}"


def bare(scene: Scene) -> Obstacle:
    node = scene.node
    family = scene.chance.choice(("inet", "ip" if scene.family == 4 else "ip6"))
    return _rules(scene, node, family, scene.chance.choice(_HOOKS), _bare(scene, node))


def wrapped(scene: Scene) -> Obstacle:
    if scene.backend != "vxlan":
        return bare(scene)
    family = scene.chance.choice(("inet", "ip" if scene.family == 4 else "ip6"))
    match = f"meta nfproto ipv{scene.family} udp dport 8472" if family == "inet" else "udp dport 8472"
    return _rules(scene, scene.node, family, scene.chance.choice(_OUTER), match)


def at_device(scene: Scene) -> Obstacle:
    """Family netdev, at the uplink, the VTEP or a pod's end."""
    node, chance = scene.node, scene.chance
    pods = [host_end(pod) for pod in (f"pod{node[-1]}-1", f"pod{node[-1]}-2")]
    links = ["eth0", *([device(scene.family)] if scene.backend == "vxlan" else []), pods[0]]
    link, hook = chance.choice(links), chance.choice(("ingress", "egress"))
    word = "ip" if scene.family == 4 else "ip6"
    match = f"{word} {chance.choice(('saddr', 'daddr'))} {subnet(chance.choice((node, other(node))), scene.family)}"
    if link == "eth0" and scene.backend == "vxlan":
        match = f"{word} {chance.choice(('saddr', 'daddr'))} {public(node, scene.family)} udp dport 8472"
    return _rules(scene, node, "netdev", f"{hook} device {link}", match)


def at_bridge(scene: Scene) -> Obstacle:
    node, chance = scene.node, scene.chance
    word = "ip" if scene.family == 4 else "ip6"
    pod = pod_address(f"pod{node[-1]}-1", scene.family)
    hook = chance.choice(("prerouting", "input", "forward", "output", "postrouting"))
    return _rules(scene, node, "bridge", hook, f"{word} {chance.choice(('saddr', 'daddr'))} {pod}")


def by_iptables(scene: Scene) -> Obstacle:
    node, chance = scene.node, scene.chance
    program, chain = "iptables" if scene.family == 4 else "ip6tables", chance.choice(("FORWARD", "INPUT", "OUTPUT"))
    wrapped_one = scene.backend == "vxlan" and chain != "FORWARD"
    chain = chain if wrapped_one else "FORWARD"
    match = "-p udp --dport 8472" if wrapped_one else f"-d {subnet(chance.choice((node, other(node))), scene.family)}"
    match = f"-s {_ELSEWHERE[scene.family]}" if scene.harmless else match
    command = f"{program} -w -{chance.choice('AI')} {chain} {match} -j {chance.choice(('DROP', 'REJECT'))}"
    return Obstacle(name=f"{program} {chain}", place=node, commands=command, cause=rf"\b{chain}\b")


def inside(scene: Scene) -> Obstacle:
    pod, chance = scene.pod, scene.chance
    family, hook = chance.choice(("inet", "ip" if scene.family == 4 else "ip6")), chance.choice(("input", "output"))
    word = "ip" if scene.family == 4 else "ip6"
    side = "saddr" if hook == "input" else "daddr"
    return _rules(scene, pod, family, hook, f"{word} {side} {subnet(other(node_of(pod)), scene.family)}")


ALL: tuple[Constructor, ...] = (bare, wrapped, at_device, at_bridge, by_iptables, inside)
