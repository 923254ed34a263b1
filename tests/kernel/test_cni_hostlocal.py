"""host-local as a program sees it: files, locks, and the reference beside it."""

import errno
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.kernel.hostlocal import RANGES, Beside, add, check, delete, got, owners, put_before, records, request, theirs
from weft.cni.host.files import RootedFiles
from weft.cni.plugins.hostlocal import store
from weft.wire.cni import VERSIONS


@pytest.mark.spec("cni.md E1")
@pytest.mark.spec("cni.md E2", "cni.md E7", cases=("0.2.0", "1.1.0"))
@pytest.mark.parametrize("version", VERSIONS)
def test_add_and_del(site, tmp_path, version):
    resolv = tmp_path / "resolv.conf"
    resolv.write_text("nameserver 192.0.2.3\n")
    routes = [
        {"dst": "0.0.0.0/0"},
        {"dst": "::/0"},
        {"dst": "192.168.0.0/16", "gw": "1.1.1.1"},
        {"dst": "2001:db8:2::/64", "gw": "2001:db8:3::1"},
    ]
    sets = [[{"subnet": "10.1.2.0/24"}, {"subnet": "10.2.2.0/24"}], [{"subnet": "2001:db8:1::/64"}]]
    conf = request(site, {"ranges": sets, "routes": routes, "resolvConf": str(resolv)}, version=version)
    first = add(site, conf, "dummy")
    assert first.stderr == ""
    result = first.result
    assert result["cniVersion"] == version
    assert result["dns"] == {"nameservers": ["192.0.2.3"]}
    if version in ("0.1.0", "0.2.0"):
        assert result["ip4"] == {
            "ip": "10.1.2.2/24",
            "gateway": "10.1.2.1",
            "routes": [routes[0], routes[2]],
        }
        assert result["ip6"]["ip"] == "2001:db8:1::2/64"
    else:
        assert result["routes"] == routes
        assert [(ip["address"], ip["gateway"]) for ip in result["ips"]] == [
            ("10.1.2.2/24", "10.1.2.1"),
            ("2001:db8:1::2/64", "2001:db8:1::1"),
        ]
        assert "interfaces" not in result
    assert site.reservations("net") == {"10.1.2.2": b"dummy\r\neth0", "2001:db8:1::2": b"dummy\r\neth0"}
    store = site.store / "net"
    assert (store / "last_reserved_ip.0").read_text() == "10.1.2.2"
    assert (store / "last_reserved_ip.1").read_text() == "2001:db8:1::2"
    assert (store / "10.1.2.2").stat().st_mode & 0o777 == 0o600
    assert (store / "last_reserved_ip.0").stat().st_mode & 0o777 == 0o600
    assert store.stat().st_mode & 0o777 == 0o755
    assert delete(site, conf, "dummy").exit == 0
    assert site.reservations("net") == {}
    assert {path.name for path in store.iterdir()} == {"lock", "last_reserved_ip.0", "last_reserved_ip.1"}


@pytest.mark.spec("cni.md E3")
def test_two_networks_of_one_container(site):
    one, two = request(site, name="one"), request(site, name="two")
    assert got(add(site, one)) == got(add(site, two, ifname="eth1")) == ["192.168.1.2/29"]
    assert delete(site, one).exit == 0
    assert site.reservations("one") == {}
    assert site.reservations("two") == {"192.168.1.2": b"c1\r\neth1"}


@pytest.mark.spec("cni.md E4")
def test_a_reservation_of_an_old_version(site):
    conf = request(site)
    add(site, conf)
    (site.store / "net" / "192.168.1.2").write_text("c1")
    assert delete(site, conf).exit == 0
    assert site.reservations("net") == {}


@pytest.mark.spec("cni.md E4")
def test_a_reservation_of_an_old_version_counts_as_the_attachments(site):
    conf = request(site)
    add(site, conf)
    (site.store / "net" / "192.168.1.2").write_text("c1")
    answer = add(site, conf)
    assert (answer.code, answer.msg) == (
        999,
        "failed to allocate for range 0: 192.168.1.2 has been allocated to c1, duplicate allocation is not allowed",
    )
    assert site.reservations("net") == {"192.168.1.2": b"c1"}


def test_del_leaves_the_old_format_to_another_interface_while_it_has_one_of_its_own(site):
    conf = request(site)
    add(site, conf)
    (site.store / "net" / "192.168.1.3").write_bytes(b"c1")  # as old versions wrote it, for eth1 perhaps
    assert delete(site, conf).exit == 0
    assert site.reservations("net") == {"192.168.1.3": b"c1"}
    assert delete(site, conf, ifname="eth1").exit == 0
    assert site.reservations("net") == {}


