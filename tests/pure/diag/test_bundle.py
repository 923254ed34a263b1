"""A bundle says the same as the sight it was made of, nothing secret, and does no harm whoever made it."""

import gzip
import io
import json
import tarfile
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest

from tests.pure.diag.doctor.sights import ADDRESSES, FLANNEL, LINKS, ROUTES, STATE
from tests.pure.diag.rules.test_verdict import DROP, meta, rules
from weft.diag.bundle import archive, secrets
from weft.diag.bundle.contents import FORM, Bundle, Manifest, bundle_of, files_of, plain, read
from weft.diag.bundle.secrets import GONE, data_without, text_without, words_without
from weft.diag.sight.node import Attached, Clock, DeadPort, Knocked, Lost, PodEnd, Probed, Proof, Reserved, Sight, Vxlan
from weft.model.errors import ConfigError, Problem
from weft.model.kernel.reported import FdbInfo, LinkInfo, NeighbourInfo, NextHop, RouteInfo, RuleInfo
from weft.model.net import Mac
from weft.model.node.history import Event, EventsSince
from weft.model.node.nodestate import LoopState
from weft.model.value import Value, replace
from weft.wire.subnetenv import PluginEnv

MAC = Mac.parse("0e:00:00:00:00:02")
PROBLEM = Problem(code="STORE-001", where="etcd", seen="http://root:hunter2@10.0.0.1:2379 is silent")
SIGHT = Sight(
    links=(*LINKS, LinkInfo(index=9, name="flannel.2", kind="vxlan", mac=MAC, data=b"\0\x01\xff")),
    addresses=ADDRESSES,
    routes=(*ROUTES, RouteInfo(dst=ip_network("fd00::/8"), hops=(NextHop(index=2, via=ip_address("fe80::9")),))),
    neighbours=(NeighbourInfo(index=3, ip=ip_address("10.244.2.0"), mac=None, state=0x80),),
    fdb=(FdbInfo(index=3, mac=MAC, remote=ip_address("fd00::2"), state=0x80),),
    vxlans=(Vxlan(name="flannel.1", vni=1, port=8472),),
    settings={"net/ipv4/ip_forward": "1"},
    counters={"Udp.InCsumErrors": 3},
    rules=rules([meta("iifname", "eth0"), DROP], some=["a"]),
    subnet_env=PluginEnv(networks=(ip_network("10.244.0.0/16"),), subnets=(), mtu=1450, ip_masq=True),
    networks=(FLANNEL,),
    plugins=frozenset(("flannel", "bridge")),
    reserved=(Reserved(network="cbr0", given_v4=3, given_v6=0),),
    programs=frozenset(("weftd",)),
    daemon=replace(STATE, loops={"links": LoopState(rounds=1, repairs={"VTEP-003": 2}, unannounced=0, failing={})}),
    ways={"192.168.0.2": 2},
    probes=(Probed(peer="10.244.2.0/24", address=ip_address("10.244.2.0"), way="overlay", size=64, answered=True),),
    knocks=(Knocked(peer="10.244.2.0/24", device="silent", beside="refused"),),
    link_programs=frozenset(("dhcpcd",)),
    pods={"veth1": PodEnd(link=LinkInfo(index=2, name="eth0", mtu=1450), addresses=(ip_address("10.244.1.2"),))},
    attached=(
        Attached(
            network="cbr0",
            container="c1",
            pod="a",
            ifname="eth0",
            hosts=("veth1",),
            addresses=(ip_address("10.244.1.2"),),
        ),
    ),
    policies=(RuleInfo(family=4, priority=9, table=7, src=ip_network("10.0.0.0/8")),),
    other_routes=(RouteInfo(dst=ip_network("10.9.0.0/16"), table=7, index=2),),
    legacy_tables=("filter",),
    managers={"flannel.1": "NetworkManager"},
    clock=Clock(unix=1.5, synchronised=False),
    strangers=(ip_address("192.168.0.254"),),
    dead_ports=(DeadPort(port="5003/tcp", address=ip_address("10.4.0.2"), rule="chain CNI-DN-1"),),
    proof=Proof(
        tried=3,
        arrived=2,
        pods=1,
        peers=1,
        lost=(
            Lost(source=ip_address("10.244.1.2"), target=ip_address("fd00::1"), cause=Problem("LOST-001", "a", "b")),
        ),
    ),
    unseen={"settings": "no"},
)
MANIFEST = Manifest(form=FORM, weft="1", node="node1", made=5.0, unseen={"listings/nft.txt": "no nft"})
TOLD = EventsSince(unix=5.0, last=1, events=[Event(number=1, time=4.5, kind="fault", subject="routes")])
BUNDLE = Bundle(manifest=MANIFEST, sight=SIGHT, told=TOLD)
SECRETS = ("hunter2", "hunter 2", "c2VjcmV0LXdnLWtleS0wMDAwMDAwMDAwMDAwMDAwMDA=", "eyJhbGciOi.eyJzdWIiO.c2lnbmF0dXJl")


