"""Keeping the own lease in a real etcd: renewed in time, and its loss noticed."""

import asyncio
import contextlib
import logging
import math
import time
from random import Random
from types import SimpleNamespace

import pytest

from tests.support.etcd import VERSIONS
from tests.support.store import QUICK, attrs, chooser, netconf, nothing, nothing_more, soon, until, value
from tests.support.waiting import HANGS
from weft.cluster.etcd.keep import _Keeper
from weft.cluster.etcd.values import Proof
from weft.cluster.store import Store
from weft.model.cluster import Held, OwnLease, Revoked, TakenOver
from weft.model.errors import Problem, Unavailable
from weft.model.lease import Lease
from weft.model.value import replace

HOUR = 3600.0
MAC = "02:00:00:00:00:0"

# waits for clocks, which both versions read alike
ONE_VERSION = pytest.mark.parametrize("server", ["wheel"], indirect=True)


@contextlib.asynccontextmanager
async def keeping(store: Store, own: OwnLease, margin: float = HOUR):
    """What becomes of the own lease, beside the watch, by which its keeper hears."""

    async def heedless(_event):
        pass

    watching = asyncio.ensure_future(store.directory.watch(heedless))
    async with contextlib.aclosing(store.tenure.keep(own, margin=margin)) as events:
        yield events
    watching.cancel()
    await asyncio.wait((watching,))


def ends(event):
    return not isinstance(event, Held)


@pytest.mark.spec(
    "flannel.md 11.5/own-key",
    "flannel.md §4.6/own-key-add",
    "flannel.md §4.6/own-key-delete",
    "flannel.md §4.6/renewal-time",
    cases=VERSIONS,
)
async def test_held_renewed_deleted(server, make_store, prefix):
    store = make_store(server.url)
    own = await store.tenure.acquire(chooser(netconf(), attrs()))
    async with keeping(store, own, margin=86399.7) as events:
        assert await soon(anext(events)) == Held(own=own)
        renewed = (await soon(anext(events))).own
        assert renewed.expires > own.expires
        assert (renewed.lease, renewed.token.etcd_lease, renewed.token.mod_revision) == (
            own.lease,
            own.token.etcd_lease,
            own.token.mod_revision,
        )
        server.delete(f"{prefix}/subnets/{own.lease.id}")
        assert isinstance(await soon(anext(events)), Revoked)
        with pytest.raises(StopAsyncIteration):
            await soon(anext(events))
    again = await store.tenure.acquire(chooser(netconf(), attrs(), previous=(own.lease.v4, None)), recorded=own)
    assert again.lease.v4 == own.lease.v4  # in place, without a restart


@pytest.mark.spec("flannel.md 11.5/renewal", "flannel.md §4.6/renewal-time", "flannel.md §4.4/rewrite", cases="wheel")
@ONE_VERSION
async def test_a_renewal_gives_the_full_time_and_changes_nothing(server, make_store, prefix):
    store = make_store(server.url)
    began = time.monotonic()
    own = await store.tenure.acquire(chooser(netconf(), attrs(mac=MAC + "1")))
    before = server.get(f"{prefix}/subnets/{own.lease.id}")
    async with keeping(store, own, margin=86400 - 4) as events:
        await soon(anext(events))
        await soon(anext(events))
        left = server.ttl(own.token.etcd_lease)[0]
        assert left >= 86400 - (time.monotonic() - began) + 2, "the four seconds that it has lived are given back"
    assert server.get(f"{prefix}/subnets/{own.lease.id}") == before  # not even another revision


@pytest.mark.spec("flannel.md §4.6/renewal-time")
@ONE_VERSION
async def test_a_lease_shorter_than_the_margin_is_not_renewed_all_the_time(server, make_store, prefix):
    store = make_store(server.url)
    own = await store.tenure.acquire(chooser(netconf(), attrs()))
    async with keeping(store, own) as events:
        await soon(anext(events))
        short = server.put_leased(f"{prefix}/subnets/{own.lease.id}", value("1.2.3.4"), ttl=12)
        adopted = (await soon(anext(events))).own
        assert adopted.token.etcd_lease == short
        assert adopted.expires < time.time() + 13
        waiting = await nothing(events, 1.5)
        assert (await soon(waiting)).own.expires > adopted.expires  # after a third of its time


