"""The store of leases on a real API server: this node's lease, the leases of others, and what happens to the API."""

import asyncio
import random
import time
from contextlib import aclosing, asynccontextmanager, suppress
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from pathlib import Path

import pytest

from tests.support.kubernetes import kubeobjects
from tests.support.kubernetes.apiserver import NOBODY
from tests.support.kubernetes.kubecluster import RULES
from tests.support.kubernetes.kubeobjects import NODES, PREFIX, flannel, published
from tests.support.store import chooser, netconf, nothing, nothing_more, said, soon, until
from tests.support.waiting import HANGS
from weft.cluster.kube.access import Access, Pem, Timing
from weft.cluster.kube.credentials import Fixed
from weft.cluster.kube.store import open_kube
from weft.config.kubernetes import Surroundings
from weft.model.cluster import Changed, Held, Listed, Lost, Malformed, Revoked
from weft.model.errors import Unavailable
from weft.model.lease import LeaseAttrs
from weft.model.value import Secret

N1 = Surroundings(node="n1")
QUICK = Timing(connect=1.0, call=3.0, backoff=0.02, backoff_most=0.2)
NETWORK = netconf("10.244.0.0/16", "10.244.1.0", "10.244.255.0")


def vxlan(address: str = "192.168.1.1", mac: str = "02:00:00:00:00:01") -> LeaseAttrs:
    return LeaseAttrs(public_ip=IPv4Address(address), backend="vxlan", data={"VNI": 1, "VtepMAC": mac})


def publish(server, name, *address, **more):
    """Have a node say what flannel on it says."""
    kubeobjects.annotate(server.admin, name, **flannel(*address, **more))


@pytest.fixture
async def make(apiserver):
    """Makes a store of the node n1 with all rights that weft needs and no more."""
    async with _stores(apiserver) as make:
        yield make


@asynccontextmanager
async def _stores(server):
    made = []

    def make(*, token=NOBODY, url=server.url, around=N1, **fields):
        access = Access(url=url, ca=Pem(file=server.ca, where="ca"), credentials=Fixed(Secret(token)), timing=QUICK)
        arguments = {"prefix": PREFIX, "net_conf": Path("/nonexistent"), "tells": True, **fields}
        store = open_kube(access, around, now=time.monotonic, chance=random.Random(7), **arguments)
        made.append(store)
        return store

    kubeobjects.grant(server.admin, "weft", kubeobjects.user("nobody"), RULES)
    yield make
    for store in made:
        store.close()
    await asyncio.sleep(0.01)  # the loop takes a turn to close what was dropped


@pytest.mark.spec("flannel.md §5.5/patch")
async def test_a_node_takes_its_podcidr_and_says_what_it_is(apiserver, make):
    node = kubeobjects.add_node(apiserver.admin, "n1")
    own = await make().tenure.acquire(chooser(NETWORK, vxlan()))
    assert own.lease.v4 == IPv4Network(node["spec"]["podCIDR"])
    assert (own.lease.id, own.lease.v6, own.expires) == ("n1", None, None)
    assert published(apiserver.admin, "n1") == {
        "kube-subnet-manager": "true",
        "backend-type": "vxlan",
        "backend-data": '{"VNI":1,"VtepMAC":"02:00:00:00:00:01"}',
        "public-ip": "192.168.1.1",
    }


async def test_a_second_start_changes_nothing_in_the_api(apiserver, make):
    kubeobjects.add_node(apiserver.admin, "n1")
    first = await make().tenure.acquire(chooser(NETWORK, vxlan()))
    before = apiserver.admin.get(f"{NODES}/n1")["metadata"]["resourceVersion"]
    store = make()
    listing = await store.directory.list()
    assert listing.published == vxlan()
    assert await store.tenure.acquire(chooser(NETWORK, vxlan()), recorded=first, listing=listing) == first
    assert apiserver.admin.get(f"{NODES}/n1")["metadata"]["resourceVersion"] == before