def test_what_is_read_is_what_was_written():
    assert bundle_of(files_of(BUNDLE, {"log.txt": "a"}), "x") == BUNDLE
    without = replace(BUNDLE, told=None)
    assert bundle_of(files_of(without, {}), "x") == without
    assert bundle_of(files_of(replace(BUNDLE, sight=Sight()), {}), "x").sight == Sight()


def test_each_field_of_a_sight_is_tried():
    empty = Sight()
    same = {name for name in Sight.__struct_fields__ if getattr(SIGHT, name) == getattr(empty, name)}
    assert not same, "give SIGHT above something of each part"


@pytest.mark.parametrize(
    "text",
    [
        "weftd --etcd-password=hunter2 --iface eth0",
        "weftd --etcd-password hunter2",
        "FLANNELD_ETCD_PASSWORD=hunter2",
        "endpoints http://root:hunter2@10.0.0.1:2379/x, https://a@b:hunter2@etcd",
        '{"PSK": "hunter2", "a": 1}',
        '{"k8s_auth_token":"hunter2"}',
        'said {\\"token\\":\\"hunter2\\"} to it',
        "private key: c2VjcmV0LXdnLWtleS0wMDAwMDAwMDAwMDAwMDAwMDA=",
        "PresharedKey = c2VjcmV0LXdnLWtleS0wMDAwMDAwMDAwMDAwMDAwMDA=",
        "client-key-data: c2VjcmV0LXdnLWtleS0wMDAwMDAwMDAwMDAwMDAwMDA=",
        "Authorization: Bearer hunter2hunter2",
        "sent a Bearer hunter2hunter2 to it",
        "got eyJhbGciOi.eyJzdWIiO.c2lnbmF0dXJl there",
        "-----BEGIN EC PRIVATE KEY-----\nhunter2\n-----END EC PRIVATE KEY-----\nmore",
        "-----BEGIN PRIVATE KEY-----\nhunter2\n",
        "hunter2\nhunter2==\n-----END RSA PRIVATE KEY-----\nmore",
        "net.ipv4.tcp_fastopen_key = hunter2",
        "net.ipv6.conf.all.stable_secret = hunter2",
        "password: 'hunter 2'",
        'password = "hunter \\" hunter2',
        "weftd --etcd-password 'a hunter2' --v 1",
        'weftd --etcd-password "a hunter2"',
        "  password: my hunter2",
        "- etcd-password: my hunter2",
        '{"auths": {"r": {"auth": "hunter2"}}}',
        '{"pwd": "hunter2", "pass": "hunter2"}',
        "mysql --pass hunter2",
    ],
)
def test_secrets_are_replaced_in_text(text: str):
    try:
        data = json.loads(text)
    except ValueError:
        data = text
    for without in (text_without(text), json.dumps(data_without(data), ensure_ascii=False)):
        assert GONE in without
        assert not any(secret in without for secret in SECRETS), without


@pytest.mark.parametrize(
    "text",
    [
        "weftd --etcd-password-file=/etc/weft/password --etcd-keyfile /etc/key.pem",
        "http://10.0.0.1:2379/a@b",
        '{"passes": 3, "author": "x", "passed": true}',
        "flannel.1 vxlan id 1 local 10.0.0.1 dstport 8472",
        '{"type":"flannel","delegate":{"hairpinMode":true}}',
        '-A KUBE-SERVICES -m comment --comment "default/kubernetes:https cluster IP" -j KUBE-SVC-NPX46M4PTMTKRN6Y',
    ],
)
def test_what_is_none_stays(text: str):
    assert text_without(text) == text


