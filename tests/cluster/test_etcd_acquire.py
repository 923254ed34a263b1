"""Taking a subnet in a real etcd: which, how it is written, and who wins."""

import asyncio
import logging
import time
from ipaddress import IPv4Network, IPv6Network

import pytest

from tests.support.etcd import VERSIONS
from tests.support.store import attrs, chooser, first, netconf, soon, value
from weft.cluster.etcd import listing as listing_module
from weft.cluster.etcd.client import Client, CompactedError
from weft.cluster.etcd.values import Proof
from weft.model.errors import Unavailable
from weft.model.value import replace

ONE = {"first": "10.3.7.0", "last": "10.3.7.0"}  # room for one node


@pytest.mark.spec(
    "flannel.md 11.5/acquire",
    "flannel.md §4.3/1-list",
    "flannel.md §4.3/4-allocate",
    "flannel.md §4.3/5-create",
    cases=VERSIONS,
)
async def test_takes_a_free_subnet_and_writes_it_as_upstream_does(server, make_store, prefix):
    for third in (1, 2, 4, 5, 31):
        server.put_leased(f"{prefix}/subnets/10.3.{third}.0-24", value("1.1.1.1"))
    before = time.time()
    own = await make_store(server.url).tenure.acquire(chooser(netconf(), attrs()))
    assert own.lease.v4 in {IPv4Network(f"10.3.{third}.0/24") for third in (3, *range(6, 26))}
    kv = server.get(f"{prefix}/subnets/{own.lease.id}")
    assert kv.value == '{"PublicIP":"1.2.3.4","PublicIPv6":null}'
    assert (kv.lease, kv.mod_revision, kv.create_revision) == (
        own.token.etcd_lease,
        own.token.mod_revision,
        own.lease.created,
    )
    left, granted = server.ttl(kv.lease)
    assert granted == 86400
    assert left > 86390
    assert before + 86390 < own.expires <= time.time() + 86400
    assert own.expires is not None


@pytest.mark.spec(
    "flannel.md 11.5/acquire-again", "flannel.md §4.3/2-public-ip-reuse", "flannel.md §4.4/rewrite", cases=VERSIONS
)
async def test_takes_its_lease_again_by_its_address(server, make_store):
    own = await make_store(server.url).tenure.acquire(chooser(netconf(), attrs()))
    again = await make_store(server.url).tenure.acquire(chooser(netconf(), attrs(mac="02:00:00:00:00:01")))
    assert (again.lease.id, again.lease.attrs) == (own.lease.id, attrs(mac="02:00:00:00:00:01"))
    assert again.token.etcd_lease != own.token.etcd_lease  # whose the first was is not known
    assert again.token.mod_revision > own.token.mod_revision


@pytest.mark.spec("flannel.md §4.4/rewrite")
async def test_a_restart_with_nothing_new_writes_nothing(server, make_store):
    own = await make_store(server.url).tenure.acquire(chooser(netconf(), attrs()))
    revision = server.revision
    again = await make_store(server.url).tenure.acquire(chooser(netconf(), attrs()), recorded=own)
    assert replace(again, expires=None) == replace(own, expires=None)
    assert server.revision == revision
    changed = await make_store(server.url).tenure.acquire(
        chooser(netconf(), attrs(mac="02:00:00:00:00:01")), recorded=own
    )
    assert changed.token.etcd_lease == own.token.etcd_lease  # no lease is left behind
    assert changed.token.mod_revision == revision + 1


async def test_a_recorded_lease_that_ran_out_is_granted_anew(server, make_store, prefix):
    own = await make_store(server.url).tenure.acquire(chooser(netconf(), attrs()))
    short = server.put_leased(f"{prefix}/subnets/{own.lease.id}", value("1.2.3.4"), ttl=60)
    kv = server.get(f"{prefix}/subnets/{own.lease.id}")
    recorded = replace(own, token=Proof(short, kv.mod_revision))
    again = await make_store(server.url).tenure.acquire(chooser(netconf(), attrs()), recorded=recorded)
    assert again.lease.id == own.lease.id
    assert server.ttl(again.token.etcd_lease)[1] == 86400


@pytest.mark.spec("flannel.md 11.5/previous-subnet", "flannel.md §4.3/3-previous-subnet", cases=VERSIONS)
async def test_takes_the_previous_subnet(server, make_store):
    own = await make_store(server.url).tenure.acquire(
        chooser(netconf(), attrs(), previous=(IPv4Network("10.3.6.0/24"), None))
    )
    assert own.lease.v4 == IPv4Network("10.3.6.0/24")


