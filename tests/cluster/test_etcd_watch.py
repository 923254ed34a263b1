"""Watching leases in a real etcd, while it is stopped, compacted, restored, cut off."""

import asyncio
import contextlib
import time
from collections.abc import Callable

import pytest

from tests.support.etcd import VERSIONS, Etcd, start_cluster, wheel
from tests.support.store import QUICK, attrs, chooser, netconf, nothing, nothing_more, said, soon, until, value
from tests.support.waiting import comes, in_time
from weft.cluster.etcd.access import Timing
from weft.cluster.store import Store
from weft.model.cluster import Changed, Listed, Lost
from weft.model.value import replace
from weft.wire.etcd import decode_lease

# waits for clocks, which both versions read alike
ONE_VERSION = pytest.mark.parametrize("server", ["wheel"], indirect=True)


def lease(name: str, address: str = "1.1.1.1", created: int = 1):
    return decode_lease(name, value(address).encode(), created)


def is_lost(event):
    return isinstance(event, Lost)


def is_listed(event):
    return isinstance(event, Listed)


def puts(name):
    return lambda event: isinstance(event, Changed) and name in [lease.id for lease in event.put]


@contextlib.asynccontextmanager
async def watching(store: Store, listing=None):
    async with contextlib.aclosing(said(store, listing)) as events:
        yield events


# --- what happens in peace


@pytest.mark.spec("flannel.md 11.5/watch-own", "flannel.md §4.7/1-snapshot", cases=VERSIONS)
async def test_own_lease_is_no_event(server, make_store, prefix):
    store = make_store(server.url)
    own = await store.tenure.acquire(chooser(netconf(), attrs()))
    server.put_leased(f"{prefix}/subnets/10.3.99.0-24", value("1.1.1.1"))
    async with watching(store) as events:
        listed = await soon(anext(events))
        assert [each.id for each in listed.leases] == ["10.3.99.0-24"]
        assert listed.own == (own.lease,)
        await store.tenure.publish(own, attrs(mac="02:00:00:00:00:01"))
        await nothing_more(events)


@pytest.mark.parametrize("recorded", [True, False], ids=["recorded", "by-address"])
async def test_a_key_that_we_took_over_since_the_list_is_no_peers(server, make_store, prefix, recorded):
    """It is there from an earlier run, whether or not we remember that, under an etcd lease that we never made."""
    first = make_store(server.url)
    own = await first.tenure.acquire(chooser(netconf(), attrs()))
    server.put_leased(f"{prefix}/subnets/10.3.0.0-24", value("1.2.3.4"))  # ours by its address, and out of range
    server.put_leased(f"{prefix}/subnets/10.3.99.0-24", value("1.1.1.1"))
    store = make_store(server.url)
    listing = await store.directory.list()
    again = await store.tenure.acquire(
        chooser(netconf(), attrs(mac="02:00:00:00:00:01")), recorded=own if recorded else None, listing=listing
    )
    assert again.lease.id == own.lease.id
    async with watching(store, listing) as events:
        seen = await soon(anext(events))
        assert [each.id for each in seen.leases if each.id != "10.3.0.0-24"] == ["10.3.99.0-24"]
        assert recorded or len(seen.leases) == 1, "what we deleted was ours too"


async def test_our_key_of_another_history_is_no_peers(own_server, make_store, prefix, tmp_path):
    """A restored snapshot shows it as it was: an etcd lease before, with what we say today."""
    first = make_store(own_server.url)
    own = await first.tenure.acquire(chooser(netconf(), attrs()))
    own_server.put_leased(f"{prefix}/subnets/{own.lease.id}", value("1.2.3.4"))
    listing = await first.directory.list()
    store = make_store(own_server.url)
    store.tenure.hold(replace(own, token=own.token._replace(etcd_lease=own.token.etcd_lease + 1)))
    async with watching(store, listing) as events:
        assert (await soon(anext(events))).leases == ()