def test_secrets_are_replaced_in_configuration_whatever_their_kind():
    conf = {
        "plugins": [{"policy": {"k8s_auth_token": ["hunter2"]}, "kubeconfig": "/etc/kube", "PSK": {"a": "hunter2"}}]
    }
    [plugin] = data_without(conf)["plugins"]
    assert plugin == {"policy": {"k8s_auth_token": GONE}, "kubeconfig": "/etc/kube", "PSK": GONE}
    numbers = {"psk": 12345678, "token": 1.5, "secret": True, "auth": None}
    assert data_without(numbers) == {"psk": 0, "token": 0.0, "secret": True, "auth": None}
    assert text_without("[" * 100_000 + '"PSK":"hunter2"') == "[" * 100_000 + f'"PSK":{GONE}'


def test_secrets_are_replaced_in_a_command_line():
    words = ("weftd", "--etcd-password", "hunter 2", "--etcd-password=hunter 2", "--iface", "eth0", "--kube-token")
    assert words_without(words) == f"weftd --etcd-password {GONE} --etcd-password={GONE} --iface eth0 --kube-token"


def test_a_long_line_takes_no_long_time():
    line = "token-" * 20_000 + "a" * 100_000 + "-" * 100_000
    assert len(text_without(line)) <= len(line)
    assert text_without("eyJ-" * 50_000)


def test_secrets_are_replaced_in_what_the_daemon_says():
    files = files_of(replace(BUNDLE, sight=replace(SIGHT, daemon=replace(STATE, store=PROBLEM))), {})
    assert b"hunter2" not in b"".join(files.values())
    store = bundle_of(files, "x").sight.daemon
    assert store is not None
    assert store.store == replace(PROBLEM, seen=f"http://{GONE}@10.0.0.1:2379 is silent")


def changed(name: str, change: Any) -> dict[str, bytes]:
    files = files_of(BUNDLE, {})
    data = json.loads(files[name])
    change(data)
    return files | {name: json.dumps(data).encode()}


WRONG: dict[str, Any] = {
    "there is no manifest.json in it": {},
    "there is no sight.json in it": {"manifest.json": files_of(BUNDLE, {})["manifest.json"]},
    "it is no JSON": files_of(BUNDLE, {}) | {"sight.json": b"{"},
    "is no JSON: ": files_of(BUNDLE, {}) | {"sight.json": b"[" * 100_000},
    "a bundle of form 99; expected form 1. It was made by weft 1": changed(
        "manifest.json", lambda d: d.update(form=99)
    ),
    "a bundle of form None; expected form 1. It was made by another": files_of(BUNDLE, {}) | {"manifest.json": b"[]"},
    "list where dict is expected": files_of(BUNDLE, {}) | {"sight.json": b"[]"},
    "links: mtu: str where int is expected": changed("sight.json", lambda d: d["links"][0].update(mtu="1")),
    "probes: way: none of": changed("sight.json", lambda d: d["probes"][0].update(way="by foot")),
    "routes: dst: ": changed("sight.json", lambda d: d["routes"][0].update(dst="10.0.0.1/8")),
    "Missing required argument 'name'": changed("sight.json", lambda d: d["links"][0].pop("name")),
    "rules: chains: ": changed("sight.json", lambda d: d["rules"]["chains"].append([1])),
    "rules: ": changed("sight.json", lambda d: d["rules"]["chains"].append([["a", "b"], {}])),
    "mac: ": changed("sight.json", lambda d: d["fdb"][0].update(mac="x")),
    "data: ": changed("sight.json", lambda d: d["links"][0].update(data="%")),
    "last: float where int": changed("events.json", lambda d: d.update(last=0.5)),
}


@pytest.mark.parametrize("words", WRONG)
def test_what_is_no_bundle_is_refused(words: str):
    with pytest.raises(ConfigError) as refused:
        bundle_of(WRONG[words], "x.tar.gz")
    [problem] = refused.value.problems
    assert problem.code == "BUNDLE-001"
    assert words in str(problem)


def test_a_field_of_a_later_version_is_passed_over():
    files = changed("sight.json", lambda d: d.update(later=1))
    assert bundle_of(files, "x") == BUNDLE


def test_a_type_that_no_value_has_is_a_fault_of_ours():
    class Odd(Value):
        one: complex

    with pytest.raises(TypeError, match="no reader of"):
        read(Odd, plain(Odd(one=1j)))


