"""The part of net-conf.json that is the back end's."""

import json

import pytest

from tests.pure.config.configurations import conf, problems, vxlan
from weft.config.netconf import parse_netconf
from weft.desired.backends import BACKENDS, hostgw
from weft.desired.backends.vxlan import VxlanOptions
from weft.model.errors import ConfigError
from weft.model.value import Value


@pytest.mark.spec("flannel.md 11.1/backend-absent", "flannel.md §2.2/backend-type")
def test_no_backend_means_udp_and_is_said():
    netconf = conf('"Network": "10.3.0.0/16"', "")
    assert netconf.backend == "udp"
    [warning] = netconf.warnings
    assert "Backend is missing, which means udp" in warning
    assert "vxlan" in warning


def test_a_mesh_has_a_back_end_of_its_own_and_no_other_store_has_that():
    network, mesh = '"Network": "10.3.0.0/16"', '"Backend": {"Type": "Mesh"}'
    assert conf(network, mesh, mesh=True).backend == conf(network, mesh).backend == "mesh"
    assert conf(network, mesh=False).backend == "vxlan"
    [problem] = problems(network, mesh=True)
    assert (problem.where, problem.seen, problem.expected) == ("net-conf: Backend.Type", "vxlan", "mesh")
    [problem] = problems(network, "", mesh=True)
    assert (problem.seen, problem.expected) == ("udp", "mesh")
    [problem] = problems(network, mesh, mesh=False)
    assert problem.seen == "mesh, and the store is no mesh"
    assert "--mesh" in problem.hint


@pytest.mark.spec("flannel.md 11.1/backend-wrong-types")
@pytest.mark.spec("flannel.md §2.2/Backend", cases="*-Backend")
@pytest.mark.spec("flannel.md §2.1/integers", cases="*-Backend.VNI")
@pytest.mark.parametrize(
    "backend, where",
    [
        ("[]", "Backend"),
        ('"vxlan"', "Backend"),
        ('{"Type": 1}', "Backend.Type"),
        ('{"Type": "vxlan", "VNI": "3"}', "Backend.VNI"),
        ('{"Type": "vxlan", "VNI": 1.0}', "Backend.VNI"),
        ('{"Type": "vxlan", "VNI": true}', "Backend.VNI"),
        ('{"Type": "vxlan", "GBP": 1}', "Backend.GBP"),
    ],
)
def test_wrong_types_in_the_backend_are_refused(backend, where):
    [problem] = problems('"Network": "10.3.0.0/16"', f'"Backend": {backend}')
    assert problem.where == f"net-conf: {where}"


@pytest.mark.spec("flannel.md 11.1/backend-upper-case", "flannel.md §2.2/backend-type")
def test_the_type_is_lower_cased():
    assert conf('"Network": "10.3.0.0/16"', '"Backend": {"Type": "VXLAN"}').backend == "vxlan"
    netconf = conf('"Network": "10.3.0.0/16"', '"backend": {"type": "Host-GW"}')
    assert (netconf.backend, netconf.options) == ("host-gw", Value())


def test_options_of_vxlan_have_defaults():
    defaults = VxlanOptions(vni=1, port=0, mtu=0, gbp=False, learning=False, direct_routing=False)
    assert conf('"Network": "10.3.0.0/16"').options == defaults


@pytest.mark.spec(
    "flannel.md 11.1/backend-key-case", "flannel.md 11.1/backend-duplicate", "flannel.md 11.1/backend-vni-null"
)
def test_the_backends_keys_follow_the_same_rules():
    assert vxlan('"Vni": 3, "PORT": 9, "directrouting": true') == VxlanOptions(vni=3, port=9, direct_routing=True)
    assert vxlan('"vni": 2, "VNI": 5').vni == 5
    assert vxlan('"VNI": null').vni == 1


@pytest.mark.spec("flannel.md §6.2/Learning")
def test_learning_is_off_unless_asked_for():
    assert not vxlan('"VNI": 1').learning
    assert vxlan('"learning": true').learning


@pytest.mark.spec("flannel.md 11.1/backend-duplicate")
def test_a_second_backend_replaces_the_first_as_a_whole():
    netconf = conf('"Network": "10.3.0.0/16", "backend": {"Type": "vxlan", "VNI": 7}')
    assert netconf.options == VxlanOptions()


@pytest.mark.spec("flannel.md 11.1/backend-fuzz-seeds")
@pytest.mark.spec("flannel.md §6.2/MTU", "flannel.md §6.2/GBP", cases="*MTU*")
@pytest.mark.parametrize("options", ['"Mac": "00:11:22:33:44:55"', '"MTU":1400,"GBP":true,"DirectRouting":true'])
def test_fuzz_seeds(options):
    parsed = vxlan(options)
    assert (parsed.mtu, parsed.gbp, parsed.direct_routing) in ((0, False, False), (1400, True, True))
    for backend in ("", "{}", f"{{{options}}}"):
        with pytest.raises(ConfigError):
            parse_netconf(backend, backends=BACKENDS)


@pytest.mark.spec("flannel.md §6.2/option-ranges")
@pytest.mark.parametrize(
    "options, where, family, fine",
    [
        ('"VNI": 16777216', "VNI", "4", False),
        ('"VNI": -1', "VNI", "4", False),
        ('"VNI": 0', "VNI", "4", True),
        ('"VNI": 9999999', "VNI", "4", True),
        ('"VNI": 10000000', "VNI", "4", False),
        ('"VNI": 9999', "VNI", "46", True),
        ('"VNI": 10000', "VNI", "46", False),
        ('"VNI": 10000', "VNI", "6", False),
        ('"Port": 65535', "Port", "4", True),
        ('"Port": 65536', "Port", "4", False),
        ('"Port": -1', "Port", "4", False),
        ('"MTU": 0', "MTU", "4", True),
        ('"MTU": 118', "MTU", "4", True),
        ('"MTU": 117', "MTU", "4", False),
        ('"MTU": 1350', "MTU", "46", True),
        ('"MTU": 1349', "MTU", "46", False),
        ('"MTU": 65536', "MTU", "4", False),
    ],
)
def test_ranges_of_vxlan_options(options, where, family, fine):
    members = (
        f'"Network": "10.3.0.0/16", "IPv6Network": "fd00::/48",'
        f' "EnableIPv4": {json.dumps("4" in family)}, "EnableIPv6": {json.dumps("6" in family)}'
    )
    backend = f'"Backend": {{"Type": "vxlan", {options}}}'
    if fine:
        assert conf(members, backend).backend == "vxlan"
    else:
        [problem] = problems(members, backend)
        assert problem.where == f"net-conf: Backend.{where}"


@pytest.mark.spec("flannel.md §6.2/MacPrefix-Name")
def test_options_of_windows_are_accepted_and_warned_about():
    netconf = conf('"Network": "10.3.0.0/16"', '"Backend": {"Type": "vxlan", "MacPrefix": "0E-2A", "Name": "n"}')
    assert [warning.split()[0] for warning in netconf.warnings] == ["Backend.MacPrefix", "Backend.Name"]


def test_all_backends_that_there_are_are_named():
    with pytest.raises(ConfigError, match=r"expected vxlan$"):
        parse_netconf('{"Network": "10.1.0.0/16", "Backend": {"Type": "x"}}', backends={"vxlan": BACKENDS["vxlan"]})


def test_without_a_backend_it_is_flannels_default_where_there_is_one():
    assert parse_netconf('{"Network": "10.1.0.0/16"}', backends={**BACKENDS, "udp": hostgw}).backend == "udp"