async def test_a_lease_listed_before_we_took_it_is_withdrawn(server, make_store, prefix):
    server.put_leased(f"{prefix}/subnets/10.3.9.0-24", value("1.2.3.4"))
    store = make_store(server.url)
    async with watching(store) as events:
        assert [each.id for each in (await soon(anext(events))).leases] == ["10.3.9.0-24"]
        await store.tenure.acquire(chooser(netconf(), attrs(mac="02:00:00:00:00:01")))
        assert (await soon(anext(events))).gone == ("10.3.9.0-24",)


@pytest.mark.spec(
    "flannel.md 11.5/watch-added", "flannel.md §4.7/2-watch-from-next", "flannel.md §4.7/3-events", cases=VERSIONS
)
async def test_a_created_key_is_one_put_in_one_event(server, make_store, prefix):
    store = make_store(server.url)
    async with watching(store) as events:
        listed = await soon(anext(events))
        assert listed.leases == ()
        server.put_leased(f"{prefix}/subnets/10.3.9.0-24", value("1.1.1.1"))
        event = await soon(anext(events))
        kv = server.get(f"{prefix}/subnets/10.3.9.0-24")
        assert event.put == (lease("10.3.9.0-24", created=kv.create_revision),)
        assert event.mark.revision == kv.mod_revision
        server.delete(f"{prefix}/subnets/10.3.9.0-24")
        assert (await soon(anext(events))).gone == ("10.3.9.0-24",)


@pytest.mark.spec("flannel.md 11.5/watch-expired")
@ONE_VERSION
async def test_an_expired_key_is_gone_in_one_event(server, make_store, prefix):
    server.put_leased(f"{prefix}/subnets/10.3.9.0-24", value("1.1.1.1"), ttl=1)
    async with watching(make_store(server.url)) as events:
        assert len((await soon(anext(events))).leases) == 1
        event = await soon(anext(events))
        assert (event.put, event.gone) == ((), ("10.3.9.0-24",))


@pytest.mark.spec("flannel.md §4.7/2-watch-from-next")
async def test_a_listing_made_earlier_is_gone_on_from(server, make_store, prefix):
    store = make_store(server.url)
    server.put_leased(f"{prefix}/subnets/10.3.1.0-24", value("1.1.1.1"))
    listing = await store.directory.list()
    server.put_leased(f"{prefix}/subnets/10.3.2.0-24", value("1.1.1.2"))
    async with watching(store, listing) as events:
        assert [each.id for each in (await soon(anext(events))).leases] == ["10.3.1.0-24"]
        assert [each.id for each in (await soon(anext(events))).put] == ["10.3.2.0-24"]


@pytest.mark.spec("flannel.md §4.7/malformed-costs-its-peer")
@pytest.mark.spec("flannel.md §4.2/readers", cases="*PublicIP*")
@pytest.mark.parametrize(
    "name, text",
    [
        ("hello", value("1.1.1.1")),
        ("10.3.2.0-24", "no JSON"),
        ("10.3.2.0-24", '{"PublicIP":null}'),
        ("10.3.2.7-24", value("1.1.1.1")),
    ],
)
async def test_a_malformed_entry_costs_only_itself(server, make_store, prefix, name, text):
    server.put(f"{prefix}/subnets/10.3.1.0-24", value("1.1.1.1"))
    server.put(f"{prefix}/subnets/{name}", text)
    server.put(f"{prefix}/subnetsfoo/10.3.5.0-24", value("1.1.1.5"))
    store = make_store(server.url)
    async with watching(store) as events:
        listed = await soon(anext(events))
        assert [each.id for each in listed.leases] == ["10.3.1.0-24"]
        assert [each.id for each in listed.malformed] == [name]
        server.put(f"{prefix}/subnets/{name}", text)
        event = await soon(anext(events))
        assert (event.put, event.gone, [each.id for each in event.malformed]) == ((), (), [name])
        assert "ADDR-002" in str(event.malformed[0].problem)
        server.put(f"{prefix}/subnets/10.3.3.0-24", value("1.1.1.3"))
        assert [each.id for each in (await soon(anext(events))).put] == ["10.3.3.0-24"]


