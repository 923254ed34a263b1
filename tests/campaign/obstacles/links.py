"""Links, their addresses, MTUs, settings and queues, and ports of bridges."""

from tests.campaign.obstacles.obstacle import Constructor, Obstacle, Scene
from tests.campaign.obstacles.world import device, host_end, pod_address, public


def _links(scene: Scene, node: str) -> list[str]:
    return ["eth0", "cni0", host_end(f"pod{node[-1]}-1"), *([device(scene.family)] if scene.backend == "vxlan" else [])]


def down(scene: Scene) -> Obstacle:
    place = scene.chance.choice((scene.node, scene.pod))
    link = "eth0" if place.startswith("pod") else scene.chance.choice(_links(scene, place))
    command = f"ip link set {link} alias nothing" if scene.harmless else f"ip link set {link} down"
    return Obstacle(
        name=f"{_kind(link)} down",
        place=place,
        commands=command,
        cause=r"(?s)down|carrier|CHECK-001|VTEP-003|IFACE-002",
    )


def _kind(link: str) -> str:
    return "veth" if link.startswith("veth") else link.partition(".")[0]


def narrow(scene: Scene) -> Obstacle:
    node = scene.node
    if scene.family == 6:
        return unaddressed(scene)
    link = scene.chance.choice(("eth0", *(["flannel.1"] if scene.backend == "vxlan" else ["cni0"])))
    command = f"ip link set {link} txqueuelen 500" if scene.harmless else f"ip link set {link} mtu 80"
    return Obstacle(name=f"{_kind(link)} narrow", place=node, commands=command, cause="MTU-001", size=84)


def unaddressed(scene: Scene) -> Obstacle:
    """A pod has lost its address, or a node the one that others know."""
    node, pod = scene.node, scene.pod
    width = 24 if scene.family == 4 else 64
    ips = {
        pod: (pod_address(pod, scene.family), "CHECK-001"),
        node: (public(node, scene.family), "address|VTEP|IFACE|ROUTE-00"),
    }
    place = scene.chance.choice((pod, node))
    ip, cause = ips[place]
    command = f"ip address delete {ip}/{width} dev eth0"
    if scene.harmless:
        command = f"ip address add {scene.unused} dev lo"
    return Obstacle(
        name=f"{'pod' if place == pod else 'node'} without address", place=place, commands=command, cause=cause
    )


def taken(scene: Scene) -> Obstacle:
    pod = scene.pod
    ip = pod_address(f"{pod[:-1]}2", scene.family)
    theirs, own = (pod_address(each, 4) for each in (f"{pod[:-1]}2", pod))
    command = f"ip address add {ip}/{scene.whole} dev eth0; ping -qc1 -W1 {theirs} -I {own}; true"
    if scene.harmless:
        command = f"ip address add {scene.unused} dev lo"
    return Obstacle(name="address taken", place=pod, commands=command, cause=f"CHECK-001.*{ip}")


def setting(scene: Scene) -> Obstacle:
    node, chance = scene.node, scene.chance
    four = [
        "net.ipv4.ip_forward=0",
        "net.ipv4.conf.cni0.forwarding=0",
        "net.ipv4.conf.eth0.arp_ignore=8",
        "net.ipv4.conf.cni0.arp_ignore=8",
    ]
    six = ["net.ipv6.conf.all.forwarding=0", "net.ipv6.conf.cni0.disable_ipv6=1", "net.ipv6.conf.eth0.disable_ipv6=1"]
    what = chance.choice(four if scene.family == 4 else six)
    if scene.harmless:
        what = chance.choice(
            ("net.ipv4.conf.eth0.rp_filter=2", "net.ipv4.conf.all.arp_announce=2", "net.ipv4.tcp_syncookies=0")
        )
    cause = "KERN-00|V6-001|ARP|address" if "arp" not in what else "ARP|arp_ignore"
    return Obstacle(name=f"sysctl {what.rpartition('.')[2]}", place=node, commands=f"sysctl -qw {what}", cause=cause)


def backwards(scene: Scene) -> Obstacle:
    """Strict reverse path, where a rule leads answers elsewhere."""
    node = scene.node
    if scene.family == 6:
        return setting(scene)
    commands = f"sysctl -qw net.ipv4.conf.{'flannel/1' if scene.backend == 'vxlan' else 'eth0'}.rp_filter=1"
    if not scene.harmless:
        commands += "; ip rule add from all iif lo to 10.244.0.0/16 priority 50 table 77"
        commands += "; ip route add 10.244.0.0/16 dev cni0 table 77"
    return Obstacle(name="strict rp_filter", place=node, commands=commands, cause="KERN-003|ROUTE-002")


def deaf(scene: Scene) -> Obstacle:
    pod = scene.pod
    name = "net.ipv4.icmp_echo_ignore_all" if scene.family == 4 else "net.ipv6.icmp.echo_ignore_all"
    return Obstacle(
        name="echo ignored",
        place=pod,
        commands=f"sysctl -qw {name}={0 if scene.harmless else 1}",
        cause="echo_ignore_all",
    )


def port(scene: Scene) -> Obstacle:
    node, chance = scene.node, scene.chance
    ends = [host_end(f"pod{node[-1]}-{number}") for number in (1, 2)]
    isolated = "; ".join(f"bridge link set dev {end} isolated on" for end in ends)
    states = [f"bridge link set dev {ends[0]} state {state}" for state in (0, 1, 2, 4)]
    command = chance.choice((isolated, *states, f"ip link set {ends[0]} nomaster"))
    if scene.harmless:
        command = chance.choice(
            (f"bridge link set dev {ends[0]} cost 50", f"bridge link set dev {ends[0]} mcast_flood off priority 9")
        )
    return Obstacle(
        name=f"port {' '.join(command.split()[-2:])}" if not scene.harmless else "port",
        place=node,
        commands=command,
        cause="BRIDGE-007|CHECK-001.*(bridge|master|port)",
    )


def queue(scene: Scene) -> Obstacle:
    place = scene.chance.choice((scene.node, scene.pod))
    link = (
        "eth0"
        if place.startswith("pod")
        else scene.chance.choice([each for each in _links(scene, place) if each != "cni0"])
    )
    what = "rate 1gbit burst 1mb limit 10mb" if scene.harmless else "rate 8bit burst 20 limit 1"
    command = f"tc qdisc replace dev {link} root tbf {what}"
    return Obstacle(name=f"qdisc at {_kind(link)}", place=place, commands=command, cause="(?i)qdisc|queue|tbf")


ALL: tuple[Constructor, ...] = (down, narrow, unaddressed, taken, setting, backwards, deaf, port, queue)
