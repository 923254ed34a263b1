"""Reaching an etcd: endpoints, TLS, users, and what is said when something else answers."""

import asyncio
import contextlib
import logging
import os
import shutil
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.support import etcd as support
from tests.support.etcd import Etcd, free_ports, make_certs
from tests.support.store import QUICK, attrs, chooser, netconf, nothing, said, soon, until, value
from weft.cluster.etcd.access import Access, parse_endpoints, password_in, tls_context
from weft.cluster.etcd.client import Client
from weft.cluster.etcd.link import BrokenError
from weft.cluster.reach import Endpoint
from weft.cluster.secretfile import SecretFile
from weft.model.cluster import Changed, Listed, Lost
from weft.model.errors import ConfigError, Unavailable
from weft.model.value import Secret

PASSWORD = "hunter2-8a91"

# waits for clocks, which both versions read alike
ONE_VERSION = pytest.mark.parametrize("server", ["wheel"], indirect=True)


async def fails(store, kind):
    """How a store that cannot work says so."""
    with pytest.raises(kind) as raised:
        await soon(store.settings.net_conf())
    return raised.value.problems


# --- endpoints


@pytest.mark.spec("flannel.md §4.1/v3-endpoints")
async def test_the_first_endpoint_that_answers_is_used(server, make_store):
    [dead] = free_ports(1)
    store = make_store(f"http://127.0.0.1:{dead}", server.url)
    assert await store.tenure.acquire(chooser(netconf(), attrs()))


@pytest.mark.spec("flannel.md §4.1/v3-endpoints")
async def test_no_endpoint_answers(make_store):
    urls = [f"http://127.0.0.1:{port}" for port in free_ports(2)]
    problems = await fails(make_store(*urls), Unavailable)
    assert [(problem.code, problem.where) for problem in problems] == [("STORE-001", url) for url in urls]
    assert all("refused" in problem.seen.lower() for problem in problems)
    assert "--etcd-endpoints" in problems[0].hint


async def test_a_call_whose_connection_breaks_goes_to_the_next_endpoint(server, make_store, make_proxy, prefix):
    server.put(f"{prefix}/config", "{}")
    one, two = await make_proxy(server), await make_proxy(server)
    store = make_store(one.url, two.url)
    assert await store.settings.net_conf() == "{}"
    await one.cut()
    assert await store.settings.net_conf() == "{}"
    await one.open()
    await two.cut()
    assert await store.settings.net_conf() == "{}"


@pytest.mark.spec("flannel.md §4.1/no-deadline")
@ONE_VERSION
async def test_every_call_has_a_deadline_and_is_made_again(server, make_store, make_proxy):
    proxy = await make_proxy(server)
    store = make_store(proxy.url)
    await store.directory.list()
    proxy.freeze()
    [problem] = await fails(store, Unavailable)
    assert (problem.code, problem.seen) == ("STORE-001", f"no answer within {QUICK.call:.0f} s")
    proxy.thaw()
    assert (await soon(store.directory.list())).leases == ()


async def test_a_write_whose_answer_is_lost_is_not_sent_twice(server, make_store, make_proxy, prefix):
    proxy = await make_proxy(server)
    store, sent = make_store(proxy.url, server.url), []
    own = await store.tenure.acquire(chooser(netconf(), attrs()))
    ask = store.directory._client._ask

    async def losing(link, method, request, timeout):  # noqa: ASYNC109
        sent.append(type(request).__name__)
        await ask(link, method, request, timeout)
        raise BrokenError(ConnectionResetError())

    store.directory._client._ask = losing
    with pytest.raises(Unavailable, match="the connection broke"):
        await store.tenure.publish(own, attrs(mac="02:00:00:00:00:01"))
    assert sent == ["TxnRequest"]
    store.directory._client._ask = ask
    again = await store.tenure.acquire(chooser(netconf(), attrs(mac="02:00:00:00:00:01")))  # finds what it wrote
    assert again.lease.id == own.lease.id


async def test_cancelling_a_call_cancels_it(server, make_store, make_proxy):
    proxy = await make_proxy(server)
    store = make_store(proxy.url)
    await store.directory.list()
    proxy.freeze()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(store.settings.net_conf())
        await asyncio.sleep(0.1)
        task.cancel()
    assert task.cancelled()


