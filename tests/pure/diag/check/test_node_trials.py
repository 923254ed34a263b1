"""What a node tries alone: which trials, how many, and what follows where it is not known what another node saw."""

from collections import Counter
from collections.abc import Callable
from ipaddress import ip_address, ip_network

import pytest

from weft.diag.check import node_trials
from weft.diag.check.causes import Place, causes
from weft.diag.check.judging import described, judged
from weft.diag.check.node_trials import FROM_HERE
from weft.diag.check.report import as_junit, sentence, summed_up
from weft.diag.check.scenarios import SCENARIOS
from weft.diag.check.trial import Outcome, Trial, Tried
from weft.diag.sight.node import Attached, Configured, Pod, Probed, Sight
from weft.lab.trials import IN_A_LAB
from weft.model.errors import Problem
from weft.model.kernel.reported import AddressInfo, LinkInfo, RouteInfo
from weft.model.node.nodestate import LeaseState, NetworkState, NodeState, PeerState, UplinkState
from weft.model.value import replace
from weft.wire.subnetenv import PluginEnv

ETH0, VTEP, CNI0 = 2, 5, 7
PODS = [Pod(name=f"pod{n}", addresses={4: f"10.244.1.{n}", 6: f"fd00:1::{n}"}) for n in (2, 3, 4)]


def state(peers: int, backend: str = "vxlan") -> NodeState:
    return NodeState(
        version="1",
        instance="a",
        pid=1,
        seconds=9,
        ready=True,
        parts={},
        losses={},
        store=None,
        faults=0,
        network=NetworkState(
            networks=["10.244.0.0/16", "fd00::/16"],
            backend=backend,
            mtu=1430,
            devices=["flannel.1"] if backend == "vxlan" else [],
        ),
        uplink=UplinkState(name="eth0", index=ETH0, mtu=1500, addresses=["192.0.2.1"], why=""),
        lease=LeaseState(id="x", subnets=["10.244.1.0/24", "fd00:1::/64"], public=["192.0.2.1"], confirmed=True),
        peers=[
            PeerState(
                id=f"p{n}",
                subnets=[f"10.{244 + n // 250}.{n % 250}.0/24", f"fd00:{n:x}::/64"],
                public=[f"192.0.{2 + n // 250}.{n % 250}"],
                backend=backend,
            )
            for n in range(2, 2 + peers)
        ],
    )


def sight(peers: int = 2, backend: str = "vxlan") -> Sight:
    return Sight(
        links=(
            LinkInfo(index=ETH0, name="eth0", up=True),
            LinkInfo(index=VTEP, name="flannel.1", kind="vxlan", up=True),
            LinkInfo(index=CNI0, name="cni0", kind="bridge", up=True),
        ),
        addresses=(
            AddressInfo(index=ETH0, ip=ip_address("fe80::1"), prefixlen=64, scope=253),
            AddressInfo(index=ETH0, ip=ip_address("192.0.2.1"), prefixlen=24),
            AddressInfo(index=CNI0, ip=ip_address("fd00:1::1"), prefixlen=64),
        ),
        routes=(
            RouteInfo(dst=ip_network("0.0.0.0/0"), via=ip_address("192.0.2.254"), index=ETH0),
            RouteInfo(dst=ip_network("::/0"), via=ip_address("fe80::2"), index=CNI0),
        ),
        daemon=state(peers, backend),
    )


def trials(seen: Sight, pods: list[Pod] = PODS) -> list[Trial]:
    return node_trials.trials(node_trials.ends(seen, "here", pods), node_trials.most_pairs(seen))


def test_pods_have_addresses_in_the_nodes_subnet_and_in_what_its_bridges_are_in():
    link_local = AddressInfo(index=CNI0, ip=ip_address("fe80::7"), prefixlen=64, scope=253)
    seen = replace(sight(), addresses=(*sight().addresses, link_local), daemon=None, subnet_env=here_env())
    seen = replace(seen, networks=(Configured(file="1", name="n", plugins=(), bridges=("cni0",)),))
    assert seen.ranges_of_pods == [ip_network("10.244.1.0/24"), ip_network("fd00:1::/64")]


def test_each_scenario_is_a_labs_or_a_nodes():
    assert {each.name for each in (*IN_A_LAB, *FROM_HERE)} == {each.name for each in SCENARIOS}