@ONE_VERSION
async def test_a_slow_consumer_is_waited_for_and_loses_no_last_word(server, make_store, prefix):
    taken, busy, last = [], asyncio.Event(), asyncio.Event()

    async def slow(event):
        assert not busy.is_set(), "one at a time"
        busy.set()
        await asyncio.sleep(0.05)
        busy.clear()
        taken.append(event)
        if getattr(event, "gone", ()):
            last.set()

    # Longer than the watch would wait for a sign of life: what takes its time is not etcd.
    timing = replace(QUICK, ping=0.01, pong=0.02)
    watching = asyncio.ensure_future(make_store(server.url, timing=timing).directory.watch(slow))
    await comes(lambda: len(taken) == 1)
    for number in range(1, 9):
        server.fill([(f"{prefix}/subnets/10.3.9.0-24", value(f"1.1.1.{number}"))])
    server.fill([(f"{prefix}/subnets/10.3.8.0-24", value("1.1.1.1"))])
    server.delete(f"{prefix}/subnets/10.3.8.0-24")
    await soon(last.wait())
    watching.cancel()
    await asyncio.wait((watching,))
    words = [str(lease.attrs.public_ip) for event in taken[1:] for lease in event.put if lease.id == "10.3.9.0-24"]
    assert words == sorted(words)
    assert words[-1] == "1.1.1.8"
    assert taken[-1].gone == ("10.3.8.0-24",)


async def test_five_thousand_leases_are_eleven_requests(server, make_store, prefix):
    server.fill(
        (f"{prefix}/subnets/10.{16 + number // 256}.{number % 256}.0-24", value("1.1.1.1")) for number in range(5000)
    )
    store = make_store(server.url, timing=Timing())
    calls = []
    ask = store.directory._client.call

    async def counted(*args, **options):
        calls.append(args)
        return await ask(*args, **options)

    store.directory._client.call = counted
    async with watching(store) as events:
        assert len((await soon(anext(events))).leases) == 5000
    assert len(calls) == 11


@pytest.mark.parametrize("server", ["wheel"], indirect=True)
async def test_values_that_no_lease_needs_are_asked_for_a_few_at_a_time_and_not_kept(server, make_store, prefix):
    """200 MB in one answer stayed in the process's memory for good; small values before them make a page large."""
    server.fill((f"{prefix}/subnets/10.2.{number}.0-24", value("1.1.1.2")) for number in range(250))
    server.fill((f"{prefix}/subnets/10.2.{number}.0-25", value("1.1.1.2")) for number in range(250))
    long = "x" * (1 << 20)
    for number in range(40):
        server.fill([(f"{prefix}/subnets/10.3.{number}.0-24", long)])
    server.put(f"{prefix}/subnets/10.3.99.0-24", value("1.1.1.1"))
    server.put(f"{prefix}/subnets/{'y' * 5000}", value("1.1.1.2"))
    store = make_store(server.url, timing=Timing())
    sizes = []
    ask = store.directory._client.call

    async def measured(*args, **options):
        reply = await ask(*args, **options)
        sizes.append(reply.ByteSize())
        return reply

    store.directory._client.call = measured
    listing = await store.directory.list()
    assert [entry.lease.id for entry in listing.entries][500:] == ["10.3.99.0-24"]
    assert len(listing.malformed) == 41
    assert "1048576 bytes" in str(listing.malformed[0].problem)
    assert max(sizes) < 4 << 20
    assert sum(len(entry.id) + len(str(entry.problem)) for entry in listing.malformed) < 20_000


