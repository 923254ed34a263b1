"""Whatever the configuration says, reading it ends with a value or with an error that we know."""

import json
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.model.attachment import BridgeConf
from weft.wire import bridgeconf, cni, cnijson, cniresult, flannelconf, ipamconf, subnetenv
from weft.wire.cni import CniError
from weft.wire.cnijson import JsonError

TEXTS = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        [
            *(
                "10.1.2.0/24",
                "10.1.2.3",
                "fd00::/64",
                "fd00::1",
                "::ffff:1.2.3.4",
                "0.0.0.0/0",
                "1.2.3.4/33",
                "fe80::1%x",
            ),
            *("host-local", "bridge", "../x", "a\0b", "\ud800", "0.4.0", "1.1.0", "9" * 5000),
        ]
    ),
)
KEYS = st.sampled_from(
    [
        *(
            "name",
            "cniVersion",
            "type",
            "ipam",
            "IPAM",
            "delegate",
            "runtimeConfig",
            "args",
            "cni",
            "prevResult",
            "dns",
        ),
        *("subnet", "ranges", "ipRanges", "rangeStart", "rangeEnd", "gateway", "routes", "dst", "gw", "mtu", "MTU"),
        *("ips", "address", "interface", "interfaces", "ip4", "ip6", "ip", "mac", "bridge", "isGateway", "ipMasq"),
        *("vlan", "vlanTrunk", "dataDir", "resolvConf", "subnetFile", "table", "nameservers", "portMappings"),
    ]
)
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), TEXTS)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=6), max_leaves=25
)
CONFIGS = st.dictionaries(KEYS, VALUES, max_size=10)
ENV = subnetenv.parse_for_cni(
    "FLANNEL_NETWORK=10.1.0.0/16\nFLANNEL_SUBNET=10.1.17.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n", "subnet.env"
)
REFUSED = (CniError, JsonError)


def decoded(config):
    return cnijson.load(json.dumps(config).encode())


@settings(max_examples=150, deadline=None)
@given(config=CONFIGS, args=TEXTS, version=st.sampled_from(cni.VERSIONS))
def test_every_reader_answers(config, args, version):
    obj = decoded(config)
    for read in (
        lambda: ipamconf.parse(obj, version, args),
        lambda: bridgeconf.parse(obj, args),
        lambda: bridgeconf.parse_for_delete(obj),
        lambda: flannelconf.render(flannelconf.delegate_config(flannelconf.parse(obj), ENV)),
        lambda: cniresult.read_previous(obj, version),
        lambda: cniresult.read(obj, version),
    ):
        with suppress(*REFUSED):
            read()


@settings(max_examples=100, deadline=None)
@given(config=CONFIGS, version=st.sampled_from(cni.VERSIONS), other=st.sampled_from(cni.VERSIONS))
def test_what_was_read_can_be_printed_in_every_dialect(config, version, other):
    obj = {**decoded(config), "cniVersion": version}
    try:
        printed = cniresult.render(cniresult.read(obj, version), other)
    except REFUSED:
        return
    assert cniresult.read(cnijson.load(printed), other) is not None


@given(data=st.binary(max_size=60))
def test_bytes_are_an_object_or_an_error(data):
    with suppress(JsonError):
        assert isinstance(cnijson.load(data), dict)


@given(text=st.text(max_size=20))
def test_names_are_taken_or_refused_and_never_a_path(text):
    for check in (cni.check_container_id, cni.check_ifname, cni.check_network_name):
        with suppress(CniError):
            check(text)
            assert "/" not in text
            assert text not in (".", "..")


@pytest.mark.parametrize("env", [{}, {"CNI_COMMAND": "ADD"}, {"CNI_CONTAINERID": "\udcff"}])
def test_an_environment_that_lacks_everything(env):
    with pytest.raises(CniError):
        cni.check_environment(env.get("CNI_COMMAND", ""), env)


def test_defaults_of_bridge():
    assert bridgeconf.parse({}, "") == BridgeConf()
