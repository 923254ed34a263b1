"""The configuration that the flannel plugin makes for its delegate."""

import json

import pytest

from weft.cni.plugins.flannel import conf as flannelconf
from weft.wire.cni import CniError
from weft.wire.cnijson import JsonError
from weft.wire.subnetenv import parse_for_cni

REST = "FLANNEL_MTU=1472\nFLANNEL_IPMASQ=true\n"
V4 = "\nFLANNEL_NETWORK=10.1.0.0/16\nFLANNEL_SUBNET=10.1.17.1/24\n"
V6 = "FLANNEL_IPV6_NETWORK=fc00::/48\nFLANNEL_IPV6_SUBNET=fc00::1/64\n"
TWO = V4.replace("10.1.0.0/16", "10.1.0.0/16,192.168.0.0/16")
MINE = [{"dst": "10.96.0.0/12"}, {"dst": "192.168.244.0/24", "gw": "10.1.17.20"}]


def made(env=V4 + REST, **config):
    conf = flannelconf.parse({"name": "cni-flannel", "type": "flannel", **config})
    return flannelconf.delegate_config(conf, parse_for_cni(env, "subnet.env"))


@pytest.mark.parametrize(
    "env, ipam, ranges, routes",
    [
        pytest.param(V4, {}, ["10.1.17.0/24"], ["10.1.0.0/16"], marks=pytest.mark.spec("flannel.md 11.12/A")),
        pytest.param(V6, {}, ["fc00::/64"], ["fc00::/48"], marks=pytest.mark.spec("flannel.md 11.12/B")),
        pytest.param(
            V4 + V6,
            {},
            ["10.1.17.0/24", "fc00::/64"],
            ["10.1.0.0/16", "fc00::/48"],
            marks=pytest.mark.spec("flannel.md 11.12/C"),
        ),
        pytest.param(
            TWO,
            {},
            ["10.1.17.0/24"],
            ["10.1.0.0/16", "192.168.0.0/16"],
            marks=pytest.mark.spec("flannel.md 11.12/D", "flannel.md §10.3/networks"),
        ),
    ],
)
def test_ranges_and_routes(env, ipam, ranges, routes):
    config = made(env + REST, ipam=ipam)
    assert config["ipam"] == {
        "type": "host-local",
        "ranges": [[{"subnet": subnet}] for subnet in ranges],
        "routes": [{"dst": network} for network in routes],
    }
    assert {key: config[key] for key in ("name", "type", "isGateway", "ipMasq", "mtu")} == {
        "name": "cni-flannel",
        "type": "bridge",
        "isGateway": True,
        "ipMasq": False,
        "mtu": 1472,
    }
    assert "cniVersion" not in config


@pytest.mark.spec("flannel.md 11.12/A-ipam", "flannel.md §10.2/ipam", "flannel.md §10.4/ipam")
def test_an_ipam_of_the_operators(tmp_path):
    ipam = {"type": "my-ipam", "unknown-param": "my-ipam-params", "subnet": "1.2.3.0/24", "ranges": 5, "routes": MINE}
    assert made(ipam=ipam)["ipam"] == {
        "type": "my-ipam",
        "unknown-param": "my-ipam-params",
        "subnet": "1.2.3.0/24",
        "ranges": [[{"subnet": "10.1.17.0/24"}]],
        "routes": [*MINE, {"dst": "10.1.0.0/16"}],
    }


@pytest.mark.spec("flannel.md 11.12/A-ipam-no-type")
def test_an_ipam_without_a_type():
    config = made(ipam={"unknown-param": "x", "routes": MINE})
    assert config["ipam"]["type"] == "host-local"
    assert config["ipam"]["routes"] == [*MINE, {"dst": "10.1.0.0/16"}]


@pytest.mark.spec("flannel.md §10.4/ipam")
def test_routes_are_read_and_written_anew():
    route = {"dst": "10.96.0.0/12", "mtu": 1, "advmss": 2, "priority": 3, "table": 0, "scope": 5, "other": 6}
    [first, _] = made(ipam={"routes": [route]})["ipam"]["routes"]
    assert first == {key: value for key, value in route.items() if key != "other"}
    with pytest.raises(JsonError, match=r"^invalid CIDR address: nonsense$"):
        made(ipam={"routes": [{"dst": "nonsense"}]})