@pytest.mark.spec("flannel.md 11.5/previous-subnet-outside")
async def test_does_not_take_a_previous_subnet_outside_the_network(server, make_store):
    own = await make_store(server.url).tenure.acquire(
        chooser(netconf(), attrs(), previous=(IPv4Network("10.4.1.0/24"), None))
    )
    assert own.lease.v4.subnet_of(IPv4Network("10.3.0.0/16"))


@pytest.mark.spec("flannel.md 11.5/config-changed")
async def test_leaves_a_network_that_is_no_more(server, make_store, prefix):
    store = make_store(server.url)
    own = await store.tenure.acquire(chooser(netconf(), attrs()))
    moved = await store.tenure.acquire(chooser(netconf("10.4.0.0/16", "10.4.1.0", "10.4.255.0"), attrs()))
    assert moved.lease.v4.subnet_of(IPv4Network("10.4.0.0/16"))
    assert [kv.key for kv in server.below(prefix)] == [f"{prefix}/subnets/{moved.lease.id}"]
    assert own.lease.id != moved.lease.id


@pytest.mark.spec("flannel.md 11.5/no-config", "flannel.md §4.2/config-key", cases=VERSIONS)
async def test_config_is_read_and_its_absence_said(server, make_store, prefix):
    store = make_store(server.url)
    with pytest.raises(Unavailable) as raised:
        await store.settings.net_conf()
    [problem] = raised.value.problems
    assert problem.code == "CONF-002"
    assert problem.where == f"etcd key {prefix}/config"
    assert f"etcdctl put {prefix}/config" in problem.hint
    server.put(f"{prefix}/config", '{"Network": "10.3.0.0/16"}')
    assert await store.settings.net_conf() == '{"Network": "10.3.0.0/16"}'


@pytest.mark.spec("flannel.md §4.5/reservation")
async def test_a_reservation_stays_without_a_lease(server, make_store, prefix):
    key = f"{prefix}/subnets/10.3.9.0-24"
    server.put(key, value("1.2.3.4"))
    own = await make_store(server.url).tenure.acquire(chooser(netconf(), attrs(mac="02:00:00:00:00:01")))
    assert own.expires is None
    assert (own.token.etcd_lease, own.expires, own.lease.id) == (0, None, "10.3.9.0-24")
    kv = server.get(key)
    assert kv.lease == 0
    assert '"VtepMAC":"02:00:00:00:00:01"' in kv.value
    revision = server.revision
    assert (
        await make_store(server.url).tenure.acquire(chooser(netconf(), attrs(mac="02:00:00:00:00:01")))
    ).expires is None
    assert server.revision == revision


@pytest.mark.spec("flannel.md §4.3/conflict-retried")
async def test_two_nodes_race_for_the_last_subnet(server, make_store, prefix):
    nodes = [make_store(server.url).tenure.acquire(chooser(netconf(**ONE), attrs(f"1.1.1.{node}"))) for node in (1, 2)]
    results = await soon(asyncio.gather(*nodes, return_exceptions=True))
    [won] = [result for result in results if not isinstance(result, Exception)]
    [lost] = [result for result in results if isinstance(result, Exception)]
    assert isinstance(lost, Unavailable)
    assert lost.problems[0].code == "LEASE-003"
    [kv] = server.below(f"{prefix}/subnets/")
    assert kv.lease == won.token.etcd_lease


@pytest.mark.spec("flannel.md §4.3/conflict-retried")
async def test_nodes_that_all_want_the_same_subnet_all_get_one(server, make_store, prefix):
    nodes = [
        make_store(server.url).tenure.acquire(chooser(netconf(), attrs(f"1.1.1.{node}"), pick=first))
        for node in range(1, 8)
    ]
    taken = await soon(asyncio.gather(*nodes))
    assert len({own.lease.v4 for own in taken}) == 7
    assert {kv.lease for kv in server.below(f"{prefix}/subnets/")} == {own.token.etcd_lease for own in taken}


async def test_gives_up_when_others_are_always_faster(server, make_store, monkeypatch):
    store = make_store(server.url)

    async def never(*_args, **_kwargs):
        return None

    monkeypatch.setattr(store.tenure, "_create", never)
    with pytest.raises(Unavailable, match="10 subnets in a row"):
        await store.tenure.acquire(chooser(netconf(), attrs()))