def test_the_node_and_other_nodes_by_all_their_addresses():
    _, unknown, *_ = node_trials.ends(replace(sight(), daemon=None), "here", PODS)
    assert unknown.mtu == 0
    here_, *_ = ends = node_trials.ends(sight(), "here", PODS)
    assert here_.addresses == {4: "192.0.2.1", 6: "fd00:1::1"}
    others = {(end.kind, end.name): end.addresses for end in ends if end.afar}
    assert others == {
        ("node", "192.0.2.2"): {4: "192.0.2.2"},
        ("node", "192.0.2.3"): {4: "192.0.2.3"},
        ("peer", "192.0.2.2"): {4: "10.244.2.0", 6: "fd00:2::"},
        ("peer", "192.0.2.3"): {4: "10.244.3.0", 6: "fd00:3::"},
    }


def test_what_is_tried():
    found = trials(sight())
    counts = Counter((trial.scenario, trial.family) for trial in found)
    by_three = {"pod-loopback", "pod-itself", "pod-pod-same", "node-pod-same"}
    assert counts == {
        **{(name, family): 9 for name in by_three for family in (4, 6)},  # three pods by three protocols
        **{("pod-node-same", family): 3 for family in (4, 6)},
        # The first pod tries both peers, each other pod one; by echo requests alone.
        **{(name, family): 4 for name in ("pod-peer", "pod-peer-mtu") for family in (4, 6)},
        ("node-peer", 4): 2,
        ("node-peer", 6): 2,
        ("pod-node-other", 4): 4,
        ("node-node", 4): 2,
    }
    assert {trial.protocol for trial in found if trial.afar} == {"icmp"}
    assert {trial.size for trial in found if trial.scenario == "pod-peer-mtu"} == {1430}
    assert ("pod4", "pod2") in {(t.source, t.target) for t in found if t.scenario == "pod-pod-same"}
    assert "pod-pod-same" not in {trial.scenario for trial in trials(sight(), PODS[:1])}


def test_a_full_node_of_a_large_cluster_tries_some_thousands():
    pods = [Pod(name=f"pod{n}", addresses={4: f"10.244.1.{n}"}) for n in range(2, 252)]
    found = trials(sight(500), pods)
    assert len(found) == 3 * 250 * 3 + 128 * 3 + 250 + 3 * (500 + 249) + 3 * 500
    assert node_trials.untried(sight(), pods)[0].startswith(
        "pods to pods but for the first 128: the kernel's neighbour table"
    )
    wide = {f"net/ipv{version}/neigh/default/gc_thresh3": "4096" for version in (4, 6)}
    assert node_trials.most_pairs(replace(sight(), settings=wide)) == 512


def test_pods_of_two_bridges_do_not_try_each_other():
    second = LinkInfo(index=9, name="br1", kind="bridge", up=True)
    seen = replace(
        sight(),
        links=(*sight().links, second),
        addresses=(
            *sight().addresses,
            AddressInfo(index=CNI0, ip=ip_address("10.244.1.1"), prefixlen=25),
            AddressInfo(index=9, ip=ip_address("10.244.1.129"), prefixlen=25),
        ),
        networks=(Configured(file="1", name="n", plugins=(), bridges=("cni0", "br1")),),
    )
    pods = [Pod(name=f"pod{n}", addresses={4: f"10.244.1.{n}"}) for n in (2, 3, 130, 131)]
    pairs = {(each.source, each.target) for each in trials(seen, pods) if each.scenario == "pod-pod-same"}
    assert pairs == {("pod2", "pod3"), ("pod3", "pod2"), ("pod130", "pod131"), ("pod131", "pod130")}


def test_a_pod_of_a_smaller_mtu_gets_packets_of_that_size():
    pods = [replace(PODS[0], mtu=1400), replace(PODS[1], mtu=9000)]
    sizes = {each.source: each.size for each in trials(sight(), pods) if each.scenario == "pod-peer-mtu"}
    assert sizes == {"pod2": 1400, "pod3": 1430}