@pytest.mark.spec("flannel.md §5.4/public-ip-overwrite")
async def test_an_operators_address_is_published_and_our_own_stays_in_use(apiserver, make):
    kubeobjects.add_node(apiserver.admin, "n1", annotations={PREFIX + "public-ip-overwrite": "172.18.0.2"})
    own = await make().tenure.acquire(chooser(NETWORK, vxlan()))
    assert own.lease.attrs.public_ip == IPv4Address("192.168.1.1")
    assert published(apiserver.admin, "n1")["public-ip"] == "172.18.0.2"


@pytest.mark.spec("flannel.md §5.4/node-public-ip")
async def test_the_addresses_that_an_operator_gives_a_node(apiserver, make):
    annotations = {PREFIX + "node-public-ip": "10.0.0.1", PREFIX + "node-public-ipv6": "fc00::1"}
    kubeobjects.add_node(apiserver.admin, "n1", annotations=annotations)
    store = make()
    told = await store.tenure.addresses(None)
    assert told[:2] == (IPv4Address("10.0.0.1"), IPv6Address("fc00::1"))
    assert told.where[1] == f"annotation {PREFIX}node-public-ipv6 of node n1"
    own = await store.tenure.acquire(chooser(NETWORK, vxlan()))
    away = make(url="https://127.0.0.1:1")
    assert await away.tenure.addresses(own) == told
    kubeobjects.annotate(apiserver.admin, "n1", **{PREFIX + "node-public-ip": "eth0"})
    with pytest.raises(Unavailable, match=r"CONF-002 annotation .*node-public-ip of node n1: 'eth0'"):
        await store.tenure.addresses(own)


async def test_both_families(apiserver, make):
    kubeobjects.add_node(apiserver.admin, "n1", "10.244.9.0/24", "fc00:0:0:9::/64")
    both = LeaseAttrs(public_ip=IPv4Address("192.168.1.1"), public_ipv6=IPv6Address("fc00::1"), backend="host-gw")
    dual = netconf("10.244.0.0/16", "10.244.1.0", "10.244.255.0", v6=True)
    own = await make().tenure.acquire(chooser(dual, both))
    assert (own.lease.v4, own.lease.v6) == (IPv4Network("10.244.9.0/24"), IPv6Network("fc00:0:0:9::/64"))
    assert published(apiserver.admin, "n1")["public-ipv6"] == "fc00::1"
    assert published(apiserver.admin, "n1")["backend-v6-data"] == "null"


@pytest.mark.spec("flannel.md §5.5/no-pod-cidr")
async def test_a_node_without_a_podcidr_waits_and_says_why(apiserver, controllers, make):
    controllers.pause()
    try:
        kubeobjects.add_node(apiserver.admin, "n1", wait=False)
        kubeobjects.add_node(apiserver.admin, "n2", wait=False)
        store = make()
        with pytest.raises(
            Unavailable, match=r"LEASE-002 node n1: no IPv4 podCIDR, and neither has any other of 1 node"
        ):
            await store.tenure.acquire(chooser(NETWORK, vxlan()), listing=await store.directory.list())
    finally:
        controllers.resume()
    async with asyncio.timeout(HANGS):
        while True:
            try:
                listing = await store.directory.list()  # as the daemon does, each second
                assert (await store.tenure.acquire(chooser(NETWORK, vxlan()), listing=listing)).lease.v4 is not None
                break
            except Unavailable:
                await asyncio.sleep(0.05)


@pytest.mark.spec("flannel.md §5.5/containment")
async def test_a_podcidr_outside_of_the_network_is_refused_before_anything_is_said(apiserver, make):
    kubeobjects.add_node(apiserver.admin, "n1", "10.99.1.0/24")
    with pytest.raises(Unavailable, match=r"podCIDR 10\.99\.1\.0/24, which lies outside of Network 10\.244\.0\.0/16"):
        await make().tenure.acquire(chooser(NETWORK, vxlan()))
    assert published(apiserver.admin, "n1") == {}