@pytest.mark.spec(
    "flannel.md §10.4/type",
    "flannel.md §10.4/ipMasq",
    "flannel.md §10.4/mtu",
    "flannel.md §10.4/isGateway",
    "flannel.md §10.2/delegate",
    "flannel.md §10.3/mtu-ipmasq",
)
def test_what_the_operator_says_counts():
    delegate = {"type": "ptp", "ipMasq": True, "mtu": 9000, "hairpinMode": True}
    config = made(delegate=delegate)
    assert delegate.items() <= config.items()
    assert "isGateway" not in config  # only a bridge is a gateway by default
    assert made(delegate={"isGateway": False})["isGateway"] is False
    assert made(V4 + "FLANNEL_MTU=1500\nFLANNEL_IPMASQ=True\n")["ipMasq"] is True  # only "true" is true
    assert set(made()) == {"name", "type", "ipMasq", "mtu", "isGateway", "ipam"}


@pytest.mark.spec("flannel.md §10.2/cniVersion", "flannel.md §10.4/cniVersion", "flannel.md §10.4/name")
def test_version_and_name_are_the_requests():
    config = made(cniVersion="0.3.1", delegate={"cniVersion": "1.0.0"})
    assert (config["cniVersion"], config["name"]) == ("0.3.1", "cni-flannel")
    assert made(cniVersion="", delegate={"cniVersion": "1.0.0"})["cniVersion"] == "1.0.0"


@pytest.mark.spec("flannel.md §10.2/runtimeConfig", "flannel.md §10.4/runtimeConfig")
def test_runtime_config_replaces_the_delegates():
    ours = {"portMappings": [1]}
    assert made(runtimeConfig=ours, delegate={"runtimeConfig": {"x": 1}})["runtimeConfig"] == ours
    assert made(delegate={"runtimeConfig": {"x": 1}})["runtimeConfig"] == {"x": 1}


@pytest.mark.spec("flannel.md §10.2/not-forwarded")
def test_what_is_not_passed_on():
    config = made(prevResult={"ips": []}, capabilities={"x": True}, dns={"domain": "d"}, args={"cni": {}})
    assert set(config) == {"name", "type", "ipMasq", "mtu", "isGateway", "ipam"}


@pytest.mark.spec("flannel.md §10.4/example")
def test_the_example_byte_for_byte():
    assert flannelconf.render(made()).decode() == (
        '{"ipMasq":false,"ipam":{"ranges":[[{"subnet":"10.1.17.0/24"}]],"routes":[{"dst":"10.1.0.0/16"}],'
        '"type":"host-local"},"isGateway":true,"mtu":1472,"name":"cni-flannel","type":"bridge"}'
    )


@pytest.mark.spec("flannel.md §10.2/rejections")
@pytest.mark.parametrize("delegate", [{"type": 5}, {"name": "x"}, {"ipam": {}}, {"Name": "x"}])
def test_what_flannel_sets_itself(delegate):
    with pytest.raises(CniError, match="'delegate' must") as caught:
        made(delegate=delegate)
    assert caught.value.code == 999


@pytest.mark.spec("flannel.md §10.2/rejections")
@pytest.mark.parametrize("config", [{"delegate": []}, {"delegate": "x"}, {"ipam": 5}, {"subnetFile": 1}])
def test_what_cannot_be_decoded(config):
    with pytest.raises(JsonError):
        made(**config)


@pytest.mark.spec("flannel.md 11.12/defaults", "flannel.md §10.2/subnetFile", "flannel.md §10.2/dataDir")
def test_defaults():
    conf = flannelconf.parse({"name": "n"})
    assert (conf.subnet_file, conf.data_dir) == ("/run/flannel/subnet.env", "/var/lib/cni/flannel")
    conf = flannelconf.parse({"name": "n", "subnetFile": "/a", "dataDir": "/b"})
    assert (conf.subnet_file, conf.data_dir) == ("/a", "/b")


def test_text_that_is_no_unicode_is_still_a_file():
    config = made(delegate=json.loads('{"x": "\\ud800"}'))
    assert b'"x":"?"' in flannelconf.render(config)


def test_del_reads_the_folder_and_nothing_else():
    config = {"dataDir": "/elsewhere", "delegate": 7, "subnetFile": 7}
    assert flannelconf.parse_for_delete(config) == flannelconf.DeleteConf(data_dir="/elsewhere")
    with pytest.raises(JsonError):
        flannelconf.parse_for_delete({"dataDir": 7})
