"""Network lists as a runtime reads them, and the requests made of them."""

import json

import pytest

from weft.wire import cni, cnilist
from weft.wire.cni import CniError

NOOP = {"type": "noop"}
PARSING = "error parsing configuration: "


def parse(**keys):
    return cnilist.parse_list(json.dumps({"name": "net", "plugins": [NOOP], **keys}).encode())


def refused(data):
    with pytest.raises(CniError) as caught:
        cnilist.parse_list(data if isinstance(data, bytes) else json.dumps(data).encode())
    assert caught.value.code == cni.BAD_CONFIG
    assert caught.value.msg.startswith("error parsing configuration list: ")
    return caught.value.msg.removeprefix("error parsing configuration list: ")


def test_a_list_and_all_that_it_says():
    data = json.dumps(
        {
            "name": "net",
            "cniVersion": "1.0.0",
            "disableCheck": True,
            "disableGC": "TRUE",
            "plugins": [
                {"type": "a", "capabilities": {"mac": True, "ips": False}, "Name": "own"},
                {"type": "b", "delegate": {"type": "c"}, "ipam": {"type": "d"}},
            ],
        }
    ).encode()
    network = cnilist.parse_list(data)
    assert (network.name, network.version, network.raw) == ("net", "1.0.0", data)
    assert (network.disable_check, network.disable_gc, network.only_inlined) == (True, True, False)
    first, second = network.plugins
    assert (first.type, first.name, first.capabilities) == ("a", "own", {"mac"})
    assert (str(first), str(second)) == ('type="a" name="own"', 'type="b"')
    assert second.named == ("b", "c", "d")


@pytest.mark.spec("cni.md L11")
@pytest.mark.parametrize("value, meaning", [("true", True), ("FALSE", False), (True, True), (False, False)])
def test_booleans_may_be_words(value, meaning):
    assert parse(disableCheck=value).disable_check is meaning


@pytest.mark.spec("cni.md L11")
@pytest.mark.parametrize(
    "value, seen",
    [("aDsf", 'invalid value "adsf" for disableCheck'), (1, "invalid type number for disableCheck")],
)
def test_what_is_no_boolean(value, seen):
    assert refused({"name": "net", "plugins": [NOOP], "disableCheck": value}) == seen


@pytest.mark.parametrize(
    "data, seen",
    [
        pytest.param({"plugins": [NOOP]}, "no name", marks=pytest.mark.spec("cni.md L19")),
        pytest.param({"name": 3}, "invalid name type number", marks=pytest.mark.spec("cni.md L19")),
        ({"name": None}, "invalid name type null"),
        ({"name": "n", "cniVersion": True}, "invalid cniVersion type boolean"),
        ({"name": "n", "cniVersions": {}}, "invalid type for cniVersions: object"),
        ({"name": "n", "cniVersions": ["1.0.0", []]}, "invalid type for cniVersions index 1: list"),
        pytest.param(
            {"name": "n", "cniVersions": ["1.1.0", "0.4.0", "1.0.f"]},
            "invalid cniVersions entry 1.0.f at index 2: invalid version '1.0.f'",
            marks=pytest.mark.spec("cni.md L23"),
        ),
        ({"name": "n", "cniVersion": "x", "cniVersions": []}, "invalid cniVersion x: invalid version 'x'"),
        pytest.param(
            {"name": "n", "loadOnlyInlinedPlugins": True},
            "`loadOnlyInlinedPlugins` is true, and no 'plugins' key",
            marks=pytest.mark.spec("cni.md L14"),
        ),
        pytest.param({"name": "n", "plugins": []}, "no plugins in list", marks=pytest.mark.spec("cni.md L18")),
        pytest.param(
            {"name": "n", "plugins": {}}, "invalid 'plugins' type object", marks=pytest.mark.spec("cni.md L18")
        ),
        pytest.param(
            {"name": "n", "plugins": [{}]},
            "failed to parse plugin config 0: error parsing configuration: missing 'type'",
            marks=pytest.mark.spec("cni.md L20"),
        ),
        (
            {"name": "n", "plugins": [NOOP, "x"]},
            f"failed to parse plugin config 1: {PARSING}cannot use a string as a plugin (expected an object)",
        ),
        (
            {"name": "n", "plugins": [{"type": "a", "capabilities": {"mac": 1}}]},
            f"failed to parse plugin config 0: {PARSING}cannot use an integer as mac (expected a boolean)",
        ),
    ],
)
def test_a_list_that_is_refused(data, seen):
    assert refused(data) == seen


def test_what_is_no_json_at_all():
    assert refused(b"{")