async def test_a_node_that_is_not_registered(apiserver, make):
    with pytest.raises(Unavailable, match=r"LEASE-002 node n1: not registered"):
        await make().tenure.acquire(chooser(NETWORK, vxlan()))


@pytest.mark.spec("flannel.md §1.4/pod-name")
async def test_the_node_of_our_pod_is_ours(apiserver, make):
    kubeobjects.add_node(apiserver.admin, "n1")
    kubeobjects.add_pod(apiserver.admin, "weft-test", "weft-x", "n1")
    rules = [*RULES, {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
    kubeobjects.grant(apiserver.admin, "weft", kubeobjects.user("nobody"), rules)
    own = await make(around=Surroundings(namespace="weft-test", pod="weft-x")).tenure.acquire(chooser(NETWORK, vxlan()))
    assert own.lease.id == "n1"


@pytest.mark.spec("flannel.md §5.8/condition")
async def test_the_network_is_said_to_be_available_unless_that_is_switched_off(apiserver, make):
    kubeobjects.add_node(apiserver.admin, "n1")

    def conditions():
        return apiserver.admin.get(f"{NODES}/n1")["status"].get("conditions", [])

    await make(tells=False).tenure.ready()
    assert conditions() == []
    await make().tenure.ready()
    [condition] = conditions()
    assert (condition["type"], condition["status"]) == ("NetworkUnavailable", "False")
    assert condition["reason"] == "FlannelIsUp"


async def becomes(holds):
    """Wait until something holds."""
    async with asyncio.timeout(HANGS):
        while not holds():  # noqa: ASYNC110 - the API is asked
            await asyncio.sleep(0.02)


async def eventually_refused(act):
    """Do something until it is refused."""
    async with asyncio.timeout(HANGS):
        with suppress(Unavailable):
            while True:
                await act()


# --- the leases of others


@pytest.mark.spec("flannel.md §5.6/add-update-delete")
async def test_nodes_come_change_and_go(apiserver, make):
    kubeobjects.add_node(apiserver.admin, "n1")
    kubeobjects.add_node(apiserver.admin, "n2")
    publish(apiserver, "n2", "192.168.1.2")
    store = make()
    await store.tenure.acquire(chooser(NETWORK, vxlan()))
    async with aclosing(said(store)) as events:
        listed = await soon(anext(events))
        assert isinstance(listed, Listed)
        assert [lease.id for lease in listed.leases] == ["n2"]
        assert [lease.id for lease in listed.own] == ["n1"]

        kubeobjects.add_node(apiserver.admin, "n3")  # nothing of flannel on it yet
        publish(apiserver, "n3", "192.168.1.3", "02:00:00:00:00:03")
        came = await soon(anext(events))
        assert isinstance(came, Changed)
        assert [(lease.id, lease.attrs.public_ip) for lease in came.put] == [("n3", IPv4Address("192.168.1.3"))]

        publish(apiserver, "n3", "192.168.1.33", "02:00:00:00:00:03")
        moved = await soon(anext(events))
        assert isinstance(moved, Changed)
        assert [lease.attrs.public_ip for lease in moved.put] == [IPv4Address("192.168.1.33")]

        apiserver.admin.delete(f"{NODES}/n2")
        gone = await soon(anext(events))
        assert isinstance(gone, Changed)
        assert gone.gone == ("n2",)

        kubeobjects.annotate(apiserver.admin, "n3", **{PREFIX + "kube-subnet-manager": None})
        left = await soon(anext(events))
        assert isinstance(left, Changed)
        assert left.gone == ("n3",)


@pytest.mark.spec("flannel.md §5.6/dual-stack-update")
async def test_a_change_of_one_family_of_two_is_seen(apiserver, make):
    kubeobjects.add_node(apiserver.admin, "n1")
    kubeobjects.add_node(apiserver.admin, "n2", "10.244.9.0/24", "fc00:0:0:9::/64")
    publish(apiserver, "n2", "192.168.1.2", public_ipv6="fc00::2", backend_v6_data="null")
    store = make()
    await store.tenure.acquire(chooser(NETWORK, vxlan()))
    async with aclosing(said(store)) as events:
        await soon(anext(events))
        publish(apiserver, "n2", "192.168.1.2", public_ipv6="fc00::22", backend_v6_data="null")
        changed = await soon(anext(events))
        assert isinstance(changed, Changed)
        assert [lease.attrs.public_ipv6 for lease in changed.put] == [IPv6Address("fc00::22")]


async def test_heartbeats_are_no_events(apiserver, make):
    kubeobjects.add_node(apiserver.admin, "n1")
    kubeobjects.add_node(apiserver.admin, "n2")
    publish(apiserver, "n2", "192.168.1.2")
    store = make()
    await store.tenure.acquire(chooser(NETWORK, vxlan()))
    async with aclosing(said(store)) as events:
        await soon(anext(events))
        for beat in range(20):
            kubeobjects.annotate(apiserver.admin, "n2", **{"example.com/beat": str(beat)})
        pending = await nothing(events)
        publish(apiserver, "n2", "192.168.1.4")
        changed = await soon(pending)
        assert [lease.attrs.public_ip for lease in changed.put] == [IPv4Address("192.168.1.4")]


@pytest.mark.spec("flannel.md §5.6/unusable-node")
async def test_a_node_that_cannot_be_read_costs_itself_alone(apiserver, make):
    kubeobjects.add_node(apiserver.admin, "n1")
    kubeobjects.add_node(apiserver.admin, "n2")
    publish(apiserver, "n2", "not an address")
    store = make()
    await store.tenure.acquire(chooser(NETWORK, vxlan()))
    async with aclosing(said(store)) as events:
        listed = await soon(anext(events))
        assert [type(entry) for entry in listed.malformed] == [Malformed]
        publish(apiserver, "n2", "192.168.1.2")
        changed = await soon(anext(events))
        assert [lease.id for lease in changed.put] == ["n2"]


async def test_lists_longer_than_a_page(apiserver, make):
    for number in range(130):
        kubeobjects.add_node(apiserver.admin, f"p{number}", f"10.244.{number}.0/24")
        publish(apiserver, f"p{number}", f"192.168.2.{number}")
    kubeobjects.add_node(apiserver.admin, "n1", "10.244.200.0/24")
    store = make()
    listing = await store.directory.list()
    assert len(listing.leases) == 130
    assert listing.census.given == listing.census.nodes == 130


# --- our own node


async def test_a_list_from_before_our_own_patch_is_not_taken_for_anothers_change(apiserver, make, caplog):
    kubeobjects.add_node(apiserver.admin, "n1")
    store = make()
    listing = await store.directory.list()
    kubeobjects.annotate(apiserver.admin, "n1", **{"example.com/beat": "1"})  # comes by the watch, and is older, too
    own = await store.tenure.acquire(chooser(NETWORK, vxlan()), listing=listing)
    version = apiserver.admin.get(f"{NODES}/n1")["metadata"]["resourceVersion"]
    async with aclosing(said(store, listing)) as events, aclosing(store.tenure.keep(own, margin=60)) as news:
        await soon(anext(events))
        await soon(anext(news))
        pending = asyncio.ensure_future(anext(events))
        await nothing_more(news)
        pending.cancel()
        await asyncio.gather(pending, return_exceptions=True)
    assert apiserver.admin.get(f"{NODES}/n1")["metadata"]["resourceVersion"] == version
    assert caplog.messages == []


async def test_our_annotations_are_put_back(apiserver, make):
    kubeobjects.add_node(apiserver.admin, "n1")
    store = make()
    own = await store.tenure.acquire(chooser(NETWORK, vxlan()))
    async with aclosing(said(store)) as events, aclosing(store.tenure.keep(own, margin=60)) as news:
        await soon(anext(events))
        assert await soon(anext(news)) == Held(own=own)
        pending = [asyncio.ensure_future(anext(events)), asyncio.ensure_future(anext(news))]
        publish(apiserver, "n1", "192.168.1.99")
        await becomes(lambda: published(apiserver.admin, "n1")["public-ip"] == "192.168.1.1")
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)


@pytest.mark.parametrize("again", [False, True])
async def test_a_node_that_is_deleted_loses_its_lease(apiserver, make, again):
    kubeobjects.add_node(apiserver.admin, "n1")
    store = make()
    own = await store.tenure.acquire(chooser(NETWORK, vxlan()))
    async with aclosing(said(store)) as events, aclosing(store.tenure.keep(own, margin=60)) as news:
        await soon(anext(events))
        await soon(anext(news))
        watching = asyncio.ensure_future(anext(events))
        apiserver.admin.delete(f"{NODES}/n1")
        if again:
            kubeobjects.add_node(apiserver.admin, "n1")
        revoked = await soon(anext(news))
        assert isinstance(revoked, Revoked)
        assert "deleted" in revoked.reason
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    kubeobjects.add_node(apiserver.admin, "n1") if not again else None
    assert (await store.tenure.acquire(chooser(NETWORK, vxlan()))).token != own.token


# --- what happens to the API


async def test_a_right_that_is_missing_is_said_with_the_rule_that_gives_it(apiserver, make):
    kubeobjects.add_node(apiserver.admin, "n1")
    store = make()
    kubeobjects.grant(apiserver.admin, "weft", kubeobjects.user("nobody"), RULES[:1])
    await store.tenure.addresses(None)
    await eventually_refused(store.tenure.ready)  # a right is taken away a moment later
    with pytest.raises(Unavailable) as raised:
        await store.tenure.acquire(chooser(NETWORK, vxlan()))
    [problem] = raised.value.problems
    assert problem.code == "API-001"
    assert problem.hint.endswith('- {apiGroups: [""], resources: ["nodes/status"], verbs: ["patch"]}')


async def test_a_token_that_is_none_is_said(apiserver, make):
    with pytest.raises(Unavailable, match=r"STORE-002 .*it does not know us: Unauthorized"):
        await make(token="expired").tenure.addresses(None)


async def test_an_api_that_goes_and_comes_back(own_apiserver):
    server = own_apiserver
    kubeobjects.add_node(server.admin, "n1", "10.244.1.0/24")
    kubeobjects.add_node(server.admin, "n2", "10.244.2.0/24")
    publish(server, "n2", "192.168.1.2")
    async with _stores(server) as make, aclosing(said(make())) as events:
        assert isinstance(await soon(anext(events)), Listed)
        server.kill()
        lost = await soon(anext(events))
        assert isinstance(lost, Lost)
        assert not lost.refused
        server.start()
        publish(server, "n2", "192.168.1.22")
        seen = await until(
            events,
            lambda event: (
                isinstance(event, Listed | Changed)
                and any(
                    lease.attrs.public_ip == IPv4Address("192.168.1.22")
                    for lease in (event.leases if isinstance(event, Listed) else event.put)
                )
            ),
            seconds=20,
        )
        assert not any(isinstance(event, Lost) for event in seen[-1:])


async def test_the_configuration_is_a_file(tmp_path, make):
    file = tmp_path / "net-conf.json"
    store = make(net_conf=file)
    with pytest.raises(Unavailable, match=r"CONF-002 .*net-conf\.json: cannot be read: No such file or directory"):
        await store.settings.net_conf()
    file.write_text('{"Network": "10.244.0.0/16"}')
    assert await store.settings.net_conf() == '{"Network": "10.244.0.0/16"}'
    assert store.settings.source == str(file)