async def test_a_broken_connection_leaves_no_mark_on_the_callers_task(server, make_store, make_proxy):
    proxy = await make_proxy(server)
    store = make_store(proxy.url)
    await store.directory.list()
    proxy.freeze()
    waiting = asyncio.create_task(store.settings.net_conf())
    await asyncio.sleep(0.1)
    await proxy.cut()
    with pytest.raises(Unavailable):
        await soon(waiting)
    assert waiting.cancelling() == 0


@pytest.mark.parametrize(
    "text, endpoint",
    [
        ("http://127.0.0.1:2379", Endpoint(url="http://127.0.0.1:2379", host="127.0.0.1", port=2379, tls=False)),
        ("https://etcd.example/", Endpoint(url="https://etcd.example/", host="etcd.example", port=2379, tls=True)),
        ("http://[fd00::1]:4001", Endpoint(url="http://[fd00::1]:4001", host="fd00::1", port=4001, tls=False)),
        ("10.0.0.1:2379", Endpoint(url="http://10.0.0.1:2379", host="10.0.0.1", port=2379, tls=False)),
    ],
)
def test_endpoints_are_read(text, endpoint):
    assert parse_endpoints(Access(endpoints=(text,))) == (endpoint,)


def test_an_endpoint_without_a_scheme_uses_tls_when_there_are_certificates():
    assert parse_endpoints(Access(endpoints=("h:1",), ca_file="ca.pem"))[0].tls


def test_all_bad_endpoints_are_named_and_no_password():
    urls = ("ftp://x", "http://user:hunter2@x:1", "http://x:port", "http://", "http://x/v2", "http://good:1")
    with pytest.raises(ConfigError) as raised:
        parse_endpoints(Access(endpoints=urls))
    assert len(raised.value.problems) == 5
    assert {problem.where for problem in raised.value.problems} == {"--etcd-endpoints"}
    assert "hunter2" not in str(raised.value)
    with pytest.raises(ConfigError, match="no endpoint"):
        parse_endpoints(Access(endpoints=()))


# --- TLS


@pytest.fixture
def tls_server(tmp_path, certs):
    etcd = Etcd(tmp_path / "tls", support.wheel(), certs=certs).start()
    yield etcd
    etcd.stop()


@pytest.fixture
def strict_server(tmp_path, certs):
    etcd = Etcd(tmp_path / "strict", support.debian(), certs=certs, client_certs=True).start()
    yield etcd
    etcd.stop()


@pytest.mark.spec("flannel.md §4.1/tls")
async def test_a_ca_alone_is_honoured(tls_server, make_store, certs):
    store = make_store(tls_server.url, ca_file=certs.ca)
    assert await store.tenure.acquire(chooser(netconf(), attrs()))


@pytest.mark.spec("flannel.md §4.1/tls")
async def test_client_certificates(strict_server, make_store, certs, prefix):
    store = make_store(strict_server.url, ca_file=certs.ca, cert_file=certs.client, key_file=certs.client_key)
    own = await store.tenure.acquire(chooser(netconf(), attrs()))
    assert strict_server.get(f"{prefix}/subnets/{own.lease.id}")
    async with contextlib.aclosing(said(store)) as events:
        await soon(anext(events))
        strict_server.restart()
        strict_server.put(f"{prefix}/subnets/10.3.99.0-24", value("1.1.1.1"))
        await until(events, lambda event: isinstance(event, Changed) and bool(event.put))


@pytest.mark.spec("flannel.md §4.1/tls")
async def test_a_missing_client_certificate_is_said(strict_server, make_store, certs):
    [problem] = await fails(make_store(strict_server.url, ca_file=certs.ca), ConfigError)
    assert problem.code == "STORE-002"
    assert "broke off the TLS handshake" in problem.seen
    assert "--etcd-certfile" in problem.hint


@pytest.mark.spec("flannel.md §4.1/tls")
async def test_an_unknown_ca_is_said(tls_server, make_store, tmp_path):
    for other in ({}, {"ca_file": make_certs(tmp_path / "other").ca}):
        [problem] = await fails(make_store(tls_server.url, **other), ConfigError)
        assert problem.code == "STORE-002"
        assert "not trusted" in problem.seen
        assert "--etcd-cafile" in problem.hint


