"""Services of a lab: what may be one, what address it gets, where it leads, and the rules for it, to the letter."""

from ipaddress import ip_address, ip_network

import pytest

from weft.lab import spec
from weft.lab.files import labfile
from weft.lab.services import choice, rules
from weft.lab.services.choice import Endpoint
from weft.lab.spec import Service
from weft.model.errors import ConfigError

NETWORKS = (ip_network("10.244.0.0/16"), ip_network("2001:cafe:42::/56"))
LAB = labfile.regular(name="weft", backend="vxlan", families=(4, 6), nft=False, nodes=2, pods=2)
PODS = ("pod1-1", "pod1-2", "pod2-1", "pod2-2")
WEB = Service(name="web", port=80, target_port=8080, pods=("pod1-1", "pod2*"), node_port=30080)
ENDPOINTS = (
    Endpoint(pod="pod1-1", node="node1", address=ip_address("10.244.1.2")),
    Endpoint(pod="pod1-1", node="node1", address=ip_address("2001:cafe:42:1::2")),
    Endpoint(pod="pod1-2", node="node1", address=ip_address("10.244.1.3")),
    Endpoint(pod="pod2-1", node="node2", address=ip_address("10.244.2.2")),
)


def service(**changes) -> Service:
    return Service(**{"name": "web", "port": 80, "target_port": 80, "pods": ("pod*",)} | changes)


def problems(wanted: Service, *others: Service, lab: spec.Lab = LAB) -> list[str]:
    return [str(each) for each in choice.problems(wanted, where="Service", lab=lab, pods=PODS, others=others)]


def test_addresses_are_chosen_in_order_and_those_told_are_kept():
    first = choice.addressed(service(), (4, 6), ())
    assert first.addresses == ("10.96.0.11", "fd31:96::b")
    second = choice.addressed(service(addresses=("fd31:0096::C",)), (4, 6), [first])
    assert second.addresses == ("10.96.0.12", "fd31:96::c")
    assert choice.addressed(service(), (4, 6), [first, second]).addresses == ("10.96.0.13", "fd31:96::d")


def test_pods_are_chosen_by_name_and_by_how_their_names_begin():
    assert [each.pod for each in choice.served(WEB, ENDPOINTS).endpoints] == ["pod1-1", "pod1-1", "pod2-1"]


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"name": "Web"}, "a Service named 'Web'; expected a lower-case letter"),
        ({"name": "node2"}, "the name 'node2' is taken"),
        ({"name": "pod1-1"}, "the name 'pod1-1' is taken"),
        ({"name": "old"}, "the name 'old' is taken"),
        ({"port": 0}, "port 0; expected 1 to 65535"),
        ({"target_port": 65536}, "target port 65536; expected 1 to 65535"),
        ({"node_port": 80}, "node port 80; expected 30000 to 32767"),
        ({"node_port": 30001}, "node port 30001 is that of Service old"),
        ({"addresses": ("here",)}, "'here' does not appear to be an IPv4 or IPv6 address"),
        ({"addresses": ("10.97.0.1",)}, "address 10.97.0.1; expected one of 10.96.0.0/16, but its first two"),
        ({"addresses": ("10.96.0.1",)}, "address 10.96.0.1; expected one of 10.96.0.0/16, but its first two"),
        ({"addresses": ("10.96.0.4", "10.96.0.5")}, "address 10.96.0.5 beside another one of IPv4"),
        ({"addresses": ("fd31:96::0063",)}, "address fd31:96::0063 is that of Service old"),
        ({"pods": ()}, "no pods; expected names of pods, or 'web*'"),
        ({"pods": ("p*d*",)}, "pods 'p*d*'; expected '*' at the end alone"),
        ({"pods": ("pod1-3",)}, "no pod 'pod1-3'; expected a pod of this lab. Did you mean 'pod1-"),
        ({"pods": ("x",)}, "no pod 'x'; expected a pod of this lab. 'x*' means pods that are yet to come, too."),
    ],
)
def test_what_can_be_no_service(changes, said):
    old = service(name="old", node_port=30001, addresses=("10.96.0.99", "fd31:96::63"))
    [told] = problems(service(**changes), old)
    assert told.startswith(f"LAB-001 Service: {said}")