async def test_a_key_of_another_form_that_overlaps_is_noticed(server, make_store, prefix):
    store = make_store(server.url)
    before = await store.directory.list()
    server.put_leased(f"{prefix}/subnets/10.3.0.0-22&fc00::-64", value("1.1.1.1"))
    server.put_leased(f"{prefix}/subnets/not a lease", "x")
    own = await store.tenure.acquire(chooser(netconf(), attrs(), pick=first), listing=before)
    assert own.lease.id == "10.3.4.0-24"
    assert len(server.below(f"{prefix}/subnets/10.3.1")) == 0


async def test_a_key_changed_since_the_list_is_not_overwritten_unseen(server, make_store, prefix):
    store = make_store(server.url)
    key = f"{prefix}/subnets/10.3.9.0-24"
    server.put_leased(key, value("1.2.3.4"))
    before = await store.directory.list()
    server.put_leased(key, value("9.9.9.9"))
    own = await store.tenure.acquire(chooser(netconf(), attrs()), listing=before)
    assert own.lease.id != "10.3.9.0-24"
    assert server.get(key).value == value("9.9.9.9")


async def test_its_own_unchanged_key_is_taken_over_under_a_new_address(server, make_store, prefix):
    own = await make_store(server.url).tenure.acquire(chooser(netconf(), attrs("1.2.3.4")))
    moved = await make_store(server.url).tenure.acquire(chooser(netconf(), attrs("5.6.7.8")), recorded=own)
    assert (moved.lease.id, moved.token.etcd_lease) == (own.lease.id, own.token.etcd_lease)
    assert [kv.value for kv in server.below(f"{prefix}/subnets/")] == [value("5.6.7.8")]


async def test_its_own_unchanged_key_is_deleted_when_it_has_no_place(server, make_store, prefix):
    own = await make_store(server.url).tenure.acquire(chooser(netconf(), attrs("1.2.3.4")))
    elsewhere = netconf("10.4.0.0/16", "10.4.1.0", "10.4.9.0")
    moved = await make_store(server.url).tenure.acquire(chooser(elsewhere, attrs("5.6.7.8")), recorded=own)
    assert [kv.key for kv in server.below(f"{prefix}/subnets/")] == [f"{prefix}/subnets/{moved.lease.id}"]


async def test_a_recorded_key_that_someone_has_written_since_is_not_ours(server, make_store, prefix):
    own = await make_store(server.url).tenure.acquire(chooser(netconf(), attrs("1.2.3.4")))
    server.put(f"{prefix}/subnets/{own.lease.id}", value("1.2.3.4"), lease=own.token.etcd_lease)
    clone = await make_store(server.url).tenure.acquire(chooser(netconf(), attrs("5.6.7.8")), recorded=own)
    assert clone.lease.id != own.lease.id
    gone = replace(own, lease=replace(own.lease, id="10.3.99.0-24"))
    assert await make_store(server.url).tenure.acquire(chooser(netconf(), attrs("5.6.7.9")), recorded=gone)


async def test_what_nobody_can_read_still_takes_its_subnet(server, make_store, prefix):
    server.put(f"{prefix}/subnets/10.3.7.0-24", "no JSON")
    server.put(f"{prefix}/subnets/hello", "no subnet")
    store = make_store(server.url)
    assert [entry.id for entry in (await store.directory.list()).malformed] == ["10.3.7.0-24", "hello"]
    with pytest.raises(Unavailable, match="LEASE-003"):
        await store.tenure.acquire(chooser(netconf(**ONE), attrs()))


@pytest.mark.spec("flannel.md §4.8/dual-stack", "flannel.md §4.2/dual-key", cases=VERSIONS)
async def test_dual_stack(server, make_store, prefix):
    own = await make_store(server.url).tenure.acquire(chooser(netconf(v6=True), attrs(v6="fd01::4"), pick=first))
    assert own.lease.id == "10.3.1.0-24&fc00:0:0:1::-64"
    assert server.get(f"{prefix}/subnets/{own.lease.id}").value == '{"PublicIP":"1.2.3.4","PublicIPv6":"fd01::4"}'