async def test_values_that_are_never_received_cost_only_themselves(own_server, make_store, prefix):
    """An etcd that takes requests of any size has values that no answer of ours has room for, first and last of all."""
    own_server.stop()
    own_server.start("--max-request-bytes", str(16 << 20))
    huge = "x" * (5 << 20)
    small = [f"10.3.{number}.0-24" for number in range(1, 60)]
    own_server.fill((f"{prefix}/subnets/{name}", value("1.1.1.1")) for name in small)
    for name in ("!", "10.3.20.0-24", "10.3.21.0-24", "~"):
        own_server.fill([(f"{prefix}/subnets/{name}", huge)])
    store = make_store(own_server.url, timing=Timing())
    async with watching(store) as events:
        listed = await soon(anext(events))
        assert [entry.id for entry in listed.malformed] == ["!", "10.3.20.0-24", "10.3.21.0-24", "~"]
        assert "lease 10.3.20.0-24: the value has more than 4194304 bytes" in str(listed.malformed[1].problem)
        assert {lease.id for lease in listed.leases} == {*small} - {"10.3.20.0-24", "10.3.21.0-24"}
        own_server.fill([(f"{prefix}/subnets/10.3.30.0-24", huge)])
        again = (await until(events, is_listed))[-1]
        assert {lease.id for lease in listed.leases} - {lease.id for lease in again.leases} == {"10.3.30.0-24"}
        own_server.put(f"{prefix}/subnets/10.3.60.0-24", value("1.1.1.2"))
        await until(events, puts("10.3.60.0-24"))


async def test_a_key_that_takes_the_place_of_a_value_that_is_never_received_is_not_taken_for_it(
    own_server, make_store, prefix
):
    own_server.stop()
    own_server.start("--max-request-bytes", str(16 << 20))
    own_server.fill([(f"{prefix}/subnets/10.3.1.0-24", "x" * (5 << 20))])
    store = make_store(own_server.url, timing=Timing())
    ask = store.directory._client.call

    async def late(method, request, **options):
        if request.keys_only:
            own_server.put(f"{prefix}/subnets/10.3.0.0-24", value("1.1.1.1"))  # sorts before it
        return await ask(method, request, **options)

    store.directory._client.call = late
    listing = await store.directory.list()
    assert [lease.id for lease in listing.leases] == ["10.3.0.0-24"]
    assert [entry.id for entry in listing.malformed] == ["10.3.1.0-24"]


# --- what happens in trouble


@pytest.mark.spec("flannel.md §4.7/1-snapshot")
async def test_a_store_that_is_down_at_first_is_waited_for(own_server, make_store, prefix):
    own_server.put(f"{prefix}/subnets/10.3.1.0-24", value("1.1.1.1"))
    own_server.stop()
    async with watching(make_store(own_server.url)) as events:
        lost = await soon(anext(events))
        assert is_lost(lost)
        assert "STORE-001" in lost.reason
        assert own_server.url in lost.reason
        own_server.start()
        seen = await until(events, is_listed)
        assert [each.id for each in seen[-1].leases] == ["10.3.1.0-24"]


@pytest.mark.spec("flannel.md §4.7/4-back-off", "flannel.md §4.6/store-down-data-plane")
async def test_after_a_stop_the_watch_goes_on_where_it_was(own_server, make_store, prefix):
    own_server.put(f"{prefix}/subnets/10.3.1.0-24", value("1.1.1.1"))
    async with watching(make_store(own_server.url)) as events:
        assert is_listed(await soon(anext(events)))
        own_server.stop()
        assert is_lost(await soon(anext(events)))
        own_server.start()
        seen = await until(events, lambda event: isinstance(event, Changed))
        assert not any(is_listed(event) for event in seen)  # nobody reads everything again for a restart
        assert (seen[-1].put, seen[-1].gone) == ((), ())
        own_server.put(f"{prefix}/subnets/10.3.2.0-24", value("1.1.1.2"))
        await until(events, puts("10.3.2.0-24"))


async def test_a_lease_that_was_deleted_at_the_revision_of_a_compaction_is_gone(server, make_store, make_proxy, prefix):
    """A compaction takes away what was deleted at its own revision, and a watch from there on says nothing of it."""
    proxy = await make_proxy(server)
    server.put(f"{prefix}/subnets/10.3.2.0-24", value("1.1.1.2"))
    async with watching(make_store(proxy.url)) as events:
        assert [each.id for each in (await soon(anext(events))).leases] == ["10.3.2.0-24"]
        waiting = await nothing(events, 0.1)
        await proxy.cut()
        server.delete(f"{prefix}/subnets/10.3.2.0-24")
        server.compact()
        await proxy.open()
        event = await soon(waiting, 10)
        while isinstance(event, Lost):
            event = await soon(anext(events), 10)
        assert event.leases == ()