def test_pods_that_cannot_be_seen_are_said():
    link = LinkInfo(index=20, name="veth20", kind="veth", master=CNI0, peer_netns=3)
    networks = (Configured(file="1", name="n", plugins=(), bridges=("cni0",)),)
    hidden = replace(sight(), links=(*sight().links, link), networks=networks)
    [said] = node_trials.untried(hidden, [])
    assert said.startswith("pods: the network namespaces behind 1 link are not visible from here")


def test_what_cannot_be_tried_is_said():
    peer = PeerState(id="p", subnets=["10.244.2.0/24"], public=["192.0.2.2"], backend="host-gw")
    assert node_trials.untried(sight(), PODS) == []
    assert node_trials.untried(sight(backend="host-gw"), []) == [
        "pods: none of this node's has an address in its part of the network",
        "the pod network to 10.244.2.0/24 and 3 more: the back end has no device there that would answer",
    ]
    only = Sight(daemon=replace(state(1, "host-gw"), peers=[peer]))
    assert node_trials.untried(only, PODS) == [
        "the pod network to 10.244.2.0/24: the back end has no device there that would answer"
    ]


def test_without_a_daemon_peers_are_known_by_their_routes():
    route = RouteInfo(dst=ip_network("10.244.2.0/24"), via=ip_address("192.0.2.9"), index=ETH0)
    plain = Sight(
        links=(LinkInfo(index=ETH0, name="eth0"),),
        addresses=(AddressInfo(index=ETH0, ip=ip_address("192.0.2.1"), prefixlen=24),),
        routes=(route,),
        ways={"192.0.2.9": ETH0},
        subnet_env=here_env(),
    )
    ends = node_trials.ends(plain, "here", [])
    assert [(end.kind, end.name, end.addresses) for end in ends] == [
        ("node", "here", {4: "192.0.2.1"}),
        ("node", "192.0.2.9", {4: "192.0.2.9"}),
    ]


def test_a_peer_whose_public_ip_is_not_known_is_asked_through_the_pod_network():
    route = RouteInfo(dst=ip_network("10.244.2.0/24"), via=ip_address("10.244.2.0"), index=VTEP)
    ends = node_trials.ends(replace(sight(), daemon=None, routes=(route,), subnet_env=here_env()), "here", [])
    assert [(end.kind, end.name, end.addresses) for end in ends if end.afar] == [
        ("peer", "10.244.2.0/24", {4: "10.244.2.0"})
    ]


def here_env() -> PluginEnv:
    return PluginEnv(
        networks=(ip_network("10.244.0.0/16"),), subnets=(ip_network("10.244.1.0/24"),), mtu=1500, ip_masq=True
    )


@pytest.mark.parametrize(
    "lost, said",
    [
        ("pod-peer pod-peer-mtu node-peer", "every packet through the pod network from or to here is lost"),
        ("pod-peer-mtu", "every packet of 1430 bytes from or to here is lost"),
    ],
)
def test_what_other_nodes_do_not_answer_is_lost_on_the_way_there_or_back(lost: str, said: str):
    wanted = trials(sight())
    outcomes = [
        Outcome(answered=0, own="a") if trial.scenario in lost.split() else Outcome(answered=1, own="a", seen="a")
        for trial in wanted
    ]
    # Of what another machine saw nothing is known.
    outcomes = [
        Outcome(answered=each.answered, own="a") if trial.afar else each
        for trial, each in zip(wanted, outcomes, strict=True)
    ]
    found = judged(wanted, outcomes)
    assert {each.trial.scenario for each in found if each.fault} == set(lost.split())
    [cause] = node_trials.placed(causes(found, "lost"), "here", found)
    assert cause.place == Place(kind="node", nodes=("here",))
    assert sentence(cause, alone=True) == said
    assert described(next(each for each in found if each.fault)).endswith(": no answer came")


def test_a_cause_that_has_a_place_keeps_it():
    wanted = trials(sight())
    outcomes = [
        Outcome(answered=int(trial.target != "192.0.2.3"), own="a", seen="" if trial.afar else "a") for trial in wanted
    ]
    found = judged(wanted, outcomes)
    [cause] = node_trials.placed(causes(found, "lost"), "here", found)
    assert cause.place.nodes == ("192.0.2.3",)