@pytest.mark.spec("cni.md E5")
def test_del_of_what_was_never_there(site):
    conf = request(site)
    assert delete(site, conf).exit == 0
    assert not site.store.exists()
    add(site, conf)
    assert delete(site, conf, "another").exit == 0
    assert list(site.reservations("net")) == ["192.168.1.2"]


def test_del_needs_no_ranges(site):
    conf = request(site, runtimeConfig={"ipRanges": [[{"subnet": "10.9.0.0/24"}]]}, ipam={})
    assert got(add(site, conf)) == ["10.9.0.2/24"]
    assert delete(site, request(site, {})).exit == 0
    assert site.reservations("net") == {}


@pytest.mark.spec("cni.md E8")
@pytest.mark.parametrize("version", VERSIONS[4:])
def test_check(site, version):
    conf = request(site, version=version)
    assert check(site, conf).msg == "host-local: Failed to find address added by container c1"
    assert not site.store.exists()
    add(site, conf)
    assert check(site, conf).exit == 0
    unknown = check(site, conf, "zz")
    assert (unknown.code, unknown.msg) == (999, "host-local: Failed to find address added by container zz")
    assert unknown.json["details"] == f"IPAM-003: no file under {site.store}/net names zz, interface eth0"
    (site.store / "net" / "192.168.1.2").write_bytes(b"c1\n")  # as old versions wrote it
    assert check(site, conf).exit == 0


def test_check_is_of_a_version_that_has_it(site):
    assert check(site, request(site, version="0.3.1")).code == 1


def test_check_names_the_address_that_is_anothers(site):
    conf = request(site)
    result = add(site, conf).result
    other = {"address": "10.9.9.9/24"}  # of a chain's other member: not for us to know
    previous = {**result, "ips": [*result["ips"], other]}
    assert check(site, {**conf, "prevResult": previous}).exit == 0
    store = site.store / "net"
    (store / "192.168.1.2").rename(store / "192.168.1.4")
    answer = check(site, {**conf, "prevResult": previous})
    assert answer.msg == "host-local: 192.168.1.2 is not reserved for container c1"
    assert answer.json["details"] == (
        f"IPAM-003: {store}/192.168.1.2 does not name c1, interface eth0, which has 192.168.1.4"
    )


def test_check_believes_the_file_and_not_its_memory(site):
    conf = request(site)
    add(site, conf)
    (site.store / "net" / "192.168.1.2").write_bytes(b"stranger\r\neth0")
    assert check(site, conf).msg == "host-local: Failed to find address added by container c1"


def test_an_address_is_written_down_before_it_is_given(site):
    ranges = {"ranges": [[{"subnet": "10.1.2.0/24"}], [{"subnet": "fd00::/64"}]]}
    seen = []

    class Watched(Beside):
        def write_new(self, path, data, **more):
            seen.append([known["addresses"] for known in records(site)])
            self._files.write_new(path, data, **more)

    put_before(site, Watched)
    add(site, request(site, ranges))
    assert seen == [[["10.1.2.2"]], [["10.1.2.2", "fd00::2"]]]
    assert [(known["dataDir"], known["boot"]) for known in records(site)] == [(str(site.store), "boot-1")]
    delete(site, request(site, ranges))
    assert records(site) == []


def test_a_second_address_is_added_to_the_record_and_a_failure_leaves_it_as_it_was(site):
    conf = request(site)
    add(site, conf)
    add(site, conf, args="IP=192.168.1.5")  # the same container may ask for one more
    assert [known["addresses"] for known in records(site)] == [["192.168.1.2", "192.168.1.5"]]
    assert add(site, conf, args="IP=192.168.1.5").exit == 1
    assert [known["addresses"] for known in records(site)] == [["192.168.1.2", "192.168.1.5"]]
    assert add(site, conf, "c2", args="IP=192.168.1.5").exit == 1
    assert owners(site) == [("net", "c1", "eth0")]


@pytest.mark.spec("cni.md E9")
def test_fifty_at_once(site):
    conf = request(site, {"subnet": "10.3.0.0/24"})
    site.serve()
    with ThreadPoolExecutor(50) as threads:
        answers = list(threads.map(lambda number: add(site, conf, f"c{number}"), range(50)))
    assert len({got(answer)[0] for answer in answers}) == 50
    assert sorted(owner.decode() for owner in site.reservations("net").values()) == sorted(
        f"c{number}\r\neth0" for number in range(50)
    )