@pytest.mark.parametrize(
    "keys, version",
    [
        pytest.param({"cniVersions": ["1.1.0", "0.4.0", "1.0.0"]}, "1.1.0", marks=pytest.mark.spec("cni.md L21")),
        pytest.param({"cniVersions": ["99.0.0", "1.1.0", "0.4.0"]}, "1.1.0", marks=pytest.mark.spec("cni.md L22")),
        pytest.param({"cniVersion": "1.2.3"}, "1.2.3", marks=pytest.mark.spec("cni.md L24")),
        pytest.param(
            {"cniVersion": "1.0.0", "cniVersions": ["0.1.0", "0.4.0"]}, "1.0.0", marks=pytest.mark.spec("cni.md L25")
        ),
        pytest.param({"cniVersions": []}, "", marks=pytest.mark.spec("cni.md L26")),
        pytest.param(
            {"cniVersion": "99.0.0", "cniVersions": ["98.0.0"]}, "99.0.0", marks=pytest.mark.spec("cni.md L27")
        ),
        ({}, ""),
    ],
)
def test_the_highest_version_that_both_sides_know_is_chosen(keys, version):
    assert parse(**keys).version == version


def test_a_version_that_is_none_is_found_out_when_it_matters():
    network = parse(cniVersion="new")
    with pytest.raises(CniError, match="invalid version 'new'"):
        network.at_least("0.4.0")
    assert parse(cniVersion="1.0.0").at_least("0.4.0")


def test_a_single_configuration_becomes_a_list_of_one():
    network = cnilist.from_single(b'{"name": "old", "cniVersion": "0.2.0", "type": "noop", "x": 1}')
    assert (network.name, network.version) == ("old", "0.2.0")
    again = cnilist.parse_list(network.raw)
    assert again == network
    assert again.plugins[0].obj["x"] == 1


@pytest.mark.spec("cni.md V6")
def test_no_version_is_the_first_one():
    network = cnilist.from_single(b'{"x": 1, "type": "noop"}')
    assert network.at_least("0.1.0")
    assert not network.at_least("0.2.0")


@pytest.mark.spec("cni.md V6")
@pytest.mark.parametrize("data", [b"{{{", b'{"type": "noop", "cniVersion": 1}', b'{"name": "old"}'])
def test_a_single_configuration_that_is_refused(data):
    with pytest.raises(CniError, match="error parsing configuration: "):
        cnilist.from_single(data)


@pytest.mark.spec("cni.md L13", "cni.md L15", "cni.md L16")
def test_drop_ins_come_behind_the_inlined_ones():
    extra = cnilist.parse_plugin(b'{"type": "extra"}')
    assert [plugin.type for plugin in cnilist.extended(parse(), [extra]).plugins] == ["noop", "extra"]
    nothing = cnilist.parse_list(b'{"name": "net"}')
    assert [plugin.type for plugin in cnilist.extended(nothing, [extra]).plugins] == ["extra"]
    with pytest.raises(CniError, match="no plugin configs found"):
        cnilist.extended(nothing, [])


@pytest.mark.spec("cni.md X1")
def test_capability_arguments_go_where_they_are_declared():
    declared = {"portMappings": True, "somethingElse": True, "noCapability": False}
    network = parse(cniVersion="1.0.0", plugins=[{"type": "noop", "capabilities": declared}])
    args = {"portMappings": [1], "somethingElse": ["a"], "noCapability": 1, "notAdded": 2}
    sent = json.loads(cnilist.request(network, network.plugins[0], capability_args=args))
    assert sent["runtimeConfig"] == {"portMappings": [1], "somethingElse": ["a"]}
    assert sent["capabilities"] == declared


@pytest.mark.spec("cni.md X2")
def test_without_a_matching_capability_there_is_no_key():
    network = parse(plugins=[{"type": "noop", "capabilities": {"ips": True}}])
    assert "runtimeConfig" not in json.loads(cnilist.request(network, network.plugins[0], capability_args={"mac": 1}))


def test_name_and_version_of_the_list_win_and_all_else_passes():
    network = parse(
        cniVersion="1.0.0", plugins=[{"type": "noop", "name": "x", "cniVersion": "0.1.0", "é": [None, 1e9]}]
    )
    sent = json.loads(cnilist.request(network, network.plugins[0], previous={"ips": []}, more={"k": []}))
    assert sent == {
        "type": "noop",
        "name": "net",
        "cniVersion": "1.0.0",
        "é": [None, 1e9],
        "prevResult": {"ips": []},
        "k": [],
    }


@pytest.mark.spec("cni.md L28")
@pytest.mark.parametrize(
    "values, seen", [({"": 1}, "keys cannot be empty"), ({"test": None}, "key 'test' value must not be nil")]
)
def test_what_cannot_be_injected(values, seen):
    with pytest.raises(ValueError, match=seen):
        cnilist.inject({}, values)