def outcomes_of(wanted: list[Trial], lost: Callable[[Trial], bool]) -> list[Outcome]:
    return [
        Outcome(answered=int(not lost(trial)), own="a", seen="" if trial.afar or lost(trial) else "a")
        for trial in wanted
    ]


def test_a_few_places_of_many_are_named():
    wanted = trials(sight(100))
    dead = {f"192.0.2.{n}" for n in range(10, 16)}
    found = judged(wanted, outcomes_of(wanted, lambda trial: trial.target in dead))
    [cause] = node_trials.placed(causes(found, "lost"), "here", found)
    assert cause.place.nodes == tuple(sorted(dead))
    assert (
        sentence(cause, alone=True) == "every packet to or from 192.0.2.10, 192.0.2.11, 192.0.2.12 and 3 more is lost"
    )


def test_some_pods_of_many_are_named():
    pods = [Pod(name=f"pod{n}", addresses={4: f"10.244.1.{n}"}) for n in range(100, 140)]
    cut = {f"pod{n}" for n in range(100, 140, 7)}
    wanted = trials(sight(3), pods)
    leaving = {"pod-loopback", "pod-itself"}
    found = judged(
        wanted,
        outcomes_of(wanted, lambda each: each.scenario not in leaving and bool(cut & {each.source, each.target})),
    )
    [cause] = node_trials.placed(causes(found, "lost"), "here", found)
    assert cause.place.nodes == tuple(sorted(cut))


def test_where_most_is_lost_the_node_is_named():
    wanted = trials(sight(20))
    found = judged(wanted, outcomes_of(wanted, lambda trial: trial.scenario in ("pod-peer", "node-node")))
    assert {cause.place.nodes for cause in node_trials.placed(causes(found, "lost"), "here", found)} <= {
        ("here",),
        ("pod2",),
    }


def test_pods_that_have_ended_tell_nothing():
    wanted = trials(sight())
    found = judged(wanted, outcomes_of(wanted, lambda trial: "pod3" in (trial.source, trial.target)))
    left, why = node_trials.without(found, {"pod3"})
    assert why == ["pod3: it has ended meanwhile"]
    assert not any(each.fault for each in left)
    assert {each.trial.source for each in left} == {"here", "pod2", "pod4"}


def test_a_public_ip_that_does_not_answer_is_no_fault_where_the_pod_network_reaches_the_node():
    wanted = trials(sight())
    public = {"node-node", "pod-node-other"}
    found = judged(wanted, outcomes_of(wanted, lambda trial: trial.scenario in public and trial.target == "192.0.2.3"))
    left, why = node_trials.without(found, ())
    assert why == ["192.0.2.3: it is reached through the pod network, and its public IP does not answer"]
    assert not any(each.fault for each in left)
    found = judged(wanted, outcomes_of(wanted, lambda trial: trial.target == "192.0.2.3"))
    assert node_trials.without(found, ()) == (found, [])


def test_two_pods_of_one_address():
    pods = [*PODS, replace(PODS[0], name="twin")]
    wanted = trials(sight(), pods)
    found, evidence = node_trials.shared(judged(wanted, outcomes_of(wanted, lambda _: False)), {})
    assert {each.trial.target for each in found if each.fault == "shared"} == {"pod2", "twin"}
    assert {each.node for each in evidence} == {"pod2", "twin"}
    report = summed_up(FROM_HERE, found, causes(found, "shared"), evidence)
    assert report.conclusion.startswith("every packet from or to ")
    assert "is to an address that another pod has, too: CHECK-001 " in report.conclusion
    assert "pods pod2 and twin have it" in report.conclusion
    assert [each.failed for each in report.demands if each.name == "own-address"] == [12]
    assert describes(found)


