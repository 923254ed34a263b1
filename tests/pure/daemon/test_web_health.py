"""What the health port answers, byte for byte, over real connections."""

import asyncio
import re
import socket
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.support.waiting import HANGS
from weft.daemon import services
from weft.model.errors import ConfigError, Problem
from weft.model.kernel.marks import POD_ALIAS
from weft.model.kernel.reported import Counters, LinkCounts
from weft.model.node.nodestate import (
    BOUNDS,
    CallState,
    Durations,
    LeaseState,
    LoopState,
    NetworkState,
    NodeState,
    PeerState,
    PolicyState,
    RefusedState,
    RequestState,
    UplinkState,
)
from weft.model.node.status import Status
from weft.model.value import replace
from weft.web import health

REFUSED = Problem(code="STORE-002", where="etcd", seen="no")
SILENT = Problem(code="STORE-001", where="etcd", seen="no\nanswer")
BROKEN = Problem(code="VTEP-002", where="flannel.1", seen="taken")


PEER = PeerState(id="a", subnets=[], public=[], backend="vxlan")
STATE = NodeState(
    version="1.2.3",
    instance="x",
    pid=1,
    seconds=12.5,
    ready=False,
    parts={"devices": BROKEN, "rules": None},
    losses={},
    store=SILENT,
    faults=2,
    peers=[
        PeerState(id="a", subnets=[], public=[], backend="vxlan"),
        PeerState(id="b", subnets=[], public=[], backend="vxlan", lacks=["a route"]),
    ],
    refused=[RefusedState(id="c", trouble=Problem(code="ADDR-002", where="lease c", seen="no"))],
    loops={
        "routes": LoopState(
            rounds=7, repairs={"ROUTE-001": 3}, unannounced=0, failing={"k": "no"}, counts={"packets sent": 5}
        )
    },
    requests={"list 200": RequestState(count=3, received=4096)},
    calls={"bridge ADD": CallState(count=5, failed=1, median_ms=4.0, worst_ms=9.0)},
)


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No answer and no end of a connection comes of a limit of time."""
    monkeypatch.setattr(health, "_PATIENCE_SECONDS", 3600.0)


async def scrape() -> str:
    from weft.web import metrics  # late, as the daemon does

    return metrics.render(STATE)


def ready() -> Status:
    return Status(parts={"devices": lambda: None, "rules": lambda: None})


def answer(line: str, text: str, *, body: bool = True, more: str = "") -> bytes:
    head = f"HTTP/1.1 {line}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(text.encode())}\r\n"
    return f"{head}{more}\r\n{text if body else ''}".encode()


def asking(status: Status, talk: Callable[[int], Awaitable[None]], host: str = "127.0.0.1") -> None:
    async def main() -> None:
        listening = health.bind(host, 0)
        server = asyncio.create_task(health.serve(listening, status, scrape))
        try:
            await talk(listening.getsockname()[1])
        finally:
            server.cancel()
            await asyncio.wait((server,))
        assert listening.fileno() < 0

    asyncio.run(main())


def said(status: Status, *requests: bytes, host: str = "127.0.0.1") -> bytes:
    """All that comes back on one connection, whose other side then says that it has no more requests."""
    heard = b""

    async def talk(port: int) -> None:
        nonlocal heard
        reader, writer = await asyncio.open_connection(host, port)
        for request in requests:
            writer.write(request)
            await writer.drain()
        writer.write_eof()
        heard = await asyncio.wait_for(reader.read(), HANGS)
        writer.close()

    asking(status, talk, host)
    return heard


def get(target: str, method: str = "GET") -> bytes:
    return f"{method} {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


@pytest.mark.parametrize(
    "request_, line, text",
    [
        (get("/healthz"), "200 ", "flanneld is running"),
        (get("/healthz?x"), "200 ", "flanneld is running"),
        (get("/readyz", "POST"), "200 ", "flanneld is ready"),
        (get("/readyz?verboses&x=verbose"), "200 ", "flanneld is ready"),
        (get("/livez"), "200 ", "weftd is alive"),
        (get("/"), "404 ", "not found"),
        (get("/healthz/"), "404 ", "not found"),
        (get("x:1", "CONNECT"), "405 ", "no tunnel here"),
    ],
)
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_each_request_has_its_answer(host: str, request_: bytes, line: str, text: str):
    heard = said(ready(), request_, host=host)
    assert heard.startswith(f"HTTP/1.1 {line}\r\nContent-Type: text/plain; charset=utf-8\r\n".encode())
    assert heard.endswith(b"\r\n\r\n" + text.encode())


def test_several_requests_on_one_connection_are_answered_in_order():
    status = ready()
    running = answer("200 ", "flanneld is running")
    head = answer("200 ", "flanneld is running", body=False)
    assert said(status, get("/healthz") + get("/healthz", "HEAD"), get("/healthz")) == running + head + running


def test_a_connection_is_closed_when_that_is_asked_for():
    last = get("/healthz").replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    assert said(ready(), last, get("/")) == answer("200 ", "flanneld is running", more="Connection: close\r\n")


@pytest.mark.parametrize(
    "change, line, parts",
    [
        ({}, "200", ["[+]lease ok", "[+]devices ok", "[+]rules ok", "[+]store ok"]),
        (
            {"store": SILENT},
            "200",
            ["[+]lease ok", "[+]devices ok", "[+]rules ok", "[!]store: STORE-001 etcd: no; answer"],
        ),
        (
            {"store": REFUSED},
            "503",
            ["[+]lease ok", "[+]devices ok", "[+]rules ok", "[-]store failed: STORE-002 etcd: no"],
        ),
        (
            {"parts": {"devices": lambda: BROKEN}, "waiting": SILENT},
            "503",
            [
                "[-]lease failed: STORE-001 etcd: no; answer",
                "[-]devices failed: VTEP-002 flannel.1: taken",
                "[+]store ok",
            ],
        ),
        (
            {"losses": {"some": lambda: BROKEN, "none": lambda: None}},
            "200",
            ["[+]lease ok", "[+]devices ok", "[+]rules ok", "[!]some: VTEP-002 flannel.1: taken", "[+]store ok"],
        ),
    ],
)
@pytest.mark.parametrize("query", ["verbose", "verbose=1", "a&verbose"])
def test_readiness_tells_of_every_part_when_asked(query: str, change: dict[str, object], line: str, parts: list[str]):
    status = ready()
    for name, value in change.items():
        setattr(status, name, value)
    text = "\n".join([*parts, "flanneld is ready" if line == "200" else "flanneld is not ready yet"])
    assert said(status, get(f"/readyz?{query}")) == answer(f"{line} ", text)
    short = said(status, get("/readyz"))
    assert (short.split()[1].decode(), short.rpartition(b"\n")[2].decode()) == (line, text.rpartition("\n")[2])


def test_what_is_no_http_gets_no_answer_and_the_next_is_served():
    assert said(ready(), b"\0\1\r\n\r\n") == b""

    async def talk(port: int) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"nonsense\r\n\r\n")
        writer.transport.abort()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(get("/healthz"))
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.close()

    asking(ready(), talk)


def test_a_connection_too_many_ends_the_oldest():
    async def talk(port: int) -> None:
        opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(17)]
        assert await asyncio.wait_for(opened[0][0].read(), HANGS) == b""
        opened[0][1].close()
        for reader, writer in opened[1:]:
            writer.write(get("/healthz"))
            assert (await asyncio.wait_for(reader.readline(), HANGS)).startswith(b"HTTP/1.1 200")
            writer.close()

    asking(ready(), talk)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_port_in_use_is_a_mistake_of_the_flags(host: str):
    with health.bind(host, 0) as first:
        port = first.getsockname()[1]
        assert not first.getblocking()
        assert first.family == (socket.AF_INET6 if ":" in host else socket.AF_INET)
        with pytest.raises(ConfigError) as caught:
            health.bind(host, port)
    said = f"FLAG-001 --healthz-ip, --healthz-port: {host}:{port} cannot be bound: Address already in use"
    assert str(caught.value).startswith(said)


def test_metrics_are_the_state_in_numbers():
    heard = said(ready(), get("/metrics")).decode()
    head, _, page = heard.partition("\r\n\r\n")
    assert head.startswith("HTTP/1.1 200 ")
    assert "Content-Type: text/plain; version=0.0.4; charset=utf-8" in head
    lines = [line for line in page.splitlines() if line.startswith("weft_") and "_seconds_" not in line]
    assert lines == [
        'weft_build_info{version="1.2.3"} 1.0',
        "weft_ready 0.0",
        "weft_up_seconds 12.5",
        'weft_part_ready{part="devices"} 0.0',
        'weft_part_ready{part="rules"} 1.0',
        "weft_store_up 0.0",
        'weft_problems{code="ADDR-002"} 1.0',
        'weft_problems{code="STORE-001"} 1.0',
        'weft_problems{code="VTEP-002"} 1.0',
        "weft_faults_total 2.0",
        'weft_peers{state="failing"} 1.0',
        'weft_peers{state="refused"} 1.0',
        'weft_peers{state="served"} 1.0',
        "weft_peers_without_series 0.0",
        'weft_reconcile_rounds_total{plane="routes"} 7.0',
        'weft_reconcile_repairs_total{code="ROUTE-001",plane="routes"} 3.0',
        'weft_plane_numbers{plane="routes",what="packets sent"} 5.0',
        'weft_reconcile_failing_objects{plane="routes"} 1.0',
        'weft_cni_requests_total{command="ADD",plugin="bridge",result="ok"} 4.0',
        'weft_cni_requests_total{command="ADD",plugin="bridge",result="failed"} 1.0',
        'weft_store_requests_total{code="200",verb="list"} 3.0',
        'weft_store_received_bytes_total{code="200",verb="list"} 4096.0',
    ]
    assert "process_resident_memory_bytes" in page


def test_a_library_that_is_missing_is_answered_with_a_code(monkeypatch):
    monkeypatch.setitem(sys.modules, "weft.web.metrics", None)
    monkeypatch.delattr("weft.web.metrics", raising=False)
    heard = said(ready(), get("/metrics")).decode()
    assert heard.startswith("HTTP/1.1 500 ")
    assert "INST-004 /metrics: this installation of weft is not whole" in heard


def series(page: str, name: str) -> list[str]:
    return [line for line in page.splitlines() if line.startswith(name)]


def test_a_histogram_counts_what_took_as_long_or_less():
    from weft.web import metrics

    took = Durations()
    for seconds in (0.0, 0.005, 0.006, 2.0, 19.0, 60.0):
        took.note(seconds)
    page = metrics.render(replace(STATE, took={"flannel ADD": took}, waited=took))
    found = series(page, 'weft_cni_seconds_bucket{command="ADD",')
    assert len(found) == len(BOUNDS) + 1
    counts = {match[1]: float(match[2]) for line in found if (match := re.search(r'le="([^"]+)".* (\S+)$', line))}
    assert counts["0.005"] == 2
    assert counts["0.01"] == counts["1"] == 3
    assert (counts["2.5"], counts["20"], counts["+Inf"]) == (4, 5, 6)
    assert series(page, "weft_cni_waited_seconds_count") == ["weft_cni_waited_seconds_count 6.0"]
    assert took.copy() == took
    assert took.copy().counts is not took.counts


def test_addresses_that_are_given_and_left_are_counted(tmp_path: Path):
    from weft.web import metrics

    lease = LeaseState(id="a", subnets=["10.1.2.0/24", "fd00:1::/120"], public=[], confirmed=True)
    state = replace(STATE, lease=lease)
    assert not series(metrics.render(state, tmp_path / "none"), "weft_addresses")
    for name in ("10.1.2.2", "10.1.2.3", "10.9.9.9", "fd00:1::2", "lock", "last_reserved_ip.0"):
        (tmp_path / "cbr0").mkdir(exist_ok=True)
        (tmp_path / "cbr0" / name).touch()
    assert series(metrics.render(state, tmp_path), "weft_addresses") == [
        'weft_addresses{family="IPv4",state="used"} 2.0',
        'weft_addresses{family="IPv4",state="free"} 251.0',
        'weft_addresses{family="IPv6",state="used"} 1.0',
        'weft_addresses{family="IPv6",state="free"} 253.0',
    ]


def link(name: str, *counts: int, alias: str = "") -> LinkCounts:
    """Received and sent: bytes, packets, lost."""
    names = ("received_bytes", "sent_bytes", "received_packets", "sent_packets", "received_lost", "sent_lost")
    return LinkCounts(name=name, alias=alias, mtu=1450, counted=Counters(**dict(zip(names, counts, strict=False))))


def test_what_devices_of_the_tunnel_carry_and_lose_is_counted():
    from weft.web import metrics

    network = NetworkState(networks=[], backend="vxlan", mtu=1450, devices=["flannel.1", "gone"], config="abc")
    uplink = UplinkState(name="eth0", index=2, mtu=1500, addresses=[], why="")
    links = [link("flannel.1", 1, 2, 3, 4, 5, 6), link("eth0", 10, 20, 30, 40, 50, 60), link("eth1", 9, 9, 9, 9, 9, 9)]
    page = metrics.render(replace(STATE, network=network, uplink=uplink, heard=3.5), links=links)
    assert series(page, "weft_device_lost") == [
        'weft_device_lost_packets_total{device="flannel.1",direction="received"} 5.0',
        'weft_device_lost_packets_total{device="flannel.1",direction="sent"} 6.0',
    ]
    assert series(page, "weft_device_bytes") == [
        'weft_device_bytes_total{device="flannel.1",direction="received"} 1.0',
        'weft_device_bytes_total{device="flannel.1",direction="sent"} 2.0',
        'weft_device_bytes_total{device="eth0",direction="received"} 10.0',
        'weft_device_bytes_total{device="eth0",direction="sent"} 20.0',
    ]
    assert series(page, 'weft_device_packets_total{device="eth0",direction="sent"}')[0].endswith(" 40.0")
    assert series(page, "weft_device_mtu") == ['weft_device_mtu_bytes{device="flannel.1"} 1450.0']
    assert series(page, "weft_config") == ['weft_config_info{backend="vxlan",digest="abc"} 1.0']
    assert series(page, "weft_store_event") == ["weft_store_event_age_seconds 3.5"]


def test_a_pod_has_sent_what_the_hosts_end_of_its_link_has_received():
    from weft.web import metrics

    pods = [link("veth1", 1, 2, 3, 4, 5, 6, alias=f"{POD_ALIAS}aa"), link("veth2", alias=f"{POD_ALIAS}bb")]
    page = metrics.render(STATE, links=[*pods, link("veth3", 7)], pods={f"{POD_ALIAS}aa": "default/web"})
    known = 'interface="veth1",namespace="default",pod="web"'
    assert [line for line in series(page, "weft_pod_") if known in line] == [
        f'weft_pod_bytes_total{{direction="received",{known}}} 2.0',
        f'weft_pod_bytes_total{{direction="sent",{known}}} 1.0',
        f'weft_pod_packets_total{{direction="received",{known}}} 4.0',
        f'weft_pod_packets_total{{direction="sent",{known}}} 3.0',
        f'weft_pod_lost_packets_total{{direction="received",{known}}} 6.0',
        f'weft_pod_lost_packets_total{{direction="sent",{known}}} 5.0',
    ]
    unknown = 'weft_pod_bytes_total{direction="sent",interface="veth2",namespace="",pod=""} 0.0'
    assert unknown in series(page, "weft_pod_bytes")
    assert "veth3" not in page


def test_peers_have_series_where_their_back_end_counts():
    from weft.web import metrics

    relayed = replace(PEER, id="10.1.2.0-24", sent=1, received=2, sent_bytes=100, received_bytes=200)
    wireguard = replace(PEER, id="10.1.3.0-24", sent_bytes=5, received_bytes=6)
    page = metrics.render(replace(STATE, peers=[relayed, wireguard, replace(PEER, id="10.1.4.0-24")]))
    assert series(page, "weft_peer_bytes") == [
        'weft_peer_bytes_total{direction="received",peer="10.1.2.0-24"} 200.0',
        'weft_peer_bytes_total{direction="sent",peer="10.1.2.0-24"} 100.0',
        'weft_peer_bytes_total{direction="received",peer="10.1.3.0-24"} 6.0',
        'weft_peer_bytes_total{direction="sent",peer="10.1.3.0-24"} 5.0',
    ]
    assert series(page, "weft_peer_packets") == [
        'weft_peer_packets_total{direction="received",peer="10.1.2.0-24"} 2.0',
        'weft_peer_packets_total{direction="sent",peer="10.1.2.0-24"} 1.0',
    ]


def test_there_is_a_bound_to_series_of_peers_and_none_to_those_of_pods():
    from weft.web import metrics

    links = [link(f"veth{n}", 1, alias=f"{POD_ALIAS}{n}") for n in range(503)]
    peers = [replace(PEER, id=f"p{n}", sent_bytes=1, received_bytes=1) for n in range(5000)]
    page = metrics.render(replace(STATE, peers=peers), links=links, pods={})
    assert len(series(page, "weft_pod_bytes_total")) == 2 * 503
    assert len(series(page, "weft_peer_bytes_total")) == 2 * 500
    assert series(page, "weft_peers_without_series") == ["weft_peers_without_series 4500.0"]


def test_pods_have_no_series_unless_they_are_asked_for():
    from weft.web import metrics

    page = metrics.render(STATE, links=[link("veth1", 1, alias=f"{POD_ALIAS}aa")])
    assert not series(page, "weft_pod_")
    assert "veth1" not in page


def test_what_policies_refuse_and_cost_is_counted():
    from weft.web import metrics

    took = Durations()
    took.note(0.003)
    policy = PolicyState(
        mode="enforce",
        policies=3,
        pods=2,
        unknown=1,
        isolated={"ingress": 1, "egress": 0},
        elements=9,
        transactions=took,
        waited=took,
        cut=4,
        age=1.5,
    )
    page = metrics.render(replace(STATE, policy=policy), refused={"ingress": 7})
    lines = series(page, "weft_polic")
    assert {each for each in lines if "_bucket" not in each and "_created" not in each} == {
        "weft_policies 3.0",
        "weft_policy_pods 2.0",
        "weft_policy_unknown_pods 1.0",
        'weft_policy_isolated_pods{direction="ingress"} 1.0',
        'weft_policy_isolated_pods{direction="egress"} 0.0',
        "weft_policy_elements 9.0",
        "weft_policy_known_age_seconds 1.5",
        "weft_policy_transaction_seconds_count 1.0",
        "weft_policy_transaction_seconds_sum 0.003",
        "weft_policy_add_waited_seconds_count 1.0",
        "weft_policy_add_waited_seconds_sum 0.003",
        'weft_policy_refused_packets_total{direction="ingress"} 7.0',
        "weft_policy_connections_cut_total 4.0",
    }


def test_every_metric_is_in_the_reference_and_no_other():
    source = (Path(health.__file__).parent / "metrics.py").read_text()
    page = (Path(__file__).parents[3] / "docs" / "reference" / "health.md").read_text()
    made = set(re.findall(r'"(weft_\w+)"', source))
    named = {re.sub(r"_(total|info)$", "", name) for name in re.findall(r"`(weft_\w+)`", page)}
    assert made == named


def test_other_machines_are_told_codes_alone(monkeypatch: pytest.MonkeyPatch):
    """A problem names the store, addresses and files."""
    secret = Problem(code="STORE-001", where="https://etcd.corp.example:2379", seen="no answer from 10.1.2.3")
    status = Status(parts={"devices": lambda: BROKEN, "rules": lambda: None}, store=secret)
    assert b"etcd.corp.example" in said(status, get("/readyz?verbose"))
    monkeypatch.setattr(health, "_is_here", lambda _: False)
    heard = said(status, get("/readyz?verbose")).decode()
    assert "[-]devices failed: VTEP-002 (weft status on the node says more)" in heard
    assert "STORE-001 (weft status on the node says more)" in heard
    assert "corp" not in heard
    assert "flannel.1" not in heard


def test_who_is_here():
    with health.bind("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
        for source, here in (("127.0.0.1", True), ("127.0.0.2", False)):
            with socket.create_connection(("127.0.0.1", port), source_address=(source, 0)):
                listening.setblocking(True)
                accepted, _ = listening.accept()
                with accepted:
                    assert health._is_here(accepted) == here


def test_the_page_of_metrics_is_made_once_a_second(monkeypatch: pytest.MonkeyPatch):
    made = []

    class Report:
        async def whole(self) -> NodeState:
            made.append(1)
            return STATE

    def unreadable(_: object) -> dict[str, str]:
        raise OSError

    async def ask() -> None:
        scrapes = services.Scrapes(Report(), unreadable)  # type: ignore[arg-type]
        pages = await asyncio.gather(*(scrapes.page() for _ in range(50)))
        assert len(set(pages)) == len(made) == 1
        monkeypatch.setattr(services, "_SCRAPE_SECONDS", 0.0)
        scrapes._until = 0.0
        assert await scrapes.page()
        assert len(made) == 2

    asyncio.run(ask())