async def test_a_quick_restart_is_not_even_mentioned(server, make_store, make_proxy, prefix):
    proxy = await make_proxy(server)
    async with watching(make_store(proxy.url)) as events:
        await soon(anext(events))
        waiting = await nothing(events, 0.1)
        await proxy.cut()
        await proxy.open()
        server.put(f"{prefix}/subnets/10.3.2.0-24", value("1.1.1.2"))
        assert [each.id for each in (await soon(waiting)).put] == ["10.3.2.0-24"]
    assert proxy.connections == 2


@pytest.mark.spec(
    "flannel.md 11.5/watch-compacted",
    "flannel.md §4.7/5-compaction",
    "flannel.md §4.7/snapshot-attributes",
    cases=VERSIONS,
)
async def test_a_watch_from_below_the_compaction_lists_again(server, make_store, prefix):
    store = make_store(server.url)
    server.put(f"{prefix}/subnets/10.3.1.0-24", value("1.1.1.1"))
    listing = await store.directory.list()
    server.put(f"{prefix}/subnets/10.3.1.0-24", value("1.1.1.9"))
    server.put(f"{prefix}/subnets/10.3.2.0-24", value("1.1.1.2"))
    server.compact()
    async with watching(store, listing) as events:
        seen = await until(events, lambda event: is_listed(event) and len(event.leases) == 2)
        assert str(seen[-1].leases[0].attrs.public_ip) == "1.1.1.9"  # what changed meanwhile is in the list
        server.put(f"{prefix}/subnets/10.3.3.0-24", value("1.1.1.3"))
        await until(events, puts("10.3.3.0-24"))


@pytest.mark.spec("flannel.md 11.5/compaction-restart", "flannel.md §4.7/5-compaction")
async def test_recovers_from_compaction_and_restart(own_server, make_store, prefix):
    async with watching(make_store(own_server.url)) as events:
        await soon(anext(events))
        own_server.put(f"{prefix}/subnets/10.3.1.0-24", value("1.1.1.1"))
        await until(events, puts("10.3.1.0-24"))
        own_server.put("/elsewhere", "x")
        own_server.put("/elsewhere", "y")
        own_server.compact()
        own_server.restart()
        seen = await until(events, is_listed, 30)
        assert [each.id for each in seen[-1].leases] == ["10.3.1.0-24"]
        own_server.put(f"{prefix}/subnets/10.3.2.0-24", value("1.1.1.2"))
        await until(events, puts("10.3.2.0-24"))


@pytest.mark.spec("flannel.md §4.7/own-subnet-dropped")
async def test_the_own_lease_is_no_event_after_a_second_list_either(own_server, make_store, prefix):
    """Better than upstream, whose second list holds the own subnet: it is then taken for a peer that goes (Q-17)."""
    store = make_store(own_server.url)
    own = await store.tenure.acquire(chooser(netconf(), attrs()))
    seen = []
    async with watching(store) as events:
        seen.append(await soon(anext(events)))
        for third in (40, 41):
            own_server.put(f"{prefix}/subnets/10.3.{third}.0-24", value("1.1.1.1"))
            seen += await until(events, puts(f"10.3.{third}.0-24"))
            own_server.put("/elsewhere", "x")
            own_server.put("/elsewhere", "y")
            own_server.compact()
            own_server.restart()
            seen += await until(events, is_listed, 30)
        own_server.delete(f"{prefix}/subnets/{own.lease.id}")
        own_server.put(f"{prefix}/subnets/10.3.42.0-24", value("1.1.1.1"))
        seen += await until(events, puts("10.3.42.0-24"))
    listed = [event for event in seen if is_listed(event)]
    assert len(listed) == 3
    assert own.lease.id not in [each.id for event in listed for each in event.leases]
    changes = [event for event in seen if isinstance(event, Changed)]
    assert own.lease.id not in [name for event in changes for name in (*event.gone, *(put.id for put in event.put))]


