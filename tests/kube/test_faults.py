"""What the API does only now and then: forgets, breaks off, falls silent, refuses for a while, goes back in time."""

import asyncio
import gzip
import json
import random
import time
import tracemalloc
from contextlib import aclosing, asynccontextmanager, suppress
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from tests.kube import fakekubeapi
from tests.kube.fakekubeapi import Fault, gone
from tests.support.kubernetes import kubeobjects
from tests.support.kubernetes.apiserver import ADMIN
from tests.support.kubernetes.kubeobjects import NODES, PREFIX, flannel
from tests.support.store import chooser, netconf, nothing, said, soon
from tests.support.waiting import HANGS, comes, in_time
from weft.cluster.kube.access import Access, Pem, Timing
from weft.cluster.kube.client import Client
from weft.cluster.kube.credentials import Fixed
from weft.cluster.kube.problems import ExpiredError
from weft.cluster.kube.store import open_kube
from weft.config.kubernetes import Surroundings
from weft.model.cluster import Changed, Listed, Lost
from weft.model.errors import Unavailable
from weft.model.lease import LeaseAttrs
from weft.model.value import Secret

QUICK = Timing(connect=0.5, call=0.5, backoff=0.01, backoff_most=0.05)


@pytest.fixture
async def fake():
    async with fakekubeapi.running() as made:
        made.put("n1", "10.244.1.0/24")
        made.put("n2", "10.244.2.0/24", flannel("192.168.1.2"))
        yield made


@asynccontextmanager
async def stored(fake, timing=QUICK):
    store = open_kube(
        Access(url=fake.url, timing=timing),
        Surroundings(node="n1"),
        prefix=PREFIX,
        net_conf=Path("/nonexistent"),
        tells=True,
        now=time.monotonic,
        chance=random.Random(7),
    )
    yield store
    store.close()
    await asyncio.sleep(0.01)


@asynccontextmanager
async def watched(fake):
    """A watch of all nodes that has told its list, which is given, too."""
    async with stored(fake) as store, aclosing(said(store)) as events:
        listed = await soon(anext(events))
        assert isinstance(listed, Listed)
        async with asyncio.timeout(HANGS):
            while not any("watch=1" in line for line in fake.requests):  # noqa: ASYNC110 - a list gives no sign
                await asyncio.sleep(0.005)
        yield events, listed


def move(fake, address):
    fake.put("n2", "10.244.2.0/24", flannel(address))


async def sees(events, address):
    """Wait for the word that n2 has this address; returns the events until then."""
    seen = []
    async with asyncio.timeout(HANGS):
        async for event in events:
            seen.append(event)
            leases = event.leases if isinstance(event, Listed) else event.put if isinstance(event, Changed) else ()
            if any(lease.attrs.public_ip == IPv4Address(address) for lease in leases):
                return seen
    raise AssertionError("the watch ended")