@pytest.mark.spec("flannel.md §4.6/renewal-error")
@ONE_VERSION
async def test_a_failed_renewal_is_tried_again(server, make_store, make_proxy, caplog):
    proxy = await make_proxy(server)
    store = make_store(proxy.url)
    own = await store.tenure.acquire(chooser(netconf(), attrs()))
    async with keeping(store, own, margin=86398) as events:
        await soon(anext(events))
        await proxy.cut()
        with caplog.at_level(logging.WARNING):
            waiting = await nothing(events, 3)
        assert "LEASE-004" in caplog.text
        await proxy.open()
        assert (await soon(waiting)).own.expires > own.expires


@ONE_VERSION
async def test_a_renewal_that_ends_without_an_answer_says_nothing_of_the_lease(server, make_store, monkeypatch):
    """A proxy between us and etcd may end it so; it counted as the end of the lease. etcd itself always answers."""
    store = make_store(server.url)
    own = await store.tenure.acquire(chooser(netconf(), attrs()))

    async def ended(_: object) -> None:
        await asyncio.sleep(0)

    with monkeypatch.context() as patch:
        patch.setattr("weft.cluster.etcd.link.Conversation.receive", ended)
        with pytest.raises(Unavailable, match=r"STORE-001 .*without an answer"):
            await store.tenure.renew(own.token.etcd_lease)
    assert await store.tenure.renew(own.token.etcd_lease) == 86400


@pytest.mark.spec("flannel.md §4.6/own-key-read-fails")
async def test_a_first_look_that_fails_is_made_again(server, make_store, make_proxy, prefix):
    proxy = await make_proxy(server)
    store = make_store(proxy.url)
    own = await store.tenure.acquire(chooser(netconf(), attrs()))
    await proxy.cut()
    async with keeping(store, own) as events:
        waiting = await nothing(events)
        await proxy.open()
        assert await soon(waiting) == Held(own=own)
        server.delete(f"{prefix}/subnets/{own.lease.id}")
        assert isinstance(await soon(anext(events)), Revoked)


@pytest.mark.spec("flannel.md §4.6/store-down-data-plane")
async def test_a_store_that_is_down_ends_nothing(own_server, make_store):
    store = make_store(own_server.url)
    own = await store.tenure.acquire(chooser(netconf(), attrs()))
    async with keeping(store, own) as events:
        await soon(anext(events))
        own_server.stop()
        waiting = await nothing(events, 0.5)
        own_server.start()
        await asyncio.wait((waiting,), timeout=0.5)
        assert not waiting.done()
        own_server.delete("/test", "--prefix")
        assert isinstance(await soon(waiting), Revoked)


async def cut_off_while(proxy, events, change):
    """Let `change` and a compaction happen while the keeper cannot see it; what it says then."""
    waiting = await nothing(events, 0.1)
    await proxy.cut()
    change()
    await proxy.open()
    return await soon(waiting)


@pytest.mark.spec("flannel.md 11.5/own-key-compacted-present")
async def test_a_key_written_below_a_compaction_is_seen(server, make_store, make_proxy, prefix):
    proxy = await make_proxy(server)
    store = make_store(proxy.url)
    own = await store.tenure.acquire(chooser(netconf(), attrs()))

    def change():
        server.put(f"{prefix}/subnets/{own.lease.id}", value("1.2.3.4"), lease=own.token.etcd_lease)
        server.compact()

    async with keeping(store, own) as events:
        await soon(anext(events))
        held = await cut_off_while(proxy, events, change)
        assert held.own.token.mod_revision > own.token.mod_revision
        server.delete(f"{prefix}/subnets/{own.lease.id}")
        assert isinstance(await soon(anext(events)), Revoked)