@pytest.mark.spec("flannel.md §4.8/v6-only", "flannel.md §4.2/v6-only-key", cases=VERSIONS)
async def test_v6_only(server, make_store, prefix):
    only6 = netconf(None, v6=True)
    own = await make_store(server.url).tenure.acquire(chooser(only6, attrs("", v6="fd01::4"), pick=first))
    other = await make_store(server.url).tenure.acquire(chooser(only6, attrs("", v6="fd01::5"), pick=first))
    assert (own.lease.id, own.lease.v4) == ("0.0.0.0-0&fc00:0:0:1::-64", None)
    assert other.lease.v6 == IPv6Network("fc00:0:0:2::/64")
    again = await make_store(server.url).tenure.acquire(chooser(only6, attrs("", v6="fd01::4")))
    assert again.lease.id == own.lease.id


@pytest.mark.spec("flannel.md §4.8/adding-v6")
async def test_adding_v6_among_leases_without_it(server, make_store, prefix):
    server.put_leased(f"{prefix}/subnets/10.3.1.0-24", value("1.1.1.1"))
    own = await make_store(server.url).tenure.acquire(chooser(netconf(), attrs()))
    both = await make_store(server.url).tenure.acquire(chooser(netconf(v6=True), attrs(v6="fd01::4")))
    assert both.lease.v4 == own.lease.v4  # the pods keep their addresses
    assert both.lease.v6 is not None
    assert len(server.below(f"{prefix}/subnets/")) == 2


async def test_a_network_nearly_full_is_warned_about(server, make_store, prefix, caplog):
    small = netconf(first="10.3.1.0", last="10.3.5.0")
    for node in range(1, 6):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            await make_store(server.url).tenure.acquire(chooser(small, attrs(f"1.1.1.{node}")))
    assert "LEASE-003 4 of 5 node subnets are taken: room for 1 more nodes" in caplog.text


@pytest.mark.spec("flannel.md §4.9/two-networks")
async def test_two_networks_in_one_etcd_do_not_meet(server, make_store, prefix):
    one = make_store(server.url, at=f"{prefix}/a")
    two = make_store(server.url, at=f"{prefix}/b/")
    same = chooser(netconf(), attrs(), pick=first)
    assert (await one.tenure.acquire(same)).lease.id == (await two.tenure.acquire(same)).lease.id == "10.3.1.0-24"
    assert [kv.key for kv in server.below(prefix)] == [f"{prefix}/{name}/subnets/10.3.1.0-24" for name in "ab"]


@pytest.mark.spec("flannel.md §4.3/1-list")
async def test_lists_in_pages_of_one_revision(server, make_store, prefix, monkeypatch):
    monkeypatch.setattr(listing_module, "PAGE", 10)
    keys = [f"{prefix}/subnets/10.3.{third}.0-24" for third in range(35)]
    server.fill((key, value("1.1.1.1")) for key in keys)
    calls = []
    ask = Client.call

    async def counted(self, method, request, **options):
        calls.append(request)
        if len(calls) == 2:
            server.delete(keys[30])  # after the first page: still part of the revision that is listed
        return await ask(self, method, request, **options)

    monkeypatch.setattr(Client, "call", counted)
    listed = await make_store(server.url).directory.list()
    assert sorted(f"{prefix}/subnets/{lease.id}" for lease in listed.leases) == sorted(keys)
    assert len(calls) == 4


async def test_listing_begins_anew_when_its_revision_is_compacted(server, make_store, prefix, monkeypatch):
    monkeypatch.setattr(listing_module, "PAGE", 2)
    server.fill((f"{prefix}/subnets/10.3.{third}.0-24", value("1.1.1.1")) for third in range(3))
    compacted = []
    ask = Client.call

    async def compacting(self, method, request, **options):
        if request.revision and not compacted:
            server.delete(f"{prefix}/subnets/10.3.2.0-24")
            compacted.append(server.compact())
        try:
            return await ask(self, method, request, **options)
        except CompactedError:
            compacted.append(0)
            raise

    monkeypatch.setattr(Client, "call", compacting)
    assert len((await make_store(server.url).directory.list()).leases) == 2
    assert compacted[1:] == [0]


async def test_publishing_compares_and_swaps(server, make_store, prefix):
    store = make_store(server.url)
    own = await store.tenure.acquire(chooser(netconf(), attrs()))
    new = await store.tenure.publish(own, attrs(mac="02:00:00:00:00:02"))
    assert (new.token.etcd_lease, new.expires) == (own.token.etcd_lease, own.expires)
    assert "02:00:00:00:00:02" in server.get(f"{prefix}/subnets/{own.lease.id}").value
    with pytest.raises(Unavailable, match="LEASE-004"):
        await store.tenure.publish(own, attrs())