@pytest.mark.spec("flannel.md §4.1/tls")
async def test_an_etcd_that_speaks_tls_when_we_do_not(tls_server, strict_server, make_store, certs):
    # http:// never uses TLS, even with certificates
    for etcd, files in ((tls_server, {}), (strict_server, {}), (strict_server, {"ca_file": certs.ca})):
        [problem] = await fails(make_store(etcd.url.replace("https", "http"), **files), ConfigError)
        assert problem.code == "STORE-002"
        assert problem.seen == "TLS is spoken there"
        assert "https://" in problem.hint


@pytest.mark.spec("flannel.md §4.1/tls")
async def test_an_etcd_that_speaks_no_tls_when_we_do(server, make_store, certs):
    [problem] = await fails(make_store(server.url.replace("http", "https"), ca_file=certs.ca), ConfigError)
    assert (problem.code, problem.seen) == ("STORE-002", "no TLS spoken there")
    assert "http://" in problem.hint


@pytest.mark.spec("flannel.md §4.1/tls")
async def test_certificates_without_an_https_endpoint_are_warned_about(server, make_store, certs, prefix, caplog):
    server.put(f"{prefix}/config", "{}")
    with caplog.at_level(logging.WARNING):
        assert await make_store(server.url, ca_file=certs.ca).settings.net_conf() == "{}"
    assert "connections are plain" in caplog.text


@pytest.mark.parametrize(
    "urls, ca", [(["http://a:1"], ""), (["https://a:1"], "ca.crt"), (["http://a:1", "https://b:1"], "ca.crt")]
)
async def test_other_endpoints_are_not_warned_about(make_store, caplog, urls, ca):
    make_store(*urls, ca_file=ca)
    assert caplog.text == ""


def test_unusable_certificate_files_are_named(certs, tmp_path: Path):
    (tmp_path / "empty").write_text("")
    (tmp_path / "other.key").write_text(Path(certs.server_key).read_text())
    locked = tmp_path / "locked.key"
    support._run("openssl", "ec", "-aes128", "-passout", "pass:x", "-in", certs.client_key, "-out", locked)
    wrong = {
        "--etcd-cafile": [{"ca_file": str(tmp_path / "absent")}, {"ca_file": str(tmp_path / "empty")}],
        "--etcd-keyfile": [{"cert_file": certs.client}],
        "--etcd-certfile": [{"key_file": certs.client_key}],
        "--etcd-certfile, --etcd-keyfile": [
            {"cert_file": certs.client, "key_file": str(tmp_path / "absent")},
            {"cert_file": certs.client, "key_file": str(tmp_path / "other.key")},
            {"cert_file": certs.client, "key_file": str(locked)},
        ],
    }
    for where, cases in wrong.items():
        for files in cases:
            with pytest.raises(ConfigError) as raised:
                tls_context(Access(endpoints=(), **files))
            [problem] = raised.value.problems
            assert (problem.code, problem.where) == ("FLAG-001", where)


async def test_renewed_certificates_are_used_by_the_next_connection(tls_server, make_store, certs, tmp_path):
    ca = tmp_path / "ca.pem"
    shutil.copy(make_certs(tmp_path / "old").ca, ca)
    store = make_store(tls_server.url, ca_file=str(ca))
    await fails(store, ConfigError)
    shutil.copy(certs.ca, ca)
    assert await store.directory.list()


# --- users


@pytest.fixture
def auth_server(own_server, prefix):
    own_server.add_user("weft", PASSWORD, prefix=prefix)
    own_server.enable_auth()
    return own_server


@pytest.mark.spec("flannel.md §4.1/user-password")
async def test_user_and_password(auth_server, make_store, prefix):
    store = make_store(auth_server.url, user="weft", password=Secret(PASSWORD))
    own = await store.tenure.acquire(chooser(netconf(), attrs()))
    async with (
        contextlib.aclosing(said(store)) as events,
        contextlib.aclosing(store.tenure.keep(own, margin=60)) as kept,
    ):
        await soon(anext(events))
        await soon(anext(kept))
        auth_server.put(f"{prefix}/subnets/10.3.99.0-24", value("1.1.1.1"))
        assert [lease.id for lease in (await soon(anext(events))).put] == ["10.3.99.0-24"]
        auth_server.restart()  # which forgets tokens
        auth_server.put(f"{prefix}/subnets/10.3.98.0-24", value("1.1.1.2"))
        await until(events, lambda event: isinstance(event, Changed | Listed) and "10.3.98.0-24" in str(event))
    assert (await store.tenure.publish(own, attrs(mac="02:00:00:00:00:01"))).token.etcd_lease == own.token.etcd_lease