async def test_a_restored_snapshot_is_listed_again(own_server, make_store, prefix, tmp_path):
    own_server.put(f"{prefix}/subnets/10.3.1.0-24", value("1.1.1.1"))
    own_server.snapshot(tmp_path / "snapshot")
    async with watching(make_store(own_server.url)) as events:
        await soon(anext(events))
        for third in range(2, 8):
            own_server.put(f"{prefix}/subnets/10.3.{third}.0-24", value("1.1.1.2"))
        await until(events, puts("10.3.7.0-24"))
        own_server.stop()
        own_server.restore(tmp_path / "snapshot")
        own_server.start()
        seen = await until(events, is_listed)
        assert [each.id for each in seen[-1].leases] == ["10.3.1.0-24"]
        own_server.put(f"{prefix}/subnets/10.3.9.0-24", value("1.1.1.9"))
        await until(events, puts("10.3.9.0-24"))


@pytest.mark.parametrize("many", [0, 150], ids=["few", "many"])
@pytest.mark.parametrize("later", ["10.3.4.0-24", "10.3.3.0-24"], ids=["other", "same"])
@pytest.mark.parametrize("lost", ["put", "deletion"])
async def test_a_restored_snapshot_that_has_caught_up_is_listed_again(
    own_server, make_store, make_proxy, prefix, tmp_path, *, many, lost, later
):
    """Its term began again where ours did, and new writes have made up for the lost ones before we look."""
    proxy = await make_proxy(own_server)
    own_server.put(f"{prefix}/subnets/10.3.1.0-24", value("1.1.1.1"))
    own_server.fill((f"{prefix}/subnets/10.3.{third}.0-24", value("1.1.1.2")) for third in range(50, 50 + many))
    own_server.snapshot(tmp_path / "snapshot")
    async with watching(make_store(proxy.url)) as events:
        await soon(anext(events))
        if lost == "put":
            own_server.put(f"{prefix}/subnets/10.3.2.0-24", value("1.1.1.2"))
        else:
            own_server.delete(f"{prefix}/subnets/10.3.1.0-24")
        own_server.put(f"{prefix}/subnets/10.3.3.0-24", value("1.1.1.2"))
        await until(events, puts("10.3.3.0-24"))
        waiting = await nothing(events, 0.1)
        await proxy.cut()
        own_server.stop()
        own_server.restore(tmp_path / "snapshot")
        own_server.start()
        own_server.put("/elsewhere", "x")
        own_server.put(f"{prefix}/subnets/{later}", value("1.1.1.2"))
        await proxy.open()
        event = await soon(waiting, 20)
        while not is_listed(event):
            event = await soon(anext(events), 20)
        names = {each.id for each in event.leases}
        assert {name for name in names if int(name.split(".")[2]) < 50} == {"10.3.1.0-24", later}
        assert len(names) == 2 + many


async def test_another_cluster_behind_the_same_address_is_listed_again(tmp_path, make_store, prefix):
    first = Etcd(tmp_path / "a", wheel()).start()
    second = Etcd(tmp_path / "b", wheel())
    second.name, second.members = "other", {"other": second.peer_url}
    try:
        first.put(f"{prefix}/subnets/10.3.1.0-24", value("1.1.1.1"))
        async with watching(make_store(first.url)) as events:
            await soon(anext(events))
            first.stop()
            second.port = first.port
            second.start()
            for third in range(5, 9):  # its revision is higher, so only the cluster's id tells
                second.put(f"{prefix}/subnets/10.3.{third}.0-24", value("1.1.1.2"))
            seen = await until(events, lambda event: is_listed(event) and len(event.leases) == 4)
            assert "10.3.1.0-24" not in [each.id for each in seen[-1].leases]
    finally:
        first.stop()
        second.stop()