def test_what_can_be_one():
    old = service(name="old", node_port=30001, addresses=("10.96.0.99", "fd31:96::63"))
    assert not problems(service(node_port=30001, protocol="UDP", addresses=("10.96.0.2",), pods=("pod1-1", "x*")), old)


def test_a_family_that_the_lab_has_not():
    four = labfile.regular(name="weft", backend="vxlan", families=(4,), nft=False, nodes=2, pods=2)
    assert problems(service(addresses=("fd31:96::63",)), lab=four) == [
        "LAB-001 Service: address fd31:96::63; expected one of IPv4"
    ]


def test_kubernetes_has_services_of_its_own():
    kubernetes = spec.regular(
        name="weft", network=LAB.network, families=(4,), nodes=1, pods=0, store="kubernetes", kubelets=True
    )
    [told] = problems(WEB, lab=kubernetes)
    assert told == (
        "LAB-001 Service: Services of this lab come from Kubernetes' API. kubectl expose deployment NAME --name web"
        " --port 80 --target-port 8080 --protocol TCP --type NodePort"
    )


def test_the_rules():
    web = choice.served(choice.addressed(WEB, (4, 6), ()), ENDPOINTS)
    dns = choice.served(
        choice.addressed(service(name="dns", protocol="UDP", pods=("later*",)), (4, 6), [web.service]), ENDPOINTS
    )
    text = rules.tables([web, dns], NETWORKS)
    v4, v6 = text.split("add table ip6 weft-lab-services\n", 1)
    assert v4.replace("ip weft-lab-services", "TABLE") == V4
    assert (
        "add rule ip6 weft-lab-services endpoint/web/pod1-1 meta l4proto tcp dnat to [2001:cafe:42:1::2]:8080\n" in v6
    )
    assert (
        "add rule ip6 weft-lab-services service/web numgen random mod 1 vmap { 0 : goto endpoint/web/pod1-1 }\n" in v6
    )


def test_no_services_are_no_tables():
    assert rules.tables([], NETWORKS) == "".join(
        f"{verb} table {word} weft-lab-services\n" for word in ("ip", "ip6") for verb in ("add", "delete")
    )


def test_a_service_without_pods_is_refused_to_packets_and_one_without_a_node_port_has_none():
    lone = choice.served(choice.addressed(service(pods=("x*",)), (4,), ()), ENDPOINTS)
    plain = choice.served(choice.addressed(service(name="plain"), (4,), [lone.service]), ENDPOINTS)
    text = rules.tables([lone, plain], NETWORKS[:1])
    assert "add element ip weft-lab-services addresses { 10.96.0.11, 10.96.0.12 }\n" in text
    assert "add element ip weft-lab-services services { 10.96.0.12 . tcp . 80 : goto service/plain }\n" in text
    assert "add element ip weft-lab-services node-ports" not in text
    assert text.endswith("add table ip6 weft-lab-services\ndelete table ip6 weft-lab-services\n")


def test_of_a_lab_file():
    text = """
        network: {Network: 10.244.0.0/16, EnableIPv6: true, IPv6Network: "fd00:10::/56", Backend: {Type: vxlan}}
        services:
          - {name: web, port: 80, targetPort: 8080, pods: "pod*", nodePort: 30080}
          - name: dns
            port: 53
            protocol: UDP
            clusterIP: [10.96.0.11, "fd31:96::35"]
            pods: [pod1-1, pod2-1]
        """
    assert labfile.read(text, "x.yaml").services == (
        Service(
            name="web", port=80, target_port=8080, pods=("pod*",), node_port=30080,
            addresses=("10.96.0.12", "fd31:96::b"),
        ),
        Service(
            name="dns", port=53, target_port=53, pods=("pod1-1", "pod2-1"), protocol="UDP",
            addresses=("10.96.0.11", "fd31:96::35"),
        ),
    )  # fmt: skip