@pytest.mark.spec("flannel.md 11.5/own-key-compacted-deleted")
async def test_a_key_deleted_below_a_compaction_is_missed(server, make_store, make_proxy, prefix):
    proxy = await make_proxy(server)
    store = make_store(proxy.url)
    own = await store.tenure.acquire(chooser(netconf(), attrs()))

    def change():
        server.delete(f"{prefix}/subnets/{own.lease.id}")
        server.compact()

    async with keeping(store, own) as events:
        await soon(anext(events))
        assert isinstance(await cut_off_while(proxy, events, change), Revoked)


async def test_a_lease_that_ran_out_is_noticed_at_renewal(server, make_store, prefix, monkeypatch):
    store = make_store(server.url)
    own = await store.tenure.acquire(chooser(netconf(), attrs()))
    monkeypatch.setattr(store.tenure.touched, "set", lambda: None)  # the watch says nothing
    async with keeping(store, own, margin=86397) as events:
        assert isinstance(await soon(anext(events)), Held)
        server.ctl("lease", "revoke", f"{own.token.etcd_lease:x}")
        event = await soon(anext(events))
        assert isinstance(event, Revoked)
        assert "expired" in event.reason


async def test_another_node_that_takes_the_key_is_noticed_and_not_fought(server, make_store, prefix):
    store, twin = make_store(server.url), make_store(server.url)
    own = await store.tenure.acquire(chooser(netconf(), attrs(mac=MAC + "1")))
    async with keeping(store, own) as events:
        await soon(anext(events))
        theirs = await twin.tenure.acquire(chooser(netconf(), attrs(mac=MAC + "2")))
        assert theirs.lease.id == own.lease.id
        event = await soon(anext(events))
        assert isinstance(event, TakenOver)
        assert event.lease.attrs == attrs(mac=MAC + "2")
        assert "1.2.3.4" in event.reason
    with pytest.raises(Unavailable) as raised:
        await store.tenure.acquire(chooser(netconf(), attrs(mac=MAC + "1")), recorded=own)
    [problem] = raised.value.problems
    assert problem.code == "IFACE-001"
    assert MAC + "2" in problem.seen
    async with contextlib.aclosing(twin.tenure.keep(theirs, margin=HOUR)) as events:
        await soon(anext(events))
        await nothing_more(events)
    server.delete(f"{prefix}/subnets/{own.lease.id}")
    assert await store.tenure.acquire(chooser(netconf(), attrs(mac=MAC + "1")))


async def test_a_key_that_somebody_spoiled_is_not_ours(server, make_store, prefix):
    store = make_store(server.url)
    own = await store.tenure.acquire(chooser(netconf(), attrs()))
    async with keeping(store, own) as events:
        await soon(anext(events))
        server.put(f"{prefix}/subnets/{own.lease.id}", "no JSON")
        assert await soon(anext(events)) == TakenOver(
            lease=None, reason=f"lease {own.lease.id} was written by somebody who cannot be read"
        )


async def test_a_key_with_more_in_it_than_is_ever_received_is_not_ours(own_server, make_store, prefix):
    own_server.stop()
    own_server.start("--max-request-bytes", str(16 << 20))
    store = make_store(own_server.url, timing=replace(QUICK, call=10, pong=10))
    own = await store.tenure.acquire(chooser(netconf(), attrs()))
    async with keeping(store, own) as events:
        await soon(anext(events))
        own_server.fill([(f"{prefix}/subnets/{own.lease.id}", "x" * (5 << 20))])
        event = await soon(anext(events))
        assert isinstance(event, TakenOver)
        assert "somebody who cannot be read" in event.reason
    again = await store.tenure.acquire(chooser(netconf(), attrs()))
    assert again.lease.id != own.lease.id, "it is somebody's, so it is not free"