@ONE_VERSION
async def test_a_quiet_etcd_is_heard_by_its_signs_of_life(server, make_store, prefix):
    store = make_store(server.url)
    assert store.directory.heard is None
    async with watching(store) as events:
        assert is_listed(await soon(anext(events)))
        pending = asyncio.ensure_future(anext(events))
        for _ in range(3):
            before = store.directory.heard
            await comes(lambda before=before: store.directory.heard > before)
        assert not pending.done()
        pending.cancel()
        await asyncio.gather(pending, return_exceptions=True)


async def test_an_endpoint_that_falls_silent_is_noticed(server, make_store, make_proxy, prefix):
    silent, other = await make_proxy(server), await make_proxy(server)
    async with watching(make_store(silent.url, other.url)) as events:
        await soon(anext(events))
        waiting = await nothing(events, 0.05)
        silent.freeze()
        await asyncio.sleep(0)
        server.put(f"{prefix}/subnets/10.3.2.0-24", value("1.1.1.2"))
        started = time.monotonic()
        assert [each.id for each in (await soon(waiting)).put] == ["10.3.2.0-24"]
        assert in_time(started, 8)


@ONE_VERSION
async def test_a_quiet_watch_stays_on_its_connection(server, make_store, make_proxy):
    proxy = await make_proxy(server)
    patient = replace(QUICK, pong=1.5)  # a machine that stalls for a second is no silent etcd
    async with watching(make_store(proxy.url, timing=patient)) as events:
        await soon(anext(events))
        await nothing_more(events, 4)  # several times `ping` and `pong`
    assert proxy.connections == 1


@pytest.mark.spec("flannel.md §4.1/v3-endpoints")
async def test_a_killed_member_costs_nothing(tmp_path, make_store, prefix):
    members = start_cluster(tmp_path, wheel())
    try:
        store = make_store(*(member.url for member in members))
        async with watching(store) as events:
            await soon(anext(events))
            own = await soon(store.tenure.acquire(chooser(netconf(), attrs())))
            for member in members[1:]:
                member.below(
                    prefix
                )  # such a read waits until it has what was written: who lags looks like a restored one
            members[0].kill()  # the one we are connected to
            await as_soon_as_led(lambda: members[2].put(f"{prefix}/subnets/10.3.99.0-24", value("1.1.1.2")))
            seen = await until(events, puts("10.3.99.0-24"))
            assert not any(is_listed(event) for event in seen)
            assert (await soon(store.tenure.publish(own, attrs(mac="02:00:00:00:00:01")))).lease.id == own.lease.id
    finally:
        for member in members:
            member.stop()


@pytest.mark.spec("flannel.md 11.5/cancel-in-resync")
async def test_can_be_cancelled_while_the_store_hangs(own_server, make_store):
    events = said(make_store(own_server.url, timing=Timing()))
    own_server.pause()
    waiting = asyncio.ensure_future(anext(events))
    await asyncio.sleep(0.2)
    started = time.monotonic()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await soon(waiting, 3)
    await soon(events.aclose(), 3)
    assert in_time(started, 3)


async def as_soon_as_led(put: Callable[[], None]) -> None:
    """Write once the members that are left have agreed on a leader; until then etcd lets a write time out."""
    for _ in range(5):
        with contextlib.suppress(AssertionError):
            await asyncio.to_thread(put)
            return
    put()


@pytest.mark.spec("flannel.md 11.5/cancel-in-resync")
async def test_can_be_closed_while_the_consumer_is_busy(server, make_store, prefix):
    events = said(make_store(server.url))
    await soon(anext(events))
    server.put(f"{prefix}/subnets/10.3.2.0-24", value("1.1.1.2"))
    await asyncio.sleep(0.05)
    await soon(events.aclose(), 3)


async def test_a_fault_of_our_own_is_not_hidden(server, make_store, monkeypatch, prefix):
    store = make_store(server.url)
    async with watching(store) as events:
        await soon(anext(events))
        monkeypatch.setattr("weft.cluster.etcd.watch.entry_of", lambda *_: 1 / 0)
        server.put(f"{prefix}/subnets/10.3.2.0-24", value("1.1.1.2"))
        with pytest.raises(ZeroDivisionError):
            await soon(anext(events))