@pytest.mark.spec("cni.md E10")
def test_resolv_conf_that_is_not_there(site):
    answer = add(site, request(site, {**RANGES, "resolvConf": "/nowhere/resolv.conf"}))
    assert answer.code == 999
    assert answer.msg == '"resolvConf" /nowhere/resolv.conf cannot be read: No such file or directory'
    assert not site.store.exists()


@pytest.mark.spec("cni.md A16")
def test_a_range_is_given_in_order_without_gateway_and_broadcast(site):
    conf = request(site)
    assert [got(add(site, conf, f"c{number}"))[0] for number in range(5)] == [
        f"192.168.1.{host}/29" for host in range(2, 7)
    ]
    full = add(site, conf, "c5")
    assert full.code == 999
    assert full.msg == (
        "failed to allocate for range 0: no IP addresses available in range set: 192.168.1.1-192.168.1.6"
    )
    assert full.json["details"].startswith("IPAM-001: ")
    assert full.json["details"].endswith(f"see `weft ipam list --data-dir {site.store}`")


@pytest.mark.spec("cni.md A17")
def test_a_freed_address_is_given_last(site):
    conf = request(site)
    assert got(add(site, conf)) == ["192.168.1.2/29"]
    delete(site, conf)
    assert got(add(site, conf)) == ["192.168.1.3/29"]


@pytest.mark.spec("cni.md A18")
def test_an_address_asked_for_twice(site):
    conf = request(site, runtimeConfig={"ips": ["192.168.1.5"]})
    assert got(add(site, conf)) == ["192.168.1.5/29"]
    assert (site.store / "net" / "last_reserved_ip.0").read_text() == "192.168.1.5"
    again = add(site, conf, "c2")
    assert again.code == 999
    assert again.msg == (
        "failed to allocate for range 0: "
        "requested IP address 192.168.1.5 is not available in range set 192.168.1.1-192.168.1.6"
    )


def test_a_requested_address_names_who_has_it(site):
    conf = request(site, runtimeConfig={"ips": ["192.168.1.5"]})
    add(site, conf, "web")
    details = add(site, conf, "c2").json["details"]
    assert details.startswith("IPAM-004: it is reserved for container web, interface eth0, and nothing proves")
    (site.store / "net" / "192.168.1.5").write_text("web")  # as old versions of the reference wrote it
    assert "container web, and" in add(site, conf, "c2").json["details"]
    (site.store / "net" / "192.168.1.5").write_text("")
    assert "192.168.1.5" not in add(site, conf, "c2").json["details"]
    assert "names no container" in add(site, conf, "c2").json["details"]


def test_a_requested_address_that_is_leaked_is_freed_and_given(site):
    conf = request(site, runtimeConfig={"ips": ["192.168.1.5"]})
    add(site, conf, "web")
    site.reboot()
    assert got(add(site, conf, "c2")) == ["192.168.1.5/29"]


@pytest.mark.spec("cni.md A19")
def test_the_gateway_asked_for(site):
    answer = add(site, request(site), args="IP=192.168.1.1")
    assert answer.code == 999
    assert answer.msg == "failed to allocate for range 0: requested ip 192.168.1.1 is subnet's gateway"


@pytest.mark.spec("cni.md A20", "cni.md A21")
def test_an_address_asked_for_outside_all_sets(site):
    answer = add(site, request(site), args="IP=10.1.0.1")
    assert (answer.code, answer.msg) == (999, "failed to allocate all requested IPs: 10.1.0.1")
    assert site.reservations("net") == {}
    conf = request(
        site,
        {"ranges": [[{"subnet": "10.1.2.0/24"}], [{"subnet": "10.1.3.0/24"}]]},
        runtimeConfig={"ips": ["10.1.2.88", "10.1.2.77"]},
    )
    answer = add(site, conf)
    assert answer.code == 999
    assert answer.msg.startswith("failed to allocate all requested IPs: 10.1.2.")
    assert site.reservations("net") == {}


@pytest.mark.spec("cni.md A22")
@pytest.mark.parametrize("version", VERSIONS[2:])
def test_addresses_asked_for_in_several_sets(site, version):
    conf = request(
        site,
        {"ranges": [[{"subnet": "10.1.2.0/24"}], [{"subnet": "10.1.3.0/24"}]]},
        version=version,
        runtimeConfig={"ips": ["10.1.2.88", "10.1.3.77"]},
    )
    assert got(add(site, conf)) == ["10.1.2.88/24", "10.1.3.77/24"]