@pytest.mark.spec("flannel.md §4.1/user-password")
async def test_a_token_that_is_no_longer_good_is_renewed_within_the_call(auth_server, make_store, prefix):
    auth_server.put(f"{prefix}/config", "{}")
    store = make_store(auth_server.url, user="weft", password=Secret(PASSWORD))
    assert await store.settings.net_conf() == "{}"
    auth_server.ctl("user", "add", "another:x")  # any change of users makes tokens old
    assert await store.settings.net_conf() == "{}"
    store.directory._client._token = "made up"
    assert await store.settings.net_conf() == "{}"


@pytest.mark.spec("flannel.md §4.1/user-password")
async def test_a_watch_with_a_bad_token_recovers(auth_server, make_store, prefix):
    store = make_store(auth_server.url, user="weft", password=Secret(PASSWORD))
    listing = await store.directory.list()
    store.directory._client._token = "made up"
    async with contextlib.aclosing(said(store, listing)) as events:
        await soon(anext(events))
        waiting = await nothing(events, 0.2)
        auth_server.put(f"{prefix}/subnets/10.3.99.0-24", value("1.1.1.1"))
        event = await soon(waiting)
        assert "10.3.99.0-24" in str(event)


@pytest.mark.spec("flannel.md §4.1/user-password")
async def test_a_refused_user_is_told_without_the_password(auth_server, make_store, caplog):
    caplog.set_level(logging.DEBUG)
    cases = [
        ({"user": "weft", "password": Secret("wrong-" + PASSWORD)}, "to user 'weft'"),
        ({"user": "nobody", "password": Secret(PASSWORD)}, "to user 'nobody'"),
        ({"user": "weft"}, "to user 'weft'"),
        ({}, "--etcd-username is not given"),
    ]
    for access, seen in cases:
        store = make_store(auth_server.url, **access)
        with pytest.raises(ConfigError) as raised:
            await soon(store.settings.net_conf())
        [problem] = raised.value.problems
        assert problem.code == "STORE-002"
        assert seen in problem.seen
        said = [
            repr(raised.value),
            str(raised.value),
            caplog.text,
            repr(store),
            *map(repr, map(vars, (store.settings, store.tenure, store.directory))),
            repr(Access(endpoints=(), **access)),
        ]
        assert not any(PASSWORD in text for text in said)


@pytest.mark.spec("flannel.md §4.1/user-password")
async def test_a_password_that_is_changed_is_read_again_from_its_file(
    auth_server, make_store, prefix, tmp_path, caplog
):
    file = tmp_path / "password"
    file.write_text(f"{PASSWORD}\n")
    access = {"user": "weft", "password": SecretFile("--etcd-password-file", str(file), password_in)}
    store = make_store(auth_server.url, **access)
    own = await store.tenure.acquire(chooser(netconf(), attrs()))
    async with (
        contextlib.aclosing(said(store)) as events,
        contextlib.aclosing(store.tenure.keep(own, margin=60)) as kept,
    ):
        await soon(anext(events))
        await soon(anext(kept))
        auth_server.ctl("user", "passwd", "weft", "--interactive=false", stdin="another-password")
        auth_server.restart()  # which forgets tokens
        await until(events, lambda event: isinstance(event, Lost) and "to user 'weft'" in event.reason)
        file.unlink()
        await until(events, lambda _: "FLAG-001" in caplog.text)
        file.write_text("another-password\n")
        await until(events, lambda event: isinstance(event, Listed | Changed))
    assert await store.tenure.publish(own, attrs(mac="02:00:00:00:00:01"))
    assert caplog.text.count("FLAG-001 --etcd-password-file") == 1, "said once"
    assert PASSWORD not in caplog.text