FAULTS = {
    "forgotten": gone(),
    "forgotten in the stream": gone(in_stream=True),
    "an error": Fault(status=500),
    "an error in the stream": Fault(in_stream=500),
    "cut in the middle of a line": Fault(after=40),
    "cut at once": Fault(after=0),
    "too many requests": Fault(status=429, headers={"Retry-After": "0"}),
    "silent": Fault(silent=True),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
async def test_a_watch_that_fails_loses_no_change(fake, fault):
    fake.fail("watch", fault)
    async with watched(fake) as (events, _):
        move(fake, "192.168.1.22")
        await sees(events, "192.168.1.22")
        fake.fail("watch", fault, fault, fault)
        fake.drop()
        move(fake, "192.168.1.23")
        seen = await sees(events, "192.168.1.23")
    assert not isinstance(seen[-1], Lost)


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
async def test_a_list_that_fails_is_asked_for_again(fake, fault):
    for number in range(250):
        fake.put(f"p{number}", f"10.245.{number}.0/24", flannel(f"192.168.3.{number}"))
    fake.fail("list", Fault(), fault)  # the second page
    async with stored(fake) as store, aclosing(said(store)) as events:
        event = await soon(anext(events))
        while isinstance(event, Lost):
            event = await soon(anext(events))
    assert isinstance(event, Listed)
    assert len(event.leases) == 251


async def test_a_list_that_is_forgotten_each_time_is_a_store_that_is_away(fake):
    for number in range(150):
        fake.put(f"p{number}", f"10.245.{number}.0/24", flannel(f"192.168.3.{number}"))
    fake.fail("list", *[Fault(), gone()] * 5)
    async with stored(fake) as store, aclosing(said(store)) as events:
        lost = await soon(anext(events))
        assert isinstance(lost, Lost)
        assert "it has forgotten 5 lists of /api/v1/nodes before their last page" in lost.reason
        assert isinstance(await soon(anext(events)), Listed)


async def test_a_first_page_that_is_forgotten_is_a_refusal(fake):
    """It asks for no version, so no other list would be another one."""
    fake.fail("list", gone())
    async with stored(fake) as store, aclosing(said(store)) as events:
        lost = await soon(anext(events))
        assert isinstance(lost, Lost)
        assert "it refuses: Expired" in lost.reason


async def test_slow_pages_are_waited_for(fake):
    fake.fail("list", Fault(seconds=0.3))
    async with watched(fake) as (_, listed):
        assert [lease.id for lease in listed.leases] == ["n2"]


async def test_a_server_that_wants_a_pause_gets_it(fake):
    async with watched(fake) as (events, _):
        fake.fail("watch", Fault(status=429, headers={"Retry-After": "1"}))
        before = len(fake.requests)
        fake.drop()
        began = time.monotonic()
        move(fake, "192.168.1.22")
        await sees(events, "192.168.1.22")
    assert time.monotonic() - began > 1
    assert len([line for line in fake.requests[before:] if "watch" in line]) == 2


async def test_an_object_that_is_gone_is_a_refusal(fake):
    """Lists and watches alone have a past that can be forgotten."""
    fake.fail("get", gone())
    async with stored(fake) as store:
        with pytest.raises(Unavailable, match=r"STORE-002 .*it refuses: Expired"):
            await store.tenure.addresses(None)


async def test_an_api_that_goes_back_in_time_is_listed_again(fake):
    """As after a restored snapshot of its store: a watch from a version ahead of it would be silent."""
    async with watched(fake) as (events, listed):
        fake.rewind(50)
        move(fake, "192.168.1.22")
        seen = await sees(events, "192.168.1.22")
        again = next(event for event in seen if isinstance(event, Listed))
    async with stored(fake) as store:
        assert not store.directory.continues(listed.mark, {}, again)
        assert store.directory.continues(again.mark, {}, listed)


async def test_a_break_that_is_mended_at_once_is_not_said(fake):
    async with watched(fake) as (events, _):
        fake.drop()
        pending = await nothing(events)
        move(fake, "192.168.1.22")
        assert isinstance(await soon(pending), Changed)


async def test_annotations_that_cannot_be_put_back_are_a_problem_until_they_are(fake):
    attrs = LeaseAttrs(public_ip=IPv4Address("192.168.1.1"), backend="host-gw")
    async with stored(fake) as store:
        own = await store.tenure.acquire(chooser(netconf("10.244.0.0/16", "10.244.1.0", "10.244.255.0"), attrs))
        assert store.tenure.unpublished is None
        async with aclosing(said(store)) as events, aclosing(store.tenure.keep(own, margin=60)) as news:
            await soon(anext(events))
            await soon(anext(news))
            pending = [asyncio.ensure_future(anext(each)) for each in (events, news)]
            fake.fail("patch", *[Fault(status=403)] * 3)
            fake.put("n1", "10.244.1.0/24", flannel("192.168.1.66"))
            await comes(lambda: store.tenure.unpublished is not None)
            assert "and it is not put back: API-001" in str(store.tenure.unpublished)
            await comes(lambda: store.tenure.unpublished is None)
            for each in pending:
                each.cancel()
            await asyncio.gather(*pending, return_exceptions=True)


async def test_a_line_that_is_no_event_is_a_loss_and_not_the_end(fake, monkeypatch):
    lines = [b"[]\n", b"{\n", b'{"type": "MODIFIED", "object": {"metadata": {}}}\n']
    line = fakekubeapi._line
    monkeypatch.setattr(fakekubeapi, "_line", lambda event: lines.pop(0) if lines else line(event))
    async with watched(fake) as (events, _):
        move(fake, "192.168.1.22")
        seen = await sees(events, "192.168.1.22")
    assert any(isinstance(event, Lost) and event.refused for event in seen)


async def test_a_server_that_hangs_is_said_within_half_a_minute_and_so_is_a_watch_that_is_held(fake):
    """As one that is stopped, or a balancer that holds connections: times here are a tenth of the real ones."""
    timing = Timing(connect=0.5, call=1.0, backoff=0.01, backoff_most=1.0, quiet=1.0)
    async with stored(fake, timing) as store, aclosing(said(store)) as events:
        await soon(anext(events))
        fake.fail("watch", *[Fault(silent=True)] * 9)
        fake.fail("list", *[Fault(silent=True)] * 9)
        began = time.monotonic()
        lost = await soon(anext(events))
        assert isinstance(lost, Lost)
        assert in_time(began, 3.0)


async def test_a_watch_that_is_held_beside_an_api_that_answers_is_made_anew_without_a_list(fake):
    timing = Timing(connect=0.5, call=1.0, backoff=0.01, backoff_most=1.0, quiet=0.1, held=0.5)
    async with stored(fake, timing) as store, aclosing(said(store)) as events:
        fake.fail("watch", Fault(held=True))
        listed = await soon(anext(events))
        assert isinstance(listed, Listed)
        await comes(lambda: any("watch=1" in line for line in fake.requests))
        move(fake, "192.168.1.22")
        seen = await sees(events, "192.168.1.22")
    assert all(isinstance(event, Changed) for event in seen)
    lists = [line for line in fake.requests if "watch=1" not in line and "limit=1&" not in f"{line}&"]
    assert len(lists) == 1


async def test_a_quiet_cluster_keeps_its_watch_and_hears_of_the_api_all_the_time(fake):
    timing = Timing(connect=0.5, call=1.0, backoff=0.01, backoff_most=1.0, quiet=0.1)
    async with stored(fake, timing) as store, aclosing(said(store)) as events:
        await soon(anext(events))
        pending = asyncio.ensure_future(anext(events))
        await comes(lambda: sum("limit=1&" in f"{line}&" for line in fake.requests) > 5)
        heard = store.directory.heard
        await comes(lambda: store.directory.heard > heard)
        assert sum("watch=1" in line for line in fake.requests) == 1
        assert not pending.done()
        pending.cancel()
        await asyncio.gather(pending, return_exceptions=True)


async def test_without_the_right_to_list_policies_nothing_is_known_and_an_api_without_them_has_none(fake):
    """Both may change while a daemon runs."""
    async with stored(fake) as store:
        assert await store.settings.policies() == 0
        fake.fail("get", Fault(status=403))
        with pytest.raises(Unavailable, match="API-001"):
            await store.settings.policies()
        assert await store.settings.policies() == 0


@asynccontextmanager
async def answering(head: bytes, *bodies: bytes):
    """A server that gives each connection the next answer, and the last one again and again."""
    left = list(bodies)

    async def serve(reader, writer):
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n\r\n" + (left.pop(0) if len(left) > 1 else left[0]))
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    client = Client(Access(url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", timing=Timing(call=5.0)))
    try:
        yield client
    finally:
        client.close()
        server.close()
        await asyncio.sleep(0.01)


async def lines_of(client):
    async with client.watch(NODES, lasts=5, resourceVersion="1") as link:
        return [line async for lines in link.lines(1.0) for line in lines]


async def test_answers_are_unpacked_and_counted_as_they_came():
    body = b'{"items": []}' * 10_000
    packed = gzip.compress(body)
    async with answering(b"Content-Encoding: gzip\r\nConnection: close", packed) as client:
        assert await client.get(NODES) == body
        lines = gzip.compress(b"one\ntwo\nthree\n")
        assert client.tallies["list 200"].asked == 1
        assert len(packed) < client.tallies["list 200"].received < len(packed) + 200
    async with answering(b"Content-Encoding: gzip\r\nConnection: close", lines) as client:
        assert await lines_of(client) == [b"one", b"two", b"three"]


@pytest.mark.parametrize("what", ["body", "line"])
async def test_what_becomes_more_than_any_answer_is_refused_before_it_is_unpacked(what):
    """A megabyte of zeros takes a kilobyte, so 64 kB may be 64 MB."""
    bomb = gzip.compress(bytes(128 << 20))
    tracemalloc.start()
    async with answering(b"Content-Encoding: gzip\r\nConnection: close", bomb) as client:
        with pytest.raises(Unavailable, match=r"more than \d+ bytes"):
            await (client.get(NODES) if what == "body" else lines_of(client))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 80 << 20


@pytest.mark.parametrize("size, whole", [((16 << 20) - 10, True), ((16 << 20) + 10, False)])
@pytest.mark.parametrize("ended", [True, False])
async def test_a_line_may_have_sixteen_megabytes_and_no_more(size, whole, ended):
    body = b"x" * size + (b"\n" if ended else b"") + b"y\n" * ended
    async with answering(b"Connection: close", body) as client:
        if whole:
            assert len(await lines_of(client)) == 2 * ended
        else:
            with pytest.raises(Unavailable, match="a line of more than 16777216 bytes"):
                await lines_of(client)


@pytest.mark.parametrize(
    "encoding, body", [(b"gzip", b"no gzip"), (b"br", b"x"), (b"gzip", gzip.compress(b"x" * 10**6)[:900])]
)
async def test_an_answer_that_cannot_be_unpacked_is_a_loss(encoding, body):
    async with answering(b"Content-Encoding: " + encoding + b"\r\nContent-Length: 999999", body) as client:
        with pytest.raises(Unavailable, match="STORE-001"):
            await client.get(NODES)


@pytest.mark.parametrize("kept", [False, True])
async def test_dropped_connections_end_a_call_that_is_under_way(fake, kept):
    """As when the uplink has another address: nothing more arrives at the one that the connection is from."""
    client = Client(Access(url=fake.url, timing=Timing(call=60.0)))
    if kept:
        await client.get(f"{NODES}/n1")
    fake.fail("get", Fault(silent=True))
    before = len(fake.requests)
    asked = asyncio.ensure_future(client.get(f"{NODES}/n1"))
    await comes(lambda: len(fake.requests) > before)
    client.close()
    if kept:  # it may have been closed before it was asked
        assert json.loads(await soon(asked))["metadata"]["name"] == "n1"
    else:
        with pytest.raises(Unavailable, match="STORE-001"):
            await soon(asked)
    client.close()
    await asyncio.sleep(0.01)


# --- The fake answers as the real one does


@asynccontextmanager
async def client_of(which, apiserver):
    if which == "fake":
        async with fakekubeapi.running() as fake:
            fake.put("n1", "10.244.1.0/24", {"a": "1"})
            fake.put("n2", "10.244.2.0/24")
            client = Client(Access(url=fake.url, timing=QUICK))
            yield client
            client.close()
            await asyncio.sleep(0.01)
        return
    kubeobjects.add_node(apiserver.admin, "n1", "10.244.1.0/24", annotations={"a": "1"})
    kubeobjects.add_node(apiserver.admin, "n2", "10.244.2.0/24")
    access = Access(url=apiserver.url, ca=Pem(file=apiserver.ca), credentials=Fixed(Secret(ADMIN)))
    client = Client(access)
    yield client
    client.close()
    await asyncio.sleep(0.01)


async def first_events(client, version, count):
    kinds = []
    async with client.watch(NODES, lasts=5, resourceVersion=version, allowWatchBookmarks="true") as link:
        async for lines in link.lines(1.0):
            kinds += [(event["type"], event["object"]["metadata"]["name"]) for event in map(json.loads, lines)]
            if len(kinds) >= count:
                return kinds
    raise AssertionError(kinds)


@pytest.mark.parametrize("which", ["real", "fake"])
async def test_the_fake_answers_each_request_as_the_real_one(apiserver, which):
    async with client_of(which, apiserver) as client:
        page = json.loads(await client.get(NODES, limit="1"))
        assert [node["metadata"]["name"] for node in page["items"]] == ["n1"]
        rest = json.loads(await client.get(NODES, **{"limit": "1", "continue": page["metadata"]["continue"]}))
        assert [node["metadata"]["name"] for node in rest["items"]] == ["n2"]
        assert "continue" not in rest["metadata"]
        version = rest["metadata"]["resourceVersion"]

        node = json.loads(await client.get(f"{NODES}/n1"))
        assert node["spec"]["podCIDRs"] == ["10.244.1.0/24"]
        with pytest.raises(Unavailable, match=r'STORE-002 .*/nodes/n9: nodes "n9" not found'):
            await client.get(f"{NODES}/n9")

        patch = json.dumps({"metadata": {"annotations": {"a": None, "b": "2"}}}).encode()
        patched = json.loads(await client.patch(f"{NODES}/n1/status", patch))
        assert patched["metadata"]["annotations"] == {"b": "2"}
        assert int(patched["metadata"]["resourceVersion"]) > int(version)
        again = json.loads(await client.patch(f"{NODES}/n1/status", patch))
        assert again["metadata"]["resourceVersion"] == patched["metadata"]["resourceVersion"]
        assert await first_events(client, version, 1) == [("MODIFIED", "n1")]


async def test_the_fakes_410_is_the_real_ones(own_apiserver, fake):
    server = own_apiserver
    kubeobjects.add_node(server.admin, "n1", "10.244.1.0/24")
    version = server.admin.get(NODES, limit=1)["metadata"]["resourceVersion"]
    kubeobjects.annotate(server.admin, "n1", a="1")
    server.kill()
    server.start()
    kubeobjects.annotate(server.admin, "n1", a="2")
    with server.admin.watch(NODES, resourceVersion=version) as events:
        real = next(events)
    made = fakekubeapi.status(410)
    assert real["type"] == "ERROR"
    assert (real["object"]["kind"], real["object"]["code"], real["object"]["reason"]) == (
        made["kind"], made["code"], made["reason"],
    )  # fmt: skip
    client = Client(Access(url=fake.url, timing=QUICK))
    fake.fail("list", gone())
    with pytest.raises(ExpiredError):
        await client.get(NODES, **{"limit": "1", "continue": "x"})
    client.close()
    await asyncio.sleep(0.01)