@pytest.mark.parametrize(
    "text, said",
    [
        ("services: web", "1: services is no list; expected a list of mappings with name, port, targetPort"),
        ("services:\n- {name: web, pods: x}", "2: a Service without 'port'"),
        ("services:\n- {name: web, port: 80, pods: x*, prot: 1}", "2: unknown key 'prot'"),
        ("services:\n- {name: web, port: 80, pods: x*, protocol: tcp}", "2: protocol: 'tcp'; expected one of TCP, UDP"),
        ("services:\n- {name: web, port: 0, pods: x*}", "2: port: 0; expected 1 to 65535"),
        ("services:\n- {name: web, port: 80, pods: pod9-1}", "2 web: no pod 'pod9-1'"),
        ("services:\n- {name: web, port: 80, pods: x*}\n- {name: web, port: 81, pods: x*}", "3 web: the name 'web' is"),
        ("network: {Network: 10.96.0.0/14, Backend: {Type: vxlan}}\nservices: [{name: a, port: 1, pods: x*}]",
         "1 network: Network 10.96.0.0/14 overlaps 10.96.0.0/16, where its Services are"),
        ("kubernetes: true\nservices: [{name: a, port: 1, pods: x*}]",
         "2 a: Services of this lab come from Kubernetes' API"),
        ("network: {Backend: {Type: vxlan}}\nservices: [{name: a, port: 1, pods: y}]", "1 network: "),
    ],
)  # fmt: skip
def test_mistakes_of_a_lab_file(text, said):
    with pytest.raises(ConfigError) as caught:
        labfile.read(text, "x.yaml")
    assert str(caught.value.problems[0]).partition("x.yaml:")[2].startswith(said)


V4 = """\
add table TABLE
delete table TABLE
add table TABLE { comment "weft lab: Services"; }
add chain TABLE prerouting { type nat hook prerouting priority -100; }
add chain TABLE output { type nat hook output priority -100; }
add chain TABLE postrouting { type nat hook postrouting priority 100; }
add chain TABLE mark-for-masquerade
add chain TABLE endpoint/web/pod1-1
add rule TABLE endpoint/web/pod1-1 ip saddr 10.244.1.2 jump mark-for-masquerade
add rule TABLE endpoint/web/pod1-1 meta l4proto tcp dnat to 10.244.1.2:8080
add chain TABLE endpoint/web/pod2-1
add rule TABLE endpoint/web/pod2-1 ip saddr 10.244.2.2 jump mark-for-masquerade
add rule TABLE endpoint/web/pod2-1 meta l4proto tcp dnat to 10.244.2.2:8080
add chain TABLE service/web
add rule TABLE service/web ip saddr != 10.244.0.0/16 jump mark-for-masquerade
add rule TABLE service/web numgen random mod 2 vmap { 0 : goto endpoint/web/pod1-1, 1 : goto endpoint/web/pod2-1 }
add chain TABLE node-port/web
add rule TABLE node-port/web jump mark-for-masquerade
add rule TABLE node-port/web goto service/web
add map TABLE services { type ipv4_addr . inet_proto . inet_service : verdict; }
add map TABLE node-ports { type inet_proto . inet_service : verdict; }
add set TABLE addresses { type ipv4_addr; }
add element TABLE services { 10.96.0.11 . tcp . 80 : goto service/web }
add element TABLE node-ports { tcp . 30080 : goto node-port/web }
add element TABLE addresses { 10.96.0.11, 10.96.0.12 }
add chain TABLE lookup
add rule TABLE lookup ip daddr . meta l4proto . th dport vmap @services
add rule TABLE lookup fib daddr type local ip daddr != 127.0.0.0/8 meta l4proto . th dport vmap @node-ports
add rule TABLE prerouting jump lookup
add rule TABLE output jump lookup
add rule TABLE postrouting meta mark & 0x4000 == 0 return
add rule TABLE postrouting meta mark set meta mark ^ 0x4000
add rule TABLE postrouting masquerade fully-random
add rule TABLE mark-for-masquerade meta mark set meta mark | 0x4000
add chain TABLE filter-forward { type filter hook forward priority 0; }
add rule TABLE filter-forward ip daddr @addresses reject
add chain TABLE filter-output { type filter hook output priority 0; }
add rule TABLE filter-output ip daddr @addresses reject
"""


def test_an_address_with_a_scope_is_refused():
    """A scope may be any text, and addresses stand in rules."""
    told = service(addresses=("fd31:96::50%} ; add table ip other #",))
    [problem] = choice._address_problems(told, "here", (4, 6), ())
    assert problem.expected == "an address without a scope"