@pytest.mark.spec("cni.md A23")
@pytest.mark.parametrize("version", VERSIONS[2:])
def test_addresses_asked_for_in_a_later_range_and_in_the_other_family(site, version):
    sets = [[{"subnet": "10.1.4.0/24"}, {"subnet": "10.1.5.0/24"}], [{"subnet": "2001:db8:1::/48"}]]
    ips = ["10.1.5.99", "2001:db8:1::999"]
    conf = request(site, {"ranges": sets}, version=version, runtimeConfig={"ips": ips})
    assert got(add(site, conf)) == ["10.1.5.99/24", "2001:db8:1::999/48"]


@pytest.mark.spec("cni.md A24")
def test_one_attachment_has_one_address(site):
    conf = request(site)
    add(site, conf)
    twice = add(site, conf)
    assert twice.code == 999
    assert twice.msg == (
        "failed to allocate for range 0: 192.168.1.2 has been allocated to c1, duplicate allocation is not allowed"
    )
    assert got(add(site, conf, "c2")) == ["192.168.1.3/29"]
    assert delete(site, conf).exit == 0
    assert set(site.reservations("net")) == {"192.168.1.3"}


@pytest.mark.spec("cni.md A25", "cni.md A26")
def test_what_was_taken_is_given_back_when_a_later_set_is_full(site):
    last = {"subnet": "10.1.1.0/24", "rangeStart": "10.1.1.4", "rangeEnd": "10.1.1.4", "gateway": "10.1.1.4"}
    answer = add(site, request(site, {"ranges": [[{"subnet": "10.1.0.0/24"}], [last]]}))
    assert answer.code == 999
    assert answer.msg == "failed to allocate for range 1: no IP addresses available in range set: 10.1.1.4-10.1.1.4"
    assert site.reservations("net") == {}
    assert (site.store / "net" / "last_reserved_ip.0").read_text() == "10.1.0.2"


def test_an_add_on_a_full_disk_is_refused_and_keeps_nothing(site, monkeypatch):
    def rewrite(_files, path, _data, **_):
        raise OSError(errno.ENOSPC, "No space left on device", path)

    monkeypatch.setattr(RootedFiles, "rewrite", rewrite)
    assert "No space left on device" in add(site, request(site)).msg
    assert site.reservations("net") == {}


@pytest.mark.spec("cni.md E6")
def test_an_id_is_stored_without_the_white_space_around_it():
    assert store.owner_of("   dummy\n ", "eth0") == b"dummy\r\neth0"


@pytest.mark.spec("cni.md E6")
def test_an_id_is_compared_without_white_space(site):
    conf = request(site)
    add(site, conf)
    (site.store / "net" / "192.168.1.2").write_text("  c1\r\neth0\n")
    site.node = site.new_node()
    assert delete(site, conf).exit == 0
    assert site.reservations("net") == {}


# --- beside the reference


def test_each_reads_what_the_other_writes(site):
    conf = request(site)
    assert got(add(site, conf, "ours")) == ["192.168.1.2/29"]
    assert got(theirs(site, "ADD", conf, "theirs")) == ["192.168.1.3/29"]
    assert "duplicate allocation" in theirs(site, "ADD", conf, "ours").msg
    assert "duplicate allocation" in add(site, conf, "theirs").msg
    assert theirs(site, "DEL", conf, "ours").exit == 0
    assert got(add(site, conf, "next")) == ["192.168.1.4/29"]
    assert delete(site, conf, "theirs").exit == 0
    assert set(site.reservations("net")) == {"192.168.1.4"}


def test_the_same_answer_and_files_as_the_reference(site):
    ranges = {"ranges": [[{"subnet": "10.1.2.0/24"}], [{"subnet": "fd00::/64"}]], "routes": [{"dst": "0.0.0.0/0"}]}
    for version in VERSIONS[:-1]:
        ours = add(site, request(site, ranges, version=version, name=f"ours-{version}"))
        reference = theirs(site, "ADD", request(site, ranges, version=version, name=f"theirs-{version}"))
        # The reference's old release prints an empty dns where the newer one, and ours, prints none.
        assert ours.result | {"dns": {}} == reference.result | {"dns": {}}
        files = [
            {path.name: path.read_bytes() for path in (site.store / f"{who}-{version}").iterdir()}
            for who in ("ours", "theirs")
        ]
        assert files[0] == files[1]
