"""Routes and rules of every type, neighbours, FDB entries and policies of IPsec."""

from tests.campaign.obstacles.obstacle import Constructor, Obstacle, Scene, other
from tests.campaign.obstacles.world import device, node_of, pod_address, public, subnet, vtep

_NOWHERE = ("blackhole", "unreachable", "prohibit")
_WRONG = "02:00:00:00:99:99"


def _targets(scene: Scene, node: str) -> list[str]:
    """Peers' pods, all or one, and the peer's node."""
    peer = other(node)
    pod = f"{pod_address(f'pod{peer[-1]}-1', scene.family)}/{scene.whole}"
    wide = f"{vtep(peer, scene.family)}/{25 if scene.family == 4 else 65}"
    return [pod, wide, f"{public(peer, scene.family)}/{scene.whole}"]


def _target(scene: Scene, node: str) -> str:
    return scene.unused if scene.harmless else scene.chance.choice(_targets(scene, node))


def route(scene: Scene) -> Obstacle:
    node, kind = scene.node, scene.chance.choice(_NOWHERE)
    to = _target(scene, node)
    return Obstacle(name=f"route {kind}", place=node, commands=f"{scene.ip} route add {kind} {to}", cause=r"ROUTE-00\d")


def route_astray(scene: Scene) -> Obstacle:
    node = scene.node
    pod = pod_address(f"pod{other(node)[-1]}-1", scene.family)
    to = scene.unused if scene.harmless else f"{pod}/{scene.whole}"
    command = f"{scene.ip} route add {to} dev {scene.chance.choice(('cni0', 'eth0'))}"
    return Obstacle(name="route astray", place=node, commands=command, cause=r"ROUTE-00\d")


def route_gone(scene: Scene) -> Obstacle:
    node = scene.node
    net = subnet(other(node), scene.family)
    command = f"{scene.ip} route delete {net}"
    if scene.harmless:
        command = f"{scene.ip} route add {scene.unused} dev eth0; {scene.ip} route delete {scene.unused}"
    return Obstacle(name="route gone", place=node, commands=command, cause=r"ROUTE-00\d")


def rule(scene: Scene) -> Obstacle:
    node, chance = scene.node, scene.chance
    action = chance.choice((*_NOWHERE, "table 100"))
    match = chance.choice(
        (f"to {_target(scene, node)}", f"from {subnet(node, scene.family)} to {_target(scene, node)}")
    )
    commands = f"{scene.ip} rule add {match} priority {chance.randrange(100, 30000)} {action}"
    if action.startswith("table"):
        commands += f"; {scene.ip} route add {chance.choice(_NOWHERE)} default table 100"
    return Obstacle(name=f"rule {action}", place=node, commands=commands, cause=r"ROUTE-00\d|CHECK-002")


def inside(scene: Scene) -> Obstacle:
    pod, chance = scene.pod, scene.chance
    gone, nowhere = (
        f"{scene.ip} route delete default",
        f"{scene.ip} route add {chance.choice(_NOWHERE)} {subnet(other(node_of(pod)), scene.family)}",
    )
    command = chance.choice((gone, nowhere))
    if scene.harmless:
        command = f"{scene.ip} route add {chance.choice(_NOWHERE)} {scene.unused}"
    return Obstacle(name="route in a pod", place=pod, commands=command, cause="CHECK-00[12]|ROUTE-00")


def neighbour(scene: Scene) -> Obstacle:
    """Of the peer's node, of its VTEP, or of a pod."""
    node = scene.node
    pod = f"pod{node[-1]}-1"
    known = [(public(other(node), scene.family), "eth0"), (pod_address(pod, scene.family), "cni0")]
    known += [(vtep(other(node), scene.family), device(scene.family))] if scene.backend == "vxlan" else []
    ip, link = scene.chance.choice(known)
    if scene.harmless:
        ip, link = scene.unused.partition("/")[0], "eth0"
    command = f"{scene.ip} neigh replace {ip} lladdr {_WRONG} dev {link} nud permanent"
    return Obstacle(
        name=f"neighbour on {link.partition('.')[0]}", place=node, commands=command, cause="NEIGH-00|FDB-001|neighbour"
    )


def forwarding_entry(scene: Scene) -> Obstacle:
    if scene.backend != "vxlan":
        return neighbour(scene)
    node = scene.node
    peer, link = other(node), device(scene.family)
    mac, there = f"02:00:00:00:0{scene.family}:0{peer[-1]}", public(peer, scene.family)
    gone = f"bridge fdb delete {mac} dev {link} dst {there} self"
    wrong = f"{gone}; bridge fdb add {mac} dev {link} dst {_elsewhere(scene)} self permanent"
    unused = f"bridge fdb add {_WRONG} dev {link} dst {there} self permanent"
    command = unused if scene.harmless else scene.chance.choice((gone, wrong))
    return Obstacle(name="fdb", place=node, commands=command, cause=f"FDB-001|{_elsewhere(scene)}")


def _elsewhere(scene: Scene) -> str:
    return "192.168.77.9" if scene.family == 4 else "fd77::9"


def xfrm(scene: Scene) -> Obstacle:
    node, chance = scene.node, scene.chance
    peer, way = other(node), chance.choice(("out", "in", "fwd"))
    here, there = (
        (public(node, scene.family), public(peer, scene.family))
        if way != "fwd"
        else (subnet(node, scene.family), subnet(peer, scene.family))
    )
    if scene.backend != "vxlan" and way != "fwd":
        way, here, there = "fwd", subnet(node, scene.family), subnet(peer, scene.family)
    source, target = (here, there) if way == "out" else (there, here)
    action = "allow" if scene.harmless else "block"
    command = f"ip xfrm policy add dir {way} src {source} dst {target} action {action}"
    return Obstacle(name=f"xfrm {way}", place=node, commands=command, cause="XFRM-001")


ALL: tuple[Constructor, ...] = (route, route_astray, route_gone, rule, inside, neighbour, forwarding_entry, xfrm)
