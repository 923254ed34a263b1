"""Whom `A` and `B[:PORT[/PROTOCOL]]` mean, and between which ends policies are asked."""

import re
from ipaddress import ip_address

import pytest

from weft.desired.policy.preview import world_of
from weft.desired.policy.question import flows, question
from weft.desired.policy.verdict import World
from weft.model.value import replace
from weft.wire.policyobjects import read_objects

CLUSTER = """
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop, labels: {app: web}}
status: {podIPs: [{ip: 10.244.1.2}, {ip: 'fd00::2'}]}
---
apiVersion: v1
kind: Pod
metadata: {name: db, namespace: shop, labels: {app: db, tier: data}}
spec: {containers: [{ports: [{name: sql, containerPort: 5432}]}]}
status: {podIPs: [{ip: 10.244.1.3}]}
---
apiVersion: v1
kind: Pod
metadata: {name: db-2, namespace: shop, labels: {app: db}}
---
apiVersion: v1
kind: Pod
metadata: {name: old, namespace: shop, labels: {app: db}}
status: {phase: Failed}
---
apiVersion: v1
kind: Service
metadata: {name: db, namespace: shop}
spec:
  selector: {app: db}
  clusterIPs: [10.96.0.5, None]
  ports: [{port: 80, targetPort: sql}, {port: 53, protocol: UDP}, {port: 9, protocol: ICMP}]
---
apiVersion: v1
kind: Service
metadata: {name: one, namespace: shop}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: none}
spec: {ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: gone, namespace: shop}
spec: {selector: {app: gone}}
---
apiVersion: v1
kind: Service
metadata: {name: unnamed, namespace: shop}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: http}]}
"""
BLOCKS = """
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: blocks, namespace: shop}
spec:
  podSelector: {}
  ingress:
  - from: [{ipBlock: {cidr: 0.0.0.0/0, except: [1.0.0.0/8]}}, {podSelector: {}}, {ipBlock: {cidr: '2400::/16'}}]
  - ports: [{port: 80}]
"""
ALL = """
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: all, namespace: shop}
spec:
  podSelector: {}
  ingress: [{from: [{ipBlock: {cidr: 0.0.0.0/1}}, {ipBlock: {cidr: 128.0.0.0/1}}]}]
"""


def world(*texts: str) -> World:
    found = read_objects({str(number): text for number, text in enumerate((CLUSTER, *texts))})
    return replace(world_of(found.things), services=found.services)


def asked(source: str, target: str, *texts: str) -> list[str]:
    _, found = flows(question(source, target), world(*texts))
    return [f"{each.source} {each.target} {each.port}/{each.protocol}" for each in found]


@pytest.mark.parametrize(
    "source, target, found",
    [
        ("shop/web", "shop/db:5432", ["shop/web shop/db 5432/tcp"]),
        ("shop/web", "shop/db", ["shop/web shop/db 0/icmp"]),
        ("shop/web", "svc/shop/db:80", ["shop/web shop/db 5432/tcp"]),
        ("shop/web", "shop/one", ["shop/web shop/web 8080/tcp"]),
        ("shop/web", "service/shop/db:53/udp", ["shop/web shop/db 53/udp", "shop/web shop/db-2 53/udp"]),
        ("10.244.1.2", "10.96.0.5:80/TCP", ["shop/web shop/db 5432/tcp"]),
        ("outside", "shop/web:80", ["outside (1.0.0.1) shop/web 80/tcp"]),
        ("outside", "[fd00::2]:80", ["outside (2400::1) shop/web 80/tcp"]),
        ("shop/db-2", "outside:443", ["shop/db-2 outside (1.0.0.1) 443/tcp"]),
        ("fd00::2", "outside", ["shop/web outside (2400::1) 0/icmp"]),
    ],
)
def test_the_flows_between_them(source: str, target: str, found: list[str]):
    assert asked(source, target) == found


def test_outside_is_no_address_that_a_block_or_the_pod_network_has():
    assert asked("outside", "shop/web", BLOCKS) == ["outside (2.0.0.1) shop/web 0/icmp"]
    assert asked("outside", "fd00::2", BLOCKS) == ["outside (2401::1) shop/web 0/icmp"]
    with pytest.raises(ValueError, match="blocks of policies name all of outside: ask about an address"):
        asked("outside", "shop/web", ALL)


@pytest.mark.parametrize(
    "source, target, words",
    [
        ("svc/shop/db", "shop/web", "a Service sends nothing: A is a pod, an address, or outside"),
        ("shop/web", "svc/shop/bd", "'shop/bd' is no Service; expected one of shop/db, shop/one"),
        ("shop/web", "svc/shop/db", "which port of Service shop/db is meant? It has 80/tcp, 53/udp"),
        ("shop/web", "svc/shop/one:81", "which port of Service shop/one is meant? It has 80/tcp"),
        ("shop/web", "none:80", "Service default/none leads to no pod: it selects none; ask about an address"),
        ("shop/web", "shop/gone:80", "Service shop/gone leads to no pod: no pod has the labels that it selects"),
        ("shop/web", "shop/unnamed", "Service shop/unnamed leads to no pod: none has a port that is called http"),
    ],
)
def test_what_means_nobody(source: str, target: str, words: str):
    with pytest.raises(ValueError, match=re.escape(words)):
        asked(source, target)


def test_an_address_is_a_pods():
    _, [found] = flows(question("10.244.1.9", "10.244.1.3:5432"), world())
    assert (found.source.pod, found.source.ip, str(found.target)) == (None, ip_address("10.244.1.9"), "shop/db")
