"""A daemon and an etcd that speaks TLS alone and asks for the client's certificate."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.node.test_ready import says
from tests.support.etcd import Certs, make_certs, wheel
from tests.support.weftd import STORE, VXLAN, Cluster, Daemon, NetnsEtcd, eventually, peer_value


@pytest.fixture
def certs(tmp_path: Path) -> Certs:
    return make_certs(tmp_path / "certs", STORE)


@pytest.fixture
def strict(cluster: Cluster, certs: Certs, tmp_path: Path) -> Iterator[NetnsEtcd]:
    """Beside the underlay's store, with a network configuration."""
    switch = cluster.underlay.switch
    etcd = switch.call(lambda: NetnsEtcd(tmp_path / "strict", wheel(), switch, certs))
    etcd.start("--unsafe-no-fsync")
    etcd.put(f"{cluster.prefix}/config", json.dumps(VXLAN))
    yield etcd
    etcd.kill()


def flags(etcd: NetnsEtcd, **files: str) -> list[str]:
    return [f"--etcd-endpoints={etcd.url}", *(f"--etcd-{name}={path}" for name, path in files.items())]


def peer(cluster: Cluster, etcd: NetnsEtcd, number: int) -> None:
    etcd.put_leased(cluster.key(f"10.5.{number}.0-24"), peer_value(number))


@pytest.mark.spec("flannel.md §4.1/tls", "flannel.md §1.2/etcd-certfile", "flannel.md §1.2/etcd-keyfile")
def test_a_daemon_proves_itself_with_its_certificate(cluster: Cluster, strict: NetnsEtcd, certs: Certs):
    node = cluster.node(1)
    node.start(*flags(strict, cafile=certs.ca, certfile=certs.client, keyfile=certs.client_key))
    [lease] = [kv.key for kv in strict.below(cluster.key(""))]
    assert lease == cluster.key(f"{node.v4[0]}-24")
    peer(cluster, strict, 50)
    node.sees("ip route", "10.5.50.0/24")
    strict.restart()
    peer(cluster, strict, 51)
    node.sees("ip route", "10.5.51.0/24", seconds=20)
    assert not cluster.leases(), "the plain store was not asked"
    assert node.stop() == 0


@pytest.mark.spec("flannel.md §4.1/tls", "flannel.md §1.2/etcd-cafile")
def test_a_daemon_without_what_etcd_asks_for_says_which_flag_is_missing(
    cluster: Cluster, strict: NetnsEtcd, certs: Certs
):
    node = cluster.node(1)
    assert node.spawn(*flags(strict, cafile=certs.ca)).wait() == 1
    node.says(r"STORE-002 https://.*broke off the TLS handshake.*--etcd-certfile and --etcd-keyfile")
    assert node.spawn(*flags(strict, certfile=certs.client, keyfile=certs.client_key)).wait() == 1
    node.says("STORE-002 https://.*certificate is not trusted.*--etcd-cafile")
    assert not strict.below(cluster.key(""))


def test_certificates_are_taken_from_their_files_at_each_connection(
    cluster: Cluster, strict: NetnsEtcd, certs: Certs, tmp_path: Path
):
    """As after a renewal, of which no one tells the daemon; while they are wrong, that is the reason shown."""
    ca = tmp_path / "ca.pem"
    ca.write_bytes(Path(certs.ca).read_bytes())
    node: Daemon = cluster.node(1).start(
        *flags(strict, cafile=str(ca), certfile=certs.client, keyfile=certs.client_key)
    )
    ca.write_bytes(Path(make_certs(tmp_path / "other").ca).read_bytes())
    strict.restart()
    node.says("STORE-002.*certificate is not trusted", seconds=20)
    says(node, 503, "[-]store failed: STORE-002", "[+]lease ok")
    ca.unlink()
    os.mkfifo(ca)
    says(node, 200, "[!]store: STORE-001 store: it does not answer (FLAG-001 --etcd-cafile: ")
    ca.unlink()
    ca.write_bytes(Path(certs.ca).read_bytes())
    node.says("the store answers again", seconds=20)
    peer(cluster, strict, 50)
    eventually(lambda: "10.5.50.0/24" in node.ip("route"), seconds=10)