async def test_a_password_that_came_through_a_pipe_is_read_once(auth_server, make_store, tmp_path):
    """As from `--etcd-password-file=<(…)`: a pipe holds nothing a second time, and must not be waited for."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    Thread(target=pipe.write_text, args=(PASSWORD,)).start()
    password = SecretFile("--etcd-password-file", str(pipe), password_in)
    store = make_store(auth_server.url, user="weft", password=password)
    assert await store.directory.list()
    store.directory._client.forget_token()
    assert await store.directory.list()


async def test_a_user_without_permission_is_told(auth_server, make_store):
    store = make_store(auth_server.url, user="weft", password=Secret(PASSWORD), at="/elsewhere")
    [problem] = await fails(store, ConfigError)
    assert "permission denied" in problem.seen
    assert "--etcd-prefix" in problem.hint


async def test_a_watch_outlives_a_refusal(auth_server, make_store, prefix):
    store = make_store(auth_server.url)
    async with contextlib.aclosing(said(store)) as events:
        assert "STORE-002" in (await soon(anext(events))).reason
        auth_server.ctl("auth", "disable")
        await until(events, lambda event: isinstance(event, Listed))


async def test_a_user_where_none_is_needed_does_no_harm(server, make_store, prefix):
    server.put(f"{prefix}/config", "{}")
    assert await make_store(server.url, user="weft", password=Secret(PASSWORD)).settings.net_conf() == "{}"


# --- something else


@contextlib.contextmanager
def http_server():
    class Quiet(BaseHTTPRequestHandler):
        def log_message(self, *_args):
            pass

    with HTTPServer(("127.0.0.1", 0), Quiet) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield running.server_address[1]
        finally:
            running.shutdown()
            thread.join()


async def test_an_http_server_is_no_etcd(make_store):
    with http_server() as port:
        [problem] = await fails(make_store(f"http://127.0.0.1:{port}"), ConfigError)
    assert problem.code == "STORE-002"
    assert "DOCTYPE" in problem.seen


@contextlib.asynccontextmanager
async def listener(answer: bytes | None):
    """Something that says `answer` to everyone and hangs up, or never says anything."""

    async def serve(_reader, writer):
        if answer is not None:
            writer.write(answer)
            await writer.drain()
            writer.close()
        else:
            writers.append(writer)

    writers = []
    running = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{running.sockets[0].getsockname()[1]}"
    finally:
        for writer in writers:
            writer.transport.abort()
        running.close()
        await running.wait_closed()


async def test_whatever_hangs_up_does_not_answer(make_store):
    async with listener(b"") as url:
        [problem] = await fails(make_store(url), Unavailable)
        assert (problem.code, problem.seen) == ("STORE-001", "the connection broke: Connection lost")


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"SSH-2.0-OpenSSH\r\n", b"\x00" * 64])
async def test_whatever_speaks_something_else_is_quoted(make_store, answer):
    async with listener(answer) as url:
        [problem] = await fails(make_store(url), ConfigError)
        assert problem.code == "STORE-002"
        assert repr(answer[:8])[:-1] in problem.seen


async def test_whatever_stays_silent_is_left(make_store):
    async with listener(None) as url:
        [problem] = await fails(make_store(url), Unavailable)
        assert (problem.code, problem.seen) == ("STORE-001", f"no answer within {QUICK.call:.0f} s")


async def test_one_hopeless_endpoint_beside_one_that_may_come_back(make_store):
    [dead] = free_ports(1)
    with http_server() as port:
        problems = await fails(make_store(f"http://127.0.0.1:{port}", f"http://127.0.0.1:{dead}"), Unavailable)
    assert [problem.code for problem in problems] == ["STORE-002", "STORE-001"]


async def test_an_etcd_that_answers_with_an_error(own_server, make_store, prefix):
    own_server.stop()
    own_server.start("--quota-backend-bytes", "1")
    with pytest.raises(Unavailable) as raised:
        await make_store(own_server.url).tenure.acquire(chooser(netconf(), attrs()))
    [problem] = raised.value.problems
    assert problem.code == "STORE-002"
    assert "space" in problem.seen
    assert "etcdctl alarm list" in problem.hint


async def test_a_client_can_be_closed_twice(server):
    client = Client(Access(endpoints=(server.url,), timing=QUICK))
    client.close()
    client.close()