async def test_other_keys_are_not_looked_at(server, make_store, prefix, monkeypatch):
    """Neither a longer one nor one behind it: of a cluster's changes, a node looks at those of its own key alone."""
    store = make_store(server.url, timing=replace(QUICK, call=10, pong=10))
    own = await store.tenure.acquire(chooser(netconf(), attrs()))
    read, looks = store.tenure.read, []
    monkeypatch.setattr(store.tenure, "read", lambda own: looks.append(own) or read(own))
    async with keeping(store, own) as events:
        await soon(anext(events))
        waiting = await nothing(events)
        looks.clear()
        # Beside the loop, so that each change is seen by itself.
        for other in (f"{own.lease.id}&fc00::-64", "10.3.99.0-24"):
            await asyncio.to_thread(server.put, f"{prefix}/subnets/{other}", value("9.9.9.9"))
            await asyncio.to_thread(server.delete, f"{prefix}/subnets/{other}")
        mine = f"{prefix}/subnets/{own.lease.id}"
        await asyncio.to_thread(server.put, mine, value("1.2.3.4"), lease=own.token.etcd_lease)
        assert (await soon(waiting)).own.token.mod_revision > own.token.mod_revision
    assert len(looks) == 1, "when the own key was written"


@pytest.mark.spec("flannel.md §4.5/reservation")
async def test_a_lease_made_a_reservation_is_one(server, make_store, prefix):
    store = make_store(server.url)
    own = await store.tenure.acquire(chooser(netconf(), attrs(mac=MAC + "1")))
    async with keeping(store, own) as events:
        await soon(anext(events))
        server.put(f"{prefix}/subnets/{own.lease.id}", value("1.2.3.4"))
        held = await until(events, lambda event: event.own.expires is None)
        kv = server.get(f"{prefix}/subnets/{own.lease.id}")
        assert kv.lease == 0
        assert MAC + "1" in kv.value
        assert held[-1].own.expires is None


@pytest.mark.spec("flannel.md §4.5/reservation")
@ONE_VERSION
async def test_a_reservation_is_watched_but_not_renewed(server, make_store, prefix):
    server.put(f"{prefix}/subnets/10.3.9.0-24", value("1.2.3.4"))
    store = make_store(server.url)
    own = await store.tenure.acquire(chooser(netconf(), attrs()))
    async with keeping(store, own, margin=10**9) as events:
        assert await soon(anext(events)) == Held(own=own)
        waiting = await nothing(events)
        assert server.get(f"{prefix}/subnets/10.3.9.0-24").lease == 0
        server.put(f"{prefix}/subnets/10.3.9.0-24", value("9.9.9.9"))
        assert isinstance(await soon(waiting), TakenOver)


async def test_what_we_publish_ourselves_is_held(server, make_store, prefix):
    store = make_store(server.url)
    own = await store.tenure.acquire(chooser(netconf(), attrs(mac=MAC + "1")))
    async with keeping(store, own) as events:
        await soon(anext(events))
        published = await store.tenure.publish(own, attrs(mac=MAC + "2"))
        assert await soon(anext(events)) == Held(own=published)


async def test_an_earlier_lease_is_kept_by_a_new_process(server, make_store, prefix):
    own = await make_store(server.url).tenure.acquire(chooser(netconf(), attrs()))
    store = make_store(server.url)
    async with keeping(store, own) as events:
        assert await soon(anext(events)) == Held(own=own)
        server.put(f"{prefix}/subnets/{own.lease.id}", value("1.2.3.4"), lease=own.token.etcd_lease)
        assert (await soon(anext(events))).own.token.mod_revision > own.token.mod_revision


async def test_a_fault_of_our_own_is_not_hidden(server, make_store, monkeypatch):
    store = make_store(server.url)
    own = await store.tenure.acquire(chooser(netconf(), attrs()))
    monkeypatch.setattr(store.tenure, "read", lambda _own: 1 / 0)
    async with keeping(store, own) as events:
        with pytest.raises(ZeroDivisionError):
            await soon(anext(events))


