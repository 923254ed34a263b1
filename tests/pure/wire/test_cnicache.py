"""The file in which a runtime remembers an attachment."""

import base64
import json

import pytest

from weft.wire import cnicache
from weft.wire.cni import CniError
from weft.wire.cnicache import Entry
from weft.wire.cnichain import RuntimeConf

CONF = RuntimeConf(
    container_id="c1",
    netns="/run/netns/c1",
    ifname="eth0",
    args=(("K", "V"), ("K2", "V2")),
    capability_args={"portMappings": []},
)
ENTRY = Entry(network="net", conf=CONF, config=b'{"name":"net"}', result={"cniVersion": "1.0.0"})


@pytest.mark.spec("cni.md X4")
def test_an_entry_as_libcni_writes_it():
    written = json.loads(cnicache.render(ENTRY))
    assert written == {
        "kind": "cniCacheV1",
        "containerId": "c1",
        "config": base64.b64encode(b'{"name":"net"}').decode(),
        "ifName": "eth0",
        "networkName": "net",
        "netns": "/run/netns/c1",
        "cniArgs": [["K", "V"], ["K2", "V2"]],
        "capabilityArgs": {"portMappings": []},
        "result": {"cniVersion": "1.0.0"},
    }
    assert cnicache.parse(cnicache.render(ENTRY), "net") == ENTRY


def test_what_is_empty_is_left_out():
    bare = Entry(network="net", conf=RuntimeConf(container_id="c1", netns="", ifname="eth0"), config=b"", result={})
    assert sorted(json.loads(cnicache.render(bare))) == ["config", "containerId", "ifName", "kind", "networkName"]
    assert cnicache.parse(cnicache.render(bare), "net") == bare


@pytest.mark.spec("cni.md X28")
@pytest.mark.parametrize("names", [("", "c1", "eth0"), ("net", "", "eth0"), ("net", "c1", "")])
def test_a_file_needs_all_three_names(names):
    network, container, ifname = names
    with pytest.raises(CniError) as caught:
        cnicache.file_name(*names)
    assert caught.value.msg == (
        f'cache file path requires network name ("{network}"), container ID ("{container}"), '
        f'and interface name ("{ifname}")'
    )


@pytest.mark.parametrize("name", ["../x", "a/b", "a\0b"])
def test_a_name_does_not_lead_out_of_the_directory(name):
    with pytest.raises(CniError, match="cannot be the name of a file"):
        cnicache.file_name(name, "c1", "eth0")


@pytest.mark.spec("cni.md X28")
@pytest.mark.parametrize(
    "data, seen",
    [
        (b"adfadsfasdfasfdsafaf", 'failed to unmarshal cached network "net" config: '),
        (b'{"kind":"aadfasdf"}', 'read cached network "net" config has wrong kind: aadfasdf'),
        (b'{"kind":"cniCacheV1","ifName":3}', 'failed to unmarshal cached network "net" config: '),
        (b'{"kind":"cniCacheV1","config":"*"}', 'failed to unmarshal cached network "net" config: '),
        (b'{"kind":"cniCacheV1","cniArgs":[["K"]]}', 'failed to unmarshal cached network "net" config: cannot use 1'),
    ],
)
def test_an_entry_that_cannot_be_read(data, seen):
    with pytest.raises(CniError) as caught:
        cnicache.parse(data, "net")
    assert caught.value.msg.startswith(seen)


@pytest.mark.spec("cni.md X20")
def test_a_bare_result_is_used_as_one():
    assert cnicache.parse_result(b'{"cniVersion":"0.3.1"}') == {"cniVersion": "0.3.1"}
    assert cnicache.parse_result(cnicache.render(ENTRY)) == ENTRY.result


@pytest.mark.parametrize("data", [b"{", b'{"kind":"cniCacheV1","result":[]}'])
def test_a_result_that_cannot_be_read(data):
    with pytest.raises(CniError):
        cnicache.parse_result(data)


def test_whose_a_file_is_says_its_content():
    # The names of these two give the same file name.
    first = cnicache.render(Entry(network="a-b", conf=CONF, config=b"", result={}))
    assert cnicache.file_name("a-b", "c1", "eth0") == cnicache.file_name("a", "b-c1", "eth0")
    assert cnicache.belongs_to(first, "a-b", "c1", "eth0")
    assert not cnicache.belongs_to(first, "a", "b-c1", "eth0")
    assert cnicache.belongs_to(b"torn", "a", "b-c1", "eth0")
