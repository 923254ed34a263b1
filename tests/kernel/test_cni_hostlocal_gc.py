"""host-local's GC and STATUS."""

import pytest

from tests.kernel.hostlocal import RANGES, Beside, add, delete, gc, owners, put_before, request, status


@pytest.mark.parametrize("key", ["cni.dev/valid-attachments", "cni.dev/attachments"])
def test_gc_frees_what_no_valid_attachment_has(site, key):
    conf = request(site, version="1.1.0")
    for number in range(4):
        add(site, conf, f"c{number}")
    add(site, conf, "c1", ifname="eth1")
    add(site, request(site, version="1.1.0", name="other"), "c0")
    valid = [{"containerID": "c1", "ifname": "eth0"}, {"containerID": "c3", "ifname": "eth0"}]
    assert gc(site, {**conf, key: valid}).exit == 0
    assert site.reservations("net") == {"192.168.1.3": b"c1\r\neth0", "192.168.1.5": b"c3\r\neth0"}
    assert list(site.reservations("other").values()) == [b"c0\r\neth0"]
    assert sorted(owners(site)) == [("net", "c1", "eth0"), ("net", "c3", "eth0"), ("other", "c0", "eth0")]
    assert (site.store / "net" / "last_reserved_ip.0").read_text() == "192.168.1.6"


def test_gc_reads_the_new_key_before_the_old_one(site):
    conf = request(site, version="1.1.0")
    add(site, conf)
    valid = {"cni.dev/attachments": [], "cni.dev/valid-attachments": [{"containerID": "c1", "ifname": "eth0"}]}
    assert gc(site, conf | valid).exit == 0
    assert len(site.reservations("net")) == 1


def test_gc_without_a_list_is_refused(site):
    conf = request(site, version="1.1.0")
    add(site, conf)
    assert gc(site, conf).code == 7
    assert len(site.reservations("net")) == 1


def test_gc_keeps_the_old_format_while_the_container_has_a_valid_attachment(site):
    conf = request(site, version="1.1.0")
    add(site, conf)
    store = site.store / "net"
    (store / "192.168.1.3").write_bytes(b"old")
    (store / "192.168.1.4").write_bytes(b"older")
    (store / "192.168.1.5").write_bytes(b"")  # torn: whoever made it has died
    (store / "192.168.1.6").mkdir()
    (store / "192.168.1.9").write_bytes(b"old\r\neth1\r\n")
    valid = [{"containerID": "old", "ifname": "eth7"}]
    assert gc(site, conf | {"cni.dev/valid-attachments": valid}).exit == 0
    assert {path.name for path in store.glob("192.*")} == {"192.168.1.3", "192.168.1.6"}


@pytest.mark.parametrize("torn", [b"", b"c", b"c1", b"c1\r\net"])
def test_gc_keeps_a_torn_file_that_our_record_gives_to_a_valid_attachment(site, torn):
    conf = request(site, version="1.1.0")
    add(site, conf)
    file = site.store / "net" / "192.168.1.2"
    file.write_bytes(torn)
    valid = [{"containerID": "c1", "ifname": "eth0"}]
    assert gc(site, conf | {"cni.dev/valid-attachments": valid}).exit == 0
    assert file.read_bytes() == torn
    assert gc(site, conf | {"cni.dev/valid-attachments": []}).exit == 0
    assert not file.exists()


def test_gc_reaches_a_store_that_an_earlier_configuration_named(site, tmp_path):
    before = request(site, {**RANGES, "dataDir": str(tmp_path / "before")}, version="1.1.0")
    add(site, before, "c1")
    add(site, before, "c2")
    valid = [{"containerID": "c2", "ifname": "eth0"}]
    assert gc(site, request(site, version="1.1.0") | {"cni.dev/valid-attachments": valid}).exit == 0
    assert [path.name for path in (tmp_path / "before" / "net").glob("192.*")] == ["192.168.1.3"]


def test_gc_removes_records_that_are_torn(site):
    conf = request(site, version="1.1.0")
    for number in range(2):
        add(site, conf, f"c{number}")
    kept = site.directory / "state" / "ipam"
    next(kept.iterdir()).write_text("{")
    assert gc(site, conf | {"cni.dev/valid-attachments": []}).exit == 0
    assert list(kept.glob("*.json")) == []


def test_gc_of_what_was_never_there(site):
    assert gc(site, request(site, version="1.1.0") | {"cni.dev/valid-attachments": []}).exit == 0
    assert not site.store.exists()


def test_gc_goes_on_after_an_error_and_tells_it(site):
    conf = request(site, version="1.1.0")
    for number in range(3):
        add(site, conf, f"c{number}")

    class Stuck(Beside):
        def unlink(self, path):
            if path.endswith("192.168.1.2"):
                raise PermissionError(1, "Operation not permitted", path)
            self._files.unlink(path)

    put_before(site, Stuck)
    answer = gc(site, conf | {"cni.dev/valid-attachments": []})
    assert "Operation not permitted" in answer.msg
    assert "192.168.1.2" in answer.msg
    assert list(site.reservations("net")) == ["192.168.1.2"]


def test_status_is_bad_only_when_a_set_is_full(site):
    sets = [[{"subnet": "192.168.1.0/29"}], [{"subnet": "fd00::/64"}]]
    conf = request(site, {"ranges": sets}, version="1.1.0")
    assert status(site, conf).exit == 0
    for number in range(4):
        add(site, conf, f"c{number}")
        assert status(site, conf).exit == 0
    add(site, conf, "c4")
    answer = status(site, conf)
    assert (answer.code, answer.msg) == (50, "no IP addresses available in range set: 192.168.1.1-192.168.1.6")
    assert answer.json["details"].startswith("IPAM-001: ")
    delete(site, conf, "c4")
    assert status(site, conf).exit == 0


def test_status_of_a_network_whose_ranges_come_from_the_runtime(site):
    assert status(site, request(site, {}, version="1.1.0")).exit == 0
    assert status(site, request(site, {"subnet": "10.0.0.0/31"}, version="1.1.0")).msg.endswith(
        "too small to allocate from"
    )