def tar(entries: dict[str, bytes], **kinds: bytes) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as made:
        for name, content in entries.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.type, entry.linkname = len(content), kinds.get("kind", tarfile.REGTYPE), "/etc/shadow"
            made.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def test_an_archive_is_written_for_its_owner_and_read_back(tmp_path: Path):
    files = files_of(BUNDLE, {"cni/10-a.conflist": "ü"})
    path = tmp_path / "b.tar.gz"
    path.write_text("old")
    archive.write(path, archive.pack(files, 5.0))
    assert path.stat().st_mode & 0o777 == 0o600
    assert archive.unpack(path) == files
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "content, words",
    [
        (b"", "cut short"),
        (b"no gzip", "no gzipped tar"),
        (gzip.compress(b"no tar" * 500), "no gzipped tar"),
        (tar({"weft-bundle/a": b"1" * 9000})[:-20], "cut short"),
        (tar({f"weft-bundle/{n}": b"" for n in range(1001)}), "more than 1000 files"),
        (gzip.compress(bytes(2 << 20)), "more than 1 MiB"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_an_archive_that_is_none_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, words: str
):
    monkeypatch.setattr(archive, "_UNPACKED", 1 << 20)
    path = tmp_path / "b.tar.gz"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="BUNDLE-001") as refused:
        archive.unpack(path)
    assert words in str(refused.value)


def test_a_file_of_more_values_than_a_node_has_is_not_read():
    files = files_of(BUNDLE, {}) | {"sight.json": b"[" + b"[]," * 1_000_001 + b"[]]"}
    with pytest.raises(ConfigError, match="more than 2000000 values"):
        bundle_of(files, "x")


def test_an_archive_that_is_too_large_is_not_unpacked(tmp_path: Path):
    path = tmp_path / "b.tar.gz"
    with path.open("wb") as file:
        file.truncate((64 << 20) + 1)
    with pytest.raises(ConfigError, match="more than 64 MiB"):
        archive.unpack(path)


def test_nothing_but_files_of_the_one_directory_is_taken(tmp_path: Path):
    path = tmp_path / "b.tar.gz"
    names = {"weft-bundle/a": b"1", "/etc/passwd": b"2", "../b": b"3", "weft-bundle": b"4"}
    path.write_bytes(tar(names))
    assert archive.unpack(path) == {"a": b"1"}
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.GNUTYPE_SPARSE):
        path.write_bytes(tar({"weft-bundle/a": b""}, kind=kind))
        assert archive.unpack(path) == {}


def test_of_other_programs_keys_in_a_list_only_that_they_are_there():
    """What they call a password nobody can guess."""
    theirs = {"pw": "hunter2", "jwt": "hunter2", "community": "hunter2", "kubeconfig_data": "hunter2", "n": 77}
    plugin = {"type": "calico", "mtu": 1450, "ipam": {"type": "host-local", "subnet": "10.1.0.0/24", "pw": "hunter2"}}
    plugin |= {**theirs, "kubernetes": {"x": ["hunter2", {"y": "hunter2"}]}, "sysctl": {"net.core.somaxconn": "500"}}
    shown = json.loads(secrets.list_without(json.dumps({"name": "n", "cniVersion": "1.0.0", "plugins": [plugin]})))
    assert "hunter2" not in str(shown)
    [seen] = shown["plugins"]
    assert seen.keys() == plugin.keys()
    assert (seen["type"], seen["mtu"], seen["ipam"]["subnet"]) == ("calico", 1450, "10.1.0.0/24")
    assert seen["sysctl"] == plugin["sysctl"]
    assert seen["n"] == 0
    assert secrets.list_without("pw = hunter2") == "12 characters that are not JSON\n"


def test_of_a_users_commands_the_program_alone():
    conf = {"Backend": {"SubnetAddCommand": "curl -u admin:hunter2 x", "PreStartupCommand": ["sh", "-c", "hunter2"]}}
    assert "hunter2" not in str(secrets.data_without(conf))
    assert secrets.data_without(conf)["Backend"]["PreStartupCommand"][0] == "sh"
    nothing: dict[str, object] = {"SubnetAddCommand": "", "PreStartupCommand": [], "ShutdownCommand": None}
    assert secrets.data_without(nothing) == nothing