@ONE_VERSION
@pytest.mark.parametrize("gone", [False, True], ids=["lives", "revoked"])
async def test_a_lease_that_moves_during_a_renewal_is_kept_as_it_is_now(server, make_store, prefix, monkeypatch, gone):
    """What the answer says is about the etcd lease that the key hung on before."""
    store = make_store(server.url)
    own = await store.tenure.acquire(chooser(netconf(), attrs()))
    asked, answer = asyncio.Event(), asyncio.Event()
    renew = store.tenure.renew

    async def slow(etcd_lease):
        if etcd_lease == own.token.etcd_lease:
            asked.set()
            await answer.wait()
        return await renew(etcd_lease)

    monkeypatch.setattr(store.tenure, "renew", slow)
    async with keeping(store, own, margin=86400) as events:
        assert await soon(anext(events)) == Held(own=own)
        await soon(asked.wait())
        short = server.put_leased(f"{prefix}/subnets/{own.lease.id}", value("1.2.3.4"), ttl=300)
        moved = (await soon(anext(events))).own
        assert moved.token.etcd_lease == short
        assert moved.expires < time.time() + 301
        if gone:
            server.ctl("lease", "revoke", f"{own.token.etcd_lease:x}")
        answer.set()
        await nothing_more(events)  # neither lost nor longer


def keeper(own: OwnLease, *, margin: float, now=lambda: 1000.0) -> _Keeper:
    """A keeper that is only asked when it would renew."""
    idle = SimpleNamespace(hold=lambda _own: None, timing=QUICK, now=now, chance=Random(1))
    return _Keeper(idle, own, margin)  # type: ignore[arg-type]


@pytest.mark.spec("flannel.md §4.6/renewal-time")
@pytest.mark.parametrize(
    "expires, due",
    [
        pytest.param(None, math.inf, id="a reservation never"),
        pytest.param(1000.0 + 86400, 1000.0 + 82800, id="the margin before its end"),
        pytest.param(1000.0 + 3601, 1000.0 + 1, id="just longer than the margin"),
        pytest.param(1000.0 + 3600, 1000.0 + 1200, id="as long as the margin: after a third"),
        pytest.param(1000.0 + 6, 1000.0 + 2, id="shorter than the margin: after a third"),
    ],
)
async def test_when_a_lease_is_renewed(expires, due):
    own = OwnLease(lease=Lease(id="x", v4=None, v6=None, attrs=attrs()), expires=expires, token=Proof(1, 1))
    assert keeper(own, margin=HOUR)._renewal(own) == due


@ONE_VERSION
async def test_time_that_passes_unseen_is_noticed(server, make_store, monkeypatch):
    """A machine that slept tells nobody, so that the clock is looked at now and then."""
    monkeypatch.setattr("weft.cluster.etcd.keep._LOOK", 0.05)
    slept = 0.0
    store = make_store(server.url, now=lambda: time.monotonic() + slept)
    own = await store.tenure.acquire(chooser(netconf(), attrs()))
    async with keeping(store, own) as events:
        await soon(anext(events))
        waiting = await nothing(events)
        slept = 23.5 * HOUR
        assert (await soon(waiting)).own.expires > own.expires + 23 * HOUR


async def test_looks_that_fail_come_less_and_less_often(server, make_store, monkeypatch):
    store = make_store(server.url)
    own = await store.tenure.acquire(chooser(netconf(), attrs()))
    read, sleep = store.tenure.read, asyncio.sleep
    pauses: list[float] = []

    async def failing(_own):
        raise Unavailable(Problem(code="STORE-001", where="etcd", seen="away"))

    async def once(own):
        monkeypatch.setattr(store.tenure, "read", failing)
        kv = await read(own)
        store.tenure.touched.set()
        return kv

    async def paused(seconds):
        pauses.append(seconds)
        if len(pauses) == 5:
            monkeypatch.setattr(store.tenure, "read", once)
        await sleep(0)

    monkeypatch.setattr("weft.cluster.etcd.keep.asyncio.sleep", paused)
    monkeypatch.setattr(store.tenure, "read", failing)
    monkeypatch.setattr(store.tenure.chance, "random", lambda: 1.0)
    async with contextlib.aclosing(store.tenure.keep(own, margin=HOUR)) as events:
        assert await soon(anext(events)) == Held(own=own)
        async with asyncio.timeout(HANGS):
            while len(pauses) < 8:
                await sleep(0.001)
    # Doubled up to the most; after a look that worked, from the beginning.
    assert pauses[:8] == [0.02, 0.04, 0.08, 0.1, 0.1, 0.02, 0.04, 0.08]