def test_of_two_pods_of_one_address_the_one_that_was_given_it_is_innocent():
    pods = [replace(each, peer=20 + number) for number, each in enumerate(PODS)]
    links = (LinkInfo(index=20, name="veth0"), LinkInfo(index=29, name="veth9"))
    given = (attachment("veth0", "10.244.1.2", "fd00:1::2"), attachment("veth9", "10.244.1.9"), attachment("veth7"))
    twin = replace(pods[0], name="twin", peer=29)
    seen = replace(sight(), links=(*sight().links, *links), attached=given)
    known = node_trials.given(seen, [*pods, twin])
    assert known == {"10.244.1.2": "pod2", "fd00:1::2": "pod2", "10.244.1.9": "twin"}
    wanted = trials(seen, [*pods, twin])
    found, evidence = node_trials.shared(judged(wanted, outcomes_of(wanted, lambda _: False)), known)
    assert {each.trial.target for each in found if each.fault == "shared"} == {"twin"}
    assert {each.node for each in evidence} == {"twin"}
    conclusion = summed_up(FROM_HERE, found, causes(found, "shared"), evidence).conclusion
    assert conclusion.endswith("CHECK-001 pod twin: it has 10.244.1.2, which pod pod2 was given")
    assert "or pod2" not in conclusion


def attachment(host: str, *addresses: str) -> Attached:
    ips = tuple(map(ip_address, addresses))
    return Attached(network="n", container="c", pod="", ifname="eth0", hosts=("cni0", host), addresses=ips)


def describes(found: list[Tried]) -> bool:
    return all(described(each).endswith(": another pod has this address, too") for each in found if each.fault)


def test_what_was_not_tried_is_part_of_the_conclusion():
    wanted = trials(sight())
    found = judged(wanted, outcomes_of(wanted, lambda _: False))
    report = summed_up(FROM_HERE, found, (), (), untried=["pod9: it has ended meanwhile", "more"])
    assert (
        report.conclusion
        == f"{len(found)} trials, and none failed; not tried: pod9: it has ended meanwhile, and 1 more"
    )
    assert '<skipped message="pod9: it has ended meanwhile"/>' in as_junit("weft check", report)


def asked(trials: list[Trial]) -> Counter[tuple[str, str, str, int]]:
    return Counter((each.scenario, each.source, each.target, each.family) for each in trials)


def few(seen: Sight, pods: list[Pod]) -> list[Trial]:
    return node_trials.few(node_trials.ends(seen, "here", pods), node_trials.reachable(seen))


def test_few_packets_meet_each_pod_and_each_peer():
    found = few(sight(peers=4), PODS)
    assert max(asked(found).values()) == 1
    for family in (4, 6):
        of = [each for each in found if each.family == family]
        assert {each.source for each in of} == {"here", *(pod.name for pod in PODS)}
        inside = [each.target for each in of if each.scenario == "node-pod-same"]
        assert sorted(inside) == sorted(pod.name for pod in PODS)
        beside = [each.target for each in of if each.scenario == "pod-pod-same"]
        away = [each.target for each in of if each.scenario == "pod-peer"]
        assert (sorted(beside), len(away), len(set(away))) == (sorted(pod.name for pod in PODS), 4, 4)
    assert {each.protocol for each in found} == {"icmp"}


def test_a_pod_alone_hears_from_its_node():
    found = few(sight(peers=0), PODS[:1])
    assert {(each.scenario, each.source) for each in found} == {("node-pod-same", "here")}
    assert not few(sight(), [])


def test_a_peer_that_does_not_answer_the_node_is_not_asked_again():
    seen = sight(peers=1)
    inside, outside = (
        Probed(peer="10.244.2.0/24", address=ip_address("10.244.2.0"), way=way, size=64)
        for way in ("overlay", "underlay")
    )
    assert [end.name for end in node_trials.reachable(replace(seen, probes=(inside,)))] == ["fd00:2::/64"]
    assert len(node_trials.reachable(replace(seen, probes=(outside,)))) == 2


def test_a_peer_to_which_nothing_of_weft_leads_is_not_asked():
    assert not node_trials.reachable(sight(peers=1, backend="alloc"))
    seen = sight(peers=2)
    assert seen.daemon is not None
    unserved = replace(seen.daemon.peers[0], trouble=Problem(code="ADDR-002", where="a", seen="b"))
    seen = replace(seen, daemon=replace(seen.daemon, peers=[unserved, *seen.daemon.peers[1:]]))
    assert {end.name for end in node_trials.reachable(seen)} == {"10.244.3.0/24", "fd00:3::/64"}


def test_without_a_device_the_gateway_of_pods_there_is_asked():
    assert [end.addresses for end in node_trials.reachable(sight(peers=1, backend="host-gw"))] == [
        {4: "10.244.2.1"},
        {6: "fd00:2::1"},
    ]
