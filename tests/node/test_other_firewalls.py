"""Programs of the host with rules of their own, beside weftd: pods reach each other, and each keeps what is its own."""

from tests.support.traffic import reaches
from tests.support.weftd import Cluster, Daemon, eventually

# What Docker 20.10 makes at its start, as `iptables-save` shows it: forwarded packets are dropped but for its own.
DOCKER = """
iptables -N DOCKER; iptables -N DOCKER-ISOLATION-STAGE-1; iptables -N DOCKER-ISOLATION-STAGE-2; iptables -N DOCKER-USER
iptables -A DOCKER-ISOLATION-STAGE-1 -i docker0 ! -o docker0 -j DOCKER-ISOLATION-STAGE-2
iptables -A DOCKER-ISOLATION-STAGE-1 -j RETURN
iptables -A DOCKER-ISOLATION-STAGE-2 -o docker0 -j DROP
iptables -A DOCKER-ISOLATION-STAGE-2 -j RETURN
iptables -A DOCKER-USER -j RETURN
iptables -t nat -N DOCKER
iptables -t nat -A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
iptables -t nat -A OUTPUT ! -d 127.0.0.0/8 -m addrtype --dst-type LOCAL -j DOCKER
iptables -t nat -A POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE
iptables -t nat -A DOCKER -i docker0 -j RETURN
"""
# And what it puts before all others' rules, at each start.
FIRST = """
iptables -P FORWARD DROP
iptables -I FORWARD -i docker0 -o docker0 -j ACCEPT
iptables -I FORWARD -i docker0 ! -o docker0 -j ACCEPT
iptables -I FORWARD -o docker0 -j DOCKER
iptables -I FORWARD -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
iptables -I FORWARD -j DOCKER-ISOLATION-STAGE-1
iptables -I FORWARD -j DOCKER-USER
"""


def of_docker(node: Daemon) -> list[str]:
    """Docker's rules, and the policy that it sets, in their order."""
    lines = node.netns.run("iptables-save -t filter; iptables-save -t nat").splitlines()
    found = [line for line in lines if "DOCKER" in line or "docker0" in line or "172.17" in line]
    return [line.partition(" [")[0] for line in lines if line.startswith(":FORWARD")] + found


def test_pods_reach_each_other_beside_docker_that_drops_what_is_forwarded(cluster: Cluster):
    cluster.configure()
    one, two = cluster.node(1), cluster.node(2).start("--ip-masq")
    one.netns.run(f"ip link add docker0 type bridge; ip address add 172.17.0.1/16 dev docker0; {DOCKER}{FIRST}")
    docker = of_docker(one)
    one.start("--ip-masq")
    here, there = one.pod(), two.pod()
    assert reaches(here, there.ips[0])
    assert reaches(there, here.ips[0])
    assert of_docker(one) == docker
    # It starts again: its rules go and come back, before ours.
    one.netns.run(f"iptables -F FORWARD; {FIRST}")
    eventually(lambda: "FLANNEL-FWD" in one.netns.run("iptables -S FORWARD"))
    assert reaches(there, here.ips[0])
    eventually(lambda: of_docker(one) == docker)
    one.stop()
    assert of_docker(one) == docker
    assert reaches(there, here.ips[0]), "packets flow while the daemon is stopped"
    assert "Traceback" not in one.log


def test_what_docker_drops_is_dropped_where_the_rules_of_forwarding_are_switched_off(cluster: Cluster):
    """That the policy is what decides: else the test above would prove nothing."""
    cluster.configure()
    one, two = cluster.node(1), cluster.node(2).start()
    one.netns.run(f"ip link add docker0 type bridge; {DOCKER}{FIRST}")
    one.start("--iptables-forward-rules=false")
    here, there = one.pod(), two.pod()
    assert not reaches(there, here.ips[0])
    one.stop()
    one.start()
    assert reaches(there, here.ips[0])
